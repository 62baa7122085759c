//! The quality that is delivered, counted always.

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use ontempo_mechanisms::congestion::Snapshot;
use ontempo_mechanisms::qos::{DelayMeter, Meter};

use crate::wire::Told;

/// Over how long throughput is measured.
const INTERVAL: Duration = Duration::from_millis(500);

/// Throughput over the last whole interval of 500 ms.
#[derive(Clone, Debug)]
pub(super) struct Throughput {
    meter: Meter,
    last: Rate,
}

impl Default for Throughput {
    fn default() -> Self {
        Self { meter: Meter::new(Time::ZERO, INTERVAL), last: Rate::from_bits_per_sec(0) }
    }
}

impl Throughput {
    pub(super) fn starting(now: Time) -> Self {
        Self { meter: Meter::new(now, INTERVAL), ..Self::default() }
    }

    pub(super) fn count(&mut self, now: Time, bytes: u64) {
        self.read(now);
        self.meter.count(now, Bytes::new(bytes));
    }

    pub(super) fn read(&mut self, now: Time) -> Rate {
        // After a long silence the intervals need not be gone through one by one.
        for _ in 0..4 {
            let Some(count) = self.meter.ended(now) else { return self.last };
            self.last = count.throughput();
        }
        *self = Self::starting(now);
        self.last
    }
}

/// A flow as its sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStatistics {
    /// Units taken for sending.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Units handed to the transport.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Units that the peer's transport has; none of a flow that is not repaired.
    pub arrived: u64,
    /// Units dropped, both sides agreeing; of a flow that is not repaired, before they were sent.
    pub dropped: u64,
    /// Units refused because the flow was full.
    pub refused: u64,
    /// How long units waited for the peer to give leave.
    pub blocked: Duration,
    /// Units held now.
    pub held_units: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// How long the oldest of them has been held.
    pub oldest: Duration,
    /// Every unit below this number has arrived or been dropped.
    pub settled: u64,
    /// What the receiver told last.
    pub told: Told,
    blocked_since: Option<Time>,
}

impl SendStatistics {
    pub(super) fn on_push(&mut self, size: u64) {
        self.units += 1;
        self.bytes += size;
    }

    pub(super) fn on_written(&mut self, size: u64) {
        self.written += 1;
        self.written_bytes += size;
    }

    pub(super) fn on_blocked(&mut self, now: Time, blocked: bool) {
        match (self.blocked_since, blocked) {
            (Some(since), false) => {
                self.blocked += now.since(since);
                self.blocked_since = None;
            }
            (None, true) => self.blocked_since = Some(now),
            _ => {}
        }
    }
}

/// One-way delays of a flow's units, from being handed over for sending to arriving whole. They
/// compare two clocks and are wrong by up to [`uncertainty`](Self::uncertainty), all alike;
/// jitter is not, the clocks' difference having no part in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelayStatistics {
    /// Units measured.
    pub units: u64,
    /// The last one's.
    pub last: Duration,
    /// The least.
    pub least: Duration,
    /// The greatest.
    pub greatest: Duration,
    /// The sum of all.
    pub sum: Duration,
    /// The sum of all changes from one unit to the next: over `units - 1` it is the mean jitter
    /// (qosockets, equation 5).
    pub jitter_sum: Duration,
    /// By how much delays may be wrong: half the least round trip in which the clocks were
    /// compared; `None` before that.
    pub uncertainty: Option<Duration>,
}

impl DelayStatistics {
    /// The mean delay; zero before the first unit.
    pub fn mean(&self) -> Duration {
        if self.units == 0 { Duration::ZERO } else { self.sum / self.units }
    }

    /// The mean jitter; zero before the second unit.
    pub fn mean_jitter(&self) -> Duration {
        if self.units < 2 { Duration::ZERO } else { self.jitter_sum / (self.units - 1) }
    }
}

/// Measures delays.
#[derive(Clone, Debug, Default)]
pub(super) struct Delays {
    meter: DelayMeter,
    pub(super) statistics: DelayStatistics,
}

impl Delays {
    pub(super) fn on_unit(&mut self, sent: Time, arrived: Time) {
        let timing = self.meter.on_message(sent, arrived);
        let statistics = &mut self.statistics;
        let first = statistics.units == 0;
        statistics.units += 1;
        statistics.last = timing.delay;
        statistics.least = if first { timing.delay } else { statistics.least.min(timing.delay) };
        statistics.greatest = statistics.greatest.max(timing.delay);
        statistics.sum += timing.delay;
        statistics.jitter_sum += timing.jitter.unwrap_or(Duration::ZERO);
    }
}

/// A flow as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiveStatistics {
    /// Units that arrived whole.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Units that arrived after their deadline.
    pub late: u64,
    /// Units that the sender dropped, or that were overtaken or cut short and will not come.
    pub dropped: u64,
    /// Units that arrived again, or after they had been dropped.
    pub unwanted: u64,
    /// Units that arrived and wait for others.
    pub waiting: u64,
    /// Units that the application has not taken.
    pub ready: u64,
    /// Bytes of all that is held.
    pub held_bytes: u64,
    /// The highest number of bytes that were held.
    pub most_held_bytes: u64,
    /// How long arrived units have waited for others, in all (rr3216's blocking time).
    pub blocked: Duration,
    /// Payload over the last half second.
    pub throughput: Rate,
    /// One-way delay and jitter.
    pub delay: DelayStatistics,
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionStatistics {
    /// Packets sent that are acknowledged.
    pub packets_sent: u64,
    /// Packets held for lost.
    pub packets_lost: u64,
    /// UDP payload sent and received.
    pub bytes_sent: u64,
    /// UDP payload received.
    pub bytes_received: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Packets that could not be opened: damaged, or forged.
    pub packets_refused: u64,
    /// Losses and marks that the congestion control answered.
    pub congestion_events: u64,
    /// Losses that were none.
    pub spurious_congestion_events: u64,
    /// The smoothed round trip; `None` before the first.
    pub round_trip: Option<Duration>,
    /// How much may be in flight.
    pub window: Bytes,
    /// The rate that the congestion control names.
    pub pacing_rate: Option<Rate>,
    /// The distance between packets that the congestion control names.
    pub spacing: Option<Duration>,
    /// The mechanism's own account.
    pub congestion: Option<Snapshot>,
    /// Packets that may leave back to back.
    pub burst: Packets,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
}
