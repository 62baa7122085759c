//! What Linux's TCP does beyond ns-2's: the handshake, the timers of RACK and of tail loss probes,
//! the reduction of the window in proportion, its validation, and the undoing of spurious timeouts.
//! Each can be set by itself.

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::congestion::{
    CongestionControl, Controller, Snapshot, Window, WindowUsage,
};
use ontempo_mechanisms::recovery::{NextPacket, ProportionalReduction, probe_timeout};
use ontempo_mechanisms::rtt::LinuxVariation;

use super::{HANDSHAKE_SIZE, Tcp};
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;
use crate::timer::LazyTimer;

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// Not begun.
    Due,
    /// A SYN was sent; `again`: more than once.
    Sent { again: bool },
    /// Data may be sent.
    Done,
}

/// What a timeout that turns out to be spurious is undone by.
#[derive(Debug)]
struct Undo {
    /// The controller's state before the timeout.
    before: Snapshot,
    /// When the first packet was sent again.
    since: Time,
}

/// The state of a sender with any of the extensions.
#[derive(Debug)]
pub(crate) struct Extensions {
    handshake: Handshake,
    /// The term of variation of Linux's retransmission timeout.
    variation: Option<LinuxVariation>,
    is_proportional: bool,
    /// The window of a loss episode.
    reduction: Option<ProportionalReduction>,
    usage: Option<WindowUsage>,
    /// A packet was sent since the use of the window was noted.
    has_sent: bool,
    decays: bool,
    undoes_timeouts: bool,
    /// From a timeout to the next packet acknowledged.
    undo: Option<Undo>,
    /// The least delay of a single packet's probe beyond two round trips; `None` without probes.
    max_ack_delay: Option<Duration>,
    /// New data was sent or acknowledged since the probe's time was set.
    restarts_probe: bool,
    probe_at: Option<Time>,
    /// Of the reordering timer, or of the probe.
    timer: LazyTimer,
}

/// Which extensions a sender has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtensionSettings {
    pub(crate) handshake: bool,
    /// The least term of variation of Linux's retransmission timeout.
    pub(crate) variation: Option<Duration>,
    pub(crate) proportional: bool,
    pub(crate) validates_usage: bool,
    pub(crate) decays: bool,
    pub(crate) undoes_timeouts: bool,
    /// Whether losses are found by time.
    pub(crate) by_time: bool,
    /// How long a receiver may delay the ACK of a single packet; `None` without probes.
    pub(crate) probes: Option<Duration>,
}

impl Extensions {
    /// `None` if no extension is set.
    pub(crate) fn new(settings: ExtensionSettings) -> Option<Box<Self>> {
        let ExtensionSettings { handshake, variation, proportional, .. } = settings;
        let any = handshake
            || variation.is_some()
            || proportional
            || settings.validates_usage
            || settings.decays
            || settings.undoes_timeouts
            || settings.by_time
            || settings.probes.is_some();
        any.then(|| {
            Box::new(Self {
                handshake: if handshake { Handshake::Due } else { Handshake::Done },
                variation: variation.map(LinuxVariation::new),
                is_proportional: proportional,
                reduction: None,
                usage: settings.validates_usage.then(WindowUsage::default),
                decays: settings.decays,
                undoes_timeouts: settings.undoes_timeouts,
                undo: None,
                max_ack_delay: settings.probes,
                has_sent: false,
                restarts_probe: false,
                probe_at: None,
                timer: LazyTimer::unset(),
            })
        })
    }

    /// The window of a loss episode, if it falls in proportion.
    pub(super) fn window(&self) -> Option<u64> {
        self.reduction.as_ref().map(ProportionalReduction::window)
    }

    pub(super) fn decays(&self) -> bool {
        self.decays
    }

    pub(super) fn on_sent(&mut self, packet: NextPacket) {
        self.restarts_probe |= packet == NextPacket::New;
        self.has_sent = true;
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent();
        }
    }

    pub(super) fn on_advance(&mut self) {
        self.restarts_probe = true;
    }

    /// The retransmission timer expired; `controller` is as it was before.
    pub(super) fn on_timeout(&mut self, now: Time, controller: &Controller) {
        if self.undoes_timeouts && self.undo.is_none() {
            self.undo = Some(Undo { before: controller.snapshot(), since: now });
        }
        self.reduction = None;
        self.probe_at = None;
    }

    /// A loss episode began: the window falls from `before` to `after`.
    pub(super) fn begin_reduction(&mut self, before: Window, after: Window) {
        if self.is_proportional {
            let (before, after) = (before.whole_packets(), after.whole_packets());
            self.reduction = Some(ProportionalReduction::new(before, after));
        }
    }
}

