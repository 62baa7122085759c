//! Statistics of flows and connections.

use noq_proto::PathId;
use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use ontempo_mechanisms::congestion::Snapshot;
use ontempo_mechanisms::qos::{DelayMeter, Meter};

use super::Connection;
use crate::wire::ReceiverReport;

/// Measurement interval of throughput.
const INTERVAL: Duration = Duration::from_millis(500);

/// Throughput over the last complete interval of 500 ms.
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
        // After a long silence the intervals are skipped at once.
        for _ in 0..4 {
            let Some(count) = self.meter.ended(now) else { return self.last };
            self.last = count.throughput();
        }
        *self = Self::starting(now);
        self.last
    }
}

/// Statistics of a sending flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStatistics {
    /// Units accepted for sending.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Units passed to the transport.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Units acknowledged; 0 for a flow without retransmission.
    pub arrived: u64,
    /// Units dropped, as agreed with the peer; for a flow without retransmission, before they were
    /// sent.
    pub dropped: u64,
    /// Of these, and of those not yet agreed: units dropped in the send queue before their own deadline,
    /// because the path did not bear their frame, or one that they need.
    pub shed: u64,
    /// Units refused because the send queue was full.
    pub refused: u64,
    /// Time during which units waited for the peer's credit.
    pub blocked: Duration,
    /// Units queued or in flight.
    pub held_units: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Age of the oldest of them.
    pub oldest: Duration,
    /// Every unit below this number was acknowledged or dropped.
    pub settled: u64,
    /// The last receiver report.
    pub report: ReceiverReport,
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

/// One-way delays of a flow's units, from sending to complete arrival. They
/// compare two clocks: all have the same error of up to [`uncertainty`](Self::uncertainty);
/// jitter has none, because the clock offset cancels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelayStatistics {
    /// Units measured.
    pub units: u64,
    /// The last delay.
    pub last: Duration,
    /// The smallest delay.
    pub min: Duration,
    /// The largest delay.
    pub max: Duration,
    /// The sum of delays.
    pub sum: Duration,
    /// The sum of all changes from one unit to the next: divided by `units - 1`, the mean jitter
    /// (qosockets, equation 5).
    pub jitter_sum: Duration,
    /// Error bound of delays: half the smallest round trip of a clock
    /// comparison; `None` before the first.
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
        statistics.min = if first { timing.delay } else { statistics.min.min(timing.delay) };
        statistics.max = statistics.max.max(timing.delay);
        statistics.sum += timing.delay;
        statistics.jitter_sum += timing.jitter.unwrap_or(Duration::ZERO);
    }
}

/// Statistics of a receiving flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiveStatistics {
    /// Units received completely.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Units that arrived after their deadline.
    pub late: u64,
    /// Units dropped by the sender, and units that arrived too late or incompletely to be
    /// delivered.
    pub dropped: u64,
    /// Duplicates, and units that arrived after they had been dropped.
    pub unwanted: u64,
    /// Units that wait for others.
    pub waiting: u64,
    /// Units ready but not yet taken by the application.
    pub ready: u64,
    /// Bytes buffered.
    pub held_bytes: u64,
    /// Maximum of bytes buffered.
    pub most_held_bytes: u64,
    /// Total time that arrived units have waited for others (rr3216's blocking time).
    pub blocked: Duration,
    /// Throughput over the last half second.
    pub throughput: Rate,
    /// One-way delay and jitter.
    pub delay: DelayStatistics,
}

/// Statistics of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionStatistics {
    /// Packets sent, with those of acknowledgements and probes alone, and those declared lost.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Bytes of these packets: what was in them is sent again, unless its deadline has passed.
    pub bytes_lost: u64,
    /// Bytes of packets acknowledged: those of [`packets_lost`](Self::packets_lost) and what is on its way are not
    /// among them, nor is what is in a packet of acknowledgements alone.
    pub bytes_acknowledged: u64,
    /// UDP payload sent, bytes.
    pub bytes_sent: u64,
    /// UDP payload received, bytes.
    pub bytes_received: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// Packets that failed authentication: damaged, or forged.
    pub packets_refused: u64,
    /// Congestion events (losses and marks) of the congestion control.
    pub congestion_events: u64,
    /// Spurious losses.
    pub spurious_congestion_events: u64,
    /// Datagrams sent with repairs that the peer asked for.
    pub repairs_sent: u64,
    /// Repairs taken that this side asked for.
    pub repairs_received: u64,
    /// Smoothed round trip; `None` before the first sample.
    pub round_trip: Option<Duration>,
    /// Median round trip of the last eight clock comparisons, without the time that the peer takes:
    /// four in the first 150 ms, then one each `clock_interval`. `None` before the first.
    pub clock_round_trip: Option<Duration>,
    /// Clock comparisons so far.
    pub clock_comparisons: u64,
    /// cwnd.
    pub window: Bytes,
    /// The bit rate that the path bears, of units, as an encoder is to be told: it falls at once, and
    /// rises by 5 % a second. `None` before it is known.
    pub target: Option<Rate>,
    /// The rate set by the congestion control.
    pub pacing_rate: Option<Rate>,
    /// The spacing set by the congestion control.
    pub spacing: Option<Duration>,
    /// State of the congestion control.
    pub congestion: Option<Snapshot>,
    /// Packets that may be sent back to back.
    pub burst: Packets,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
    /// When the last packet arrived that is newer than all before; before the first, when the connection began. Not
    /// an old one, which others who have seen it can send again.
    pub heard: Time,
}

impl Connection {
    /// Statistics of the connection.
    pub fn statistics(&mut self) -> ConnectionStatistics {
        let path = self.stack.path_stats(PathId::ZERO).unwrap_or_default();
        let all = self.stack.stats();
        let account = self.account.read();
        ConnectionStatistics {
            packets_sent: path.sent_packets,
            packets_lost: path.lost_packets,
            bytes_lost: path.lost_bytes,
            bytes_acknowledged: account.delivered.get(),
            bytes_sent: all.udp_tx.bytes,
            bytes_received: all.udp_rx.bytes,
            datagrams_sent: all.udp_tx.datagrams,
            datagrams_received: all.udp_rx.datagrams,
            packets_refused: self.watched.failed(),
            congestion_events: path.congestion_events,
            spurious_congestion_events: path.spurious_congestion_events,
            repairs_sent: self.sending.unacknowledged.repairs_sent,
            repairs_received: self.receiving.repaired,
            round_trip: account.srtt,
            clock_round_trip: self.clocks.round_trip(),
            clock_comparisons: self.clocks.count(),
            window: account.window,
            target: self.target_bitrate(),
            pacing_rate: account.rate,
            spacing: account.spacing,
            congestion: account.snapshot,
            burst: account.burst,
            acks_sent: all.frame_tx.acks,
            acks_received: all.frame_rx.acks,
            heard: self.acks.newest_at().unwrap_or(self.heard),
        }
    }
}
