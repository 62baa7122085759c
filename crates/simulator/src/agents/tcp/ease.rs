//! The short way of most packets: those of a flow that has nothing beyond windows and timestamps, in order
//! and without losses. It does what the long way does with them, and no more.

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::ack::AckPolicy;
use ontempo_mechanisms::congestion::{Ack, CongestionControl, Controller, Window};
use ontempo_scenario::model::PacingKind;

use super::{ACK_SIZE, Tcp};
use crate::fabric::Fabric;

impl Tcp {
    /// Whether the flow has only what the short way knows.
    pub(super) fn may_be_at_ease(&self) -> bool {
        #[cfg(test)]
        if tests::LONG_WAY.get() {
            return false;
        }
        self.extensions.is_none()
            && self.trains.is_none()
            && !self.samples_otherwise
            && !self.is_rate_based
            && !self.changes_address
            && self.settings.timestamps
            && self.settings.pacing == PacingKind::Off
            && matches!(self.policy, AckPolicy::Immediate)
            && self.receiver.consumer().is_none()
    }

    /// Handles the packet of this handle, if it is one of most; false if not, and nothing has changed.
    #[inline(always)]
    pub(super) fn passes_at_ease(&mut self, now: Time, handle: u32, fabric: &mut Fabric) -> bool {
        let packet = fabric.packet(handle);
        if packet.marks.ack {
            if packet.has_blocks() || packet.marks.congestion {
                return false;
            }
            let Some(newly) = self.recovery.acknowledge_undisturbed(packet.number) else {
                return false;
            };
            let stamp = packet.stamp;
            fabric.release(handle);
            self.on_ack_at_ease(now, stamp, newly, fabric);
        } else {
            if !self.reassembly.receive_next(packet.number) {
                return false;
            }
            self.on_data_at_ease(now, handle, fabric);
        }
        #[cfg(test)]
        tests::TAKEN.set(tests::TAKEN.get() + 1);
        true
    }

    /// The packet of this handle is the next one: it is delivered, and becomes its acknowledgement.
    #[inline(never)]
    fn on_data_at_ease(&mut self, now: Time, handle: u32, fabric: &mut Fabric) {
        let next = self.reassembly.next();
        if self.counts_only {
            self.receiver.count();
        } else {
            self.deliver(now, next - 1, fabric);
        }
        let packet = fabric.packet_mut(handle);
        packet.answer(self.back, next, now, ACK_SIZE);
        fabric.send_held(now, handle);
    }

    /// An acknowledgement of `newly` packets that echoes the time `stamp`, with nothing lost.
    #[inline(never)]
    fn on_ack_at_ease(&mut self, now: Time, stamp: Time, newly: u64, fabric: &mut Fabric) {
        self.acks += 1;
        let rtt = now.since(stamp);
        self.rtt.on_sample(rtt);
        self.timed_out = None;
        let receive_window = self.settings.receive_window;
        let window = if let Controller::Reno(reno) = &mut self.controller {
            if self.settings.grow_when_application_limited
                && reno.window().whole_packets() < receive_window
            {
                reno.grow(newly as f64);
            }
            reno.window()
        } else {
            self.tell_at_ease(now, rtt, newly)
        };
        let window = window.whole_packets().min(receive_window);
        if self.source.on_acknowledged(now, self.recovery.first()) {
            self.transfers += 1;
        }
        if self.recovery.outstanding() == 0 {
            self.retransmit_timer.clear();
        } else {
            self.set_retransmit_timer(now, self.rtt.rto(), fabric);
        }
        self.send_at_ease(now, window, fabric);
    }

    /// Tells the controller of an acknowledgement; returns its window.
    #[inline(never)]
    fn tell_at_ease(&mut self, now: Time, rtt: Duration, newly: u64) -> Window {
        let ack = Ack {
            now,
            packets: newly as f64,
            rtt: Some(rtt),
            srtt: self.rtt.srtt().unwrap_or(Duration::ZERO),
            acked: self.recovery.first().saturating_sub(1),
            next: self.recovery.next(),
            in_flight: self.recovery.in_flight() as f64,
            in_recovery: false,
            repairs: false,
            window_limited: self.may_grow(),
        };
        self.controller.on_ack(&ack);
        self.controller.window()
    }

    /// Sends what the window lets, while nothing is lost.
    #[inline(always)]
    fn send_at_ease(&mut self, now: Time, mut window: u64, fabric: &mut Fabric) {
        let receive_window = self.settings.receive_window;
        if self.settings.idle_restart && self.recovery.outstanding() == 0 {
            self.restart_after_idleness(now);
            window = self.window();
        }
        let stopped = now >= self.settings.stop;
        let offered = if stopped { 0 } else { self.source.offered(now) };
        loop {
            let waiting =
                self.recovery.next() < offered && self.recovery.outstanding() < receive_window;
            let Some(number) = self.recovery.send_undisturbed(window, waiting) else {
                self.window_limited = waiting;
                break;
            };
            let (flow, route, size) = (self.flow, self.route, self.settings.packet_size);
            let (handle, packet) = fabric.hold_packet();
            packet.begin((flow, route), number, now, size);
            packet.marks.set_ecn_capable(self.settings.ecn);
            self.sent += 1;
            self.last_sent = now;
            fabric.send_held(now, handle);
            if number == self.recovery.first() || !self.retransmit_timer.is_set() {
                self.set_retransmit_timer(now, self.rtt.rto(), fabric);
            }
        }
        if !stopped {
            self.await_offer(now, fabric);
        }
    }
}

#[cfg(test)]
#[path = "ease_tests.rs"]
mod tests;
