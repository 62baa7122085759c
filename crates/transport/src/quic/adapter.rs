//! Any [`CongestionControl`] as the controller of a real QUIC stack.
//!
//! The stack counts bytes and reports packets one by one; a mechanism counts packets and is
//! called for acknowledgements. The adapter translates and decides nothing:
//!
//! * Packets are renumbered 0, 1, 2, … in the order of sending. QUIC numbers packets separately in each of
//!   its
//!   three number spaces and may skip a number, and a controller does not know the
//!   space of a number.
//! * A round trip is `now - sent` of the largest packet acknowledged, and only where an
//!   acknowledgement raised that largest (RFC 9002, section 5.1). Such a sample contains the
//!   peer's acknowledgement delay. Samples are smoothed here (RFC 6298): the stack shows its own
//!   average only as it was before this acknowledgement, initially an assumed one.
//! * Losses are reported to the mechanism once per window of data, by its [`RecoveryPoint`].
//! * QUIC has no retransmission timeout; persistent congestion (RFC 9002, section 7.6) takes its
//!   place.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use noq_proto::RttEstimator as StackRtt;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use ontempo_foundation::{Bytes, Duration, Rate, Time};
use ontempo_mechanisms::congestion::{
    Ack, CongestionControl, Loss, RecoveryPoint, Sent, Snapshot, Start, Timeout, Window,
};
use ontempo_mechanisms::recovery::{DeliveryRates, Repair, Watch};
use ontempo_mechanisms::rtt::{RtoParameters, RttEstimator, SelfInducedDelay, Train};

use super::account::SharedAccount;
use super::clock::Epoch;
use super::outstanding::Outstanding;

/// Pacing if the mechanism sets no rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// None: acknowledgements alone clock packets out, as in the TCP of the papers.
    #[default]
    Off,
    /// The stack's own pacer: 1.25 cwnd per round trip, in bursts of 10 packets or 2 ms.
    Stack,
    /// One cwnd per round trip. The stack accumulates unused tokens, up to 10 packets or 10 ms, so
    /// that with ACK clocking this limits bursts and does not space packets.
    Window,
}

impl Pacing {
    /// The maximum rate given to the stack's pacer, which cannot be switched off. At this rate it
    /// lets 256 packets be sent at once. It must not be higher: the wait is rounded to a
    /// nanosecond, and less than half of one would never end.
    pub(super) const FASTEST: Rate = Rate::from_bits_per_sec(8_000_000_000);
}

/// Actions of a controller, for tests that read them while the stack owns the controller.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// cwnd whenever it changed.
    pub window: Vec<(Time, Window)>,
    /// State of the mechanism after its last event.
    pub snapshot: Option<Snapshot>,
    /// Times of the loss events passed to the mechanism.
    pub loss_events: Vec<Time>,
    /// Times of persistent congestion.
    pub timeouts: Vec<Time>,
    /// Raw round-trip samples passed to the mechanism.
    pub rtt_samples: u64,
    /// How often all packets that had been found lost arrived.
    pub spurious: u64,
}

/// A log shared by adapter and test.
#[derive(Clone, Debug, Default)]
pub struct SharedLog(Arc<Mutex<Log>>);

impl SharedLog {
    /// The log.
    pub fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates an [`Adapter`] for each path of the stack.
pub struct Factory<F> {
    /// Creates the mechanism.
    pub make: F,
    /// Its initial values; the packet size is the stack's.
    pub start: Start,
    /// The largest UDP payload that path MTU discovery tries, bytes. The initial window of a mechanism with
    /// delivery rates is of such packets (RFC 9002, section 7.2: at most 14,720 bytes): it goes on to count
    /// those of its start.
    pub largest: u16,
    /// The pacing.
    pub pacing: Pacing,
    /// True: round trips are corrected for the delay that a train of packets causes itself (thesis,
    /// ch. V) before the mechanism uses them.
    pub corrected: bool,
    /// The zero of time.
    pub epoch: Epoch,
    /// Shared state of the mechanism.
    pub account: SharedAccount,
    /// Log of all its actions, for tests.
    pub log: Option<SharedLog>,
}

impl<F> std::fmt::Debug for Factory<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").field("start", &self.start).finish_non_exhaustive()
    }
}

