//! One-way TCP: data forward, ACKs of 40 bytes back; as ns-2 models it, and with what Linux does
//! beyond that ([`Extensions`]).

mod addresses;
mod ease;
mod extensions;
mod rates;
mod reading;
mod receiving;
mod sampling;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::ack::AckPolicy;
use ontempo_mechanisms::congestion::{
    Ack, CongestionControl, Controller, Loss, PertSamples, RecoveryPoint, Timeout,
};
use ontempo_mechanisms::pacing::{Pacer, interval_at_rate, interval_of_window};
use ontempo_mechanisms::receive::Reassembly;
use ontempo_mechanisms::recovery::{AckOutcome, LossRecovery, NextPacket, SackBlock};
use ontempo_mechanisms::rtt::RttEstimator;
use ontempo_scenario::model::PacingKind;

use ontempo_runtime::Source;

use addresses::Addresses;
pub(crate) use extensions::{ExtensionSettings, Extensions};
use sampling::Sampling;

use crate::agents::receiver::Receiver;
use crate::agents::trains::TrainClock;
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;
use crate::timer::LazyTimer;

/// An ACK on the wire: IP and TCP headers (as ns-2 models it).
const ACK_SIZE: u32 = 40;

/// A SYN, or its answer, on the wire: IP and TCP headers with 20 bytes of options (MSS, SACK
/// permitted, timestamps, window scale, as Linux sends them).
const HANDSHAKE_SIZE: u32 = 60;

/// Parameters of a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderSettings {
    pub(crate) packet_size: u32,
    pub(crate) receive_window: u64,
    pub(crate) pacing: PacingKind,
    pub(crate) timestamps: bool,
    pub(crate) grow_when_application_limited: bool,
    pub(crate) idle_restart: bool,
    pub(crate) ecn: bool,
    pub(crate) samples: PertSamples,
    pub(crate) stop: Time,
}

/// The mechanisms of a sender.
pub(crate) type Machinery = (LossRecovery, Controller, RttEstimator, Option<Box<Extensions>>);

/// The fields of a data packet that its (possibly delayed) acknowledgement echoes.
#[derive(Clone, Copy, Debug)]
struct Answered {
    stamp: Time,
    congestion: bool,
}

/// Both ends of a TCP flow.
///
/// With many flows a packet waits for each cache line that it needs: what most packets read stands together,
/// and begins with a line.
#[repr(C, align(64))]
pub(crate) struct Tcp {
    // What an arrival reads at either end: the first line. The tag of `Agent` is in `timed_out`.
    flow: u32,
    back: u32,
    /// The lowest packet outstanding at the last timeout; equal again means a repeated timeout.
    timed_out: Option<u64>,
    reassembly: Reassembly,
    /// The receiver's answers depend only on arriving packets, not on timers or other flows.
    answers_ahead: bool,
    /// Whether `sampling` is there: a flow without it reads this line only.
    samples_otherwise: bool,
    /// Whether the controller has samples of the delivery rate.
    is_rate_based: bool,
    /// Whether `addresses` is there.
    changes_address: bool,
    /// The receiver has reset the connection, so that the sender sends nothing more.
    is_reset: bool,
    /// Whether most packets can take the short way ([`ease`]).
    is_at_ease: bool,
    /// Whether the receiver only counts what is delivered.
    counts_only: bool,
    // What else the receiver's end reads: the second line.
    /// The latest arrival that is pending as an event.
    awaited: Time,
    receiver: Receiver,
    // What few packets read.
    unanswered: Option<Answered>,
    ack_timer: LazyTimer,
    policy: AckPolicy,
    wake: LazyTimer,
    /// The packet whose RTT is being measured and when it was sent, without timestamps.
    timed: Option<(u64, Time)>,
    trains: Option<Box<TrainClock>>,
    // What an acknowledgement reads at the sender, and the next packet: seven lines, the last of them with
    // the scoreboard's beginning.
    route: u32,
    window_limited: bool,
    acks: u64,
    sent: u64,
    last_sent: Time,
    retransmit_timer: LazyTimer,
    settings: SenderSettings,
    source: Source,
    controller: Controller,
    rtt: RttEstimator,
    recovery: LossRecovery,
    // What few packets read.
    pacer: Pacer,
    marks_answered: RecoveryPoint,
    retransmitted: u64,
    timeouts: u64,
    transfers: u64,
    /// Packets of one large segment that were sent at this instant; counted for [`AckPolicy::Linux`].
    together: u32,
    /// Boxed, so that a flow without them costs no more.
    extensions: Option<Box<Extensions>>,
    sampling: Option<Box<Sampling>>,
    addresses: Option<Box<Addresses>>,
}

