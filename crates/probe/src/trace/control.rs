//! How much the recorder sends: enough that the bottleneck is never idle, with short pauses in which
//! its queue runs empty and the delay shows.

use ontempo_foundation::{Duration, Rate, Time};

use super::base::BaseFinder;

/// Queueing delay that the recorder causes.
pub(super) const TARGET: Duration = Duration::from_millis(60);

/// The queueing delay that would be left if the rate grew again to the highest that was lately seen.
const RESERVE: Duration = Duration::from_millis(20);

/// How long the highest rate is remembered: at least this long, at most twice.
const PEAK_SPAN: Duration = Duration::from_secs(1);

/// The longest queueing delay that the reserve for the highest rate may cause, s.
const MAX_RESERVE: f64 = 0.5;

/// So many windows are sent in a round trip and the reserve: more than the bottleneck takes, so that
/// its queue is soon there after a pause.
const PACE: f64 = 2.0;

/// Below this queueing delay the bottleneck may be idle: more is sent.
const LOW: Duration = Duration::from_millis(15);

/// From the end of a pause to the next.
const PAUSE_INTERVAL: Duration = Duration::from_millis(400);

/// The same after a pause in which the queue did not run empty.
const PAUSE_AGAIN: Duration = Duration::from_millis(100);

/// How long a pause outlasts the queue, at least.
const PAUSE_MARGIN: Duration = Duration::from_millis(12);

/// The longest that a pause outlasts the queue.
const MAX_MARGIN: Duration = Duration::from_millis(500);

/// The longest queue that a pause waits for.
const MAX_QUEUE: Duration = Duration::from_secs(2);

/// Shortest distance of scouts in a pause.
const SCOUT_GAP: Duration = Duration::from_millis(3);

/// Where nothing else may be sent, a scout goes so often.
pub(super) const STALL_GAP: Duration = Duration::from_millis(20);

/// Packets that wait at the bottleneck longer than this are certainly behind others, ns.
pub(super) const QUEUED: i64 = 1_000_000;

/// Time constant of the rate, s of busy time.
const MEMORY: f64 = 0.05;

/// Packets of the first window.
const FIRST_WINDOW: f64 = 10.0;

/// Packets of the smallest window.
const MIN_WINDOW: f64 = 4.0;

/// Bits over seconds, of which older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Decayed {
    bits: f64,
    seconds: f64,
}

impl Decayed {
    fn add(&mut self, bits: f64, seconds: f64) {
        let keep = (-seconds / MEMORY).exp();
        self.bits = self.bits * keep + bits;
        self.seconds = self.seconds * keep + seconds;
    }

    /// bit/s; `None` before anything was added.
    fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0 && self.bits > 0.0).then(|| self.bits / self.seconds)
    }
}

/// An arrival as the sender learns of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) number: u32,
    /// Since recording began, ns.
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
    /// The smallest packet; whether its report is wanted at once.
    Scout { is_urgent: bool },
    /// Nothing until then.
    Wait(Time),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Fill,
    /// The queue runs empty, until then at most.
    Drain {
        until: Time,
    },
    /// It is empty.
    Pause {
        until: Time,
        next_scout: Time,
        gap: Duration,
    },
}

/// A pause whose arrivals are not all known.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Number of its first packet, and of the first after it.
    numbers: (u32, u32),
    has_base: bool,
    ended: Time,
}

/// The highest rate lately, bit/s.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    /// Of the present span, and of the one before.
    spans: (f64, f64),
    /// When the present one began, ns.
    since: i64,
}

impl Peak {
    /// Takes the rate at `at` ns.
    fn add(&mut self, at: i64, rate: f64) {
        if at - self.since >= PEAK_SPAN.as_nanos() as i64 {
            self.spans = (0.0, self.spans.0);
            self.since = at;
        }
        self.spans.0 = self.spans.0.max(rate);
    }

    fn get(&self) -> f64 {
        self.spans.0.max(self.spans.1)
    }
}

/// The recorder's congestion control.
#[derive(Debug)]
pub(super) struct Control {
    /// Bits of a full packet, and of a scout, with IP and UDP headers.
    sizes: (f64, f64),
    /// bit/s.
    max_rate: f64,
    /// Bits that may be in flight.
    window: f64,
    finder: BaseFinder,
    /// Transit without a queue, by both clocks, ns.
    base: Option<i64>,
    /// Smallest round trip less its transit: the way back, by both clocks, ns.
    back: Option<i64>,
    last_at: Option<i64>,
    /// What the bottleneck sent while it had a queue, and all that arrived.
    served: Decayed,
    arrived: Decayed,
    peak: Peak,
    /// The window grows again with a packet of this number.
    grow_at: u32,
    /// Packets of the present growth that arrived.
    since_growth: u32,
    phase: Phase,
    pending: Option<Pending>,
    /// Added to [`PAUSE_MARGIN`].
    patience: Duration,
    next_pause: Time,
    /// The origin of the sender's times of arrivals.
    started: Time,
    /// Filling began then.
    filling_since: Time,
    /// When the next full packet may be sent.
    due: Time,
    last_sent: Time,
    /// An arrival was last reported then.
    heard: Time,
}

