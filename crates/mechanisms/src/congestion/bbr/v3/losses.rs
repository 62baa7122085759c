//! What losses say of the path, and episodes of loss (sections 5.5.10, 5.5.11 and 5.6.4).

use ontempo_foundation::Time;

use super::super::flow::Flow;
use super::{Plateau, State, Undo, V3};
use crate::recovery::{Lost, RateSample, Repair};

impl V3 {
    /// IsInflightTooHigh, in Startup.
    pub(super) fn is_inflight_too_high(&self, flow: &Flow, sample: &RateSample) -> bool {
        flow.inherent.is_exceeded(sample.lost, sample.in_flight, flow.parameters.loss_threshold)
    }

    pub(super) fn take_losses(&mut self, flow: &mut Flow, now: Time) {
        while let Some(lost) = flow.rates.next_loss() {
            self.on_lost_packet(flow, &lost, now);
        }
    }

    /// NoteLoss and HandleLostPacket.
    fn on_lost_packet(&mut self, flow: &mut Flow, lost: &Lost, now: Time) {
        if !self.loss_in_round {
            self.loss_round_delivered = flow.rates.total_delivered();
            self.save_state(flow);
        }
        self.loss_in_round = true;
        let threshold = flow.parameters.loss_threshold;
        let (in_flight, count) = (lost.in_flight, lost.lost);
        if !self.is_probe_sample || !flow.inherent.is_exceeded(count, in_flight, threshold) {
            return;
        }
        let threshold = threshold + flow.inherent.share();
        // InflightAtLoss: where within this packet the losses crossed the threshold.
        let (in_flight_before, lost_before) = (in_flight - lost.size, count - lost.size);
        let prefix = (threshold * in_flight_before - lost_before) / (1.0 - threshold).max(1e-9);
        let safe = in_flight_before + prefix;
        // HandleInflightTooHigh.
        self.probed_too_high = true;
        self.is_probe_sample = false;
        if !lost.is_application_limited {
            let least = self.target_inflight(flow) * flow.parameters.beta;
            self.inflight_long = safe.max(least);
        }
        if self.state == State::Up {
            self.undo.left = Some(State::Up);
            self.start_down(flow, now);
        }
    }

    /// SaveStateUponLoss.
    fn save_state(&mut self, flow: &mut Flow) {
        flow.save_cwnd(self.state == State::ProbeRtt);
        self.undo = Undo {
            left: None,
            bandwidth_short: self.bandwidth_short,
            inflight_short: self.inflight_short,
            inflight_long: self.inflight_long,
        };
    }

    /// OnEnterFastRecovery, and the end of a recovery.
    pub(super) fn follow_repair(&mut self, flow: &mut Flow, repair: Repair) {
        match (flow.repair, repair) {
            (Repair::None, Repair::Episode) => flow.save_cwnd(self.state == State::ProbeRtt),
            (Repair::Episode | Repair::AfterTimeout, Repair::None) => flow.restore_cwnd(),
            _ => {}
        }
        flow.repair = repair;
    }

    /// OnEnterRTO; `in_flight` is without what was taken for lost.
    pub(in super::super) fn on_timeout(&mut self, flow: &mut Flow, now: Time, in_flight: f64) {
        self.save_state(flow);
        self.take_losses(flow, now);
        flow.repair = Repair::AfterTimeout;
        flow.cwnd = in_flight + 1.0;
    }

    /// HandleSpuriousLossDetection.
    pub(in super::super) fn on_spurious_timeout(&mut self, flow: &mut Flow) {
        flow.restore_cwnd();
        self.loss_in_round = false;
        self.plateau = Plateau::default();
        self.bandwidth_short = self.bandwidth_short.max(self.undo.bandwidth_short);
        self.inflight_short = self.inflight_short.max(self.undo.inflight_short);
        self.inflight_long = self.inflight_long.max(self.undo.inflight_long);
        let left = self.undo.left.take();
        let returns = self.state != State::ProbeRtt;
        match left {
            Some(State::Startup) if self.state != State::Startup => {
                self.is_filled = false;
                if returns {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && returns => self.start_refill(flow),
            _ => {}
        }
    }
}
