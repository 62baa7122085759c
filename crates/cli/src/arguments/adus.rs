//! `ontempo adus`.

use clap::{Args, Subcommand};
use ontempo_foundation::{Bytes, Duration};

use super::deliver::{Control, Credentials, OrderArgument};

#[derive(Debug, Args)]
pub(crate) struct Adus {
    #[command(subcommand)]
    pub(crate) command: AdusCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdusCommand {
    /// Send units of one size, and print when each was sent
    #[command(after_help = "\
Example:
  ontempo adus send host.example:4435 --token-file token --count 500 --delivery out-of-order")]
    Send(AdusSend),
    /// Receive units, process each for some time, and print when it arrived and was processed
    #[command(after_help = "\
Example:
  ontempo adus receive --listen :4435 --token-file token --processing '12 ms'")]
    Receive(AdusReceive),
}

#[derive(Debug, Args)]
pub(crate) struct AdusSend {
    /// The receiver: a name or an address, and a port
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// Number of units (rr3216: N)
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) count: u64,
    /// Size of a unit
    #[arg(long, value_name = "SIZE", default_value = "512 B")]
    pub(crate) size: Bytes,
    /// Interval between units (rr3216: R); 0 s: as fast as the transport accepts them
    #[arg(long, value_name = "TIME", default_value = "10 ms")]
    pub(crate) interval: Duration,
    /// Delivery order at the receiver
    #[arg(long, value_name = "ORDER", default_value = "in-order")]
    pub(crate) delivery: OrderArgument,
    #[command(flatten)]
    pub(crate) congestion: Control,
    /// No congestion control and no pacing: only the receiver's window limits the sender. Only for
    /// a path without other traffic
    #[arg(long)]
    pub(crate) uncontrolled: bool,
    /// Packets per acknowledgement (rr3216: A), also when there are gaps; default: chosen by the
    /// transport
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) ack_every: Option<u64>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
}

#[derive(Debug, Args)]
pub(crate) struct AdusReceive {
    /// Port to listen at, on all addresses of this machine or on one
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) listen: String,
    /// Processing time of a unit in the application (rr3216: Ta)
    #[arg(long, value_name = "TIME", default_value = "10 ms")]
    pub(crate) processing: Duration,
    /// Receive window: bytes of units in flight or waiting for the application (rr3216: W units);
    /// default: chosen by the transport
    #[arg(long, value_name = "SIZE")]
    pub(crate) window: Option<Bytes>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Admit any sender, without a token, at an address that others reach
    #[arg(long, conflicts_with_all = ["token", "token_file"])]
    pub(crate) anyone: bool,
}