impl Control {
    /// Sends packets of these sizes (bytes with IP and UDP headers) and at most at `max_rate`.
    pub(super) fn new(now: Time, load: u64, scout: u64, max_rate: Rate) -> Self {
        let sizes = (load as f64 * 8.0, scout as f64 * 8.0);
        // The first thing to know is the delay of the idle path.
        let phase = Phase::Pause { until: now + PAUSE_MARGIN * 2, next_scout: now, gap: SCOUT_GAP };
        Self {
            sizes,
            max_rate: max_rate.as_bits_per_sec().max(1) as f64,
            window: FIRST_WINDOW * sizes.0,
            finder: BaseFinder::default(),
            base: None,
            back: None,
            last_at: None,
            served: Decayed::default(),
            arrived: Decayed::default(),
            peak: Peak::default(),
            grow_at: 0,
            since_growth: 0,
            phase,
            pending: None,
            patience: Duration::ZERO,
            next_pause: now + PAUSE_INTERVAL,
            started: now,
            filling_since: now,
            due: now,
            last_sent: now,
            heard: now,
        }
    }

    /// The rate of the bottleneck as last seen, bit/s.
    pub(super) fn rate(&self) -> Option<f64> {
        self.served.rate().or_else(|| self.arrived.rate())
    }

    /// The smallest transit without a queue, and the way back, ns.
    fn round_trip(&self) -> f64 {
        match (self.base, self.back) {
            (Some(base), Some(back)) => (base + back).max(0) as f64 / 1e9,
            _ => 0.1,
        }
    }

    /// Bits that fill the path at this rate and [`TARGET`] of its queue; enough that the queue does
    /// not run empty if the rate grows to what it lately was.
    fn window_at(&self, rate: f64) -> f64 {
        let round_trip = self.round_trip();
        let reserve = self.peak.get() * (round_trip + RESERVE.as_secs_f64());
        let reserve = reserve.min(rate * (round_trip + MAX_RESERVE));
        reserve.max(rate * (round_trip + TARGET.as_secs_f64()))
    }

    /// Takes a round trip, ns, of a packet with this transit.
    pub(super) fn on_round_trip(&mut self, round_trip: i64, transit: i64) {
        let back = round_trip - transit;
        self.back = Some(self.back.map_or(back, |least| least.min(back)));
    }

    /// Takes arrivals in their order; packets up to `next` were sent.
    pub(super) fn on_arrival(&mut self, now: Time, arrived: Arrived, next: u32) {
        self.heard = now;
        let transit = arrived.at - arrived.sent;
        let clear = self.finder.on_arrival(arrived.sent, arrived.at, arrived.is_scout);
        if let Some(clear) = clear {
            self.base = Some(clear);
            if let Some(pending) = &mut self.pending
                && (pending.numbers.0..pending.numbers.1).contains(&arrived.number)
            {
                pending.has_base = true;
            }
        }
        let base = self.base.map_or(transit, |base| base.min(transit));
        self.base = Some(base);
        if let Some(last) = self.last_at {
            let span = (arrived.at - last).max(0) as f64 / 1e9;
            self.arrived.add(arrived.bits, span);
            if last - base - arrived.sent >= QUEUED {
                self.served.add(arrived.bits, span);
                if self.served.seconds >= MEMORY / 2.0 {
                    let rate = self.served.rate().unwrap_or(0.0).min(self.max_rate);
                    self.peak.add(arrived.at, rate);
                }
            }
        }
        self.last_at = Some(arrived.at);
        self.since_growth = self.since_growth.saturating_add(1);
        if self.pending.is_some_and(|pending| arrived.number >= pending.numbers.1) {
            self.settle(now);
        }
        if !arrived.is_scout {
            self.adapt(&arrived, transit - base, next);
        }
    }

    /// Sets the window by a full packet that waited `queueing` ns.
    fn adapt(&mut self, arrived: &Arrived, queueing: i64, next: u32) {
        // The first packets after a pause cannot have met a queue: the window was not yet sent.
        let sending = Duration::from_secs_f64((self.round_trip() + RESERVE.as_secs_f64()) / PACE);
        let built = self.filling_since + (sending + LOW).max(LOW * 2);
        if arrived.number < self.grow_at
            || arrived.sent < built.since(self.started).as_nanos() as i64
        {
            return;
        }
        let most = self.window_at(self.max_rate);
        if queueing < LOW.as_nanos() as i64 {
            let passed = f64::from(arrived.number - self.grow_at) + 1.0;
            let is_losing = f64::from(self.since_growth) < 0.9 * passed;
            self.window = match self.arrived.rate() {
                // A queue too short for the target overflows: half more than what passes.
                Some(rate) if is_losing => self.window_at(rate * 1.5),
                _ => self.window * 2.0,
            };
            (self.grow_at, self.since_growth) = (next, 0);
        } else if let Some(rate) = self.served.rate() {
            self.window = self.window_at(rate);
        }
        self.window = self.window.min(most).max(MIN_WINDOW * self.sizes.0);
    }

