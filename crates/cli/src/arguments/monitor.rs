//! `ontempo monitor`, `ontempo top` and `ontempo export`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ontempo_foundation::Duration;
use ontempo_monitor::agentx::Address;

#[derive(Debug, Args)]
pub(crate) struct Monitor {
    /// Print a JSON document per interval, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print once and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Refresh interval
    #[arg(long, value_name = "TIME", default_value = "500 ms")]
    pub(crate) every: Duration,
    /// Read reports only from this folder, which must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print a JSON document per interval, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print once and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Refresh interval, 100 ms at least; figures are written once a second
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    pub(crate) every: Duration,
    /// Order of rows, which the key s changes
    #[arg(long, value_name = "COLUMN", value_enum, default_value = "rate")]
    pub(crate) sort: SortBy,
    /// Socket of the RSVP daemon; default: $ONTEMPO_RSVP_SOCKET, or /run/ontempo-rsvp.sock
    #[arg(long, value_name = "PATH")]
    pub(crate) rsvp: Option<PathBuf>,
    /// Read reports only from this folder, which must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// The highest rate first
    Rate,
    /// The highest loss first
    Loss,
    /// The most late units, or the longest delay, first
    Late,
    /// By name
    Name,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("to").required(true).multiple(true))]
pub(crate) struct Export {
    /// Address of the AgentX master agent: a path, or tcp:HOST:PORT
    #[arg(
        long, value_name = "WHERE", group = "to", num_args = 0..=1, require_equals = true,
        default_missing_value = "/var/agentx/master"
    )]
    pub(crate) agentx: Option<Address>,
    /// With --agentx: let managers that snmpd admits set ontempoQosSocketHeldRung, which holds a sender at a
    /// rung of its ladder. Sockets of other users obey only root
    #[arg(long, requires = "agentx")]
    pub(crate) allow_set: bool,
    /// Serve http://ADDRESS/metrics: up to 64 connections at once, 10 s each
    #[arg(long, value_name = "ADDRESS:PORT", group = "to")]
    pub(crate) prometheus: Option<SocketAddr>,
    /// With --prometheus: a name by which clients reach this host, beside localhost and addresses;
    /// may be given several times
    #[arg(long = "host-name", value_name = "NAME", requires = "prometheus")]
    pub(crate) host_names: Vec<String>,
    /// Socket of the RSVP daemon; default: $ONTEMPO_RSVP_SOCKET, or /run/ontempo-rsvp.sock
    #[arg(long, value_name = "PATH")]
    pub(crate) rsvp: Option<PathBuf>,
    /// Read reports only from this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}