impl Tcp {
    /// Bytes of an ACK on the wire.
    pub(crate) const ACK_BYTES: u64 = ACK_SIZE as u64;

    pub(crate) fn new(
        (flow, route, back): (u32, u32, u32),
        settings: SenderSettings,
        source: Source,
        (recovery, mut controller, rtt, extensions): Machinery,
        policy: AckPolicy,
        correct_self_induced_delay: bool,
        receiver: Receiver,
    ) -> Self {
        let coalesces = matches!(policy, AckPolicy::Adaptive(_));
        let trains = (coalesces || correct_self_induced_delay)
            .then(|| Box::new(TrainClock::new(correct_self_induced_delay)));
        let sampling = Sampling::new(settings.samples);
        let is_rate_based = controller.delivery_rates().is_some();
        Self {
            flow,
            route,
            back,
            settings,
            source,
            recovery,
            controller,
            rtt,
            pacer: Pacer::default(),
            trains,
            timed: None,
            marks_answered: RecoveryPoint::default(),
            retransmit_timer: LazyTimer::unset(),
            wake: LazyTimer::unset(),
            last_sent: Time::ZERO,
            timed_out: None,
            window_limited: false,
            together: 0,
            sent: 0,
            retransmitted: 0,
            timeouts: 0,
            acks: 0,
            transfers: 0,
            reassembly: Reassembly::default(),
            policy,
            ack_timer: LazyTimer::unset(),
            unanswered: None,
            answers_ahead: false,
            samples_otherwise: sampling.is_some(),
            is_rate_based,
            awaited: Time::ZERO,
            extensions,
            sampling,
            changes_address: false,
            is_reset: false,
            is_at_ease: false,
            counts_only: receiver.counts_only(),
            receiver,
            addresses: None,
        }
    }

    /// The packet of this handle has arrived at the end of its route.
    #[inline(always)]
    pub(crate) fn on_arrival(&mut self, now: Time, handle: u32, fabric: &mut Fabric) {
        if self.is_at_ease && self.passes_at_ease(now, handle, fabric) {
            return;
        }
        let packet = fabric.take(handle);
        self.on_packet(now, packet, fabric);
    }

    #[inline(never)]
    fn on_packet(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        if self.changes_address && !self.is_of_connection(now, &packet, fabric) {
            return;
        }
        if self.extensions.is_some() && packet.is_syn() {
            self.on_syn(now, &packet, fabric);
        } else if packet.marks.ack {
            self.on_ack(now, &packet, fabric);
        } else {
            self.on_data(now, packet, fabric);
        }
    }

    /// The flow begins, or a wait for the application or the pacer has ended.
    pub(crate) fn on_wake(&mut self, now: Time, fabric: &mut Fabric) {
        let event = Event::Wake(self.flow);
        if !self.wake.is_set() || self.wake.expires(now, event, fabric) {
            self.send_allowed(now, fabric);
        }
    }

    /// The message of another flow that the application waited for has arrived.
    pub(crate) fn on_prompt(&mut self, now: Time, fabric: &mut Fabric) {
        if now < self.settings.stop {
            self.source.prompt(now);
            self.send_allowed(now, fabric);
        }
    }

    // The sender's end, in the order of a packet's life.