impl<F, C> ControllerFactory for Factory<F>
where
    F: Fn(Start) -> C + Send + Sync,
    C: CongestionControl + Clone + Send + Sync + 'static,
{
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let mut start = Start { packet_size: Bytes::new(mtu.into()), ..self.start };
        let mut controller = (self.make)(start);
        let is_rate_based = controller.delivery_rates().is_some();
        if is_rate_based {
            let enlarged = f64::from(self.largest.max(mtu)) / f64::from(mtu);
            start.initial_window = Window::of_packets(start.initial_window.packets() * enlarged);
            controller = (self.make)(start);
        }
        let mut adapter = Adapter {
            controller,
            is_rate_based,
            start,
            pacing: self.pacing,
            correction: self.corrected.then(SelfInducedDelay::new),
            epoch: self.epoch,
            account: self.account.clone(),
            log: self.log.clone(),
            outstanding: VecDeque::new(),
            next: 0,
            highest_acked: 0,
            bytes_in_flight: 0,
            acked: None,
            recovery: RecoveryPoint::default(),
            loss: None,
            timed_out: false,
            rtt: RttEstimator::new(RtoParameters::default()),
            last_sent: None,
            mtu: mtu.into(),
            lost: Vec::new(),
            overtaken: Overtaken::default(),
        };
        adapter.record(self.epoch.time(now));
        Box::new(adapter)
    }
}

/// One acknowledgement, collected packet by packet.
#[derive(Clone, Copy, Debug)]
struct Acked {
    packets: u64,
    bytes: u64,
    first_sent: Time,
    largest: Outstanding,
}

/// For how long after a loss that was none packets found lost are expected to arrive after all.
const OVERTAKING: Duration = Duration::from_secs(2);

/// Where packets overtake each other, those that the stack found lost: they may have been overtaken only. The stack
/// sends their data again at once, which costs bytes; for a mechanism they are lost a round trip later, unless they arrive.
#[derive(Clone, Debug, Default)]
struct Overtaken {
    /// When they were found lost, oldest first.
    suspects: VecDeque<(Time, Outstanding)>,
    /// Those that have arrived since the last acknowledgement.
    arrived: Vec<Outstanding>,
    until: Time,
    /// The time of the last call.
    now: Time,
}

impl Overtaken {
    /// Takes a packet that was found lost, where some lately arrived after all.
    fn take(&mut self, now: Time, packet: Outstanding) -> bool {
        let is_suspect = now < self.until;
        if is_suspect {
            self.suspects.push_back((now, packet));
        }
        is_suspect
    }

    /// All packets found lost have arrived.
    fn on_arrival(&mut self) {
        self.until = self.now + OVERTAKING;
        self.arrived.extend(self.suspects.drain(..).map(|(_, packet)| packet));
    }

    /// The oldest one, if it has not arrived within this time.
    fn expired(&mut self, now: Time, patience: Duration) -> Option<Outstanding> {
        let (found, _) = self.suspects.front()?;
        (*found + patience <= now).then(|| self.suspects.pop_front()).flatten().map(|(_, one)| one)
    }
}

/// A mechanism under a QUIC stack.
#[derive(Clone)]
pub struct Adapter<C> {
    controller: C,
    /// Whether the mechanism has delivery rates: its rate counts packets.
    is_rate_based: bool,
    start: Start,
    pacing: Pacing,
    /// State of the round-trip correction, if it is on.
    correction: Option<SelfInducedDelay>,
    epoch: Epoch,
    account: SharedAccount,
    log: Option<SharedLog>,
    /// Packets in flight, in the order of sending.
    outstanding: VecDeque<Outstanding>,
    /// The number of the next packet.
    next: u64,
    highest_acked: u64,
    bytes_in_flight: u64,
    /// Set while the stack reports the packets of one acknowledgement.
    acked: Option<Acked>,
    recovery: RecoveryPoint,
    /// The loss that begins an episode, kept until the stack reports whether it is persistent.
    loss: Option<Loss>,
    /// Set by persistent congestion, cleared by an acknowledgement.
    timed_out: bool,
    rtt: RttEstimator,
    last_sent: Option<Time>,
    /// Maximum size of a packet, bytes.
    mtu: u64,
    /// Packets found lost since the last acknowledgement, of a mechanism with delivery rates.
    lost: Vec<u64>,
    overtaken: Overtaken,
}

impl<C> fmt::Debug for Adapter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<C: CongestionControl> Adapter<C> {
    fn packets(&self, bytes: u64) -> f64 {
        bytes as f64 / self.start.packet_size.get() as f64
    }

    fn in_flight(&self) -> f64 {
        self.packets(self.bytes_in_flight)
    }

