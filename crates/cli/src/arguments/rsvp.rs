//! `ontempo rsvpd` and `ontempo rsvp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ontempo_foundation::{Bytes, Duration, Rate};

use super::Json;

#[derive(Debug, Args)]
pub(crate) struct Rsvpd {
    /// The configuration file: the interfaces with RSVP and their rates
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Serve flows of other hosts on interfaces without a key, too: anybody on such a network can
    /// then make and end reservations
    #[arg(long)]
    pub(crate) trust_network: bool,
    /// Only check the configuration file, and print what it means
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rsvp {
    #[command(subcommand)]
    pub(crate) command: RsvpCommand,
    /// Socket of the RSVP daemon; default: $ONTEMPO_RSVP_SOCKET, or /run/ontempo-rsvp.sock
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RsvpCommand {
    /// List sessions, reservations and classes of this host's daemon
    #[command(after_help = "\
Examples:
  ontempo rsvp status
  ontempo rsvp status --watch
  ontempo rsvp status --json | jq '.interfaces[].reserved'")]
    Status(StatusOptions),
    /// Send PATH for a flow of this host until Ctrl-C, and print the reservations for it
    #[command(after_help = "\
The token bucket (TSpec) counts the packets with their IP headers.

Examples:
  ontempo rsvp send 10.0.0.3:5004 --from 10.0.0.2:4000 --rate '600 kbit/s' --burst '4000 B'
  ontempo rsvp send '[fd00::3]:5004' --from '[fd00::2]:4000' --rate '600 kbit/s' --burst '4000 B'")]
    Send(Announce),
    /// Send RESV for flows to this host until Ctrl-C, and print confirmations and errors
    #[command(after_help = "\
Styles: ff (fixed filter), one reservation for each --sender; se (shared explicit), one for all \
--senders; wf (wildcard filter), one for all senders. Default: ff with --sender, wf without.

Examples:
  ontempo rsvp reserve 10.0.0.3:5004 --sender 10.0.0.2:4000 --rate '600 kbit/s' --burst '4000 B'
  ontempo rsvp reserve 10.0.0.3:5004 --style wf --rate '1 Mbit/s' --burst '4000 B'
  ontempo rsvp reserve 10.0.0.3:5004 --rate '600 kbit/s' --burst '4000 B' --guaranteed '800 kbit/s'")]
    Reserve(Reserve),
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) json: Json,
    /// Print it again and again until Ctrl-C, once in this time; a daemon that restarts is waited for
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1 s")]
    pub(crate) watch: Option<Duration>,
}

/// A TSpec: a token bucket with a peak rate.
#[derive(Clone, Debug, Args)]
pub(crate) struct Bucket {
    /// Token rate r of the packets
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,
    /// Bucket depth b
    #[arg(long, value_name = "BYTES")]
    pub(crate) burst: Bytes,
    /// Peak rate p; default: unbounded
    #[arg(long, value_name = "RATE")]
    pub(crate) peak: Option<Rate>,
    /// Minimum policed unit m: smaller packets count as this size
    #[arg(long, value_name = "BYTES", default_value = "64 B")]
    pub(crate) smallest: Bytes,
    /// Maximum packet size M
    #[arg(long, value_name = "BYTES", default_value = "1500 B")]
    pub(crate) largest: Bytes,
}

/// Protocol of the flow, duration and output.
#[derive(Clone, Debug, Args)]
pub(crate) struct FlowOptions {
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
    /// Destination of the flow
    #[arg(value_name = "ADDRESS:PORT")]
    pub(crate) destination: SocketAddr,
    /// Source of its packets; port 0 is any port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) from: SocketAddr,
    #[command(flatten)]
    pub(crate) bucket: Bucket,
    #[command(flatten)]
    pub(crate) options: FlowOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Reserve {
    /// Destination of the flows: an address of this host
    #[arg(value_name = "ADDRESS:PORT")]
    pub(crate) destination: SocketAddr,
    /// Filterspec: a sender; may be given several times
    #[arg(long = "sender", value_name = "ADDRESS:PORT")]
    pub(crate) senders: Vec<SocketAddr>,
    /// Reservation style
    #[arg(long, value_name = "STYLE")]
    pub(crate) style: Option<ReserveStyle>,
    #[command(flatten)]
    pub(crate) bucket: Bucket,
    /// Request guaranteed service with this rate R, in place of controlled load
    #[arg(long, value_name = "RATE")]
    pub(crate) guaranteed: Option<Rate>,
    #[command(flatten)]
    pub(crate) options: FlowOptions,
}

/// A reservation style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReserveStyle {
    /// Fixed filter: one reservation for each sender
    Ff,
    /// Shared explicit: one reservation for the senders given
    Se,
    /// Wildcard filter: one reservation for all senders
    Wf,
}

fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "udp" => Ok(17),
        "tcp" => Ok(6),
        _ => text.parse().map_err(|_| "udp, tcp or a number from 0 to 255 is needed".to_owned()),
    }
}