    fn send_allowed(&mut self, now: Time, fabric: &mut Fabric) {
        if self.is_reset {
            return;
        }
        let stopped = now >= self.settings.stop;
        if self.extensions.is_some() && self.connects(now, fabric) {
            return;
        }
        self.restart_after_idleness(now);
        let offered = if stopped { 0 } else { self.source.offered(now) };
        // Sending changes the window of a rate-based controller and that of a loss episode only.
        let is_fixed = self.extensions.is_none() && !self.is_rate_based;
        let mut window = self.window();
        loop {
            let waiting = self.recovery.next() < offered
                && self.recovery.outstanding() < self.settings.receive_window;
            let Some(next) = self.recovery.next_packet(window, waiting) else {
                self.window_limited = waiting;
                break;
            };
            if self.settings.pacing != PacingKind::Off && self.pacer.earliest() > now {
                self.window_limited = false;
                self.note_paced_usage();
                self.wake.set(self.pacer.earliest(), Event::Wake(self.flow), fabric);
                return;
            }
            self.send(now, next, fabric);
            if !is_fixed {
                window = self.window();
            }
        }
        if self.is_rate_based {
            self.note_limits(now);
        }
        if self.extensions.is_some() {
            self.after_sending(now, fabric);
        }
        if !stopped {
            self.await_offer(now, fabric);
        }
    }

    /// All that was offered is sent, if not the window prevents it: the sender wakes for what comes next.
    #[inline(always)]
    fn await_offer(&mut self, now: Time, fabric: &mut Fabric) {
        if self.window_limited {
            return;
        }
        let next = self.source.next_offer(now);
        if next < self.settings.stop {
            self.wake.set(next, Event::Wake(self.flow), fabric);
        }
    }

    /// How many packets may be in flight.
    fn window(&self) -> u64 {
        let reduced = self.extensions.as_ref().and_then(|extensions| extensions.window());
        let window = reduced.unwrap_or_else(|| self.controller.window().whole_packets());
        window.min(self.settings.receive_window)
    }

    /// Whether an ACK lets the window grow. Beyond the receive window it never does: a reduction
    /// starts from what may be in flight (RFC 5681, section 3.1, the note on equation 4).
    fn may_grow(&self) -> bool {
        let is_open = self.controller.window().whole_packets() < self.settings.receive_window;
        is_open && (self.settings.grow_when_application_limited || self.was_used())
    }

    fn restart_after_idleness(&mut self, now: Time) {
        let idle = self.settings.idle_restart
            && self.recovery.outstanding() == 0
            && self.sent > 0
            && now.since(self.last_sent) > self.rto();
        if !idle {
            return;
        }
        if self.extensions.as_ref().is_some_and(|extensions| extensions.decays()) {
            let idle = now.since(self.last_sent).as_nanos();
            self.controller.on_idle_decay(idle / self.rto().as_nanos().max(1));
        } else {
            self.controller.on_idle_restart();
        }
    }

    /// Whether the packet that is sent now ends what the application wrote, or the packets that the
    /// kernel hands to its interface at once as one large segment: Linux sets PSH on both
    /// (`__tcp_transmit_skb`). Such a segment has what the pacing rate sends in 1 ms, and at least
    /// two packets (`tcp_tso_autosize`).
    fn is_pushed(&mut self, now: Time, number: u64) -> bool {
        self.together = if now == self.last_sent { self.together + 1 } else { 1 };
        if self.source.offered(now) == number + 1 {
            return true;
        }
        if self.together == 1 || self.recovery.in_recovery() {
            return false;
        }
        if self.recovery.in_flight() >= self.window() {
            self.together = 0;
            return true;
        }
        let in_a_millisecond = self.rtt.srtt().map_or(0.0, |srtt| {
            if self.is_rate_based {
                return self.controller.burst().get() as f64;
            }
            let pacing_rate = 1.2 * self.controller.window().packets() / srtt.as_secs_f64();
            pacing_rate / 1_000.0
        });
        let is_full = self.together >= 2 && f64::from(self.together) + 1.0 > in_a_millisecond;
        if is_full {
            self.together = 0;
        }
        is_full
    }

