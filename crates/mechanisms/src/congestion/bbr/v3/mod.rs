//! BBR version 3 (draft-ietf-ccwg-bbr-06), without ECN, for flows with selective acknowledgements.
//!
//! Functions have the names of the draft's.

mod cycle;
mod losses;
mod probe_rtt;

use ontempo_foundation::{Duration, Time};

use super::filter::RoundMaximum;
use super::flow::{Event, Flow, MIN_PIPE};
use crate::recovery::{RateSample, Repair};

/// Drain's pacing gain (BBR.DrainPacingGain).
const DRAIN_GAIN: f64 = 0.5;

/// Pacing gains of the phases of ProbeBW that do not cruise, and the window's gain in UP (section
/// 5.6.1).
const DOWN_GAIN: f64 = 0.9;
const UP_GAIN: f64 = 1.25;
const UP_CWND_GAIN: f64 = 2.25;

/// ProbeRTT's window, in bandwidth-delay products (BBR.ProbeRTTCwndGain).
const PROBE_RTT_CWND_GAIN: f64 = 0.5;

/// Accelerating goes on while the rate grows by this factor within so many rounds (section 5.3.1.2).
const GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;

/// Startup ends at so many separate losses in a round (BBRStartupFullLossCnt).
const STARTUP_LOSSES: u32 = 6;

/// Drain lasts no longer than so many rounds (section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;

/// The least round trip is that of so long (BBR.MinRTTFilterLen).
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);

/// Rounds of which the excess acknowledgements are remembered (BBR.ExtraAckedFilterLen), and in
/// Startup.
const EXTRA_ROUNDS: u64 = 10;
const EXTRA_ROUNDS_IN_STARTUP: u64 = 1;

/// Bandwidth is probed for after 2 s to 3 s (PickProbeWait), and after no more rounds than this
/// (T_reno_bound).
const PROBE_WAIT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));
const PROBE_ROUNDS: f64 = 63.0;

/// The exponent at which the growth of the long-term bound stops doubling
/// (RaiseInflightLongtermSlope).
const MAX_UP_ROUNDS: u32 = 30;

/// Large segments' worth of data that offloading needs in flight (section 5.5.8), and how long such a
/// segment lasts, in seconds (SetSendQuantum).
const OFFLOAD_QUANTA: f64 = 3.0;
const QUANTUM_SECONDS: f64 = 0.001;

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// IsProbingBW.
    fn accelerates(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

/// Which packets are being acknowledged, relative to a probe for bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// Looks for the rate at which sending faster delivers no faster (section 5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
struct Plateau {
    /// BBR.full_bw.
    rate: f64,
    /// BBR.full_bw_count.
    rounds: u32,
    /// BBR.full_bw_now.
    is_reached: bool,
}

impl Plateau {
    fn from(rate: f64) -> Self {
        Self { rate, ..Self::default() }
    }
}

/// What a spurious episode is undone by (section 5.5.11).
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Startup or Up, if the episode ended it.
    left: Option<State>,
    bandwidth_short: f64,
    inflight_short: f64,
    inflight_long: f64,
}

/// Version 3's model of the path. Volumes are packets, rates packets a second; infinite where there is
/// no bound.
#[derive(Clone, Debug)]
pub(super) struct V3 {
    pub(super) state: State,
    /// BBR.max_bw_filter: the last cycle's, and this one's.
    cycles: [f64; 2],
    /// BBR.bw.
    bandwidth: f64,
    pub(super) bandwidth_short: f64,
    pub(super) inflight_short: f64,
    pub(super) inflight_long: f64,
    // Of the last round (section 5.5.10).
    bandwidth_latest: f64,
    inflight_latest: f64,
    loss_round_delivered: f64,
    loss_round_start: bool,
    loss_in_round: bool,
    /// Acknowledgements of this round that found losses: about as many separate ranges.
    loss_events: u32,
    plateau: Plateau,
    /// BBR.full_bw_reached.
    pub(super) is_filled: bool,
    drain_start: u64,
    ack_phase: AckPhase,
    is_probe_sample: bool,
    probed_too_high: bool,
    probed_with_care: bool,
    up_acked_per_packet: f64,
    up_acked: f64,
    up_rounds: u32,
    rounds_since_probe: u64,
    probe_wait: Duration,
    cycle_start: Time,
    extra: RoundMaximum,
    extra_since: Time,
    extra_delivered: f64,
    extra_acked: f64,
    /// BBR.probe_rtt_min_delay and its time.
    recent_rtt: Option<(Duration, Time)>,
    is_rtt_stale: bool,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    undo: Undo,
}

