//! `ontempo probe`.

use std::str::FromStr;

use clap::Args;
use ontempo_foundation::Duration;
use ontempo_udp::Dscp;

use super::deliver::Credentials;

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// The receiver: a name or an address, and a port
    #[arg(value_name = "HOST:PORT", required_unless_present = "listen", conflicts_with = "listen")]
    pub(crate) receiver: Option<String>,
    /// Receive: port to listen at, on all addresses of this machine or on one; at most 16 sessions, 4
    /// of one host
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) listen: Option<String>,
    /// Spacings to measure in turn, from the start of a packet to the start of the next: a time,
    /// psp, or psp-damped
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0 us,50 us,100 us,200 us,500 us,1 ms,2 ms,5 ms"
    )]
    pub(crate) spacing: Vec<ProbeSpacing>,
    /// Seconds to send at each spacing
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,
    /// Packet size in bytes with IP and UDP headers, 90 to 65000
    #[arg(long, value_name = "N", default_value_t = 1_400, value_parser = clap::value_parser!(u64).range(90..=65_000))]
    pub(crate) packet: u64,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// DSCP of the packets: 0 to 63, or a name such as af41
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// Print one JSON document; with --listen, one for each event, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A packet spacing on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeSpacing {
    /// Constant.
    Constant(Duration),
    /// The packet-spacing protocol.
    Psp,
    /// The same, damped.
    PspDamped,
}

/// A probe session times out after 30 s without a packet.
const MAX_SPACING: Duration = Duration::from_secs(10);

impl FromStr for ProbeSpacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "psp" => Ok(Self::Psp),
            "psp-damped" => Ok(Self::PspDamped),
            "0" => Ok(Self::Constant(Duration::ZERO)),
            time => {
                let spacing: Duration = time
                    .parse()
                    .map_err(|error| format!("{error}; a spacing is a time, psp, or psp-damped"))?;
                if spacing > MAX_SPACING {
                    return Err(format!("a spacing is at most {MAX_SPACING}"));
                }
                Ok(Self::Constant(spacing))
            }
        }
    }
}
