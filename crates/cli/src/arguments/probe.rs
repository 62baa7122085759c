//! `ontempo probe`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use ontempo_foundation::{Duration, Rate};
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
    /// Measure throughput and loss at these spacings in turn, such as "0,100 us,1 ms,psp": from the
    /// start of a packet to the start of the next, a time, psp, or psp-damped. No more is sent than
    /// the path is seen to bear
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "listen")]
    pub(crate) spacing: Vec<ProbeSpacing>,
    /// With --spacing: keep constant spacings also on a path that does not bear them, which floods
    /// it; only for a path of your own
    #[arg(long, requires = "spacing")]
    pub(crate) beyond_path: bool,
    /// Seconds to send at each spacing (default 3), or to record (default 60)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: Option<u64>,
    /// Record the path's rate, delay and loss over time into this new file, as a link's
    /// `schedule = { kind = "csv", file = "FILE" }` reads them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "spacing"])]
    pub(crate) trace: Option<PathBuf>,
    /// With --trace: send no faster; a faster path is recorded with this rate
    #[arg(long, value_name = "RATE", default_value = "50 Mbit/s", requires = "trace", value_parser = max_rate)]
    pub(crate) max_rate: Rate,
    /// With --trace: length of a row, 20 ms to 10 s
    #[arg(long, value_name = "TIME", default_value = "100 ms", requires = "trace", value_parser = window)]
    pub(crate) window: Duration,
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

/// Highest rate of a recording: more than this program sends packet by packet.
const HIGHEST_RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);

/// Lowest rate of a recording: a packet a second or so.
const LOWEST_RATE: Rate = Rate::from_bits_per_sec(20_000);

fn max_rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    if (LOWEST_RATE..=HIGHEST_RATE).contains(&rate) {
        Ok(rate)
    } else {
        Err(format!("a rate from {LOWEST_RATE} to {HIGHEST_RATE} is needed"))
    }
}

fn window(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(20), Duration::from_secs(10));
    let window: Duration = text.parse().map_err(|error| format!("{error}"))?;
    if (least..=most).contains(&window) {
        Ok(window)
    } else {
        Err(format!("a time from {least} to {most} is needed"))
    }
}
