//! The programs that use QoSockets: `ontempo netvideo`, `ontempo tg`, `ontempo gateway`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ontempo_foundation::{Duration, MessageRate, Percent};
use ontempo_transport::{Congestion, CongestionName, Fingerprint};
use ontempo_udp::Dscp;

use super::deliver::{Admission, Credentials, congestion, with_parameters};
use super::wrap::FlowDirection;

/// The requested quality of service.
#[derive(Debug, Args)]
pub(crate) struct Quality {
    /// The specification: a TOML file, also with lower steps for a sender (`[[below]]`)
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// Service to reserve through this host's RSVP daemon
    #[arg(long, value_name = "SERVICE", default_value = "none")]
    pub(crate) reserve: Service,
    /// Fail if the reservation fails, rather than continue without
    #[arg(long)]
    pub(crate) must_reserve: bool,
    /// DSCP of the packets: 0 to 63, or a name such as af41 [default: what the network asks for with the
    /// reservation, else what fits the specification]
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
}

/// Output options.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputOptions {
    /// Print each event as a JSON document on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Also print a line for each message: number, bytes, time and delay (ns)
    #[arg(long, requires = "json")]
    pub(crate) messages: bool,
}

/// A reservable service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// Nothing
    None,
    /// As over an unloaded network (RFC 2211)
    ControlledLoad,
    /// Bounded delay (RFC 2212)
    Guaranteed,
}

#[derive(Debug, Args)]
pub(crate) struct Netvideo {
    #[command(subcommand)]
    pub(crate) command: NetvideoCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetvideoCommand {
    /// Send frames
    #[command(after_help = "\
Examples:
  ontempo netvideo send host.example:5004 --seconds 30
  ontempo netvideo send host.example:5004 --spec video.toml --reserve controlled-load
  ontempo netvideo send ontempo://host.example:5004/FINGERPRINT#TOKEN --json --messages")]
    Send {
        #[command(flatten)]
        receiver: Receiver,
        /// Frames a second
        #[arg(long, value_name = "RATE", default_value = "80 messages/s")]
        rate: MessageRate,
        /// Random variation of each interval, up to this share of it
        #[arg(long, value_name = "PERCENT", default_value = "0 %")]
        vary: Percent,
        /// Size of a frame in bytes
        #[arg(long, value_name = "N", default_value_t = 1_280, value_parser = clap::value_parser!(u32).range(1..=65_000))]
        size: u32,
        /// Duration in seconds
        #[arg(long, value_name = "N", default_value_t = 10)]
        seconds: u64,
        /// Send standard input, until its end, instead of a test pattern
        #[arg(long)]
        stdin: bool,
        #[command(flatten)]
        quality: Quality,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Receive the frames of one sender
    #[command(after_help = "\
Examples:
  ontempo netvideo receive --listen 0.0.0.0:5004
  ontempo netvideo receive --listen 0.0.0.0:5004 --spec video.toml --reserve controlled-load
  ontempo netvideo receive --listen 0.0.0.0:5004 --over quic")]
    Receive {
        #[command(flatten)]
        at: At,
        /// Write the frames to standard output, and events to standard error
        #[arg(long, conflicts_with = "json")]
        stdout: bool,
        #[command(flatten)]
        quality: Quality,
        #[command(flatten)]
        output: OutputOptions,
    },
}

/// The transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// TCP stream
    Tcp,
    /// UDP datagrams
    Udp,
    /// Units over QUIC, encrypted
    Quic,
}

/// The transport between two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BetweenGateways {
    /// QUIC, encrypted
    Quic,
    /// TCP, without authentication
    Tcp,
}

/// The receiver of messages, and the transport to it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Receiver {
    /// The receiver: a name or an address, and a port; over QUIC also the URL that it prints,
    /// ontempo://HOST:PORT/FINGERPRINT#TOKEN
    #[arg(value_name = "HOST:PORT|URL")]
    pub(crate) to: String,
    /// Transport of the messages; default: udp, with a URL quic
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) over: Option<Transport>,
    /// Over QUIC: the receiver's fingerprint, which it prints when it starts
    #[arg(long, value_name = "HEX", conflicts_with = "insecure")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Over QUIC: do not verify the receiver, and send it the token: only for tests
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Over QUIC: congestion control; default: pert
    #[arg(long, value_name = "NAME", value_parser = congestion())]
    congestion: Option<CongestionName>,
    /// Set a parameter of the congestion control, such as t-min=5ms; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "congestion")]
    set_congestion: Vec<String>,
}

