//! The cycle of ProbeBW: down, cruise, refill, up (section 5.3.3).

use ontempo_foundation::Time;

use super::super::flow::{Event, Flow, MIN_PIPE};
use super::{AckPhase, MAX_UP_ROUNDS, PROBE_ROUNDS, PROBE_WAIT, Plateau, State, V3};
use crate::recovery::RateSample;

impl V3 {
    /// StartProbeBW_DOWN, with PickProbeWait.
    pub(super) fn start_down(&mut self, flow: &mut Flow, now: Time) {
        self.reset_congestion_signals();
        self.up_acked_per_packet = f64::INFINITY;
        self.rounds_since_probe = u64::from(flow.random.chance(0.5));
        self.probe_wait = flow.random.duration_between(PROBE_WAIT.0, PROBE_WAIT.1);
        self.cycle_start = now;
        self.ack_phase = AckPhase::ProbeStopping;
        flow.start_round();
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self, flow: &mut Flow) {
        self.reset_short_term_model();
        self.up_rounds = 0;
        self.up_acked = 0.0;
        self.probed_with_care = false;
        self.ack_phase = AckPhase::Refilling;
        flow.start_round();
        self.state = State::Refill;
    }

    fn start_up(&mut self, flow: &mut Flow, event: &Event) {
        self.is_probe_sample = true;
        self.ack_phase = AckPhase::ProbeStarting;
        flow.start_round();
        self.plateau = Plateau::from(event.rate().unwrap_or(0.0));
        self.state = State::Up;
        self.raise_slope(flow);
    }

    /// UpdateProbeBWCyclePhase.
    pub(super) fn update_cycle_phase(
        &mut self,
        flow: &mut Flow,
        event: &Event,
        sample: &RateSample,
    ) {
        if !self.is_filled || self.adapt_long_term_model(flow, event, sample) {
            return;
        }
        let state = self.state;
        match state {
            State::Down if self.is_time_to_probe(flow, event.now) => self.start_refill(flow),
            State::Down if self.is_time_to_cruise(flow, event) => self.state = State::Cruise,
            State::Cruise if self.is_time_to_probe(flow, event.now) => self.start_refill(flow),
            State::Refill if flow.round_start => self.start_up(flow, event),
            State::Up if self.is_time_to_go_down(flow, event) => {
                self.probed_too_high = false;
                self.start_down(flow, event.now);
            }
            _ => {}
        }
    }

    /// True if it began another state.
    fn adapt_long_term_model(
        &mut self,
        flow: &mut Flow,
        event: &Event,
        sample: &RateSample,
    ) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && flow.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && flow.round_start {
            self.is_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            // A cycle without a sample says nothing: the bandwidth stays what it was.
            if self.state.is_probe_bw() && !sample.is_application_limited && self.cycles[1] > 0.0 {
                self.cycles = [self.cycles[1], 0.0];
            }
            if self.state.is_probe_bw() && self.probed_with_care && !self.probed_too_high {
                self.start_refill(flow);
                return true;
            }
        }
        if !self.is_inflight_too_high(flow, sample) && self.inflight_long.is_finite() {
            self.inflight_long = self.inflight_long.max(sample.in_flight);
            if self.state == State::Up {
                self.probe_upward(flow, event);
            }
        }
        false
    }

    /// IsTimeToProbeBW, with IsRenoCoexistenceProbeTime.
    fn is_time_to_probe(&self, flow: &Flow, now: Time) -> bool {
        let rounds = self.target_inflight(flow).min(PROBE_ROUNDS);
        now > self.cycle_start + self.probe_wait || self.rounds_since_probe as f64 >= rounds
    }

    fn is_time_to_cruise(&self, flow: &Flow, event: &Event) -> bool {
        event.in_flight <= self.inflight_with_headroom(flow)
            && event.in_flight <= self.inflight(flow, self.max_bandwidth(), 1.0)
    }

    fn is_time_to_go_down(&mut self, flow: &Flow, event: &Event) -> bool {
        if self.probed_too_high && event.in_flight >= self.inflight_long {
            self.probed_with_care = true;
            return true;
        }
        if flow.rates.is_window_limited() && flow.cwnd >= self.inflight_long {
            self.plateau = Plateau::from(event.rate().unwrap_or(self.plateau.rate));
            return false;
        }
        self.plateau.is_reached
    }

    pub(super) fn inflight_with_headroom(&self, flow: &Flow) -> f64 {
        let headroom = (flow.parameters.headroom * self.inflight_long).max(1.0);
        if self.inflight_long.is_infinite() {
            return f64::INFINITY;
        }
        (self.inflight_long - headroom).max(MIN_PIPE)
    }

    /// RaiseInflightLongtermSlope.
    fn raise_slope(&mut self, flow: &Flow) {
        let growth = (1_u64 << self.up_rounds) as f64;
        self.up_rounds = (self.up_rounds + 1).min(MAX_UP_ROUNDS);
        self.up_acked_per_packet = (flow.cwnd / growth).max(1.0);
    }

    /// ProbeInflightLongtermUpward.
    fn probe_upward(&mut self, flow: &Flow, event: &Event) {
        if !flow.rates.is_window_limited() || flow.cwnd < self.inflight_long {
            return;
        }
        self.up_acked += event.newly;
        if self.up_acked >= self.up_acked_per_packet {
            let packets = (self.up_acked / self.up_acked_per_packet).floor();
            self.up_acked -= packets * self.up_acked_per_packet;
            self.inflight_long += packets;
        }
        if flow.round_start {
            self.raise_slope(flow);
        }
    }
}
