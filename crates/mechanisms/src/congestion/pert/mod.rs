//! PERT: probabilistic early response to delay, before the loss (thesis, ch. II).
//!
//! A flow measures its smoothed queueing delay. As the delay grows, the flow reduces its
//! window slightly with rising probability, as if a RED router had marked it. If loss-based flows
//! fill the queue all the same, it increases faster to compensate for its early responses.
//! [`PertParameters`] holds all parameters with their sources, and the arithmetic.

mod competition;
mod law;
mod parameters;

use ontempo_foundation::{Duration, RandomStream, Time, math};

use super::{
    Ack, AckCounting, CongestionControl, IntervalHistory, Loss, RecoveryPoint, Registered,
    Snapshot, Start, Timeout, Window,
};

use competition::{Competition, Turn};
pub use law::{Mode, PertParameters, PertSamples, Queueing};

/// PERT's RTT estimates: smallest, largest and smoothed, each from every
/// raw sample, separate from the transport's own estimator.
#[derive(Clone, Copy, Debug)]
struct Path {
    minimum: Duration,
    maximum: Duration,
    /// The last sample that may tell of a new maximum.
    last: Duration,
    /// In nanoseconds; fractional, so that rounding does not lose the last hundredth.
    smoothed: f64,
}

impl Path {
    fn first(rtt: Duration) -> Self {
        Self { minimum: rtt, maximum: rtt, last: rtt, smoothed: rtt.as_nanos() as f64 }
    }

    /// `weight` of the old value, 0 to 1.
    fn on_sample(&mut self, rtt: Duration, weight: f64) {
        self.minimum = self.minimum.min(rtt);
        self.maximum = self.maximum.max(rtt);
        self.smoothed = weight * self.smoothed + (1.0 - weight) * rtt.as_nanos() as f64;
    }

    fn srtt(&self) -> Duration {
        Duration::from_nanos(self.smoothed.round() as u64)
    }

    fn queueing(&self, maxq_floor: Duration) -> Queueing {
        Queueing {
            current: self.srtt() - self.minimum,
            maximum: (self.maximum - self.minimum).max(maxq_floor),
        }
    }
}

/// A mode, and for how many consecutive acknowledged packets it has been observed.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    mode: Mode,
    packets: f64,
}

/// PERT's state.
#[derive(Clone, Debug)]
pub struct Pert {
    parameters: PertParameters,
    random: RandomStream,
    initial_window: f64,
    /// Congestion window in packets.
    cwnd: f64,
    /// Slow-start threshold in packets.
    ssthresh: f64,
    /// Additive increase in packets per round trip.
    alpha: f64,
    /// The current mode.
    mode: Mode,
    observed: Observed,
    /// When alpha may be updated next.
    next_step: Time,
    /// `None` before the first sample.
    path: Option<Path>,
    /// Packets between losses: `p`.
    losses: IntervalHistory,
    /// Packets between early responses: `p'`.
    responses: IntervalHistory,
    competition: Competition,
    recovery: RecoveryPoint,
    /// The first packet number not yet sent at the last early response: there is no other
    /// response until it is acknowledged.
    responded_until: u64,
    early_responses: u64,
    reductions: u64,
}

impl Pert {
    /// Reno's: one half. Also the decrease before the first RTT sample (D).
    const RENO_DECREASE: f64 = 0.5;
    /// From this window on, in packets, the next packet comes before a receiver's timer for an ACK ends.
    const LONE_PACKET_WINDOW: f64 = 8.0;
    /// Reno's additive increase, in packets per round trip.
    const RENO_INCREASE: f64 = 1.0;

    /// A controller at the start of its connection; `random` decides its early responses.
    pub fn new(start: Start, parameters: PertParameters, random: RandomStream) -> Self {
        Self {
            parameters,
            random,
            initial_window: start.initial_window.packets(),
            cwnd: start.initial_window.packets(),
            ssthresh: start.initial_ssthresh.packets(),
            alpha: parameters.alpha_initial,
            mode: Mode::default(),
            observed: Observed::default(),
            next_step: Time::ZERO,
            path: None,
            losses: IntervalHistory::default(),
            responses: IntervalHistory::default(),
            competition: Competition::new(),
            recovery: RecoveryPoint::default(),
            responded_until: 0,
            early_responses: 0,
            reductions: 0,
        }
    }

