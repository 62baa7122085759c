//! What the daemon keeps between two turns of its loop.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use ontempo_foundation::{Duration, Time};
use ontempo_reservation::machine::{InterfaceId, Machine};

use super::neighbours_file::NeighboursFile;
use super::observed::Observed;
use super::owners::Owners;
use crate::applications::Applications;
use crate::config::Config;
use crate::enforcement::Enforcement;
use crate::log::{Level, Log};
use crate::packets::Packets;
use crate::routes::{Changes, Interface, Kernel};

/// Changes of routes come in bursts: they are read again together after this time.
pub(super) const SETTLING: Duration = Duration::from_millis(5);

pub(super) struct Daemon<'a> {
    pub(super) config: Config,
    pub(super) machine: Machine<Kernel>,
    pub(super) packets: Packets,
    pub(super) changes: Changes,
    pub(super) enforcement: Enforcement,
    pub(super) applications: Applications,
    pub(super) owners: Owners,
    /// The interfaces that speak RSVP, by name.
    pub(super) interfaces: BTreeMap<String, Interface>,
    pub(super) started: Instant,
    /// When classes of a daemon before this one are removed from an interface, unless refreshed.
    pub(super) purge_at: BTreeMap<InterfaceId, Time>,
    /// When the interfaces and routes are read again after a change.
    pub(super) update_at: Time,
    /// When classes that could not be removed, and interfaces that could not be set up, are tried again.
    pub(super) retry_at: Time,
    /// Why interfaces could not be set up, as it was logged.
    pub(super) failed: BTreeMap<String, String>,
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) bad_packets: u64,
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    pub(super) observed: Observed,
    /// Where the neighbours are written down; none in a test.
    pub(super) neighbours_file: Option<NeighboursFile>,
    pub(super) log: Log<'a>,
}

impl Daemon<'_> {
    pub(super) fn say(&mut self, level: Level, line: &str) {
        if level <= self.config.log {
            (self.log)(level, line);
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Above all numbers that were used with a key before.
pub(super) fn time_of_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
