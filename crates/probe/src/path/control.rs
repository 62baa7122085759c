//! When the next packet may leave, by what is known to have arrived.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Rate, Time};

/// Packets sent before any has arrived.
pub(super) const FIRST: f64 = 10.0;

/// Packets that one which arrived allows, at most.
pub(super) const PER_ARRIVAL: f64 = 2.0;

/// The same while the queue is filled.
const FILL: f64 = 1.5;

/// Packets leave at most so many times as fast as they arrived in the last round, so that a report
/// does not release a burst: in the ramp the rate doubles within a round.
const RAMP_PACE: f64 = 4.0;
const FILL_PACE: f64 = 2.0;

/// Shortest time from a measurement of the arriving rate to the next.
const MIN_ROUND: Duration = Duration::from_millis(30);

/// The first packets take this long: 2.8 Mbit/s of 1,400 bytes.
const FIRST_SPAN: Duration = Duration::from_millis(40);

/// What arrives grows if it is so many times the most before.
const GROWTH: f64 = 1.25;

/// Mean queueing delay of a round that shows a queue, ns, and loss that shows an overflow.
const QUEUE_SHOWS: f64 = 15e6;
const LOSS_SHOWS: f64 = 0.2;

/// Arrivals of which the present loss is counted, and what it exceeds that without a queue by if the
/// queue is full.
const RECENT: usize = 100;
const OVERFLOW: f64 = 0.15;

/// Packets that tell the loss without a full queue, and what is assumed until then.
const FEW: f64 = 50.0;
const USUAL: f64 = 0.1;

/// Longest queue that is filled.
const MAX_QUEUE: Duration = Duration::from_secs(2);

/// The queue that is kept while the rate is held, at most: half of the path's queue.
const HELD_QUEUE: f64 = 0.06;

/// Gap of scouts before the rate is known, and the smallest afterwards.
const QUIET_GAP: Duration = Duration::from_millis(10);
const LOW_GAP: Duration = Duration::from_millis(1);

/// Share of the rate that scouts take at the end.
const LOW_SHARE: f64 = 0.3;

/// Scouts that arrive before the ramp.
const QUIET_SCOUTS: u32 = 3;

/// Since the first greeting, when a phase ends at the latest.
const RAMP_END: Duration = Duration::from_millis(5_200);
const FILL_END: Duration = Duration::from_millis(6_500);
const HOLD_END: Duration = Duration::from_millis(7_500);
const LOW_END: Duration = Duration::from_millis(8_900);

/// Shortest filling, length of holding, and of the scouts at the end.
const FILL_SPAN: Duration = Duration::from_millis(100);
const HOLD_SPAN: Duration = Duration::from_millis(1_000);
const LOW_SPAN: Duration = Duration::from_millis(1_500);

/// Least wait until a stalled sender adds a packet.
const STALL: Duration = Duration::from_millis(100);

/// A late timer is made up for by so much.
const CATCH_UP: Duration = Duration::from_millis(2);

/// Why the rate may be higher than measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This machine sent no more.
    Machine,
    /// [`PathOptions::max_rate`](super::PathOptions::max_rate).
    MaxRate,
    /// The time was over.
    Time,
}

/// An arrival as the sender learns of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) number: u32,
    /// Packets really sent before it.
    pub(super) place: u32,
    /// How many arrived before it.
    pub(super) index: u32,
    /// Since the measurement began, ns.
    pub(super) sent: i64,
    /// By the receiver's clock since the first arrival, ns.
    pub(super) at: i64,
    pub(super) bits: f64,
    pub(super) is_scout: bool,
}

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A packet of full size.
    Load,
    /// The smallest packet.
    Scout,
    /// Nothing until then.
    Wait(Time),
    /// Nothing more.
    End,
}

/// What is measured now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Phase {
    Quiet,
    Ramp,
    Fill,
    Hold,
    Low,
}

/// A measurement of the arriving rate.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// It ends with a packet of this number.
    until: u32,
    /// By the own clock, and by the receiver's since the first arrival, ns.
    began: (Time, i64),
    bits: f64,
    packets: u32,
    /// Sum of queueing delays, ns.
    queueing: f64,
    /// Place and index of the arrival before it.
    before: (u32, u32),
}