    /// Whether an ACK of so many bytes may let the window grow (RFC 9002, section 7.8): what was in
    /// flight used more than half of it, as Linux asks of a flow that sends in bursts
    /// (`tcp_is_cwnd_limited`), or all of it.
    fn window_limited(&self, app_limited: bool, acked: u64) -> bool {
        !app_limited || 2 * (self.bytes_in_flight + acked) > self.window_bytes()
    }

    /// At least two packets (RFC 9002, section 7.2): with one, the stack was observed to send only
    /// probes for ever.
    fn window_bytes(&self) -> u64 {
        let size = self.start.packet_size;
        self.controller.window().bytes(size).get().max(self.mtu * 2)
    }

    /// Removes a packet from flight; `sent`, if known, distinguishes number spaces. `None` for
    /// a packet that was never counted: one with acknowledgements only.
    fn take(&mut self, stack_number: u64, sent: Option<Time>) -> Option<Outstanding> {
        let place = self.outstanding.iter().position(|packet| {
            packet.stack_number == stack_number && sent.is_none_or(|sent| sent == packet.sent)
        })?;
        let packet = self.outstanding.remove(place)?;
        self.bytes_in_flight -= packet.bytes;
        Some(packet)
    }

    /// Removes packets that the stack has discarded without a callback: those of the handshake,
    /// whose fate no longer matters after it. They are the oldest.
    fn settle(&mut self, stack_in_flight: u64) {
        while self.bytes_in_flight > stack_in_flight
            && let Some(forgotten) = self.outstanding.pop_front()
        {
            self.bytes_in_flight -= forgotten.bytes;
        }
    }

    /// The round-trip sample of the packets just acknowledged.
    fn sample(&mut self, now: Time, acked: &Acked) -> Duration {
        let last_sent = acked.largest.sent;
        let raw = now.since(last_sent);
        let Some(correction) = &mut self.correction else { return raw };
        let train = Train { packets: acked.packets, first_sent: acked.first_sent, last_sent };
        let self_induced = correction.on_ack(now, train);
        let least = self.rtt.minimum_rtt().unwrap_or(raw).min(raw);
        SelfInducedDelay::correct(now.since(acked.first_sent), self_induced, least)
    }

    /// Begins to report to a mechanism with delivery rates what became of packets since the last
    /// acknowledgement: first what was lost. `in_flight` are the packets before it.
    fn begin_rates(&mut self, now: Time, in_flight: f64) -> Option<&mut DeliveryRates> {
        let arrived = std::mem::take(&mut self.overtaken.arrived);
        let bytes = arrived.iter().map(|packet| packet.bytes).sum();
        self.account.write(|account| account.delivered += Bytes::new(bytes));
        let rates = self.controller.delivery_rates()?;
        rates.begin(now, in_flight);
        self.lost.drain(..).for_each(|packet| rates.lost(packet));
        arrived.iter().for_each(|packet| rates.delivered(packet.number));
        Some(rates)
    }

    /// Ends what [`begin_rates`](Self::begin_rates) began.
    fn end_rates(&mut self, repair: Repair) {
        let suspect = self.overtaken.suspects.front().map(|(_, packet)| packet);
        let oldest = self.outstanding.front().into_iter().chain(suspect);
        let first = oldest.map(|packet| packet.number).min().unwrap_or(self.next);
        if let Some(rates) = self.controller.delivery_rates() {
            rates.advance(first, repair);
        }
    }

    fn write_log(&self, write: impl FnOnce(&mut Log)) {
        if let Some(log) = &self.log {
            write(&mut log.lock());
        }
    }

    /// A packet is lost; `in_flight` are the packets before it was.
    fn count_lost(&mut self, now: Time, packet: u64, in_flight: f64) {
        if self.is_rate_based {
            self.lost.push(packet);
        }
        let loss = Loss { in_flight, ..self.loss_of(now, packet) };
        if self.loss.is_none() && self.recovery.begins_with(&loss) {
            self.loss = Some(loss);
        }
    }

    /// Packets that have not arrived so long after the stack found them lost are lost.
    fn count_overtaken(&mut self, now: Time, patience: Duration) {
        while let Some(packet) = self.overtaken.expired(now, patience) {
            self.count_lost(now, packet.number, self.in_flight());
        }
    }

    /// Notifies the mechanism of the loss that began an episode, if one did.
    fn report_loss(&mut self, now: Time) {
        if let Some(loss) = self.loss.take() {
            self.write_log(|log| log.loss_events.push(now));
            self.controller.on_loss(&loss);
        }
    }

