//! ADUs: emitted at a rate within a window, acknowledged selectively, delivered as the
//! application allows.

use ontempo_foundation::Time;
use ontempo_mechanisms::adu::{AduReceiver, AduSender, Next};

use ontempo_runtime::FlowTotals;

use super::receiver::Receiver;
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;
use crate::timer::LazyTimer;

/// Bytes of an acknowledgement on the wire: IP and UDP headers, and an [`AduAck`].
///
/// [`AduAck`]: ontempo_mechanisms::adu::AduAck
pub(crate) const ACK_SIZE: u32 = 28 + 32;

/// Both ends of a flow of ADUs.
pub(crate) struct Adu {
    flow: u32,
    route: u32,
    back: u32,
    size: u32,
    stop: Time,
    count: u64,
    sender: AduSender,
    acks: u64,
    wake: LazyTimer,
    timer: LazyTimer,
    replies: AduReceiver,
    taking: LazyTimer,
    receiver: Receiver,
}

impl Adu {
    /// `receiver` has a [`Consumer`](super::consumer::Consumer).
    pub(crate) fn new(
        (flow, route, back): (u32, u32, u32),
        size: u32,
        (count, stop): (u64, Time),
        (sender, replies): (AduSender, AduReceiver),
        receiver: Receiver,
    ) -> Self {
        Self {
            flow,
            route,
            back,
            size,
            stop,
            count,
            sender,
            acks: 0,
            wake: LazyTimer::unset(),
            timer: LazyTimer::unset(),
            replies,
            taking: LazyTimer::unset(),
            receiver,
        }
    }

    // The sender's end.

    /// The sender may send: the flow begins, or its next sending time has come.
    pub(crate) fn on_wake(&mut self, now: Time, fabric: &mut Fabric) {
        let event = Event::Wake(self.flow);
        if !self.wake.is_set() || self.wake.expires(now, event, fabric) {
            self.sender.offer(self.count);
            self.send_allowed(now, fabric);
        }
    }

    fn send_allowed(&mut self, now: Time, fabric: &mut Fabric) {
        if now >= self.stop {
            self.timer.clear();
            return;
        }
        loop {
            match self.sender.next(now) {
                Next::Send(transmission) => {
                    let adu = transmission.adu;
                    let mut packet = Packet::data(self.flow, self.route, adu, now, self.size);
                    packet.set_transmission(&transmission);
                    if let Some(consumer) = self.receiver.consumer_mut() {
                        consumer.on_sent(now, adu);
                    }
                    fabric.send(now, packet);
                }
                Next::At(turn) => {
                    self.wake.set(turn, Event::Wake(self.flow), fabric);
                    break;
                }
                Next::Blocked => break,
            }
        }
        match self.sender.deadline() {
            Time::NEVER => self.timer.clear(),
            deadline => self.timer.set(deadline, Event::Retransmit(self.flow), fabric),
        }
    }

    pub(crate) fn on_retransmit_timer(&mut self, now: Time, fabric: &mut Fabric) {
        if self.timer.expires(now, Event::Retransmit(self.flow), fabric) {
            self.sender.on_timer(now);
            self.send_allowed(now, fabric);
        }
    }

    /// A transmission was lost, which the sender knows now.
    pub(crate) fn on_lost(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        self.sender.on_lost(packet.transmission().number);
        self.send_allowed(now, fabric);
    }

    // The receiver's end.

    /// An ADU has arrived at the receiver, or an acknowledgement at the sender.
    pub(crate) fn on_packet(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        if packet.marks.ack {
            self.acks += 1;
            self.sender.on_ack(now, &packet.adu_ack());
            self.send_allowed(now, fabric);
            return;
        }
        let transmission = packet.transmission();
        let due = self.replies.on_transmission(transmission.number, transmission.asks);
        if let Some(consumer) = self.receiver.consumer_mut() {
            consumer.on_arrival(now, transmission.adu);
        }
        self.take(now, due, fabric);
    }

    /// The application is ready for its next ADU.
    pub(crate) fn on_take(&mut self, now: Time, fabric: &mut Fabric) {
        if self.taking.expires(now, Event::Take(self.flow), fabric) {
            self.take(now, false, fabric);
        }
    }

    /// Delivers ADUs that the application takes by `now`; sends an acknowledgement if that, or
    /// `is_due`, requires one.
    fn take(&mut self, now: Time, is_due: bool, fabric: &mut Fabric) {
        let mut is_due = is_due;
        while self.receiver.consumer_mut().is_some_and(|consumer| consumer.take(now)) {
            self.receiver.deliver(now, 0, None);
            is_due |= self.replies.on_freed();
        }
        if is_due && let Some(ack) = self.replies.acknowledge() {
            let mut packet = Packet::data(self.flow, self.back, 0, now, ACK_SIZE);
            packet.set_adu_ack(&ack);
            fabric.send(now, packet);
        }
        let next = self.receiver.consumer().map_or(Time::NEVER, |consumer| consumer.next_take());
        if next < Time::NEVER {
            self.taking.set(next, Event::Take(self.flow), fabric);
        }
    }

    // What probes read.

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals {
            sent: self.sender.transmissions(),
            retransmitted: Some(self.sender.retransmitted()),
            timeouts: self.sender.timeouts(),
            acks: self.acks,
            delivered: self.receiver.delivered(),
            transfers: u64::from(self.receiver.delivered() == self.count),
            ..FlowTotals::default()
        }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        u64::from(self.size)
    }

    pub(crate) fn sender(&self) -> &AduSender {
        &self.sender
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}
