//! What the packets say of the path, once they have been sent.

use ontempo_foundation::{Bytes, Duration, Rate};

pub use super::control::Limit;
use super::control::Phase;

/// Index of a packet that is not known to have arrived.
pub(super) const MISSING: u32 = u32::MAX;

/// Delays of which the median counts: of loads that fill the queue, and of scouts without one.
const LOADS: usize = 9;
const SCOUTS: usize = 21;

/// Pairs of packets that a rate needs.
const PAIRS: f64 = 20.0;

/// The rate fell if what lasts is less than this share of what passed at first.
const FELL: f64 = 0.8;

/// Scouts behind less than this share of the longest queue met none that overflows.
const SHORT: f64 = 0.5;

/// Shorter queues do not matter for losses, ns.
const SHORTEST: i64 = 25_000_000;

/// What a path bears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Rate with IP and UDP headers, before random loss; `None`: too few packets arrived.
    pub rate: Option<Rate>,
    /// Why the rate may be higher.
    pub limit: Option<Limit>,
    /// The rate at first, if what lasts is less than four fifths of it.
    pub first_rate: Option<Rate>,
    /// Least round trip.
    pub round_trip: Duration,
    /// Longest queueing delay that was built.
    pub queue: Duration,
    /// The queue overflowed: it is no longer than this.
    pub is_queue_full: bool,
    /// Share of packets lost without a queue, 0 to 1; `None`: too few were sent.
    pub loss: Option<f64>,
    /// Packets of which that is the share.
    pub loss_of: u64,
    /// Spread of the delays without a queue: from the smallest to nine tenths of them.
    pub jitter: Duration,
    /// Packets sent, and known to have arrived.
    pub packets: (u64, u64),
    /// Bytes sent, with headers.
    pub sent: Bytes,
    /// The most that was sent beyond the rate: the longest queue that a path would need to lose
    /// nothing.
    pub beyond: Bytes,
    /// From the first greeting to the end.
    pub time: Duration,
    /// It was interrupted.
    pub is_partial: bool,
}

/// A packet, or a number that was left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// Since the measurement began, ns.
    pub(super) sent: i64,
    /// By the receiver's clock since the first arrival, ns.
    pub(super) at: i64,
    /// How many arrived before it; [`MISSING`] if it is not known to have arrived.
    pub(super) index: u32,
    /// How many were really sent before it.
    pub(super) place: u32,
    pub(super) phase: Phase,
    pub(super) is_scout: bool,
    pub(super) is_left_out: bool,
}

impl Noted {
    pub(super) fn is_known(&self) -> bool {
        self.index != MISSING
    }

    /// By both clocks, ns: only differences mean something.
    fn transit(&self) -> i64 {
        self.at - self.sent
    }
}

/// All that was sent and arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Noting {
    /// By number.
    pub(super) packets: Vec<Noted>,
    /// Bits of a full packet and of a scout, with IP and UDP headers.
    pub(super) bits: (f64, f64),
    /// The least, ns.
    pub(super) round_trip: Option<u64>,
    pub(super) limit: Option<Limit>,
    pub(super) is_full: bool,
}

impl Noting {
    pub(super) fn answer(&self) -> Option<Answer> {
        let round_trip = Duration::from_nanos(self.round_trip?);
        let base = self.known().map(Noted::transit).min()?;
        let of = |phases: &[Phase], pairs: f64| self.busy_rate(base, phases, pairs);
        let (first, lasting) = (of(&[Phase::Fill], PAIRS), of(&[Phase::Hold], PAIRS));
        let all = || of(&[Phase::Ramp, Phase::Fill, Phase::Hold], PAIRS / 2.0);
        let has_fallen =
            matches!((first, lasting), (Some(first), Some(lasting)) if lasting < first * FELL);
        let rate = match self.limit {
            Some(_) => self.passing_rate(),
            None if has_fallen => lasting,
            None => first.or(lasting).or_else(all).or_else(|| self.passing_rate()),
        };
        let resting = self.resting().unwrap_or(base);
        let queue = (self.longest().unwrap_or(resting) - resting).max(0);
        let (lost, loss_of) = self.losses(base, queue);
        let sent = self.packets.iter().filter(|packet| !packet.is_left_out);
        let bits = sent.clone().map(|packet| self.bits(packet)).sum::<f64>();
        Some(Answer {
            rate: rate.map(|rate| Rate::from_bits_per_sec(rate as u64)),
            limit: self.limit,
            first_rate: first
                .filter(|_| has_fallen)
                .map(|rate| Rate::from_bits_per_sec(rate as u64)),
            round_trip,
            queue: Duration::from_nanos(queue as u64),
            is_queue_full: self.is_full,
            loss: (loss_of > 0).then(|| (lost.max(0) as f64 / loss_of as f64).min(1.0)),
            loss_of,
            jitter: Duration::from_nanos(self.spread(base)),
            packets: (sent.count() as u64, self.known().count() as u64),
            sent: Bytes::new((bits / 8.0) as u64),
            beyond: Bytes::new(rate.map_or(0, |rate| self.beyond(rate))),
            time: Duration::ZERO,
            is_partial: false,
        })
    }

