//! Table rows that simulator and emulator fill from the same counters.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_mechanisms::playout::Playout;
use ontempo_mechanisms::qos::loss_percent;
use ontempo_network::{DropReason, LinkStatistics, Schedule};
use ontempo_scenario::model::Event;

use crate::messages::Messages;
use crate::showing::{Shown, ShownFrame, latency_quantile};
use crate::tables::{Cell, Rows};

/// How the tables identify a flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Its number in the run.
    pub number: u64,
    /// The name of its group.
    pub group: &'a str,
    /// Its number in its group.
    pub index: u64,
}

/// Counters of a flow's ends and of the network, from the start to a given time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Data packets sent, retransmissions counted.
    pub sent: u64,
    /// Data packets sent again; `None` where nobody can tell them from others.
    pub retransmitted: Option<u64>,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Window reductions of any kind.
    pub reductions: u64,
    /// Window reductions on delay alone (early responses).
    pub early_responses: u64,
    /// ACKs that reached the sender.
    pub acks: u64,
    /// Packets delivered to the receiving application.
    pub delivered: u64,
    /// Of the data packets sent, those lost in the network.
    pub dropped: u64,
    /// Files or web pages finished.
    pub transfers: u64,
}

impl FlowTotals {
    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            retransmitted: self.retransmitted.map(|now| now - earlier.retransmitted.unwrap_or(0)),
            timeouts: self.timeouts - earlier.timeouts,
            reductions: self.reductions - earlier.reductions,
            early_responses: self.early_responses - earlier.early_responses,
            acks: self.acks - earlier.acks,
            delivered: self.delivered - earlier.delivered,
            dropped: self.dropped - earlier.dropped,
            transfers: self.transfers - earlier.transfers,
        }
    }
}

/// A row of the table `flows`.
#[derive(Clone, Copy, Debug)]
pub struct FlowRow<'a> {
    /// The flow.
    pub flow: Flow<'a>,
    /// The name of its transport.
    pub transport: &'a str,
    /// Name of its congestion controller.
    pub congestion: Option<&'a str>,
    /// When it starts.
    pub start: Time,
    /// Counters of the measured span.
    pub totals: FlowTotals,
    /// Bytes on the wire of the packets delivered in the measured span.
    pub delivered_bytes: u64,
    /// SRTT at the end.
    pub srtt: Option<Duration>,
    /// Smallest RTT.
    pub minimum_rtt: Option<Duration>,
    /// Length of the measured span.
    pub span: Duration,
}

impl FlowRow<'_> {
    /// Adds the row to the table.
    pub fn push(&self, rows: &mut Rows) {
        let totals = &self.totals;
        let loss_rate =
            if totals.sent == 0 { 0.0 } else { totals.dropped as f64 / totals.sent as f64 };
        rows.push([
            self.flow.number.into(),
            self.flow.group.into(),
            self.flow.index.into(),
            self.transport.into(),
            self.congestion.into(),
            self.start.as_secs_f64().into(),
            totals.sent.into(),
            totals.delivered.into(),
            self.delivered_bytes.into(),
            (self.delivered_bytes as f64 * 8.0 / self.span.as_secs_f64()).into(),
            totals.retransmitted.into(),
            totals.timeouts.into(),
            totals.reductions.into(),
            totals.early_responses.into(),
            totals.dropped.into(),
            loss_rate.into(),
            self.srtt.map(Duration::as_secs_f64).into(),
            self.minimum_rtt.map(Duration::as_secs_f64).into(),
            totals.acks.into(),
            totals.transfers.into(),
        ]);
    }
}

/// Counters of a link, from the start to a given time.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkTotals {
    arrivals: u64,
    departures: u64,
    dropped_full: u64,
    dropped_early: u64,
    dropped_loss: u64,
    dropped_policer: u64,
    corrupted: u64,
    duplicated: u64,
    marked: u64,
    departed_bytes: u64,
    /// Packets times seconds spent waiting.
    waiting: f64,
    /// Seconds spent transmitting.
    busy: f64,
}

impl LinkTotals {
    /// The totals of `statistics`, read at `now`.
    pub fn at(now: Time, statistics: &LinkStatistics) -> Self {
        let elapsed = now.as_secs_f64();
        let drops = &statistics.drops;
        Self {
            arrivals: statistics.arrivals.get(),
            departures: statistics.departures.get(),
            dropped_full: (drops.queue_full + drops.too_large).get(),
            dropped_early: drops.early.get(),
            dropped_loss: drops.loss.get(),
            dropped_policer: drops.policer.get(),
            corrupted: statistics.corrupted.get(),
            duplicated: statistics.duplicated.get(),
            marked: statistics.marks.get(),
            departed_bytes: statistics.bytes_departed.get(),
            waiting: statistics.mean_packets * elapsed,
            busy: statistics.busy * elapsed,
        }
    }