/// What arrived over some time, by the own clock and the receiver's, ns.
#[derive(Clone, Copy, Debug)]
struct Served {
    own: (Time, Time),
    at: (i64, i64),
    bits: f64,
}

impl Served {
    /// bit/s; `None` if the time is short. The receiver's clock alone is not believed.
    fn rate(&self) -> Option<f64> {
        let span = (self.at.1 - self.at.0) as f64 / 1e9;
        let span = span.max(self.own.1.since(self.own.0).as_secs_f64());
        (span >= MIN_ROUND.as_secs_f64()).then(|| self.bits / span)
    }
}

#[derive(Debug)]
pub(super) struct Control {
    /// Bits of a full packet, and of a scout, with IP and UDP headers.
    sizes: (f64, f64),
    max_rate: f64,
    /// The first greeting was sent then.
    greeted: Time,
    /// Round trip of the handshake, or smaller.
    round_trip: Duration,
    pub(super) phase: Phase,
    /// When it began; `None` for [`Phase::Hold`] until its first packet.
    since: Option<Time>,
    /// Bits of full packets: sent, known to have arrived, and that may be sent.
    sent_bits: f64,
    known_bits: f64,
    credit: f64,
    /// One more than the place of the newest arrival, and of the newest packet.
    passed: u32,
    sent: u32,
    scouts: u32,
    base: Option<i64>,
    round: Round,
    /// Bits of the last round.
    last_bits: f64,
    /// bit/s of the last round, and the most before.
    arriving: Option<f64>,
    best: f64,
    flat: u32,
    /// Since what arrives grows no further.
    served: Option<Served>,
    /// Places and indices of the last arrivals of full packets.
    recent: VecDeque<(u32, u32)>,
    /// Loss of the ramp while it grew: lost, sent; of the newest round beside the others.
    loss: (f64, f64),
    newest_loss: (f64, f64),
    longest: i64,
    pub(super) limit: Option<Limit>,
    /// More was lost than without a queue.
    pub(super) is_full: bool,
    due: Time,
    last_load: Time,
    ends: Time,
}

impl Control {
    pub(super) fn new(
        (greeted, now): (Time, Time),
        round_trip: Duration,
        sizes: (f64, f64),
        max_rate: Rate,
    ) -> Self {
        Self {
            sizes,
            max_rate: max_rate.as_bits_per_sec().max(1) as f64,
            greeted,
            round_trip,
            phase: Phase::Quiet,
            since: Some(now),
            sent_bits: 0.0,
            known_bits: 0.0,
            credit: FIRST * sizes.0,
            passed: 0,
            sent: 0,
            scouts: 0,
            base: None,
            round: Round::default(),
            last_bits: 0.0,
            arriving: None,
            best: 0.0,
            flat: 0,
            served: None,
            recent: VecDeque::with_capacity(RECENT + 1),
            loss: (0.0, 0.0),
            newest_loss: (0.0, 0.0),
            longest: 0,
            limit: None,
            is_full: false,
            due: now,
            last_load: now,
            ends: Time::NEVER,
        }
    }