    fn loss_of(&self, now: Time, packet: u64) -> Loss {
        Loss { now, packet, next: self.next, in_flight: self.in_flight() }
    }

    /// Whether everything outstanding at the last loss event is acknowledged, and more.
    fn in_recovery(&self, now: Time) -> bool {
        let mut would_be = self.recovery;
        !would_be.begins_with(&self.loss_of(now, self.highest_acked))
    }

    /// Logs the mechanism's state after an event.
    fn record(&mut self, now: Time) {
        if self.outstanding.is_empty() {
            self.account.wait_since(None);
        }
        let snapshot = self.controller.snapshot();
        self.account.write(|account| {
            account.window = Bytes::new(self.window_bytes());
            account.rate = self.controller.pacing_rate();
            account.burst = self.controller.burst();
            account.srtt = self.rtt.srtt();
            account.snapshot = Some(snapshot);
        });
        let window = self.controller.window();
        self.write_log(|log| {
            if log.window.last().is_none_or(|(_, last)| *last != window) {
                log.window.push((now, window));
            }
            log.snapshot = Some(snapshot);
        });
    }

    fn paced_rate(&self) -> Option<Rate> {
        // Our own pacing obeys the rate of a mechanism with delivery rates.
        let own = if self.is_rate_based { None } else { self.controller.pacing_rate() };
        let rate = own.or_else(|| match self.pacing {
            Pacing::Off => Some(Pacing::FASTEST),
            Pacing::Stack => None,
            Pacing::Window => Some(Rate::of(Bytes::new(self.window_bytes()), self.rtt.srtt()?)),
        });
        rate.map(|rate| rate.min(Pacing::FASTEST))
    }
}

