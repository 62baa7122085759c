//! A stream over several paths: over several connections to one receiver, each from an address of its
//! own to one of its own.
//!
//! Why connections and not QUIC's multipath: see `docs/mechanisms/paths.md`. Each connection verifies the
//! receiver and presents the token as a single one does. Its flow's label is a `PathLabel`: that of the
//! stream, with the number of the path. Each of its units begins with the low 32 bits of the message's
//! number in the stream, big-endian; then comes what a stream over one path sends
//! ([`message`](crate::message)). The receiver hands on each number once (`Joined`).
//!
//! `Group` and `Joined` do no I/O.

mod group;
mod joined;
mod label;
mod receiving;
mod sending;

use std::fmt;
use std::str::FromStr;

use ontempo_foundation::{Duration, Packets};
use ontempo_transport::Configuration;

pub(crate) use group::{Group, Sample};
pub(crate) use joined::Joined;
pub(crate) use label::{PathLabel, PathLabelError, numbered};
pub use label::{is_of_path, read_back};
pub use receiving::ReceivedPath;
pub use sending::{PathAddress, PathOptions, PathSender};

/// Paths of a stream, at most.
pub const MAX_PATHS: usize = 4;

/// Interval of questions on each path, that show its round trip and whether it is there.
pub const PROBE: Duration = Duration::from_millis(50);

/// A path that has had units for this long, and on which nothing was acknowledged meanwhile, is silent: two
/// questions, and some jitter.
pub const SILENT: Duration = Duration::from_millis(120);

/// The same for a path that has nothing but questions, of which several may be lost in turn.
pub const SILENT_STANDBY: Duration = Duration::from_millis(500);

/// Interval at which paths are looked at.
pub const STEP: Duration = Duration::from_millis(10);

/// An earlier path carries again once it has answered without a gap for this long. Each time that it
/// fails within [`MAX_RETURN_AFTER`] of its return, it is doubled for this path, up to that.
pub const RETURN_AFTER: Duration = Duration::from_secs(5);

/// The longest of these times.
pub const MAX_RETURN_AFTER: Duration = Duration::from_secs(60);

/// What a chosen latency has beyond that of one path, where units of a silent path are sent again on
/// another one: until it counts as silent and this is noticed, and 70 ms for what is sent again.
pub const TAKEOVER: Duration = Duration::from_millis(200);

/// How a stream uses its paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMode {
    /// Each unit is sent on all of them.
    #[default]
    Duplicate,
    /// The first that is there carries all units.
    Failover,
    /// Each unit is sent on that on which it is expected first.
    Balance,
}

impl PathMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Duplicate, Self::Failover, Self::Balance];

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Failover => "failover",
            Self::Balance => "balance",
        }
    }

    /// What a chosen latency has beyond that of one path.
    pub(crate) const fn allowance(self) -> Duration {
        match self {
            Self::Duplicate => Duration::ZERO,
            Self::Failover | Self::Balance => TAKEOVER,
        }
    }
}

impl fmt::Display for PathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PathMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| "write duplicate, failover or balance".to_owned())
    }
}

/// What happens to a path; paths are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// It answers.
    Up(usize),
    /// It does not answer any longer.
    Down(usize),
    /// With [`PathMode::Failover`]: it carries the stream from now on.
    Carries {
        /// The path.
        path: usize,
        /// Why the one before does not.
        why: CarryReason,
    },
}

/// Why another path carries the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarryReason {
    /// The one before was silent for this long.
    Silent(Duration),
    /// What the one before brings comes too late: its round trip.
    TooSlow(Duration),
    /// The one before is there, and this one is preferred.
    Preferred,
}

/// What a path has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathFigures {
    /// It answers.
    pub is_up: bool,
    /// Units are sent on it now.
    pub carries: bool,
    /// Smoothed round trip; `None` before the first.
    pub round_trip: Option<Duration>,
    /// UDP payload sent over all its connections, bytes.
    pub bytes_sent: u64,
    /// Packets sent, over all its connections.
    pub packets_sent: u64,
    /// Those of them that were lost.
    pub packets_lost: u64,
    /// Units sent on it; those sent again count again.
    pub units: u64,
    /// How often it went down.
    pub failures: u64,
}

/// Initial window of a path that others stand by for: at 40 ms 9 Mbit/s. With the ten packets of RFC 6928
/// a path that takes over needs some five round trips until it carries 4 Mbit/s, and what it is given
/// meanwhile, with all that is sent again, comes too late. Its round trip is known, and the window is paced
/// over it; so at most this much is sent before the first acknowledgement.
const STANDBY_WINDOW: Packets = Packets::new(32);

/// The transport configuration of a sender's paths.
pub(crate) fn configuration(mode: PathMode, configuration: Configuration) -> Configuration {
    let initial_window = match mode {
        PathMode::Failover => configuration.initial_window.max(STANDBY_WINDOW),
        PathMode::Duplicate | PathMode::Balance => configuration.initial_window,
    };
    Configuration { clock_interval: PROBE, initial_window, ..configuration }
}
