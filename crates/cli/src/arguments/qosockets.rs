//! The programs that use QoSockets: `ontempo netvideo`, `ontempo tg`, `ontempo gateway`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ontempo_foundation::{MessageRate, Percent};
use ontempo_transport::Fingerprint;

use super::wrap::FlowDirection;

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct Quality {
    /// The specification: a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// What this host's RSVP daemon is asked for
    #[arg(long, value_name = "SERVICE", default_value = "none")]
    pub(crate) reserve: Service,
    /// Fail where nothing is reserved, rather than go on without
    #[arg(long)]
    pub(crate) must_reserve: bool,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Printed {
    /// Print JSON, a line for each thing that happens
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a line for each message, too: its number, bytes, time and delay, in nanoseconds
    #[arg(long, requires = "json")]
    pub(crate) messages: bool,
}

/// A service of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// Nothing
    None,
    /// As over an unloaded network (RFC 2211)
    ControlledLoad,
    /// Within a bound of delay (RFC 2212)
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
  ontempo netvideo send host.example:5004 --over quic --fingerprint HEX --json --messages")]
    Send {
        #[command(flatten)]
        receiver: Receiver,
        /// Frames a second
        #[arg(long, value_name = "RATE", default_value = "80 messages/s")]
        rate: MessageRate,
        /// By how much each interval may be off that of the rate, at random
        #[arg(long, value_name = "PERCENT", default_value = "0 %")]
        vary: Percent,
        /// Bytes of a frame
        #[arg(long, value_name = "N", default_value_t = 1_280, value_parser = clap::value_parser!(u32).range(1..=65_000))]
        size: u32,
        /// Seconds to send for
        #[arg(long, value_name = "N", default_value_t = 10)]
        seconds: u64,
        /// Send what comes from standard input in place of a test pattern, until its end
        #[arg(long)]
        stdin: bool,
        #[command(flatten)]
        quality: Quality,
        #[command(flatten)]
        printed: Printed,
    },
    /// Receive the frames of one sender
    #[command(after_help = "\
Examples:
  ontempo netvideo receive --listen 0.0.0.0:5004
  ontempo netvideo receive --listen 0.0.0.0:5004 --spec video.toml --reserve controlled-load")]
    Receive {
        #[command(flatten)]
        at: At,
        /// Write the frames to standard output, and what is told to standard error
        #[arg(long, conflicts_with = "json")]
        stdout: bool,
        #[command(flatten)]
        quality: Quality,
        #[command(flatten)]
        printed: Printed,
    },
}

/// What carries messages.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Transport {
    /// A stream
    Tcp,
    /// Datagrams
    Udp,
    /// Units of QUIC, encrypted
    Quic,
}

/// The receiver of messages, and what carries them.
#[derive(Debug, Args)]
pub(crate) struct Receiver {
    /// The receiver: a name or an address, and a port
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// What carries the messages
    #[arg(long, value_name = "TRANSPORT", default_value = "udp")]
    pub(crate) over: Transport,
    /// Over QUIC: the receiver's fingerprint, which it prints when it starts
    #[arg(long, value_name = "HEX", conflicts_with = "insecure")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Over QUIC: trust whoever answers, and tell it the token: for tests
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Over QUIC: what the receiver wants to be known
    #[arg(long, value_name = "TEXT")]
    pub(crate) token: Option<String>,
}

/// Where messages come to, and what carries them.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Where to receive
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: String,
    /// What carries the messages
    #[arg(long, value_name = "TRANSPORT", default_value = "udp")]
    pub(crate) over: Transport,
    /// Over QUIC: keep certificate and key in this file (PEM), made where it is missing; without it
    /// they are made anew each time
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Over QUIC: what senders must know
    #[arg(long, value_name = "TEXT")]
    pub(crate) token: Option<String>,
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
        /// By how much each interval may be off that of the rate, at random
        #[arg(long, value_name = "PERCENT", default_value = "0 %")]
        vary: Percent,
        /// Bytes of a message
        #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=65_000))]
        size: u32,
        /// Seconds to send for
        #[arg(long, value_name = "N", default_value_t = 10)]
        seconds: u64,
        #[command(flatten)]
        printed: Printed,
    },
    /// Receive the messages of one sender
    #[command(after_help = "\
Example:
  ontempo tg receive --listen 0.0.0.0:5005 --over tcp --json")]
    Receive {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        printed: Printed,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Where connections come to: plain ones with --to, the other gateway's with --server
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: String,
    /// The other gateway
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with = "server",
        required_unless_present = "server"
    )]
    pub(crate) to: Option<String>,
    /// The server whose connections are carried
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,
    /// Which direction of a connection the specification is about, as its client sees it
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) direction: FlowDirection,
    #[command(flatten)]
    pub(crate) quality: Quality,
    /// Print JSON, a line for each thing that happens
    #[arg(long)]
    pub(crate) json: bool,
}
