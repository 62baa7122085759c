//! UDP: each packet leaves when the application offers it.

use ontempo_foundation::Time;

use ontempo_runtime::{Arrivals, FlowTotals, Message, Source};

use ontempo_scenario::model::EcnCode;

use super::receiver::Receiver;
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;

/// Both ends of a UDP flow.
pub(crate) struct Udp {
    flow: u32,
    route: u32,
    size: u32,
    ecn: EcnCode,
    source: Source,
    stop: Time,
    sent: u64,
    receiver: Receiver,
    /// What has arrived, if missing units of a stream are counted or links make copies.
    arrived: Option<Arrivals>,
    /// Arrivals may be counted as soon as they are known.
    counts_ahead: bool,
    /// The latest arrival that is pending as an event.
    awaited: Time,
}

impl Udp {
    pub(crate) fn new(
        (flow, route): (u32, u32),
        size: u32,
        source: Source,
        stop: Time,
        receiver: Receiver,
    ) -> Self {
        let arrived = receiver.wants_due_times().then(Arrivals::default);
        let ecn = EcnCode::None;
        let (counts_ahead, awaited) = (false, Time::ZERO);
        let sent = 0;
        Self {
            flow,
            route,
            size,
            ecn,
            source,
            stop,
            sent,
            receiver,
            arrived,
            counts_ahead,
            awaited,
        }
    }

    /// Packets arrive in order, once and whole, so that they may be counted as soon as their arrival is
    /// known. Messages are recorded when they arrive.
    pub(crate) fn allow_counting_ahead(&mut self) {
        self.counts_ahead = self.receiver.messages().is_none();
    }

    /// True if a packet may be delivered before its arrival time: no earlier arrival is pending as an
    /// event.
    #[inline]
    pub(crate) fn takes_ahead(&self, now: Time) -> bool {
        self.counts_ahead && self.awaited < now
    }

    /// A packet's arrival is pending as an event.
    #[inline]
    pub(crate) fn await_arrival(&mut self, at: Time) {
        self.awaited = self.awaited.max(at);
    }

    /// The same, with packets of this ECN code point.
    pub(crate) fn with_ecn(self, ecn: EcnCode) -> Self {
        Self { ecn, ..self }
    }

    /// Links on the way may make copies, which the receiver takes once.
    pub(crate) fn expect_copies(&mut self) {
        self.arrived.get_or_insert_default();
    }

    pub(crate) fn on_wake(&mut self, now: Time, fabric: &mut Fabric) {
        if now >= self.stop {
            return;
        }
        let offered = self.source.offered(now);
        while self.sent < offered {
            fabric.send(now, self.packet(self.sent, now, self.size));
            self.sent += 1;
            if let Some(messages) = self.receiver.messages_mut() {
                messages.sent(now, messages.payload());
            }
        }
        self.source.on_acknowledged(now, self.sent);
        let next = self.source.next_offer(now);
        if next < self.stop {
            fabric.schedule(next, Event::Wake(self.flow));
        }
    }

    /// Sends the next packet if the application has offered it; true if it did.
    #[inline]
    pub(super) fn send_next(&mut self, now: Time, fabric: &mut Fabric) -> bool {
        if self.has_stopped(now) || self.sent >= self.source.offered(now) {
            return false;
        }
        let number = self.sent;
        let (handle, packet) = fabric.hold_packet();
        packet.begin((self.flow, self.route), number, now, self.size);
        packet.marks.set_ecn(self.ecn);
        fabric.send_held(now, handle);
        self.sent += 1;
        if let Some(messages) = self.receiver.messages_mut() {
            let written = self.source.due(number).unwrap_or(now);
            messages.sent(written, messages.payload());
        }
        self.source.on_acknowledged(now, self.sent);
        true
    }

    /// Counts the messages of a constant bit rate that the transport was given and has not sent by `end`.
    pub(super) fn count_unsent(&mut self, end: Time) {
        let end = end.min(self.stop);
        let due = (self.sent..).map_while(|number| self.source.due(number));
        if let Some(messages) = self.receiver.messages_mut() {
            for due in due.take_while(|due| *due < end) {
                messages.sent(due, messages.payload());
            }
        }
    }

    /// A packet of the flow at the start of its route.
    pub(super) fn packet(&self, number: u64, now: Time, size: u32) -> Packet {
        let mut packet = Packet::data(self.flow, self.route, number, now, size);
        packet.marks.set_ecn(self.ecn);
        packet
    }

    /// When the application next offers a packet, if all earlier ones have been sent.
    pub(super) fn next_offer(&self, now: Time) -> Time {
        self.source.next_offer(now)
    }

    pub(super) fn has_stopped(&self, now: Time) -> bool {
        now >= self.stop
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Packet `number`, sent at `sent`, has arrived; false if it is a copy of an earlier one, which is not
    /// counted.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, (number, sent): (u64, Time)) -> bool {
        if let Some(arrived) = &mut self.arrived
            && !arrived.add(number)
        {
            return false;
        }
        if self.receiver.counts_only() {
            self.receiver.count();
            return true;
        }
        let due = self.source.due(number);
        self.receiver.deliver(now, number, due);
        if let Some(messages) = self.receiver.messages_mut() {
            let payload = messages.payload();
            // Without a time at which it was due, the application gave it to the transport as it left.
            let written = due.unwrap_or(sent);
            let message = Message { made: written, written, payload };
            messages.received(now, number, message);
        }
        true
    }

    pub(crate) fn end(&mut self, now: Time) {
        if let Some(messages) = self.receiver.messages_mut() {
            messages.end(now);
        }
        if !self.receiver.wants_due_times() {
            return;
        }
        for number in 0..self.sent {
            if !self.arrived.as_ref().is_some_and(|arrived| arrived.contains(number))
                && let Some(due) = self.source.due(number)
            {
                self.receiver.miss(number, due);
            }
        }
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals {
            sent: self.sent,
            delivered: self.receiver.delivered(),
            retransmitted: Some(0),
            ..FlowTotals::default()
        }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        u64::from(self.size)
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}
