//! What a flow tells a controller whose law is of delivery rates. No other flow calls any of this.

use ontempo_foundation::{Bytes, Time};
use ontempo_mechanisms::congestion::{CongestionControl, Sent};
use ontempo_mechanisms::pacing::interval_at_rate;
use ontempo_mechanisms::recovery::{AckOutcome, Repair, SackBlock};

use super::Tcp;

impl Tcp {
    /// Packet `number` is sent.
    pub(super) fn tell_sent(&mut self, now: Time, number: u64) {
        let in_flight = self.recovery.in_flight() as f64;
        self.controller.on_sent(&Sent { now, packet: number, size: 1.0, in_flight });
    }

    /// The next quantum waits until the controller's rate lets it leave.
    pub(super) fn pace_quantum(&mut self, now: Time, size: Bytes) {
        if let Some(rate) = self.controller.pacing_rate() {
            let interval = interval_at_rate(rate, size);
            self.pacer.on_sent_in_quantum(now, interval, self.controller.burst());
        }
    }

    /// All that may be sent has been sent. If the application has nothing more and the window would let
    /// it be sent, samples are limited by the application; the receive window counts as the path
    /// (draft-ietf-ccwg-bbr-06, section 4.1: CheckIfApplicationLimited).
    pub(super) fn note_limits(&mut self, now: Time) {
        let in_flight = self.recovery.in_flight();
        let is_full = in_flight >= self.window();
        let in_flight = in_flight as f64;
        let is_offered_more = self.recovery.next() < self.source.offered(now);
        if let Some(rates) = self.controller.delivery_rates() {
            if is_full {
                rates.limit_by_window(in_flight);
            } else if !is_offered_more {
                rates.limit_by_application(in_flight);
            }
        }
    }

    /// An acknowledgement, with what it says of each packet.
    pub(super) fn acknowledge_watched(
        &mut self,
        now: Time,
        number: u64,
        blocks: &[SackBlock],
    ) -> AckOutcome {
        let Some(rates) = self.controller.delivery_rates() else {
            return self.recovery.on_ack(now, number, blocks);
        };
        rates.begin(now, self.recovery.in_flight() as f64);
        let outcome = self.recovery.on_ack_watched(now, number, blocks, rates);
        let repair = if self.recovery.in_recovery() {
            Repair::Episode
        } else if self.recovery.repairs() {
            Repair::AfterTimeout
        } else {
            Repair::None
        };
        rates.advance(self.recovery.first(), repair);
        outcome
    }

    /// The reordering timer.
    pub(super) fn find_losses_watched(&mut self, now: Time) -> Option<u64> {
        let rates = self.controller.delivery_rates()?;
        rates.begin(now, self.recovery.in_flight() as f64);
        self.recovery.on_reordering_timer_watched(now, rates)
    }

    /// The retransmission timer.
    pub(super) fn lose_watched(&mut self, now: Time) {
        if let Some(rates) = self.controller.delivery_rates() {
            rates.begin(now, self.recovery.in_flight() as f64);
            self.recovery.on_timeout_watched(now, rates);
        }
    }
}