impl Tcp {
    /// The retransmission timeout.
    pub(super) fn rto(&self) -> Duration {
        let variation = self.extensions.as_ref().and_then(|extensions| extensions.variation);
        match variation {
            Some(variation) => self.rtt.rto_with(variation.term()),
            None => self.rtt.rto(),
        }
    }

    /// A round trip was measured for the retransmission timeout.
    #[inline(always)]
    pub(super) fn on_sample(&mut self, rtt: Duration) {
        self.rtt.on_sample(rtt);
        if let Some(extensions) = &mut self.extensions
            && let Some(variation) = &mut extensions.variation
        {
            variation.on_sample(rtt, self.recovery.first(), self.recovery.next());
        }
    }

    /// Whether the window was used, where that is a condition of its growth.
    pub(super) fn was_used(&self) -> bool {
        let usage = self.extensions.as_ref().and_then(|extensions| extensions.usage);
        let congestion = self.controller.snapshot();
        let in_slow_start = congestion.cwnd < congestion.ssthresh;
        usage.is_some_and(|usage| usage.may_grow(congestion.cwnd.packets(), in_slow_start))
    }

    /// `newly` packets were acknowledged: the window of a loss episode follows.
    pub(super) fn reduce_in_proportion(&mut self, newly: u64, is_safe: bool) {
        let Some(extensions) = &mut self.extensions else { return };
        if !self.recovery.in_recovery() {
            extensions.reduction = None;
        } else if let Some(reduction) = &mut extensions.reduction {
            reduction.on_ack(self.recovery.in_flight(), newly, is_safe);
        }
    }

    /// New data was acknowledged by an ACK that echoes the time `stamp`. If that is before the packet
    /// was sent again, the timeout was spurious and is undone (Eifel: RFC 3522, RFC 4015; Linux,
    /// `tcp_try_undo_loss`).
    pub(super) fn undo_spurious_timeout(&mut self, stamp: Time) {
        let undo = self.extensions.as_mut().and_then(|extensions| extensions.undo.take());
        if let Some(undo) = undo.filter(|undo| stamp < undo.since) {
            self.controller.on_spurious_timeout(&undo.before);
            self.recovery.undo_timeout();
        }
    }

    /// The pacer holds back what waits. A paced sender seldom fills its window: more than half of it in
    /// use counts as if it did (as PERT in the kernel has it).
    pub(super) fn note_paced_usage(&mut self) {
        let is_used = 2 * self.recovery.in_flight() > self.window();
        let (first, next) = (self.recovery.first(), self.recovery.next());
        let usage = self.extensions.as_mut().and_then(|extensions| extensions.usage.as_mut());
        if let Some(usage) = usage {
            usage.on_sent(first, next, is_used);
        }
    }

    /// All that may be sent has been sent: notes the use of the window and sets the timer.
    pub(super) fn after_sending(&mut self, now: Time, fabric: &mut Fabric) {
        let (first, next) = (self.recovery.first(), self.recovery.next());
        let is_full = self.recovery.in_flight() >= self.window();
        let (srtt, outstanding) = (self.rtt.srtt(), self.recovery.outstanding());
        let Some(extensions) = &mut self.extensions else { return };
        // An ACK that lets nothing be sent says nothing about the use (Linux, `tcp_write_xmit`).
        if std::mem::take(&mut extensions.has_sent) | self.window_limited
            && let Some(usage) = &mut extensions.usage
        {
            usage.on_sent(first, next, self.window_limited || is_full);
        }
        if !self.recovery.may_probe() {
            extensions.probe_at = None;
        } else if let (Some(delay), true) = (extensions.max_ack_delay, extensions.restarts_probe) {
            // If the retransmission timer is due before, the probe takes its place.
            let probe = now + probe_timeout(srtt, outstanding, delay);
            extensions.probe_at = Some(probe.min(self.retransmit_timer.deadline()));
        }
        extensions.restarts_probe = false;
        match self.recovery.reordering_deadline().or(extensions.probe_at) {
            Some(deadline) => {
                extensions.timer.set(deadline.max(now), Event::Probe(self.flow), fabric);
            }
            None => extensions.timer.clear(),
        }
    }

