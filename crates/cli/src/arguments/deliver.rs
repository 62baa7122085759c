//! `ontempo send` and `ontempo receive`.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU8;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{
    OsStringValueParser, PossibleValuesParser, TypedValueParser, ValueParser, ValueParserFactory,
};
use clap::{Args, ValueEnum};
use ontempo_foundation::{Bytes, Duration};
use ontempo_session::StreamName;
use ontempo_session::latency::GRACE;
use ontempo_session::paths::PathMode;
use ontempo_transport::{Congestion, CongestionName, DeliveryOrder, Fingerprint, Reliability};
use ontempo_udp::Dscp;

/// The source or target of media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Datagrams at this address; its host may be missing.
    Udp(String),
    /// RTP at this address; its host may be missing. RTCP has the next port.
    Rtp(String),
    /// Standard input or output.
    Pipe,
    /// A file.
    File(PathBuf),
}

impl Place {
    /// True for datagrams of the network, which cannot wait.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::Rtp(_))
    }
}

impl TryFrom<OsString> for Place {
    type Error = String;

    /// The name of a file is one of the system's, in whatever characters; all others are text.
    fn try_from(written: OsString) -> Result<Self, String> {
        match written.to_str() {
            Some(text) => text.parse(),
            None => match written.as_bytes().strip_prefix(b"file://") {
                Some(path) => Ok(Self::File(OsStr::from_bytes(path).into())),
                None => Ok(Self::File(written.into())),
            },
        }
    }
}

impl ValueParserFactory for Place {
    type Parser = ValueParser;

    fn value_parser() -> ValueParser {
        OsStringValueParser::new().try_map(Self::try_from).into()
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Pipe);
        }
        let port = |address: &str| address.rsplit_once(':')?.1.parse::<u16>().ok();
        if let Some(address) = text.strip_prefix("udp://") {
            return match port(address) {
                Some(1..) => Ok(Self::Udp(address.to_owned())),
                _ => {
                    Err("a port is missing: write one from 1 to 65535, as in udp://127.0.0.1:5000"
                        .to_owned())
                }
            };
        }
        if let Some(address) = text.strip_prefix("rtp://") {
            // RTCP needs the port after it.
            return match port(address) {
                Some(port) if (1..u16::MAX).contains(&port) => Ok(Self::Rtp(address.to_owned())),
                _ => Err("write a port from 1 to 65534, as in rtp://127.0.0.1:5004; RTCP has the \
                          port after it"
                    .to_owned()),
            };
        }
        match text.split_once("://") {
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some((scheme, _)) => Err(format!(
                "`{scheme}` is not known: write udp://HOST:PORT, rtp://HOST:PORT, - or a file"
            )),
            None if text.is_empty() => {
                Err("write udp://HOST:PORT, rtp://HOST:PORT, - or a file".to_owned())
            }
            None => Ok(Self::File(text.into())),
        }
    }
}

/// Delivery order of units.
#[allow(clippy::enum_variant_names)] // the variants are the option's values
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArgument {
    /// In the order of sending
    InOrder,
    /// As they arrive
    OutOfOrder,
    /// Each unit after those that it depends on
    PartialOrder,
}

impl OrderArgument {
    pub(crate) fn of_flow(self) -> DeliveryOrder {
        match self {
            Self::InOrder => DeliveryOrder::InOrder,
            Self::OutOfOrder => DeliveryOrder::OutOfOrder,
            Self::PartialOrder => DeliveryOrder::PartialOrder,
        }
    }
}

/// Reliability of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Repair {
    /// Retransmitted until acknowledged
    Full,
    /// Retransmitted until the deadline (--latency)
    Deadline,
    /// Never retransmitted
    None,
}

impl Repair {
    pub(crate) fn of_flow(self) -> Reliability {
        match self {
            Self::Full => Reliability::Full,
            Self::Deadline => Reliability::Deadline,
            Self::None => Reliability::None,
        }
    }
}

/// How a stream uses several paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathsArgument {
    /// Each unit goes over all of them; the first copy counts
    Duplicate,
    /// The first that is there carries; another takes over when it is silent
    Failover,
    /// Each unit goes over the one on which it is expected first
    Balance,
}