impl<C> Controller for Adapter<C>
where
    C: CongestionControl + Clone + Send + Sync + 'static,
{
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, stack_number: u64) {
        let now = self.epoch.time(now);
        let idle = self.last_sent.is_some_and(|last| now.since(last) > self.rtt.rto());
        if self.outstanding.is_empty() && idle {
            self.controller.on_idle_restart();
        }
        self.last_sent = Some(now);
        if self.outstanding.is_empty() {
            self.account.wait_since(Some(now));
        }
        let packet =
            Outstanding { number: self.next, stack_number, sent: now, bytes: bytes.into() };
        self.outstanding.push_back(packet);
        self.bytes_in_flight += packet.bytes;
        self.next += 1;
        let size = self.packets(packet.bytes);
        let in_flight = self.in_flight();
        self.controller.on_sent(&Sent { now, packet: packet.number, size, in_flight });
        self.record(now);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        _bytes: u64,
        stack_number: u64,
        _app_limited: bool,
        _rtt: &StackRtt,
    ) {
        let (now, sent) = (self.epoch.time(now), self.epoch.time(sent));
        let in_flight = self.in_flight();
        self.overtaken.now = now;
        if self.acked.is_none() {
            self.count_overtaken(now, self.rtt.srtt().unwrap_or(Duration::ZERO));
            self.report_loss(now);
        }
        if let Some(packet) = self.take(stack_number, Some(sent)) {
            let rates = match self.acked {
                Some(_) => self.controller.delivery_rates(),
                None => self.begin_rates(now, in_flight),
            };
            if let Some(rates) = rates {
                rates.delivered(packet.number);
            }
            let one = Acked { packets: 0, bytes: 0, first_sent: packet.sent, largest: packet };
            let acked = self.acked.get_or_insert(one);
            acked.packets += 1;
            acked.bytes += packet.bytes;
            acked.first_sent = acked.first_sent.min(packet.sent);
            if packet.number > acked.largest.number {
                acked.largest = packet;
            }
        }
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_acked: Option<u64>,
    ) {
        let now = self.epoch.time(now);
        self.settle(in_flight);
        let Some(acked) = self.acked.take() else {
            return;
        };
        let raised = largest_acked == Some(acked.largest.stack_number);
        let sample = raised.then(|| self.sample(now, &acked));
        if let Some(sample) = sample {
            self.rtt.on_sample(sample);
            self.write_log(|log| log.rtt_samples += 1);
        }
        self.account.write(|account| account.delivered += Bytes::new(acked.bytes));
        self.account.wait_since(Some(now));
        self.timed_out = false;
        self.highest_acked = self.highest_acked.max(acked.largest.number);
        let window_limited = self.window_limited(app_limited, acked.bytes);
        let in_recovery = self.in_recovery(now);
        let in_flight = self.in_flight();
        if app_limited && let Some(rates) = self.controller.delivery_rates() {
            rates.limit_by_application(in_flight);
        }
        self.end_rates(if in_recovery { Repair::Episode } else { Repair::None });
        self.controller.on_ack(&Ack {
            now,
            packets: self.packets(acked.bytes),
            rtt: sample,
            srtt: self.rtt.srtt().unwrap_or(Duration::ZERO),
            acked: self.highest_acked,
            next: self.next,
            in_flight,
            in_recovery,
            repairs: in_recovery,
            window_limited,
        });
        self.record(now);
    }

    fn on_packet_lost(&mut self, _bytes: u16, stack_number: u64, now: Instant) {
        let now = self.epoch.time(now);
        self.account.note_loss(now);
        let in_flight = self.in_flight();
        if let Some(packet) = self.take(stack_number, None) {
            // A retransmission belongs to no train.
            if let Some(correction) = &mut self.correction {
                correction.reset();
            }
            self.overtaken.now = now;
            if !self.overtaken.take(now, packet) {
                self.count_lost(now, packet.number, in_flight);
            }
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent: bool,
        is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost: u64,
    ) {
        let now = self.epoch.time(now);
        if is_ecn {
            // The marked packet is the largest of those just acknowledged.
            let mark = self.loss_of(now, self.highest_acked);
            if self.recovery.begins_with(&mark) {
                self.controller.on_ecn(&mark);
            }
        } else if is_persistent {
            self.count_overtaken(now, Duration::ZERO);
            self.loss = None;
            self.recovery.restart(self.next);
            self.write_log(|log| log.timeouts.push(now));
            self.begin_rates(now, self.in_flight());
            self.end_rates(Repair::AfterTimeout);
            self.controller.on_timeout(&Timeout {
                now,
                next: self.next,
                in_flight: self.in_flight(),
                repeated: std::mem::replace(&mut self.timed_out, true),
            });
        } else {
            self.report_loss(now);
        }
        self.record(now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.overtaken.on_arrival();
        self.write_log(|log| log.spurious += 1);
    }

    fn on_cwnd_limited(&mut self) {
        let in_flight = self.in_flight();
        if let Some(rates) = self.controller.delivery_rates() {
            rates.limit_by_window(in_flight);
        }
    }

    /// A mechanism with delivery rates goes on to count packets of its start's size: what it has measured
    /// is in these.
    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        if !self.is_rate_based {
            self.start.packet_size = Bytes::new(self.mtu);
        }
    }

    fn window(&self) -> u64 {
        let packet = self.start.packet_size.get();
        self.account.window_for_stack(self.window_bytes(), self.bytes_in_flight, packet)
    }

    fn metrics(&self) -> ControllerMetrics {
        let size = self.start.packet_size;
        let threshold = self.controller.snapshot().ssthresh;
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window_bytes();
        metrics.ssthresh = threshold.packets().is_finite().then(|| threshold.bytes(size).get());
        metrics.pacing_rate = self.paced_rate().map(|rate| rate.as_bits_per_sec() / 8);
        // If the stack does not pace, it does not limit bursts either.
        let quantum = self.controller.burst().get().max(1) * size.get();
        metrics.send_quantum = (!matches!(self.pacing, Pacing::Off)).then_some(quantum);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.start.initial_window.bytes(self.start.packet_size).get()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_found_lost_are_suspects_after_some_that_arrived_and_lost_a_round_trip_later() {
        let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let packet = |number| Outstanding { number, stack_number: number, sent: ms(0), bytes: 9 };
        let patience = Duration::from_millis(100);
        let mut overtaken = Overtaken::default();
        assert!(!overtaken.take(ms(1), packet(1)), "nothing has arrived");
        overtaken.now = ms(1_000);
        overtaken.on_arrival();
        assert!(overtaken.take(ms(1_010), packet(2)) && overtaken.take(ms(1_020), packet(3)));
        assert_eq!(overtaken.expired(ms(1_109), patience).map(|one| one.number), None);
        assert_eq!(overtaken.expired(ms(1_110), patience).map(|one| one.number), Some(2));
        overtaken.now = ms(1_115);
        overtaken.on_arrival();
        assert_eq!(overtaken.expired(ms(9_999), patience).map(|one| one.number), None);
        assert_eq!(overtaken.arrived.iter().map(|one| one.number).collect::<Vec<_>>(), [3]);
        assert!(overtaken.take(ms(3_114), packet(4)) && !overtaken.take(ms(3_115), packet(5)));
    }
}