    /// What arrives, bit/s, once known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.served.and_then(|served| served.rate()).or(self.arriving)
    }

    pub(super) fn on_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = self.round_trip.min(round_trip);
    }

    /// Takes an arrival; packets up to `next` were numbered.
    pub(super) fn on_arrival(&mut self, now: Time, arrived: Arrived, next: u32) {
        let transit = arrived.at - arrived.sent;
        let base = self.base.map_or(transit, |base| base.min(transit));
        self.base = Some(base);
        self.passed = self.passed.max(arrived.place + 1);
        if arrived.is_scout {
            self.scouts = self.scouts.saturating_add(1);
            if self.phase == Phase::Quiet {
                self.round = self.next_round(now, &arrived, next);
            }
            return;
        }
        self.longest = self.longest.max(transit - base);
        self.known_bits += arrived.bits;
        let per_arrival = if self.phase == Phase::Ramp { PER_ARRIVAL } else { FILL };
        let most = (PER_ARRIVAL * self.round.bits.max(self.last_bits)).max(FIRST * self.sizes.0);
        self.credit = (self.credit + per_arrival * arrived.bits).min(most.max(self.credit));
        self.recent.push_back((arrived.place, arrived.index));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        if let Some(served) = &mut self.served
            && self.phase <= Phase::Fill
        {
            (served.own.1, served.at.1) = (now, served.at.1.max(arrived.at));
            served.bits += arrived.bits;
        }
        self.round.bits += arrived.bits;
        self.round.packets += 1;
        self.round.queueing += (transit - base) as f64;
        if arrived.number >= self.round.until && now.since(self.round.began.0) >= MIN_ROUND {
            self.end_round(now, &arrived);
            self.round = self.next_round(now, &arrived, next);
        }
    }

    fn next_round(&self, now: Time, arrived: &Arrived, next: u32) -> Round {
        Round {
            until: next,
            began: (now, arrived.at),
            before: (arrived.place, arrived.index),
            ..Round::default()
        }
    }

    fn end_round(&mut self, now: Time, arrived: &Arrived) {
        let round = &self.round;
        // Neither clock alone is believed: the receiver's may be anything.
        let own = now.since(round.began.0).as_secs_f64();
        let span = own.max((arrived.at - round.began.1) as f64 / 1e9);
        let rate = round.bits / span;
        self.arriving = Some(rate);
        self.last_bits = round.bits;
        if self.phase != Phase::Ramp {
            return;
        }
        let passed = f64::from(arrived.place.saturating_sub(round.before.0));
        let came = f64::from(arrived.index.saturating_sub(round.before.1));
        let lost = (passed - came).max(0.0);
        let is_queued = round.queueing / f64::from(round.packets.max(1)) > QUEUE_SHOWS;
        let is_lossy = passed >= 20.0 && lost > passed * LOSS_SHOWS;
        if rate > self.best * GROWTH {
            self.flat = 0;
            // The newest may have met a full queue.
            let known = std::mem::replace(&mut self.newest_loss, (lost, passed));
            self.loss = (self.loss.0 + known.0, self.loss.1 + known.1);
        } else {
            self.flat += 1;
            let at = (arrived.at, arrived.at);
            self.served.get_or_insert(Served { own: (now, now), at, bits: 0.0 });
        }
        self.best = self.best.max(rate);
        if self.flat == 0 {
            self.served = None;
            return;
        }
        // Unused credit: what was allowed was not sent.
        let is_limited = !is_queued && !is_lossy && self.credit > round.bits / 2.0;
        if self.flat >= 2 || is_queued || is_lossy {
            if is_limited {
                let is_max = self.pace() >= self.max_rate && rate > 0.8 * self.max_rate;
                self.limit = Some(if is_max { Limit::MaxRate } else { Limit::Machine });
            }
            self.is_full = is_lossy && lost > passed * (self.usual_loss() + OVERFLOW);
            self.enter(if is_limited { Phase::Hold } else { Phase::Fill }, now);
        }
    }

    /// Loss without a full queue; guessed high where few packets tell.
    fn usual_loss(&self) -> f64 {
        if self.loss.1 < FEW { USUAL } else { self.measured_loss() }
    }

    fn measured_loss(&self) -> f64 {
        let (lost, passed) = self.loss;
        if passed < FEW { 0.0 } else { (lost / passed).min(0.3) }
    }

    fn enter(&mut self, phase: Phase, now: Time) {
        self.phase = phase;
        self.since = (phase != Phase::Hold).then_some(now);
        self.credit = self.credit.min(FIRST * self.sizes.0);
        self.recent.clear();
        self.due = self.due.max(now);
        if phase == Phase::Low {
            // What is in flight leaves the queue first.
            let queue = self.in_flight() / self.rate().unwrap_or(self.max_rate);
            let wait = (queue - self.round_trip.as_secs_f64()).max(0.0);
            self.due = now + Duration::from_secs_f64(wait).min(MAX_QUEUE);
            self.ends = (self.due + LOW_SPAN).min(self.greeted + LOW_END);
        }
    }

    /// Bits in flight, as far as is known.
    fn in_flight(&self) -> f64 {
        f64::from(self.sent.saturating_sub(self.passed)) * self.sizes.0
    }

    /// Whether more of the last packets were lost than without a full queue.
    fn is_overflowing(&self) -> bool {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else {
            return false;
        };
        let passed = f64::from(last.0.saturating_sub(first.0));
        let came = f64::from(last.1.saturating_sub(first.1));
        // With half as many it must be clearer.
        let beyond = if self.recent.len() < RECENT / 2 { OVERFLOW * 1.4 } else { OVERFLOW };
        self.recent.len() >= RECENT / 4 && passed - came > passed * (self.usual_loss() + beyond)
    }

    /// Goes to the next phase when due.
    fn advance(&mut self, now: Time) {
        let spent = |span: Duration| self.since.is_some_and(|since| now.since(since) >= span);
        let is_over = |end: Duration| now.since(self.greeted) >= end;
        match self.phase {
            Phase::Quiet if self.scouts >= QUIET_SCOUTS || is_over(RAMP_END) => {
                self.enter(Phase::Ramp, now);
            }
            Phase::Ramp if is_over(RAMP_END) => {
                self.limit = Some(Limit::Time);
                self.enter(Phase::Hold, now);
            }
            Phase::Fill => {
                self.is_full |= self.is_overflowing();
                let is_long = self.longest >= MAX_QUEUE.as_nanos() as i64;
                if is_over(FILL_END) || is_long || self.is_full && spent(FILL_SPAN) {
                    self.enter(Phase::Hold, now);
                }
            }
            Phase::Hold if spent(HOLD_SPAN) || is_over(HOLD_END) => self.enter(Phase::Low, now),
            _ => {}
        }
    }

    /// The highest rate of packets now, bit/s.
    fn pace(&self) -> f64 {
        let first = FIRST * self.sizes.0 / FIRST_SPAN.as_secs_f64();
        let pace = match (self.phase, self.arriving) {
            (_, None) => first,
            (Phase::Quiet | Phase::Ramp, Some(arriving)) => (arriving * RAMP_PACE).max(first),
            (Phase::Fill, Some(arriving)) => arriving * FILL_PACE,
            (Phase::Hold | Phase::Low, Some(arriving)) => {
                self.rate().unwrap_or(arriving) * (1.0 + self.measured_loss())
            }
        };
        pace.min(self.max_rate).max(1.0)
    }

    /// Bits that may be in flight while the rate is held.
    fn held_window(&self) -> f64 {
        let queue = (self.longest as f64 / 2e9).min(HELD_QUEUE);
        let rate = self.rate().unwrap_or(0.0);
        rate * (self.round_trip.as_secs_f64() + queue + 0.02) + 4.0 * self.sizes.0
    }

    /// When a full packet may leave that nothing allows: the arrivals of all before it may be lost.
    fn stalled_at(&self) -> Time {
        let queue = Duration::from_nanos(self.longest.max(0) as u64);
        self.last_load + (self.round_trip + queue.min(MAX_QUEUE)).max(STALL)
    }

    /// What to send now.
    pub(super) fn next(&mut self, now: Time) -> Action {
        self.advance(now);
        if self.phase == Phase::Low && now >= self.ends {
            return Action::End;
        }
        if now < self.due {
            return Action::Wait(self.due.min(self.ends));
        }
        match self.phase {
            Phase::Quiet => self.scout(now, QUIET_GAP),
            Phase::Low => {
                let rate = self.rate().unwrap_or(0.0).max(self.sizes.1) * LOW_SHARE;
                self.scout(now, Duration::from_secs_f64(self.sizes.1 / rate).max(LOW_GAP))
            }
            Phase::Ramp | Phase::Fill | Phase::Hold => self.load(now),
        }
    }

    fn scout(&mut self, now: Time, gap: Duration) -> Action {
        self.due = now + gap;
        self.sent += 1;
        Action::Scout
    }

    fn load(&mut self, now: Time) -> Action {
        let size = self.sizes.0;
        // Whatever the reports were.
        let bound = FIRST * size + PER_ARRIVAL * self.known_bits;
        let is_allowed = match self.phase {
            Phase::Hold => self.in_flight() < self.held_window(),
            _ => self.credit >= size,
        } && self.sent_bits + size <= bound;
        let stalled = self.stalled_at();
        if !is_allowed && now < stalled {
            // A report comes sooner.
            return Action::Wait(stalled.min(now + STALL));
        }
        if self.phase == Phase::Hold {
            self.since.get_or_insert(now);
        }
        if is_allowed {
            self.credit = (self.credit - size).max(0.0);
            self.sent_bits += size;
        }
        self.sent += 1;
        self.last_load = now;
        let gap = Duration::from_secs_f64(size / self.pace());
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(CATCH_UP.as_nanos()));
        self.due = self.due.max(earliest) + gap;
        Action::Load
    }
}