impl PathsArgument {
    pub(crate) fn of_session(self) -> PathMode {
        match self {
            Self::Duplicate => PathMode::Duplicate,
            Self::Failover => PathMode::Failover,
            Self::Balance => PathMode::Balance,
        }
    }
}

/// A congestion control and its parameters.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// Congestion control; default: bbr, which keeps its rate where losses have another cause than a
    /// queue (variant=media); of adus pert
    #[arg(long, value_name = "NAME", value_parser = congestion())]
    pub(crate) congestion: Option<CongestionName>,
    /// Set a parameter of the congestion control, such as t-min=5ms; may be given several times.
    /// Names, units and ranges as in the scenario file
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set_congestion: Vec<String>,
}

impl Control {
    /// # Errors
    /// A parameter is unknown or out of range; the error names it and the range.
    pub(crate) fn or(&self, default: CongestionName) -> Result<Congestion, String> {
        with_parameters(self.congestion.unwrap_or(default), &self.set_congestion)
    }
}

/// A congestion control over UDP with the values of `--set-congestion`.
pub(super) fn with_parameters(name: CongestionName, set: &[String]) -> Result<Congestion, String> {
    let mut values = Vec::new();
    for text in set {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("--set-congestion {text}: write NAME=VALUE, such as t-min=5ms"));
        };
        values.push((name.trim(), value.trim()));
    }
    name.over_udp(&values)
        .map_err(|error| format!("--congestion {}: --set-congestion {error}", name.name()))
}