impl V3 {
    pub(super) fn new() -> Self {
        let without = f64::INFINITY;
        Self {
            state: State::Startup,
            cycles: [0.0; 2],
            bandwidth: 0.0,
            bandwidth_short: without,
            inflight_short: without,
            inflight_long: without,
            bandwidth_latest: 0.0,
            inflight_latest: 0.0,
            loss_round_delivered: 0.0,
            loss_round_start: false,
            loss_in_round: false,
            loss_events: 0,
            plateau: Plateau::default(),
            is_filled: false,
            drain_start: 0,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            probed_too_high: false,
            probed_with_care: false,
            up_acked_per_packet: without,
            up_acked: 0.0,
            up_rounds: 0,
            rounds_since_probe: 0,
            probe_wait: Duration::ZERO,
            cycle_start: Time::ZERO,
            extra: RoundMaximum::default(),
            extra_since: Time::ZERO,
            extra_delivered: 0.0,
            extra_acked: 0.0,
            recent_rtt: None,
            is_rtt_stale: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            undo: Undo {
                left: None,
                bandwidth_short: without,
                inflight_short: without,
                inflight_long: without,
            },
        }
    }

    /// BBR.max_bw.
    pub(super) fn max_bandwidth(&self) -> f64 {
        self.cycles[0].max(self.cycles[1])
    }

    fn pacing_gain(&self, flow: &Flow) -> f64 {
        match self.state {
            State::Startup => flow.parameters.startup_gain,
            State::Drain => DRAIN_GAIN,
            State::Down => DOWN_GAIN,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
            State::Up => UP_GAIN,
        }
    }

    fn cwnd_gain(&self, flow: &Flow) -> f64 {
        match self.state {
            State::Up => flow.parameters.cwnd_gain.max(UP_CWND_GAIN),
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => flow.parameters.cwnd_gain,
        }
    }

    /// UpdateOnACK.
    pub(super) fn on_ack(&mut self, flow: &mut Flow, event: &Event) {
        if flow.parameters.inherent_loss {
            flow.inherent.on_ack(event, flow.min_rtt.map(|(least, _)| least));
        }
        self.take_losses(flow, event.now);
        self.follow_repair(flow, event.repair);
        if event.lost > 0.0 {
            self.loss_events += 1;
        }
        flow.round_start = false;
        if let Some(sample) = event.sample {
            self.update_latest_delivery_signals(flow, event, &sample);
            self.update_congestion_signals(flow, event, &sample);
            self.update_ack_aggregation(flow, event);
            self.check_full_bandwidth(flow, event);
            self.check_startup_done(flow, event, &sample);
            self.check_drain_done(flow, event);
            self.update_cycle_phase(flow, event, &sample);
        }
        self.update_min_rtt(flow, event);
        self.check_probe_rtt(flow, event);
        if self.loss_round_start
            && let Some(sample) = event.sample
        {
            self.bandwidth_latest = sample.rate.unwrap_or(0.0);
            self.inflight_latest = sample.delivered;
        }
        self.loss_round_start = false;
        self.bandwidth = self.max_bandwidth().min(self.bandwidth_short);
        flow.pace(self.bandwidth, self.pacing_gain(flow), self.is_filled);
        flow.quantum = flow.paced_in(QUANTUM_SECONDS).max(2.0);
        self.set_cwnd(flow, event);
    }

    // Signals.

