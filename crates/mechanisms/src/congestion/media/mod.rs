//! A controller for media: bursts of an application that needs a certain rate at once, over paths that
//! lose packets and vary in delay.
//!
//! The path's rate (from trains of packets) and its base round trip say how much fills it; a queue that
//! stands, or losses that rise with the rate, say that less does. Losses without either are the path's
//! own. Where others keep the queue full, the window is that of a loss-based flow.

mod capacity;
mod competition;
mod delay;
mod demand;
mod inherent;
mod parameters;
#[cfg(test)]
mod tests;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};

use super::{Ack, CongestionControl, Loss, Registered, Sent, Snapshot, Start, Timeout, Window};
use crate::recovery::DeliveryRates;
use capacity::Capacity;
use competition::Competition;
use delay::{Delays, Queues};
use demand::Demand;
use inherent::InherentLoss;
pub use parameters::MediaParameters;

/// The least window, in packets: a receiver that acknowledges every other one keeps the path busy.
const LEAST: f64 = 4.0;

/// The pacing gain before the path's rate is known: 2 ln 2 of BBR's Startup.
const FIRST_GAIN: f64 = 2.77;

/// A standing queue lowers the path's estimated rate to what was delivered, but by no more than this in
/// a span: one sample may be of too few packets.
const LOWERED: f64 = 0.85;

/// Congestion lowers the bound of the window by the first factor a span, the circuit breaker by the
/// second; a span without raises it by a share.
const CONGESTED: f64 = 0.85;
const BROKEN: f64 = 0.5;
const RAISED: f64 = 0.03;

/// Under such a bound packets leave so much faster than a window a round trip.
const BOUNDED_GAIN: f64 = 2.0;

/// What it keeps in the queue is at most so long, in seconds, and it grows until that is so much longer.
const LONGEST_OWN: f64 = 0.2;
const GROWS_TO: f64 = 0.005;

/// A window that fills a path of known rate grows by so much for each packet acknowledged.
const BEYOND: f64 = 0.125;

/// Above this share of losses, a flow that the window limits has so much of its window for so many spans,
/// so often.
const LOSSY: f64 = 0.03;
const TESTED: f64 = 0.7;
const TEST_SPANS: u32 = 4;
const TEST_EVERY: Duration = Duration::from_secs(3);

/// What packets that leave at once fill, of a second.
const QUANTUM: f64 = 0.001;

/// What a span has seen so far.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    since: Time,
    delivered: f64,
    lost: f64,
    /// The most in flight, packets.
    used: f64,
    was_limited: bool,
    is_marked: bool,
}

/// The state of the controller.
#[derive(Clone, Debug)]
pub struct Media {
    parameters: MediaParameters,
    packet_size: Bytes,
    rates: DeliveryRates,
    delays: Delays,
    capacity: Capacity,
    inherent: InherentLoss,
    demand: Demand,
    competition: Competition,
    /// In packets.
    cwnd: f64,
    /// The bound that losses set, in packets; infinite without.
    ceiling: f64,
    srtt: Duration,
    /// Its window has filled the path before, so that the path's rate is known.
    has_filled: bool,
    /// Spans left of a test, and the window in it.
    tests: u32,
    tested_with: f64,
    next_test: Time,
    /// Queues of the last span.
    queues: Queues,
    span: Span,
    last_ack: Time,
    reductions: u64,
    early_responses: u64,
}

impl Media {
    /// A controller at the start of its connection.
    pub fn new(start: Start, parameters: MediaParameters) -> Self {
        let initial = start.initial_window.packets().max(1.0);
        Self {
            parameters,
            packet_size: start.packet_size,
            rates: DeliveryRates::new(false),
            delays: Delays::default(),
            capacity: Capacity::default(),
            inherent: InherentLoss::default(),
            demand: Demand::default(),
            competition: Competition::default(),
            cwnd: initial,
            ceiling: f64::INFINITY,
            has_filled: false,
            tests: 0,
            tested_with: 0.0,
            next_test: Time::ZERO,
            srtt: Duration::ZERO,
            queues: Queues { least: 0.0, most: 0.0 },
            span: Span::default(),
            last_ack: Time::ZERO,
            reductions: 0,
            early_responses: 0,
        }
    }

    /// The base round trip in seconds; 0 while unknown.
    fn base(&self) -> f64 {
        self.delays.base().map_or(0.0, Duration::as_secs_f64)
    }

