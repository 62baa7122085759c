//! What is read of a TCP flow: its state ahead of a packet, and by probes.

use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::{CongestionControl, Snapshot};
use ontempo_runtime::FlowTotals;

use super::Tcp;
use crate::agents::receiver::Receiver;

impl Tcp {
    /// Prefetches the state that a packet's arrival needs; see `Simulation::look_ahead`.
    #[inline]
    pub(crate) fn touch(&self, ack: bool) -> u64 {
        if !ack {
            let timer = !self.is_at_ease && self.ack_timer.is_set();
            return self.reassembly.next() + self.receiver.delivered() + u64::from(timer);
        }
        // A field of each line, in their order.
        self.reassembly.next()
            + self.sent
            + self.controller.window().whole_packets()
            + u64::from(self.rtt.srtt().is_some())
            + u64::from(self.rtt.minimum_rtt().is_some())
            + self.rtt.rto().as_nanos()
            + u64::from(self.recovery.repairs())
            + self.recovery.in_flight()
    }

    /// Where the forward route begins.
    pub(crate) fn route(&self) -> u32 {
        self.route
    }

    /// Where the return route begins.
    pub(crate) fn back(&self) -> u32 {
        self.back
    }

    // What probes read.

    pub(crate) fn totals(&self) -> FlowTotals {
        let congestion = self.controller.snapshot();
        FlowTotals {
            sent: self.sent,
            retransmitted: Some(self.retransmitted),
            timeouts: self.timeouts,
            reductions: congestion.reductions,
            early_responses: congestion.early_responses,
            acks: self.acks,
            delivered: self.receiver.delivered(),
            dropped: 0,
            transfers: self.transfers,
        }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        u64::from(self.settings.packet_size)
    }

    pub(crate) fn congestion(&self) -> Snapshot {
        self.controller.snapshot()
    }

    pub(crate) fn congestion_name(&self) -> &str {
        self.controller.name()
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    pub(crate) fn minimum_rtt(&self) -> Option<Duration> {
        self.rtt.minimum_rtt()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.recovery.in_flight()
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}