    /// All arrivals of a pause are known.
    fn settle(&mut self, now: Time) {
        let Some(pending) = self.pending.take() else { return };
        if pending.has_base {
            self.patience = Duration::ZERO;
        } else {
            let longer = (self.patience * 2).max(PAUSE_MARGIN);
            self.patience = longer.min(MAX_MARGIN);
            self.next_pause = self.next_pause.min(now + PAUSE_AGAIN);
        }
    }

    /// What to send now, with these bits in flight; `next` is its number.
    pub(super) fn next(&mut self, now: Time, in_flight: f64, next: u32) -> Action {
        if let Phase::Fill = self.phase
            && now >= self.next_pause
            && self.may_pause(now)
        {
            self.phase = Phase::Drain { until: now + MAX_QUEUE };
            self.pending = Some(Pending { numbers: (next, u32::MAX), has_base: false, ended: now });
        }
        if let Phase::Drain { until } = self.phase {
            match self.drained_at(now, in_flight) {
                empty if empty > now && until > now => {
                    let silent = self.silent_at(in_flight);
                    if silent > now {
                        return Action::Wait(empty.min(until).min(silent));
                    }
                    self.last_sent = now;
                    return Action::Scout { is_urgent: false };
                }
                _ => self.scout(now),
            }
        }
        if let Phase::Pause { until, next_scout, gap } = self.phase {
            // What an impatient pause was for may be known before its end.
            let is_known = self.pending.is_some_and(|pending| pending.has_base);
            if now >= until || is_known {
                self.fill(now, next);
            } else if now >= next_scout {
                self.phase = Phase::Pause { until, next_scout: now + gap, gap };
                self.last_sent = now;
                return Action::Scout { is_urgent: true };
            } else {
                return Action::Wait(until.min(next_scout));
            }
        }
        let pause = if self.may_pause(now) { self.next_pause } else { Time::NEVER };
        if in_flight < self.window {
            if now < self.due {
                return Action::Wait(self.due.min(pause));
            }
            self.last_sent = now;
            let pace = self.window / (self.round_trip() + RESERVE.as_secs_f64()) * PACE;
            self.due = now + Duration::from_secs_f64(self.sizes.0 / pace.min(self.max_rate));
            return Action::Load;
        }
        let stalled = self.last_sent + STALL_GAP;
        if now < stalled {
            return Action::Wait(stalled.min(pause));
        }
        self.last_sent = now;
        Action::Scout { is_urgent: false }
    }

    /// Whether what the last pause showed is known, or will not be.
    fn may_pause(&self, now: Time) -> bool {
        self.base.is_some()
            && self.pending.is_none_or(|pending| now.since(pending.ended) >= MAX_QUEUE)
    }

    /// Distance of scouts: so far that they cause no queue themselves.
    fn scout_gap(&self) -> Duration {
        let rate = self.rate().unwrap_or(self.max_rate);
        Duration::from_secs_f64(3.0 * self.sizes.1 / rate).max(SCOUT_GAP).min(MAX_MARGIN)
    }

    /// When the queue will soon be empty, by the rate last seen.
    fn drained_at(&self, now: Time, in_flight: f64) -> Time {
        let rate = self.rate().unwrap_or(self.max_rate);
        let queue = Duration::from_secs_f64((in_flight / rate - self.round_trip()).max(0.0));
        now + queue.min(MAX_QUEUE).saturating_sub(self.scout_gap() * 2)
    }

    /// When a scout is to ask whether anything passes, while the queue should run empty: all in flight should
    /// have arrived, at the rate last seen.
    fn silent_at(&self, in_flight: f64) -> Time {
        let rate = self.rate().unwrap_or(self.max_rate);
        let all = Duration::from_secs_f64(in_flight / rate).min(MAX_QUEUE);
        (self.heard + all).max(self.last_sent) + STALL_GAP
    }

    /// The queue is nearly empty.
    fn scout(&mut self, now: Time) {
        let gap = self.scout_gap();
        let until = now + gap * 2 + PAUSE_MARGIN.max(gap * 4) + self.patience;
        self.phase = Phase::Pause { until, next_scout: now, gap };
        if let Some(pending) = &mut self.pending {
            pending.ended = until;
        }
    }

    fn fill(&mut self, now: Time, next: u32) {
        self.phase = Phase::Fill;
        if let Some(pending) = &mut self.pending {
            pending.numbers.1 = next;
            pending.ended = now;
        }
        self.next_pause = now + PAUSE_INTERVAL;
        self.filling_since = now;
        self.due = now;
    }
}
