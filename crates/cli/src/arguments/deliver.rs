//! `ontempo send` and `ontempo receive`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use ontempo_foundation::{Bytes, Duration};
use ontempo_transport::{Congestion, CongestionName, DeliveryOrder, Fingerprint, Reliability};
use ontempo_udp::Dscp;

/// Where media comes from or goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Datagrams at this address; its host may be missing.
    Udp(String),
    /// Standard input or output.
    Pipe,
    /// A file.
    File(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Pipe);
        }
        if let Some(address) = text.strip_prefix("udp://") {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            return match port {
                Some(_) => Ok(Self::Udp(address.to_owned())),
                None => Err("a port is missing: write udp://127.0.0.1:5000".to_owned()),
            };
        }
        match text.split_once("://") {
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some((scheme, _)) => {
                Err(format!("`{scheme}` is not known: write udp://HOST:PORT, - or a file"))
            }
            None if text.is_empty() => Err("write udp://HOST:PORT, - or a file".to_owned()),
            None => Ok(Self::File(text.into())),
        }
    }
}

/// In which order units are handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Handover {
    /// As they were sent
    InOrder,
    /// As they arrive
    OutOfOrder,
    /// Each after those that it depends on
    PartialOrder,
}

impl Handover {
    pub(crate) fn of_flow(self) -> DeliveryOrder {
        match self {
            Self::InOrder => DeliveryOrder::InOrder,
            Self::OutOfOrder => DeliveryOrder::OutOfOrder,
            Self::PartialOrder => DeliveryOrder::PartialOrder,
        }
    }
}

/// What becomes of lost units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Repair {
    /// Sent again until they arrive
    Full,
    /// Sent again until --latency is over
    Deadline,
    /// Not sent again
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

/// A congestion control and its parameters.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// Congestion control
    #[arg(long, value_name = "NAME", default_value = "pert", value_parser = congestion())]
    pub(crate) congestion: CongestionName,
    /// Set a parameter of the congestion control, as in t-min=5ms; may be given several times. Names,
    /// units and ranges are those of the scenario file
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set_congestion: Vec<String>,
}

impl Control {
    /// # Errors
    /// Names the parameter that is unknown or out of its range, and what would be right.
    pub(crate) fn chosen(&self) -> Result<Congestion, String> {
        let mut set = Vec::new();
        for text in &self.set_congestion {
            let Some((name, value)) = text.split_once('=') else {
                let what = format!("--set-congestion {text}: write NAME=VALUE, such as t-min=5ms");
                return Err(what);
            };
            set.push((name.trim(), value.trim()));
        }
        let name = self.congestion;
        name.with(set)
            .map_err(|error| format!("--congestion {}: --set-congestion {error}", name.name()))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Where the media comes from: udp://:PORT or udp://ADDRESS:PORT, a file, or - for standard input
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Place,
    /// The receiver: a name or an address, and a port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// The receiver's fingerprint, which it prints when it starts
    #[arg(long, value_name = "HEX", conflicts_with_all = ["trust", "insecure"])]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Trust receivers whose certificate is signed by one of this file's (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) trust: Option<PathBuf>,
    /// Trust whoever answers, and tell it the token: for tests
    #[arg(long)]
    pub(crate) insecure: bool,
    /// What the receiver wants to be known
    #[arg(long, value_name = "TEXT")]
    pub(crate) token: Option<String>,
    /// In which order units are handed on
    #[arg(long, value_name = "ORDER", default_value = "in-order")]
    pub(crate) delivery: Handover,
    /// What becomes of lost units; full for files and pipes, deadline for udp:// where not given
    #[arg(long, value_name = "KIND")]
    pub(crate) reliability: Option<Repair>,
    /// By when units are wanted, and how much later than it came the media is played
    #[arg(long, value_name = "TIME", default_value = "200 ms", value_parser = latency)]
    pub(crate) latency: Duration,
    #[command(flatten)]
    pub(crate) congestion: Control,
    /// DSCP of the packets: 0 to 63, or a name such as af41
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// Send a transport stream from a file or pipe at its own pace, as if it were live
    #[arg(long)]
    pub(crate) realtime: bool,
    /// What may wait for the network; of a udp:// source more is dropped, what is least wanted first
    #[arg(long, value_name = "SIZE", default_value = "8 MB")]
    pub(crate) buffer: Bytes,
    /// How long a lost receiver is looked for
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub(crate) give_up: Duration,
    /// Write a trace (qlog) of each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// Print one JSON document a second, a line each
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Where to listen: at this port of every address of this machine, or at one address
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) listen: String,
    /// Where the media goes to: udp://HOST:PORT, a file, or - for standard output
    #[arg(long, value_name = "SINK")]
    pub(crate) to: Place,
    /// Keep certificate and key in this file (PEM), made where it is missing; without it they are
    /// made anew each time
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// What senders must know
    #[arg(long, value_name = "TEXT")]
    pub(crate) token: Option<String>,
    /// How much later than it came the media is played; the sender's wish where not given
    #[arg(long, value_name = "TIME", value_parser = latency)]
    pub(crate) latency: Option<Duration>,
    /// End with the first stream, as with a file or pipe
    #[arg(long)]
    pub(crate) once: bool,
    /// DSCP of the packets: 0 to 63, or a name such as af41
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// Write a trace (qlog) of each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// Print one JSON document a second, a line each
    #[arg(long)]
    pub(crate) json: bool,
}

fn latency(text: &str) -> Result<Duration, String> {
    let span: Duration = text.parse().map_err(|error| format!("{error}"))?;
    let most = Duration::from_secs(60);
    if span > most { Err(format!("at most {most}")) } else { Ok(span) }
}

fn congestion() -> impl TypedValueParser<Value = CongestionName> {
    let names = PossibleValuesParser::new(CongestionName::ALL.map(CongestionName::name));
    names.try_map(|text| text.parse::<CongestionName>())
}
