//! `ontempo rsvpd` and `ontempo rsvp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ontempo_foundation::{Bytes, Duration, Rate};

use super::Json;

#[derive(Debug, Args)]
pub(crate) struct Rsvpd {
    /// The configuration: the interfaces that speak RSVP, with their rates
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only say whether the configuration can be
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rsvp {
    #[command(subcommand)]
    pub(crate) command: RsvpCommand,
    /// Where the daemon listens; $ONTEMPO_RSVP_SOCKET or /run/ontempo-rsvp.sock where not given
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RsvpCommand {
    /// List sessions, reservations and classes of this host's daemon
    #[command(after_help = "\
Examples:
  ontempo rsvp status
  ontempo rsvp status --json | jq '.interfaces[].reserved'")]
    Status(Json),
    /// Announce a flow of this host, until Ctrl-C, and tell what is reserved for it
    #[command(after_help = "\
What is announced is the token bucket of the flow's packets, with their IP headers.

Examples:
  ontempo rsvp send 10.0.0.3:5004 --from 10.0.0.2:4000 --rate '600 kbit/s' --burst '4000 B'
  ontempo rsvp send '[fd00::3]:5004' --from '[fd00::2]:4000' --rate '600 kbit/s' --burst '4000 B'")]
    Send(Announce),
    /// Reserve for flows to this host, until Ctrl-C, and tell what becomes of it
    #[command(after_help = "\
Styles: ff, one reservation for each --sender; se, one that the --senders share; wf, one that all \
senders share. Without --sender it is wf, with --sender ff.

Examples:
  ontempo rsvp reserve 10.0.0.3:5004 --sender 10.0.0.2:4000 --rate '600 kbit/s' --burst '4000 B'
  ontempo rsvp reserve 10.0.0.3:5004 --style wf --rate '1 Mbit/s' --burst '4000 B'
  ontempo rsvp reserve 10.0.0.3:5004 --rate '600 kbit/s' --burst '4000 B' --guaranteed '800 kbit/s'")]
    Reserve(Reserve),
}

/// A token bucket.
#[derive(Clone, Debug, Args)]
pub(crate) struct Bucket {
    /// Mean rate of the packets
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,
    /// What may come at once
    #[arg(long, value_name = "BYTES")]
    pub(crate) burst: Bytes,
    /// Peak rate; unbounded where not given
    #[arg(long, value_name = "RATE")]
    pub(crate) peak: Option<Rate>,
    /// Smaller packets count as this
    #[arg(long, value_name = "BYTES", default_value = "64 B")]
    pub(crate) smallest: Bytes,
    /// The largest packet
    #[arg(long, value_name = "BYTES", default_value = "1500 B")]
    pub(crate) largest: Bytes,
}

/// How long, and how it is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Told {
    /// The flow's protocol: udp, tcp or a number
    #[arg(long, value_name = "NAME", default_value = "udp", value_parser = protocol)]
    pub(crate) protocol: u8,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) span: Option<Duration>,
    /// Print each event as a JSON document on a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Announce {
    /// Where the flow goes
    #[arg(value_name = "ADDRESS:PORT")]
    pub(crate) destination: SocketAddr,
    /// Where its packets come from; port 0 stands for any
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) from: SocketAddr,
    #[command(flatten)]
    pub(crate) bucket: Bucket,
    #[command(flatten)]
    pub(crate) told: Told,
}

#[derive(Debug, Args)]
pub(crate) struct Reserve {
    /// Where the flows go: an address of this host
    #[arg(value_name = "ADDRESS:PORT")]
    pub(crate) destination: SocketAddr,
    /// Who sends; may be given several times
    #[arg(long = "sender", value_name = "ADDRESS:PORT")]
    pub(crate) senders: Vec<SocketAddr>,
    /// Which senders share a reservation
    #[arg(long, value_name = "STYLE")]
    pub(crate) style: Option<ReserveStyle>,
    #[command(flatten)]
    pub(crate) bucket: Bucket,
    /// Ask for guaranteed service at this rate, in place of controlled load
    #[arg(long, value_name = "RATE")]
    pub(crate) guaranteed: Option<Rate>,
    #[command(flatten)]
    pub(crate) told: Told,
}

/// Which senders share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReserveStyle {
    /// Fixed filter: one for each sender
    Ff,
    /// Shared explicit: one for those named
    Se,
    /// Wildcard: one for all
    Wf,
}

fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "udp" => Ok(17),
        "tcp" => Ok(6),
        _ => text.parse().map_err(|_| "udp, tcp or a number from 0 to 255 is needed".to_owned()),
    }
}
