//! BBR: a model of the path, its bandwidth and its least round trip, sets the rate of sending and what
//! is in flight.
//!
//! Version 3 is that of draft-ietf-ccwg-bbr-06, version 1 that of Linux 6. Both are given samples of the
//! delivery rate, which the caller takes with the controller's own
//! [`DeliveryRates`](crate::recovery::DeliveryRates), and pace at a rate of their own.

mod filter;
mod flow;
mod inherent;
mod parameters;
#[cfg(test)]
mod tests;
mod v1;
mod v3;

use ontempo_foundation::{Duration, Packets, RandomStream, Rate, Time};

use super::{Ack, CongestionControl, Loss, Registered, Sent, Snapshot, Start, Timeout, Window};
use crate::recovery::DeliveryRates;
use flow::Flow;
pub use parameters::BbrParameters;
use parameters::Version;
use v1::V1;
use v3::V3;

#[derive(Clone, Debug)]
enum Model {
    First(V1),
    Third(V3),
}

/// BBR's state.
#[derive(Clone, Debug)]
pub struct Bbr {
    flow: Flow,
    model: Model,
}

impl Bbr {
    /// A controller at the start of its connection; `random` drives when it probes for bandwidth.
    pub fn new(start: Start, parameters: BbrParameters, random: RandomStream) -> Self {
        let is_third = parameters.version == Version::Third;
        Self {
            flow: Flow::new(start, parameters, random, is_third),
            model: if is_third { Model::Third(V3::new()) } else { Model::First(V1::new()) },
        }
    }
}

impl Registered for Bbr {
    type Parameters = BbrParameters;

    fn start(start: Start, parameters: BbrParameters, random: RandomStream) -> Self {
        Self::new(start, parameters, random)
    }
}

impl CongestionControl for Bbr {
    fn delivery_rates(&mut self) -> Option<&mut DeliveryRates> {
        Some(&mut self.flow.rates)
    }

    fn on_handshake(&mut self, now: Time, rtt: Duration) {
        self.flow.rates.on_rtt(rtt);
        self.flow.see_rtt(rtt);
        self.flow.min_rtt = Some((rtt, now));
        if let Model::Third(model) = &mut self.model {
            model.on_handshake(now, rtt);
        }
    }

    fn on_sent(&mut self, sent: &Sent) {
        let flow = &mut self.flow;
        if sent.in_flight <= sent.size && flow.rates.is_application_limited() {
            match &mut self.model {
                Model::First(model) => model.on_restart(flow, sent.now),
                Model::Third(model) => model.on_restart(flow, sent.now),
            }
        }
        flow.rates.on_sent(sent.now, sent.packet, sent.size, sent.in_flight);
        flow.note_departure(sent.now, sent.size);
    }

    fn on_ack(&mut self, ack: &Ack) {
        let event = self.flow.event(ack);
        match &mut self.model {
            Model::First(model) => model.on_ack(&mut self.flow, &event),
            Model::Third(model) => model.on_ack(&mut self.flow, &event),
        }
    }

    /// What is lost is told packet by packet with the delivery rates.
    fn on_loss(&mut self, _: &Loss) {
        self.flow.reductions += 1;
    }

    /// Marks are not heeded: version 1 of Linux does not, and the draft has no rule for them.
    fn on_ecn(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.flow.reductions += u64::from(!timeout.repeated);
        match &mut self.model {
            Model::First(model) => model.on_timeout(&mut self.flow, timeout.in_flight),
            Model::Third(model) => {
                model.on_timeout(&mut self.flow, timeout.now, timeout.in_flight);
            }
        }
    }

    fn on_spurious_timeout(&mut self, _: &Snapshot) {
        match &mut self.model {
            Model::First(model) => model.on_spurious_timeout(),
            Model::Third(model) => model.on_spurious_timeout(&mut self.flow),
        }
    }

    /// The window stays: what is sent after idleness is paced (section 5.4; Linux leaves the window to
    /// a controller that has `cong_control`).
    fn on_idle_restart(&mut self) {}

    fn window(&self) -> Window {
        Window::of_packets(self.flow.cwnd)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.flow.pacing_rate())
    }

    fn burst(&self) -> Packets {
        let packets = match &self.model {
            Model::First(model) => model.burst(&self.flow),
            Model::Third(_) => self.flow.quantum,
        };
        Packets::new(packets as u64)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: self.window(),
            ssthresh: Window::of_packets(f64::INFINITY),
            alpha: None,
            queueing_delay: None,
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: 0,
            reductions: self.flow.reductions,
            bears: None,
        }
    }
}