/// The token. Other users of this machine see arguments in ps, but neither a file of mode 600 nor
/// the environment.
#[derive(Clone, Debug, Args)]
pub(crate) struct Credentials {
    /// Token that senders present, which other users see in ps; better --token-file or
    /// $ONTEMPO_TOKEN
    #[arg(long, value_name = "TEXT", conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// File with the token, of mode 600; a receiver creates it if it is missing
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Credentials {
    /// True if there is a token or its file on the command line.
    pub(crate) fn are_given(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }
}

/// Whom a receiver admits.
#[derive(Debug, Args)]
pub(crate) struct Admission {
    /// Without a token a random one is made, and printed as part of the sender's command line.
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Admit any sender, without a token
    #[arg(long, conflicts_with_all = ["token", "token_file"])]
    pub(crate) anyone: bool,
    /// Also print the receiver's URL, with the token, as a QR code
    #[arg(long)]
    pub(crate) qr: bool,
}

impl Admission {
    /// True if any of its options is set.
    pub(crate) fn is_asked(&self) -> bool {
        self.credentials.are_given() || self.anyone || self.qr
    }
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The source: udp://:PORT or udp://ADDRESS:PORT, rtp:// for RTP with RTCP at the next port, a
    /// file, or - for standard input
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Place,
    /// With rtp://: the encoder's session description (ffmpeg -sdp_file FILE), carried to the receiver;
    /// read once it is there, and when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) sdp: Option<PathBuf>,
    /// The receiver: the URL that it prints, ontempo://HOST:PORT/FINGERPRINT#TOKEN, or a name or
    /// an address, and a port. Given several times: addresses of the same receiver, each a path (--paths)
    #[arg(long, value_name = "URL|HOST:PORT", required = true)]
    pub(crate) to: Vec<String>,
    /// Address to send from; given several times, each a path, in the order of --to
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Vec<String>,
    /// How several paths are used, up to four of --to or --bind; default: duplicate
    #[arg(long, value_name = "MODE")]
    pub(crate) paths: Option<PathsArgument>,
    /// The receiver's fingerprint, which it prints when it starts
    #[arg(long, value_name = "HEX", conflicts_with_all = ["trust", "insecure"])]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Accept receivers whose certificate is signed by a CA certificate in this file (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) trust: Option<PathBuf>,
    /// Do not verify the receiver, and send it the token: only for tests
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Name of the stream at a relay, which carries several
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<StreamName>,
    /// Delivery order of units
    #[arg(long, value_name = "ORDER", default_value = "in-order")]
    pub(crate) delivery: OrderArgument,
    /// Reliability; default: full for files and pipes, deadline for udp:// and rtp://
    #[arg(long, value_name = "KIND")]
    pub(crate) reliability: Option<Repair>,
    /// Deadline of units, and delay from the source to the receiver's output, without the fastest
    /// transit; default: four times the measured round trip, 120 ms to 5 s
    #[arg(long, value_name = "TIME", value_parser = latency)]
    pub(crate) latency: Option<Duration>,
    /// How much longer the receiver waits for what is missing, and units live; 0: the output keeps the
    /// latency exactly
    #[arg(long, value_name = "TIME", default_value_t = GRACE, value_parser = latency)]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) congestion: Control,
    /// DSCP of the packets: 0 to 63, or a name such as af41
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// Send a transport stream (MPEG-TS) from a file or pipe at its own rate, as if live
    #[arg(long)]
    pub(crate) realtime: bool,
    /// Send buffer; on overflow a udp:// source drops units, those of the lowest priority first
    #[arg(long, value_name = "SIZE", default_value = "8 MB")]
    pub(crate) buffer: Bytes,
    /// Time after which reconnecting to a lost receiver is given up
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub(crate) give_up: Duration,
    /// Write a trace (qlog) of each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// Print events, and figures each second, as JSON documents, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Port to listen at, on all addresses of this machine or on one
    #[arg(long, value_name = "[ADDRESS]:PORT", required_unless_present = "from")]
    pub(crate) listen: Option<String>,
    /// The relay to call instead: the URL that it prints, ontempo://HOST:PORT/FINGERPRINT#TOKEN, or
    /// a name or an address, and a port
    #[arg(long, value_name = "URL|HOST:PORT", conflicts_with_all = ["listen", "identity", "anyone", "qr"])]
    pub(crate) from: Option<String>,
    /// The relay's fingerprint, which it prints when it starts
    #[arg(long, value_name = "HEX", requires = "from")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Name of the stream at the relay, if it has one
    #[arg(long, value_name = "NAME", requires = "from")]
    pub(crate) stream: Option<StreamName>,
    /// The target: udp://HOST:PORT, rtp://HOST:PORT with RTCP to the next port, a file, or - for
    /// standard output
    #[arg(long, value_name = "SINK", required_unless_present = "serve", conflicts_with = "serve")]
    pub(crate) to: Option<Place>,
    /// With rtp://: write the sender's session description (its --sdp) for the address of --to into this
    /// file: ffplay -protocol_whitelist file,udp,rtp FILE
    #[arg(long, value_name = "FILE", requires = "to")]
    pub(crate) sdp: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// File of certificate and key (PEM), created if missing; default: a new certificate at each
    /// start
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) admission: Admission,
    /// Replace the file of --to, and that of --sdp, if it exists
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Delay from the source to the output, without the fastest transit; default: the sender's
    #[arg(long, value_name = "TIME", value_parser = latency)]
    pub(crate) latency: Option<Duration>,
    /// Exit after the first stream, as with a file or pipe
    #[arg(long)]
    pub(crate) once: bool,
    /// With a file, a pipe or --once: time after which a lost sender is no longer awaited
    #[arg(long, value_name = "TIME", default_value = "90 s")]
    pub(crate) give_up: Duration,
    /// DSCP of the packets: 0 to 63, or a name such as af41
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// Write a trace (qlog) of each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// Print events, and figures each second, as JSON documents, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Receive {
    /// An option of a relay's stream, given without a relay.
    pub(crate) fn without_relay(&self) -> Option<&'static str> {
        let of_relay =
            [(self.stream.is_some(), "--stream"), (self.fingerprint.is_some(), "--fingerprint")];
        let given = of_relay.into_iter().find(|(is_given, _)| *is_given && self.from.is_none());
        given.map(|(_, option)| option)
    }
}