    /// The current mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// True while the flow is Reno, because loss-based flows keep the queue full.
    pub fn as_reno(&self) -> bool {
        self.competition.as_reno()
    }

    /// The queueing delay; `None` before the first sample.
    pub fn queueing(&self) -> Option<Queueing> {
        self.path.map(|path| path.queueing(self.parameters.maxq_floor))
    }

    /// PERT's own SRTT; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.path.map(|path| path.srtt())
    }

    /// `p`: losses per packet; `None` before the first loss.
    pub fn loss_rate(&self) -> Option<f64> {
        self.losses.rate()
    }

    /// `p'`: early responses per packet; `None` before the first response.
    pub fn response_rate(&self) -> Option<f64> {
        self.responses.rate()
    }

    /// What is left of a share (the old value of an average, the chance of no response) after an ACK,
    /// where each time that it counts leaves `share`.
    fn left(&self, share: f64, ack: &Ack) -> f64 {
        match self.parameters.counting {
            AckCounting::Acks => share,
            AckCounting::Packets => math::pow(share, ack.packets),
        }
    }

    /// The ACK's round trip, if it counts. The largest is kept for ever, so that with
    /// `samples = "confirmed"` two on end must tell of it. An ACK that ends an episode covers packets, too,
    /// that had arrived before it and that no SACK had told of: it counts for nothing.
    fn sample(&mut self, ack: &Ack) -> Option<Duration> {
        let rtt = ack.rtt?;
        if self.parameters.samples != PertSamples::Confirmed {
            return Some(rtt);
        }
        if ack.repairs {
            return None;
        }
        let Some(path) = &mut self.path else { return Some(rtt) };
        let is_lone = ack.packets <= 1.0 && self.cwnd < Self::LONE_PACKET_WINDOW;
        let largest = if is_lone { path.maximum } else { path.maximum.max(path.last) };
        if !is_lone {
            path.last = rtt;
        }
        Some(rtt.min(largest))
    }

    /// Returns the round trip that counted.
    fn measure(&mut self, ack: &Ack) -> Option<Duration> {
        let sample = self.sample(ack);
        if let Some(rtt) = sample {
            let weight = self.left(self.parameters.srtt_weight, ack);
            match &mut self.path {
                Some(path) => path.on_sample(rtt, weight),
                None => self.path = Some(Path::first(rtt)),
            }
        }
        self.losses.on_packets(ack.packets);
        self.responses.on_packets(ack.packets);
        sample
    }

    /// Determines the current mode and updates alpha.
    fn adapt(&mut self, ack: &Ack, queueing: Queueing) {
        let mode = self.parameters.mode(queueing);
        if mode != self.observed.mode {
            self.observed = Observed { mode, packets: 0.0 };
        }
        self.observed.packets += ack.packets;
        let settled = self.parameters.immediate || self.observed.packets >= self.cwnd;
        self.mode = if settled { mode } else { Mode::Safe };

        if self.parameters.immediate {
            let ratio = if mode == Mode::Compete { self.early_to_loss() } else { None };
            if let Some(alpha) = self.parameters.immediate_alpha(mode, queueing, ratio) {
                self.alpha = alpha;
                return;
            }
        }
        if ack.now >= self.next_step {
            let ratio = self.early_to_loss();
            self.alpha = self.parameters.stepped_alpha(self.alpha, self.mode, queueing, ratio);
            let srtt = self.srtt().unwrap_or(ack.srtt);
            self.next_step = ack.now + srtt.mul_f64(self.parameters.alpha_period);
        }
    }

    /// Becomes Reno where early responses do not shorten the queue, and tries them again later.
    fn compete(&mut self, ack: &Ack, sample: Option<Duration>, queueing: Queueing) {
        let (Some(rtt), Some(path)) = (sample, self.path) else { return };
        if !self.parameters.as_reno {
            return;
        }
        // The smoothed delay of a small window lags by many round trips.
        let has_lost = self.losses.mean().is_some();
        let full_from = self.parameters.full_from(queueing, has_lost);
        // In slow start there are no responses that could be futile.
        let responds = self.as_reno() || self.cwnd >= self.ssthresh;
        let full = responds && rtt - path.minimum >= full_from;
        match self.competition.on_ack(
            ack.now,
            path.srtt(),
            self.cwnd,
            full,
            has_lost,
            ack.window_limited,
        ) {
            Some(Turn::ToReno { window }) => self.ssthresh = window.max(self.cwnd),
            Some(Turn::ToEarly) => self.alpha = self.parameters.alpha_minimum,
            None => {}
        }
    }

    /// `p'/p`; `None` before the first loss.
    fn early_to_loss(&self) -> Option<f64> {
        self.losses.mean().map(|between| between * self.responses.rate().unwrap_or(0.0))
    }

    /// Draws for an early response; true if the window was reduced.
    fn responds_early(&mut self, ack: &Ack, queueing: Queueing) -> bool {
        // Only a packet sent after the last response can show its effect. Waiting only for
        // the packets outstanding then would allow a window of two a response to every ACK.
        let felt = ack.acked >= self.responded_until;
        let of_one = self.parameters.response_probability(queueing);
        if of_one <= 0.0 || !felt {
            return false;
        }
        let probability = match self.parameters.counting {
            AckCounting::Acks => of_one,
            AckCounting::Packets => 1.0 - self.left(1.0 - of_one, ack),
        };
        if !self.random.chance(probability) {
            return false;
        }
        self.reduce(self.parameters.decrease(queueing));
        self.cwnd = self.ssthresh;
        self.responded_until = ack.next;
        self.responses.close();
        self.early_responses += 1;
        true
    }

    /// A loss, however detected: ssthresh is reduced, the loss interval is closed.
    fn on_any_loss(&mut self) {
        let decrease = match self.queueing() {
            Some(queueing) if !self.as_reno() && !self.parameters.half_at_a_loss => {
                self.parameters.decrease(queueing)
            }
            _ => Self::RENO_DECREASE,
        };
        self.reduce(decrease);
        self.losses.close();
    }

    fn reduce(&mut self, decrease: f64) {
        self.ssthresh = (self.cwnd * (1.0 - decrease)).max(self.parameters.window_floor);
        self.reductions += 1;
    }
}