    #[inline(always)]
    fn send(&mut self, now: Time, next: NextPacket, fabric: &mut Fabric) {
        let number = self.recovery.on_sent(now, next);
        if let Some(extensions) = &mut self.extensions {
            extensions.on_sent(next);
        }
        let mut packet =
            Packet::data(self.flow, self.route, number, now, self.settings.packet_size);
        packet.marks.set_ecn_capable(self.settings.ecn);
        if matches!(self.policy, AckPolicy::Adaptive(_)) {
            packet.set_count(self.window());
        }
        if matches!(self.policy, AckPolicy::Linux(_)) {
            packet.set_count(self.recovery.first());
            if self.is_pushed(now, number) {
                packet.marks.push();
            }
        }
        self.sent += 1;
        self.last_sent = now;
        if self.is_rate_based {
            self.tell_sent(now, number);
        }
        if let Some(sampling) = &mut self.sampling {
            sampling.on_sent(now, number, self.recovery.first());
        }
        if let Some(consumer) = self.receiver.consumer_mut() {
            consumer.on_sent(now, number);
        }
        if matches!(next, NextPacket::Again(_)) {
            packet.marks.retransmission = true;
            self.retransmitted += 1;
            // Karn's rule: a retransmitted packet gives no RTT sample.
            self.timed = None;
            if let Some(trains) = &mut self.trains {
                trains.on_sent_again(number, self.recovery.first());
            }
        } else {
            self.timed = self.timed.or(Some((number, now)));
            if let Some(trains) = &mut self.trains {
                trains.on_sent(now);
            }
        }
        self.pace(now);
        fabric.send(now, packet);
        // Restart the timer for the first outstanding packet: after a fast retransmission the
        // remaining time may be shorter than its RTT (as Linux and ns-2 do; RFC 6298 does not
        // cover this).
        let first = number == self.recovery.first() && self.recovery.restarts_timer();
        if first || !self.retransmit_timer.is_set() {
            self.set_retransmit_timer(now, self.rto(), fabric);
        }
    }

    fn pace(&mut self, now: Time) {
        let size = ontempo_foundation::Bytes::new(u64::from(self.settings.packet_size));
        let interval = match self.settings.pacing {
            PacingKind::Off => return,
            PacingKind::Window => None,
            PacingKind::Controller if self.is_rate_based => return self.pace_quantum(now, size),
            PacingKind::Controller => {
                self.pacer.set_burst(self.controller.burst());
                self.controller.pacing_rate().map(|rate| interval_at_rate(rate, size))
            }
        };
        let by_window = || {
            // If ACKs cover whole trains, the RTT seen by the timer already includes the pacing.
            let seen = self.trains.as_ref().map_or(self.rtt.srtt(), |trains| trains.srtt());
            interval_of_window(seen.unwrap_or(Duration::ZERO), self.controller.window())
        };
        self.pacer.on_sent(now, interval.unwrap_or_else(by_window));
    }

    #[inline(never)]
    fn on_ack(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric) {
        self.acks += 1;
        let in_recovery_before = self.recovery.in_recovery();
        let repairs = self.recovery.repairs();
        let first_before = self.recovery.first();
        let losses_before = self.recovery.losses();
        let outcome = self.recover(now, packet);
        let covered = self.recovery.first() - first_before;
        let mut sample = match self.recovery.samples() {
            Some(samples) if self.trains.is_none() => {
                self.on_sample(samples.first);
                Some(samples.last)
            }
            _ if self.samples_otherwise => None,
            _ if outcome.newly_acknowledged > 0 => {
                self.sample(now, packet).map(|rtt| self.measure(now, rtt, covered))
            }
            _ => None,
        };
        if self.samples_otherwise {
            sample = self.sample_otherwise(now, packet, (&outcome, covered));
        }
        if outcome.advanced {
            self.timed_out = None;
            if self.extensions.is_some() {
                self.undo_spurious_timeout(packet.stamp);
            }
        }
        self.controller.on_ack(&Ack {
            now,
            packets: outcome.newly_acknowledged as f64,
            rtt: sample,
            srtt: self.rtt.srtt().unwrap_or(Duration::ZERO),
            acked: self.recovery.first().saturating_sub(1),
            next: self.recovery.next(),
            in_flight: self.recovery.in_flight() as f64,
            in_recovery: in_recovery_before || outcome.lost.is_some() || !outcome.advanced,
            repairs,
            window_limited: self.may_grow(),
        });
        if let Some(lost) = outcome.lost {
            self.on_loss(now, lost);
        }
        if self.extensions.is_some() {
            let is_safe = outcome.advanced && self.recovery.losses() == losses_before;
            self.reduce_in_proportion(outcome.newly_acknowledged, is_safe);
        }
        if packet.marks.congestion {
            let mark = self.loss(now, self.recovery.first());
            if self.marks_answered.begins_with(&mark) {
                self.controller.on_ecn(&mark);
            }
        }
        if outcome.advanced {
            self.after_advance(now, fabric);
        }
        self.send_allowed(now, fabric);
    }