    fn known(&self) -> impl Iterator<Item = &Noted> {
        self.packets.iter().filter(|packet| packet.is_known())
    }

    fn bits(&self, packet: &Noted) -> f64 {
        if packet.is_scout { self.bits.1 } else { self.bits.0 }
    }

    /// Bits over time between packets sent one after the other, of which the second waited behind
    /// the first: the rate of the bottleneck, whatever is lost before or behind it.
    fn busy_rate(&self, base: i64, phases: &[Phase], pairs: f64) -> Option<f64> {
        let (mut bits, mut span) = (0.0, 0.0);
        let mut last: Option<&Noted> = None;
        for packet in self.packets.iter().filter(|packet| !packet.is_left_out) {
            if let Some(last) = last
                && phases.contains(&packet.phase)
                && !packet.is_scout
                && packet.is_known()
                && last.is_known()
                && packet.sent + base <= last.at
            {
                bits += self.bits(packet);
                span += (packet.at - last.at) as f64 / 1e9;
            }
            last = Some(packet);
        }
        (span > 0.0 && bits >= pairs * self.bits.0).then(|| bits / span)
    }

    /// The highest rate at which packets arrived over a longer time: where nothing made a queue.
    fn passing_rate(&self) -> Option<f64> {
        let held = |phase: Phase| {
            let arrived = self.known().filter(move |packet| packet.phase == phase);
            let (mut count, mut first, mut last) = (0_u32, i64::MAX, i64::MIN);
            for packet in arrived.filter(|packet| !packet.is_scout) {
                count += 1;
                (first, last) = (first.min(packet.at), last.max(packet.at));
            }
            let bits = f64::from(count.saturating_sub(1)) * self.bits.0;
            (count >= 2 && last > first).then(|| bits / ((last - first) as f64 / 1e9))
        };
        held(Phase::Hold).or_else(|| held(Phase::Fill)).or_else(|| held(Phase::Ramp))
    }

    /// The usual transit without a queue, ns: the least median of scouts that follow each other.
    fn resting(&self) -> Option<i64> {
        let scouts: Vec<i64> =
            self.known().filter(|packet| packet.is_scout).map(Noted::transit).collect();
        medians(&scouts, SCOUTS).min()
    }

    /// The longest transit, ns, as the median of loads that follow each other.
    fn longest(&self) -> Option<i64> {
        let loads: Vec<i64> =
            self.known().filter(|packet| !packet.is_scout).map(Noted::transit).collect();
        medians(&loads, LOADS).max()
    }

    /// From the smallest transit of scouts to nine tenths of them, ns.
    fn spread(&self, base: i64) -> u64 {
        let is_low = |packet: &&Noted| packet.is_scout && packet.phase == Phase::Low;
        let mut scouts: Vec<i64> = self.known().filter(is_low).map(Noted::transit).collect();
        scouts.sort_unstable();
        scouts.get(scouts.len() * 9 / 10).map_or(0, |transit| (transit - base).max(0) as u64)
    }

    /// Packets lost without a queue, and those of which they are the losses: scouts, between two
    /// that arrived without a long queue.
    fn losses(&self, base: i64, queue: i64) -> (i64, u64) {
        let most = base + ((queue as f64 * SHORT) as i64).max(SHORTEST);
        let (mut lost, mut all) = (0, 0);
        let mut last: Option<&Noted> = None;
        for packet in self.known() {
            let is_short = packet.is_scout && packet.transit() <= most;
            if let Some(last) = last.filter(|last| is_short && last.phase == packet.phase) {
                // Reordered arrivals cancel each other.
                let came = i64::from(packet.index) - i64::from(last.index);
                let sent = i64::from(packet.place) - i64::from(last.place);
                lost += sent - came;
                all += sent.max(0) as u64;
            }
            last = is_short.then_some(packet);
        }
        (lost, all)
    }

    /// The most bytes that waited, or were lost, at a bottleneck of this rate.
    fn beyond(&self, rate: f64) -> u64 {
        let (mut waiting, mut most, mut last) = (0.0_f64, 0.0_f64, 0);
        for packet in self.packets.iter().filter(|packet| !packet.is_left_out) {
            waiting = (waiting - (packet.sent - last) as f64 / 1e9 * rate).max(0.0);
            waiting += self.bits(packet);
            (most, last) = (most.max(waiting), packet.sent);
        }
        (most / 8.0) as u64
    }
}

/// The median of each `count` values that follow each other, in steps of a third.
fn medians(values: &[i64], count: usize) -> impl Iterator<Item = i64> {
    let count = count.min(values.len()).max(1);
    values.windows(count).step_by(count.div_ceil(3)).map(move |some| {
        let mut some = some.to_vec();
        some.sort_unstable();
        some[count / 2]
    })
}