    /// The queueing delay of what it keeps in the queue itself, in seconds.
    fn own_queue(&self) -> f64 {
        (self.parameters.queue / self.capacity.get().max(1.0)).min(LONGEST_OWN)
    }

    /// The queueing delay from which on a queue stands, in seconds.
    fn standing_from(&self) -> f64 {
        self.own_queue() + self.parameters.margin.as_secs_f64().max(self.base() / 8.0)
    }

    /// What fills the path and keeps `queue` packets in its queue.
    fn fills(&self, rate: f64) -> f64 {
        rate * self.base() + self.parameters.queue
    }

    /// A span has ended.
    fn on_span(&mut self, now: Time, queues: Queues) {
        let span = std::mem::replace(&mut self.span, Span { since: now, ..Span::default() });
        let seconds = now.since(span.since).as_secs_f64();
        self.queues = queues;
        let limit = self.standing_from();
        let (stands, had_queue) = (queues.least > limit, queues.most > limit);
        self.demand.on_span(now, &span, seconds);
        let (lost, packets) = (span.lost, span.delivered + span.lost);
        let is_exceeded = self.inherent.is_exceeded(lost, packets, self.parameters.loss_threshold);
        let is_congested =
            span.is_marked || (is_exceeded && (had_queue || self.inherent.rises_with_rate()));
        let is_broken = self.demand.lost() > self.parameters.breaker;
        self.bound(&span, is_congested, is_broken);
        let is_loss = span.is_marked || self.inherent.is_loss(lost, packets);
        let seen = competition::Seen { stands, is_loss, is_broken, used: span.used };
        self.competition.on_span(now, &seen, span.was_limited);
        if let Some(window) = self.competition.window() {
            let window = window.max(self.demand.floor(self.parameters.breaker));
            self.reductions += u64::from(window < self.cwnd && is_loss);
            self.cwnd = window;
            return;
        }
        self.has_filled |= stands && span.was_limited;
        if stands && (is_congested || span.was_limited) {
            let delivered = span.delivered / seconds.max(1e-3);
            self.capacity.limit(delivered.max(self.capacity.get() * LOWERED));
        }
        let fills = if stands { self.fills(self.capacity.get()) } else { f64::INFINITY };
        let window = fills.min(self.ceiling).min(self.tested(now, &span));
        // Half of what fills the path empties its own queue: the base shows (BBR's ProbeRTT).
        let is_stale = span.was_limited && self.delays.is_base_stale(now);
        let half = self.capacity.get() * self.base() / 2.0;
        let window = if is_stale { window.min(half) } else { window }.max(LEAST);
        if window < self.cwnd {
            self.cwnd = window;
            self.early_responses += u64::from(!is_congested);
            self.reductions += 1;
        }
    }

    /// A flow that the window limits and that loses packets sends less for some spans, now and then:
    /// whether less is lost then. The application's own changes of rate show it otherwise.
    fn tested(&mut self, now: Time, span: &Span) -> f64 {
        if self.tests > 0 {
            self.tests -= 1;
        } else if span.was_limited && self.demand.lost() > LOSSY && now >= self.next_test {
            self.next_test = now + TEST_EVERY;
            self.tests = TEST_SPANS;
            self.tested_with = span.used * TESTED;
        } else {
            return f64::INFINITY;
        }
        self.tested_with
    }

    /// Losses that rise with the rate, or that fill a queue, bound the window from above; the bound goes
    /// while they stay away.
    fn bound(&mut self, span: &Span, is_congested: bool, is_broken: bool) {
        if is_congested || is_broken {
            let factor = if is_broken { BROKEN } else { CONGESTED };
            self.ceiling = (self.ceiling.min(span.used.max(LEAST)) * factor).max(LEAST);
        } else {
            self.ceiling += (self.ceiling * RAISED).max(1.0);
        }
    }

    /// The window grows where it limits the flow and no queue stands.
    fn grow(&mut self, ack: &Ack, newly: f64) {
        if self.competition.window().is_some() {
            return;
        }
        // Where all of its own stands in the queue, it grows no more.
        let short = 1.0 - self.queues.least / (self.own_queue() + GROWS_TO);
        if ack.window_limited && short > 0.0 {
            let is_beyond = self.has_filled && self.cwnd >= self.fills(self.capacity.get());
            self.cwnd += newly * short * if is_beyond { BEYOND } else { 1.0 };
        }
        if short > 0.0 && self.cwnd < self.fills(self.capacity.get()) {
            let fills = self.fills(self.capacity.get());
            self.cwnd = (self.cwnd + newly).min(fills).max(self.cwnd);
        }
        self.cwnd = self.cwnd.min(self.ceiling);
    }