    /// What the acknowledgement says of losses.
    #[inline]
    fn recover(&mut self, now: Time, packet: &Packet) -> AckOutcome {
        let absolute;
        let mut blocks: &[SackBlock] = &[];
        if packet.has_blocks() {
            let (all, count) = packet.blocks();
            absolute = all;
            blocks = &absolute[..count];
        }
        if self.is_rate_based {
            self.acknowledge_watched(now, packet.number, blocks)
        } else {
            self.recovery.on_ack(now, packet.number, blocks)
        }
    }

    /// A loss episode began with `lost`, or a probe repaired that loss.
    fn on_loss(&mut self, now: Time, lost: u64) {
        self.timed = None;
        let loss = self.loss(now, lost);
        let window = self.controller.window();
        self.controller.on_loss(&loss);
        if let Some(extensions) = &mut self.extensions
            && self.recovery.in_recovery()
        {
            extensions.begin_reduction(window, self.controller.window());
        }
    }

    #[inline]
    fn after_advance(&mut self, now: Time, fabric: &mut Fabric) {
        if self.source.on_acknowledged(now, self.recovery.first()) {
            self.transfers += 1;
        }
        if let Some(extensions) = &mut self.extensions {
            extensions.on_advance();
        }
        if self.recovery.outstanding() == 0 {
            self.retransmit_timer.clear();
        } else if self.recovery.restarts_timer() {
            self.set_retransmit_timer(now, self.rto(), fabric);
        }
    }

    fn loss(&self, now: Time, packet: u64) -> Loss {
        Loss {
            now,
            packet,
            next: self.recovery.next(),
            in_flight: self.recovery.in_flight() as f64,
        }
    }

    #[inline]
    fn set_retransmit_timer(&mut self, now: Time, rto: Duration, fabric: &mut Fabric) {
        let deadline = now + rto;
        self.retransmit_timer.set(deadline, Event::Retransmit(self.flow), fabric);
    }

    pub(crate) fn on_retransmit_timer(&mut self, now: Time, fabric: &mut Fabric) {
        let event = Event::Retransmit(self.flow);
        if !self.retransmit_timer.expires(now, event, fabric)
            || self.is_reset
            || (self.extensions.is_some() && self.acts_before_timeout(now, fabric))
            || self.recovery.outstanding() == 0
        {
            return;
        }
        self.timeouts += 1;
        let first = self.recovery.first();
        if let Some(extensions) = &mut self.extensions {
            extensions.on_timeout(now, &self.controller);
        }
        if self.is_rate_based {
            self.lose_watched(now);
        }
        let timeout = Timeout {
            now,
            next: self.recovery.next(),
            in_flight: self.recovery.in_flight() as f64,
            repeated: self.timed_out == Some(first),
        };
        self.timed_out = Some(first);
        self.timed = None;
        self.controller.on_timeout(&timeout);
        if !self.is_rate_based {
            self.recovery.on_timeout(now);
        }
        self.rtt.back_off();
        self.pacer.reset();
        self.send_allowed(now, fabric);
        self.set_retransmit_timer(now, self.rto(), fabric);
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod layout {
    use std::mem::{offset_of, size_of};

    use super::Tcp;

    /// What most packets read begins with a cache line and fills few.
    #[test]
    fn what_most_packets_read_stands_together() {
        assert_eq!(offset_of!(Tcp, awaited), 64);
        assert_eq!(offset_of!(Tcp, route), 256);
        assert_eq!(size_of::<Tcp>(), size_of::<crate::agents::Agent>());
    }
}