    /// Adds a row for the link `name` to the table `links`: its counters since `before`, in `span`.
    pub fn push(
        &self,
        rows: &mut Rows,
        name: &str,
        (from, to): (&str, &str),
        before: &Self,
        span: Duration,
    ) {
        let span = span.as_secs_f64();
        rows.push([
            name.into(),
            from.into(),
            to.into(),
            (self.arrivals - before.arrivals).into(),
            (self.departures - before.departures).into(),
            (self.dropped_full - before.dropped_full).into(),
            (self.dropped_early - before.dropped_early).into(),
            (self.dropped_loss - before.dropped_loss).into(),
            (self.dropped_policer - before.dropped_policer).into(),
            (self.corrupted - before.corrupted).into(),
            (self.duplicated - before.duplicated).into(),
            (self.marked - before.marked).into(),
            (self.departed_bytes - before.departed_bytes).into(),
            // Rounding does not take a mean below zero.
            ((self.waiting - before.waiting).max(0.0) / span).into(),
            ((self.busy - before.busy).max(0.0) / span).into(),
            span.into(),
        ]);
    }
}

/// A row of the table `events` for a reaction of a congestion controller.
#[derive(Clone, Copy, Debug)]
pub struct ReactionRow<'a> {
    /// When.
    pub at: Time,
    /// The flow.
    pub flow: Flow<'a>,
    /// `loss`, `timeout` or `early response`.
    pub event: &'a str,
    /// The congestion window after it, in packets.
    pub window: f64,
}

impl ReactionRow<'_> {
    /// Adds the row to the table.
    pub fn push(&self, rows: &mut Rows) {
        rows.push([
            self.at.as_secs_f64().into(),
            self.flow.number.into(),
            self.flow.group.into(),
            self.flow.index.into(),
            self.event.into(),
            self.window.into(),
            Cell::None,
            Cell::None,
            Cell::None,
            Cell::None,
            Cell::None,
        ]);
    }
}

/// Adds `events`, in the order of time, to the table `events`: the first `of_scenario` are those of the
/// scenario's file, the others were made while the run went on.
pub fn change_rows(rows: &mut Rows, events: &[Event], of_scenario: usize) {
    let mut events: Vec<_> = events.iter().enumerate().collect();
    events.sort_by_key(|(_, event)| event.at);
    for (place, Event { at, link, set }) in events {
        let by = if place < of_scenario { "scenario" } else { "control" };
        let rate = set.rate.map(|rate| rate.as_bits_per_sec() as f64);
        rows.push([
            at.as_secs_f64().into(),
            Cell::None,
            Cell::None,
            Cell::None,
            "change".into(),
            Cell::None,
            link.as_str().into(),
            rate.into(),
            set.delay.map(Duration::as_secs_f64).into(),
            set.loss.into(),
            by.into(),
        ]);
    }
}

/// Most rows of the table `capacity` for one link, and for all together.
const MAX_ROWS_OF_LINK: usize = 10_000;
const MAX_ROWS: usize = 1_000_000;

/// A higher mean is that of a link whose rate is unlimited at times.
const MAX_MEAN: Rate = Rate::from_bits_per_sec(1_000_000_000_000_000);

/// Least distance of the rows of a link whose capacity comes in opportunities.
const MIN_SPAN: Duration = Duration::from_millis(100);

/// Adds the capacity of links that change, by name, until `end`, to the table `capacity`.
pub fn capacity_rows(rows: &mut Rows, links: &[(&str, &Schedule)], end: Time) {
    let most = (MAX_ROWS / links.len().max(1)).clamp(1, MAX_ROWS_OF_LINK);
    for (name, schedule) in links {
        let times = capacity_times(schedule, most, end);
        for (place, time) in times.iter().enumerate() {
            let next = times.get(place + 1).copied().unwrap_or(end);
            let rate = schedule.capacity.mean_rate(*time, next);
            let is_limited = rate <= MAX_MEAN;
            rows.push([
                time.as_secs_f64().into(),
                (*name).into(),
                is_limited.then(|| rate.as_bits_per_sec() as f64).into(),
                schedule.delay_at(*time).map(Duration::as_secs_f64).into(),
                schedule.loss_at(*time).into(),
            ]);
        }
    }
}

