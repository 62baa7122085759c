//! `ontempo adus`.

use clap::{Args, Subcommand};
use ontempo_foundation::{Bytes, Duration};

use super::deliver::{Control, Handover};

#[derive(Debug, Args)]
pub(crate) struct Adus {
    #[command(subcommand)]
    pub(crate) command: AdusCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdusCommand {
    /// Send units of one size, and print when each left
    #[command(after_help = "\
Example:
  ontempo adus send host.example:4435 --count 500 --delivery out-of-order")]
    Send(AdusSend),
    /// Receive them, process each for some time, and print when each came and was done
    #[command(after_help = "\
Example:
  ontempo adus receive --listen :4435 --processing '12 ms'")]
    Receive(AdusReceive),
}

#[derive(Debug, Args)]
pub(crate) struct AdusSend {
    /// The receiver: a name or an address, and a port
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// How many units (rr3216: N)
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) count: u64,
    /// Bytes of a unit
    #[arg(long, value_name = "SIZE", default_value = "512 B")]
    pub(crate) size: Bytes,
    /// Time from a unit to the next (rr3216: R); 0 s: as the transport takes them
    #[arg(long, value_name = "TIME", default_value = "10 ms")]
    pub(crate) interval: Duration,
    /// In which order the receiver's application is given them
    #[arg(long, value_name = "ORDER", default_value = "in-order")]
    pub(crate) delivery: Handover,
    #[command(flatten)]
    pub(crate) congestion: Control,
    /// No congestion control and no pacing: the receiver's window alone holds units back. Only for a
    /// path that is wholly one's own
    #[arg(long)]
    pub(crate) uncontrolled: bool,
    /// Packets to an acknowledgement (rr3216: A), gaps being no reason for one; as the transport does
    /// by itself where not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) ack_every: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct AdusReceive {
    /// Where to listen: at this port of every address of this machine, or at one address
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) listen: String,
    /// How long the application takes for a unit (rr3216: Ta)
    #[arg(long, value_name = "TIME", default_value = "10 ms")]
    pub(crate) processing: Duration,
    /// Bytes of units that may wait for the application or be on their way (rr3216: W units); as the
    /// transport does by itself where not given
    #[arg(long, value_name = "SIZE")]
    pub(crate) window: Option<Bytes>,
}