    /// The reordering timer, or that of a tail loss probe.
    pub(crate) fn on_probe_timer(&mut self, now: Time, fabric: &mut Fabric) {
        let Some(extensions) = &mut self.extensions else { return };
        if !extensions.timer.expires(now, Event::Probe(self.flow), fabric) || self.is_reset {
            return;
        }
        if self.recovery.reordering_deadline().is_some_and(|deadline| deadline <= now) {
            let lost = if self.is_rate_based {
                self.find_losses_watched(now)
            } else {
                self.recovery.on_reordering_timer(now)
            };
            if let Some(lost) = lost {
                self.on_loss(now, lost);
                // As if a packet had been delivered (Linux, `tcp_rack_reo_timeout`).
                self.reduce_in_proportion(1, false);
            }
            self.send_allowed(now, fabric);
        } else if extensions.probe_at.is_some_and(|at| at <= now) {
            self.send_probe(now, fabric);
        } else {
            self.after_sending(now, fabric);
        }
    }

    fn send_probe(&mut self, now: Time, fabric: &mut Fabric) {
        let new_available = now < self.settings.stop
            && self.recovery.next() < self.source.offered(now)
            && self.recovery.outstanding() < self.settings.receive_window;
        let packet = self.recovery.probe(new_available);
        self.send(now, packet, fabric);
        self.recovery.on_probe_sent(packet);
        // From the probe on, not from the packet before it (RFC 8985, section 7.3; Linux).
        self.set_retransmit_timer(now, self.rto(), fabric);
        self.after_sending(now, fabric);
    }

    /// The retransmission timer expired: true if a SYN or a probe is sent instead.
    pub(super) fn acts_before_timeout(&mut self, now: Time, fabric: &mut Fabric) -> bool {
        let Some(extensions) = &mut self.extensions else { return false };
        match extensions.handshake {
            Handshake::Due => return true,
            Handshake::Sent { .. } if now >= self.settings.stop => return true,
            Handshake::Sent { .. } => {
                extensions.handshake = Handshake::Sent { again: true };
                self.timeouts += 1;
                self.rtt.back_off();
                self.send_syn(now, fabric);
                return true;
            }
            Handshake::Done => {}
        }
        let probes = extensions.probe_at.is_some_and(|at| at <= now) && self.recovery.may_probe();
        if probes {
            self.send_probe(now, fabric);
        }
        probes
    }

    /// True until the handshake is done; sends the first SYN.
    pub(super) fn connects(&mut self, now: Time, fabric: &mut Fabric) -> bool {
        let Some(extensions) = &mut self.extensions else { return false };
        if extensions.handshake == Handshake::Due && now < self.settings.stop {
            extensions.handshake = Handshake::Sent { again: false };
            self.send_syn(now, fabric);
            return true;
        }
        extensions.handshake != Handshake::Done
    }

    /// Whether the handshake is not done.
    pub(crate) fn is_connecting(&self) -> bool {
        self.extensions.as_ref().is_some_and(|more| more.handshake != Handshake::Done)
    }

    fn send_syn(&mut self, now: Time, fabric: &mut Fabric) {
        let mut syn = Packet::data(self.flow, self.route, 0, now, HANDSHAKE_SIZE);
        syn.set_syn();
        fabric.send(now, syn);
        self.set_retransmit_timer(now, self.rto(), fabric);
    }

    /// A SYN arrived at the receiver, or its answer at the sender.
    pub(super) fn on_syn(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric) {
        if !packet.marks.ack {
            return self.answer_syn(now, packet, fabric);
        }
        let Some(extensions) = &mut self.extensions else { return };
        let Handshake::Sent { again } = extensions.handshake else { return };
        extensions.handshake = Handshake::Done;
        self.retransmit_timer.clear();
        self.rtt.reset_back_off();
        if self.settings.timestamps || !again {
            let rtt = now.since(packet.stamp);
            self.on_sample(rtt);
            self.recovery.on_handshake(rtt);
            if self.is_rate_based {
                self.controller.on_handshake(now, rtt);
            }
        } else {
            self.rtt.on_handshake_repeated();
        }
        self.send_allowed(now, fabric);
    }
}