    fn pacing(&self) -> f64 {
        let rtt = self.srtt.max(Duration::from_millis(1)).as_secs_f64();
        let by_window = FIRST_GAIN * self.cwnd / rtt;
        let rate = self.capacity.get();
        if rate <= 0.0 {
            return by_window;
        }
        let mut pace = (self.parameters.pacing_gain * rate).max(self.cwnd / rtt);
        if self.ceiling.is_finite() {
            pace = pace.min(BOUNDED_GAIN * self.ceiling.max(self.cwnd) / rtt);
        }
        pace
    }
}

impl Registered for Media {
    type Parameters = MediaParameters;

    fn start(start: Start, parameters: MediaParameters, _: RandomStream) -> Self {
        Self::new(start, parameters)
    }
}

impl CongestionControl for Media {
    fn delivery_rates(&mut self) -> Option<&mut DeliveryRates> {
        Some(&mut self.rates)
    }

    fn on_handshake(&mut self, now: Time, rtt: Duration) {
        self.rates.on_rtt(rtt);
        self.srtt = rtt;
        self.delays.on_rtt(now, rtt, rtt);
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.rates.on_sent(sent.now, sent.packet, sent.size, sent.in_flight);
        self.span.used = self.span.used.max(sent.in_flight);
    }

    fn on_ack(&mut self, ack: &Ack) {
        let now = ack.now;
        if let Some(rtt) = ack.rtt {
            self.rates.on_rtt(rtt);
        }
        if ack.srtt > Duration::ZERO {
            self.srtt = ack.srtt;
        }
        let newly = self.rates.newly_delivered();
        let lost = self.rates.newly_lost();
        let is_app_limited = self.rates.is_application_limited();
        let sample = self.rates.sample().and_then(|sample| sample.rate);
        // While a queue stands, the mean rate is that of the path: trains may be of others' gaps.
        let stands = self.queues.least > self.standing_from();
        if let Some(rate) = sample
            && !stands
        {
            self.capacity.add(now, rate);
        }
        if let Some(rtt) = ack.rtt
            && !stands
        {
            let sent = Time::ZERO + now.since(Time::ZERO).saturating_sub(rtt);
            self.capacity.on_ack(now, sent, self.rates.total_delivered());
        }
        self.span.delivered += newly;
        self.span.lost += lost;
        self.span.was_limited |= !is_app_limited;
        let seconds = now.since(self.last_ack).as_secs_f64();
        self.last_ack = now;
        let has_queue = self.queues.most > self.standing_from();
        self.inherent.on_packets(newly, lost, seconds, has_queue);
        self.grow(ack, newly);
        if let Some(rtt) = ack.rtt
            && let Some(queues) = self.delays.on_rtt(now, rtt, self.srtt)
        {
            self.on_span(now, queues);
        }
    }

    /// What is lost is told packet by packet with the delivery rates.
    fn on_loss(&mut self, _: &Loss) {}

    fn on_ecn(&mut self, _: &Loss) {
        self.span.is_marked = true;
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.reductions += u64::from(!timeout.repeated);
        self.cwnd = LEAST;
    }

    fn on_idle_restart(&mut self) {}

    fn window(&self) -> Window {
        Window::of_packets(self.cwnd)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let bits = self.pacing() * 8.0 * self.packet_size.get() as f64;
        Some(Rate::from_bits_per_sec((bits as u64).max(1)))
    }

    fn burst(&self) -> Packets {
        Packets::new((self.pacing() * QUANTUM).clamp(2.0, 32.0) as u64)
    }

    fn snapshot(&self) -> Snapshot {
        let rate = match self.competition.window() {
            Some(window) => window / self.srtt.as_secs_f64().max(1e-3),
            None => self.capacity.get(),
        };
        let bits = rate * (1.0 - self.demand.lost()) * 8.0 * self.packet_size.get() as f64;
        Snapshot {
            cwnd: self.window(),
            ssthresh: Window::of_packets(f64::INFINITY),
            alpha: None,
            queueing_delay: Some(Duration::from_secs_f64(self.queues.least)),
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: self.early_responses,
            reductions: self.reductions,
            bears: (bits > 0.0).then(|| Rate::from_bits_per_sec(bits as u64)),
        }
    }
}