/// A page for browsers.
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// Serve a page on which browsers show the stream, over HTTPS and WebTransport; over plain HTTP at
    /// the loopback. Of receive: in place of --to
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) serve: Option<String>,
    /// The page's certificate with its chain (PEM); default: one is made, and the page knows its hash
    #[arg(long, value_name = "FILE", requires = "serve", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// The private key of --certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Another origin whose pages may show the stream, such as `https://example.org`; may be given several
    /// times
    #[arg(long, value_name = "ORIGIN", requires = "serve", value_parser = origin)]
    pub(crate) allow_origin: Vec<String>,
}

/// The page of a receiver, and who may watch there.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) page: Page,
    /// File with the token of the page's viewers, of mode 600, created if it is missing; default: a new
    /// token at each start, which is printed
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub(crate) viewers_token_file: Option<PathBuf>,
    /// Viewers of the page at a time; default: 50
    #[arg(long, value_name = "COUNT", requires = "serve", value_parser = browsers())]
    pub(crate) viewers: Option<u32>,
}

impl Serve {
    /// An option of the page that stands without `serve`. The parser overlooks it beside --to, which excludes
    /// `serve`.
    pub(crate) fn without_page(&self) -> Option<&'static str> {
        let given = [
            (self.page.certificate.is_some(), "--certificate"),
            (self.viewers_token_file.is_some(), "--viewers-token-file"),
            (self.viewers.is_some(), "--viewers"),
            (!self.page.allow_origin.is_empty(), "--allow-origin"),
        ];
        let is_missing = self.page.serve.is_none();
        given.into_iter().find(|(is_given, _)| *is_given && is_missing).map(|(_, option)| option)
    }
}

/// Maximum viewers of a page.
pub(crate) const MAX_BROWSERS: u32 = 1_000;

fn browsers() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MAX_BROWSERS))
}

fn origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@']);
    match host.filter(|host| is_host(host)) {
        Some(_) => Ok(text.to_ascii_lowercase()),
        None => Err("write a scheme and a host, as in https://example.org".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Relay {
    /// Port to listen at, on all addresses of this machine or on one
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) listen: String,
    /// File of certificate and key (PEM), created if missing; default: a new certificate at each
    /// start
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// File with the token of viewers, of mode 600, created if it is missing; default: a new token at
    /// each start, which is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) viewers_token_file: Option<PathBuf>,
    /// Viewers at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2_000, value_parser = places())]
    pub(crate) viewers: u32,
    /// Viewers at a time behind one address; default: a quarter of --viewers
    #[arg(long, value_name = "COUNT", value_parser = places())]
    pub(crate) viewers_of_host: Option<u32>,
    /// Streams at a time, each with a name of its own (--stream)
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = places())]
    pub(crate) streams: u32,
    /// Units that viewers have not acknowledged or that are kept for new ones, together; each counts once
    #[arg(long, value_name = "SIZE", default_value = "128 MB")]
    pub(crate) memory: Bytes,
    /// Threads among which sources and viewers are spread, 1 to 64
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = threads)]
    pub(crate) threads: NonZeroU8,
    #[command(flatten)]
    pub(crate) congestion: Control,
    /// DSCP of the packets: 0 to 63, or a name such as af41
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    #[command(flatten)]
    pub(crate) page: Page,
    /// Name of the stream that the page of --serve shows; default: the stream without a name
    #[arg(long, value_name = "NAME", requires = "serve")]
    pub(crate) serve_stream: Option<StreamName>,
    /// Print a JSON document a second, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

fn places() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=20_000)
}

fn threads(text: &str) -> Result<NonZeroU8, String> {
    let count = text.parse::<NonZeroU8>().ok().filter(|count| count.get() <= 64);
    count.ok_or_else(|| "a number from 1 to 64".to_owned())
}

fn latency(text: &str) -> Result<Duration, String> {
    let span: Duration = text.parse().map_err(|error| format!("{error}"))?;
    let max = Duration::from_secs(60);
    if span > max { Err(format!("at most {max}")) } else { Ok(span) }
}

pub(super) fn congestion() -> impl TypedValueParser<Value = CongestionName> {
    let names = PossibleValuesParser::new(CongestionName::ALL.map(CongestionName::name));
    names.try_map(|text| text.parse::<CongestionName>())
}