    fn update_latest_delivery_signals(&mut self, flow: &Flow, event: &Event, sample: &RateSample) {
        self.bandwidth_latest = self.bandwidth_latest.max(event.rate().unwrap_or(0.0));
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.loss_round_start = sample.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = flow.rates.total_delivered();
        }
    }

    fn update_congestion_signals(&mut self, flow: &mut Flow, event: &Event, sample: &RateSample) {
        flow.update_round(sample);
        if flow.round_start {
            self.rounds_since_probe += 1;
        }
        if let Some(rate) = event.rate()
            && (rate >= self.max_bandwidth() || !sample.is_application_limited)
        {
            self.cycles[1] = self.cycles[1].max(rate);
        }
        if !self.loss_round_start {
            return;
        }
        let is_congested = !flow.parameters.inherent_loss
            || flow.inherent.ends_round_exceeded(flow.parameters.loss_threshold);
        if self.loss_in_round && is_congested && !self.state.accelerates() {
            self.lower_short_term_bounds(flow);
        }
        self.loss_in_round = false;
    }

    /// InitLowerBounds and LossLowerBounds.
    fn lower_short_term_bounds(&mut self, flow: &mut Flow) {
        if self.bandwidth_short.is_infinite() {
            self.bandwidth_short = self.max_bandwidth();
        }
        if self.inflight_short.is_infinite() {
            self.inflight_short = flow.cwnd;
        }
        let beta = flow.parameters.beta;
        self.bandwidth_short = self.bandwidth_latest.max(beta * self.bandwidth_short);
        self.inflight_short = self.inflight_latest.max(beta * self.inflight_short);
    }

    fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bandwidth_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    fn reset_short_term_model(&mut self) {
        self.bandwidth_short = f64::INFINITY;
        self.inflight_short = f64::INFINITY;
    }

    fn update_ack_aggregation(&mut self, flow: &Flow, event: &Event) {
        let expected = self.bandwidth * event.now.since(self.extra_since).as_secs_f64();
        let mut beyond = -expected;
        if self.extra_delivered <= expected {
            self.extra_delivered = 0.0;
            self.extra_since = event.now;
            beyond = 0.0;
        }
        self.extra_delivered += event.newly;
        beyond += self.extra_delivered;
        self.extra.add(flow.rounds, beyond.clamp(0.0, flow.cwnd));
        let rounds = if self.is_filled { EXTRA_ROUNDS } else { EXTRA_ROUNDS_IN_STARTUP };
        self.extra_acked = self.extra.largest(rounds);
    }

    // Startup and Drain.

    /// CheckFullBWReached.
    fn check_full_bandwidth(&mut self, flow: &Flow, event: &Event) {
        let Some(rate) = event.rate() else { return };
        if self.plateau.is_reached || !flow.round_start || event.is_application_limited() {
            return;
        }
        if rate >= self.plateau.rate * GROWTH {
            self.plateau = Plateau::from(rate);
            return;
        }
        self.plateau.rounds += 1;
        self.plateau.is_reached = self.plateau.rounds >= ROUNDS_WITHOUT_GROWTH;
        self.is_filled |= self.plateau.is_reached;
    }

    fn check_startup_done(&mut self, flow: &Flow, event: &Event, sample: &RateSample) {
        let is_lossy = self.loss_round_start
            && !self.is_filled
            && event.repair == Repair::Episode
            && self.loss_events >= STARTUP_LOSSES
            && self.is_inflight_too_high(flow, sample);
        if is_lossy {
            self.undo.left = Some(State::Startup);
            self.is_filled = true;
            // Where the application limited the flow, what was delivered says nothing of what the path holds.
            if !flow.parameters.inherent_loss || !sample.is_application_limited {
                let bdp = self.bdp(flow, self.max_bandwidth(), 1.0);
                self.inflight_long = bdp.max(self.inflight_latest);
            }
        }
        if self.loss_round_start {
            self.loss_events = 0;
        }
        if self.state == State::Startup && self.is_filled {
            self.state = State::Drain;
            self.drain_start = flow.rounds;
        }
    }

    fn check_drain_done(&mut self, flow: &mut Flow, event: &Event) {
        if self.state == State::Drain
            && (event.in_flight <= self.inflight(flow, self.bandwidth, 1.0)
                || flow.rounds > self.drain_start + DRAIN_ROUNDS)
        {
            self.start_down(flow, event.now);
        }
    }

    // Volumes and the window.

    /// BDPMultiple.
    fn bdp(&self, flow: &Flow, bandwidth: f64, gain: f64) -> f64 {
        match flow.min_rtt {
            Some((least, _)) => gain * bandwidth * least.as_secs_f64(),
            None => flow.initial_window,
        }
    }

    /// QuantizationBudget.
    fn quantized(&self, flow: &Flow, inflight: f64) -> f64 {
        let inflight = inflight.max(OFFLOAD_QUANTA * flow.quantum).max(MIN_PIPE);
        if self.state == State::Up { inflight + 2.0 } else { inflight }
    }

    fn inflight(&self, flow: &Flow, bandwidth: f64, gain: f64) -> f64 {
        self.quantized(flow, self.bdp(flow, bandwidth, gain))
    }

    fn target_inflight(&self, flow: &Flow) -> f64 {
        self.bdp(flow, self.bandwidth, 1.0).min(flow.cwnd)
    }

    fn probe_rtt_cwnd(&self, flow: &Flow) -> f64 {
        self.bdp(flow, self.bandwidth, PROBE_RTT_CWND_GAIN).max(MIN_PIPE)
    }

    fn set_cwnd(&mut self, flow: &mut Flow, event: &Event) {
        let gain = self.cwnd_gain(flow);
        let most = self.bdp(flow, self.bandwidth, gain) + self.extra_acked;
        let most = self.quantized(flow, most);
        let is_young = flow.rates.total_delivered() < flow.initial_window;
        if self.is_filled {
            flow.cwnd = (flow.cwnd + event.newly).min(most);
        } else if flow.cwnd < most || is_young {
            flow.cwnd += event.newly;
        }
        flow.cwnd = flow.cwnd.max(MIN_PIPE);
        if self.state == State::ProbeRtt {
            flow.cwnd = flow.cwnd.min(self.probe_rtt_cwnd(flow));
        }
        // BoundCwndForModel.
        let bound = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_long,
            State::ProbeRtt | State::Cruise => self.inflight_with_headroom(flow),
            State::Startup | State::Drain => f64::INFINITY,
        };
        flow.cwnd = flow.cwnd.min(bound.min(self.inflight_short).max(MIN_PIPE));
    }
}