impl Receiver {
    /// # Errors
    /// A parameter is unknown or out of range; the error names it and the range.
    pub(crate) fn congestion(&self) -> Result<Option<Congestion>, String> {
        self.congestion.map(|name| with_parameters(name, &self.set_congestion)).transpose()
    }
}

/// The address at which messages are received, and their transport.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Address to listen at
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: String,
    /// Transport of the messages
    #[arg(long, value_name = "TRANSPORT", default_value = "udp")]
    pub(crate) over: Transport,
    /// Over QUIC: file of certificate and key (PEM), created if missing; default: a new certificate
    /// at each start
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) admission: Admission,
}

#[derive(Debug, Args)]
pub(crate) struct Tg {
    #[command(subcommand)]
    pub(crate) command: TgCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TgCommand {
    /// Send messages
    #[command(after_help = "\
Example:
  ontempo tg send host.example:5005 --over tcp --rate '200 messages/s' --seconds 60")]
    Send {
        #[command(flatten)]
        receiver: Receiver,
        /// Messages a second
        #[arg(long, value_name = "RATE", default_value = "65.9 messages/s")]
        rate: MessageRate,
        /// Random variation of each interval, up to this share of it
        #[arg(long, value_name = "PERCENT", default_value = "0 %")]
        vary: Percent,
        /// Size of a message in bytes
        #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=65_000))]
        size: u32,
        /// Duration in seconds
        #[arg(long, value_name = "N", default_value_t = 10)]
        seconds: u64,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Receive the messages of one sender
    #[command(after_help = "\
Example:
  ontempo tg receive --listen 0.0.0.0:5005 --over tcp --json")]
    Receive {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Address to listen at: for TCP clients with --to, for the other gateway with --server
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: String,
    /// The other gateway: the URL that it prints, ontempo://HOST:PORT/FINGERPRINT#TOKEN, or a name or
    /// an address, and a port
    #[arg(
        long,
        value_name = "URL|HOST:PORT",
        conflicts_with = "server",
        required_unless_present = "server"
    )]
    pub(crate) to: Option<String>,
    /// The server to connect to
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,
    /// Carry UDP datagrams in place of TCP connections, at both gateways: a flow for each address that
    /// clients send from
    #[arg(long)]
    pub(crate) udp: bool,
    /// With --udp: a flow without a datagram for so long ends (RFC 4787: not below 2 min)
    #[arg(long, value_name = "TIME", default_value = "120 s", requires = "udp")]
    pub(crate) idle: Duration,
    /// Transport between the gateways
    #[arg(long, value_name = "TRANSPORT", default_value = "quic")]
    pub(crate) over: BetweenGateways,
    /// Over QUIC, with --to: the other gateway's fingerprint, which it prints when it starts
    #[arg(long, value_name = "HEX", conflicts_with_all = ["insecure", "server"])]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Over QUIC, with --to: do not verify the other gateway, and send it the token: only for tests
    #[arg(long, conflicts_with = "server")]
    pub(crate) insecure: bool,
    /// Over QUIC, with --server: file of certificate and key (PEM), created if missing; default: a new
    /// certificate at each start
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub(crate) identity: Option<PathBuf>,
    /// With --server and without a token a random one is made, and printed as part of the other
    /// gateway's command line.
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Relay for anybody who reaches the address: with --server over QUIC any gateway, without a token;
    /// else at an address other than a loopback
    #[arg(long)]
    pub(crate) anyone: bool,
    /// Over QUIC, with --server: also print the URL, with the token, as a QR code
    #[arg(long, conflicts_with = "to")]
    pub(crate) qr: bool,
    /// Direction that the specification applies to, as seen by the client
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) direction: FlowDirection,
    #[command(flatten)]
    pub(crate) quality: Quality,
    /// Print each event as a JSON document on a line
    #[arg(long)]
    pub(crate) json: bool,
}