impl Registered for Pert {
    type Parameters = PertParameters;

    fn start(start: Start, parameters: PertParameters, random: RandomStream) -> Self {
        Self::new(start, parameters, random)
    }
}

impl CongestionControl for Pert {
    fn on_ack(&mut self, ack: &Ack) {
        let sample = self.measure(ack);
        if ack.in_recovery || ack.packets <= 0.0 {
            return;
        }
        let queueing = self.queueing();
        if let Some(queueing) = queueing {
            self.adapt(ack, queueing);
            self.compete(ack, sample, queueing);
        }
        if self.cwnd < self.ssthresh {
            if !ack.window_limited {
                return;
            }
            self.cwnd += match self.parameters.counting {
                AckCounting::Acks => 1.0,
                AckCounting::Packets => ack.packets,
            };
            return;
        }
        let as_reno = self.as_reno();
        if !as_reno && queueing.is_some_and(|queueing| self.responds_early(ack, queueing)) {
            return;
        }
        if ack.window_limited {
            let alpha = if as_reno { Self::RENO_INCREASE } else { self.alpha };
            self.cwnd += alpha * ack.packets / self.cwnd;
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.recovery.begins_with(loss) {
            self.on_any_loss();
            self.cwnd = self.ssthresh;
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.recovery.restart(timeout.next);
        if !timeout.repeated {
            self.on_any_loss();
        }
        self.cwnd = 1.0;
    }

    fn on_spurious_timeout(&mut self, before: &Snapshot) {
        self.cwnd = self.cwnd.max(before.cwnd.packets());
        self.ssthresh = self.ssthresh.max(before.ssthresh.packets());
        // The next loss begins an episode, whatever was outstanding at the timeout.
        self.recovery = RecoveryPoint::default();
    }

    fn on_idle_restart(&mut self) {
        self.cwnd = self.cwnd.min(self.initial_window);
    }

    fn on_idle_decay(&mut self, timeouts: u64) {
        self.cwnd = self.window().decayed(self.initial_window, timeouts).packets();
    }

    fn window(&self) -> Window {
        Window::of_packets(self.cwnd)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: Window::of_packets(self.cwnd),
            ssthresh: Window::of_packets(self.ssthresh),
            alpha: Some(self.alpha),
            queueing_delay: self.queueing().map(|queueing| queueing.current),
            largest_queueing_delay: self.queueing().map(|queueing| queueing.maximum),
            smoothed_rtt: self.srtt(),
            early_responses: self.early_responses,
            reductions: self.reductions,
            bears: None,
        }
    }
}

#[cfg(test)]
mod tests;