/// When the schedule changes; times at equal distances if it changes more than `most` times or its
/// capacity comes in opportunities.
fn capacity_times(schedule: &Schedule, most: usize, end: Time) -> Vec<Time> {
    let (mut times, mut time) = (Vec::new(), Time::ZERO);
    let mut is_listed = true;
    while is_listed && time < end {
        is_listed = times.len() < most && !schedule.capacity.has_opportunities(time);
        times.push(time);
        time = schedule.next_change(time);
    }
    if is_listed {
        return times;
    }
    let span = (end.since(Time::ZERO) / most as u64 + Duration::from_nanos(1)).max(MIN_SPAN);
    let count = end.as_nanos().div_ceil(span.as_nanos());
    (0..count).map(|place| Time::ZERO + span * place).collect()
}

/// The name of a drop's reason, as the tables write it.
pub fn drop_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::QueueFull => "full",
        DropReason::Early => "early",
        DropReason::Loss => "loss",
        DropReason::TooLarge => "too large",
        DropReason::Policer => "policer",
    }
}

/// Adds a flow's start-up delays to the table `playout`.
pub fn playout_rows(rows: &mut Rows, flow: Flow<'_>, playout: &Playout) {
    for (index, delay) in playout.delays().iter().enumerate() {
        rows.push([
            flow.number.into(),
            flow.group.into(),
            flow.index.into(),
            delay.as_secs_f64().into(),
            playout.judged(index).into(),
            playout.late(index).into(),
        ]);
    }
}

/// Adds the frames of a flow's film to the table `frames`.
pub fn frame_rows(rows: &mut Rows, flow: Flow<'_>, frames: &[ShownFrame]) {
    for frame in frames {
        rows.push([
            flow.number.into(),
            flow.group.into(),
            flow.index.into(),
            frame.number.into(),
            frame.kind.name().into(),
            u64::from(frame.size).into(),
            frame.sent.as_secs_f64().into(),
            frame.latency.map(|latency| latency.as_secs_f64()).into(),
            frame.decodable.map(|latency| latency.as_secs_f64()).into(),
        ]);
    }
}

/// Bytes of a film and of the packets that carried it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaBytes {
    /// Of the transport stream.
    pub media: u64,
    /// Of the packets sent for it, headers counted.
    pub wire: u64,
    /// Of those in the other direction.
    pub back: u64,
}

/// Adds a flow's film to the table `media`, once for each of a player's `latencies`; `until`: the end
/// of the run.
pub fn media_rows(
    rows: &mut Rows,
    flow: Flow<'_>,
    frames: &[ShownFrame],
    (latencies, until): (&[Duration], Time),
    bytes: MediaBytes,
) {
    let quantile =
        |share| latency_quantile(frames, share).map(|latency| latency.as_secs_f64()).into();
    for latency in latencies {
        let shown = Shown::of(frames, *latency, until);
        rows.push([
            flow.number.into(),
            flow.group.into(),
            flow.index.into(),
            latency.as_secs_f64().into(),
            shown.pictures.0.into(),
            shown.pictures.1.into(),
            shown.sound.0.into(),
            shown.sound.1.into(),
            shown.freezes.into(),
            shown.longest.as_secs_f64().into(),
            shown.frozen.as_secs_f64().into(),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            bytes.media.into(),
            bytes.wire.into(),
            bytes.back.into(),
        ]);
    }
}

/// Adds a flow's messages to the table `messages`.
pub fn message_rows(rows: &mut Rows, flow: Flow<'_>, messages: &Messages) {
    for record in messages.records() {
        rows.push([
            flow.number.into(),
            flow.group.into(),
            flow.index.into(),
            record.number.into(),
            record.message.payload.get().into(),
            record.message.made.as_secs_f64().into(),
            record.received.as_secs_f64().into(),
            record.timing.delay.as_secs_f64().into(),
            record.timing.jitter.map(|jitter| jitter.as_secs_f64()).into(),
        ]);
    }
}

/// Adds a flow's intervals to the table `intervals`.
pub fn interval_rows(rows: &mut Rows, flow: Flow<'_>, messages: &Messages) {
    for (sent, received) in messages.intervals() {
        rows.push([
            flow.number.into(),
            flow.group.into(),
            flow.index.into(),
            sent.begins.as_secs_f64().into(),
            sent.span.as_secs_f64().into(),
            sent.messages.into(),
            received.messages.into(),
            (sent.throughput().as_bits_per_sec() as f64).into(),
            (received.throughput().as_bits_per_sec() as f64).into(),
            loss_percent(sent.messages, received.messages).into(),
        ]);
    }
}
