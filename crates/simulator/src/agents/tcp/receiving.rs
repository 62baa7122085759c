//! The receiver's end of a TCP flow.

use ontempo_foundation::{Duration, Packets, Time};
use ontempo_mechanisms::ack::{AckDecision, AckPolicy, Segment};
use ontempo_mechanisms::receive::Arrival;

use super::{ACK_SIZE, Answered, HANDSHAKE_SIZE, Tcp};
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;

impl Tcp {
    /// Only this flow uses the return route and nothing overtakes on the forward route, so the
    /// receiver's immediate answers can be computed as soon as the arrival is known.
    pub(crate) fn allow_answers_ahead(&mut self) {
        self.answers_ahead = matches!(self.policy, AckPolicy::Immediate) && !self.changes_address;
    }

    /// True if `packet` may be delivered before its arrival time: no earlier arrival is pending
    /// as an event.
    #[inline]
    pub(crate) fn takes_ahead(&self, now: Time, packet: &Packet) -> bool {
        self.answers_ahead && !packet.marks.ack && self.awaited <= now
    }

    /// A packet's arrival is pending as an event.
    #[inline]
    pub(crate) fn await_arrival(&mut self, at: Time) {
        self.awaited = self.awaited.max(at);
    }

    #[inline(never)]
    pub(super) fn on_data(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        let before = self.reassembly.next();
        let arrival = self.reassembly.receive(packet.number);
        if let Some(consumer) = self.receiver.consumer_mut() {
            consumer.on_arrival(now, packet.number);
        }
        for unit in before..self.reassembly.next() {
            self.deliver(now, unit, fabric);
        }
        let mut stamp = packet.stamp;
        if self.samples_otherwise
            && let Some(sampling) = &mut self.sampling
        {
            stamp = sampling.on_arrival(packet.number, stamp);
        }
        let answered = Answered { stamp, congestion: packet.marks.congestion };
        let in_order = arrival == Arrival::InOrder && !answered.congestion;
        if let AckPolicy::Adaptive(policy) = &mut self.policy {
            policy.limit_to(Packets::new(packet.count()));
        }
        let (ends_write, acknowledged) = (packet.marks.is_pushed(), packet.count());
        let segment = Segment { in_order, ends_write, acknowledged };
        match self.policy.on_segment(now, segment) {
            AckDecision::SendNow => {
                self.ack_timer.clear();
                self.unanswered = None;
                self.acknowledge(now, answered, fabric);
            }
            AckDecision::HoldUntil(deadline) => {
                self.unanswered = Some(answered);
                self.ack_timer.set(deadline, Event::Acknowledge(self.flow), fabric);
            }
        }
    }

    /// The next packet in order is given to the application.
    pub(super) fn deliver(&mut self, now: Time, unit: u64, fabric: &mut Fabric) {
        let due = if self.receiver.wants_due_times() { self.source.due(unit) } else { None };
        self.receiver.deliver(now, unit, due);
        if let Some(messages) = self.receiver.messages_mut()
            && let Some(message) = self.source.completed(unit, messages.payload())
            && let Some(prompts) = messages.received_in_order(now, message)
        {
            fabric.schedule(now + prompts.pause, Event::Prompt(prompts.flow));
        }
    }

    #[inline(always)]
    fn acknowledge(&mut self, now: Time, answered: Answered, fabric: &mut Fabric) {
        let number = self.reassembly.next();
        self.policy.on_sent(now, number);
        if self.samples_otherwise
            && let Some(sampling) = &mut self.sampling
        {
            sampling.on_acknowledged(number);
        }
        let mut ack = Packet::data(self.flow, self.back, number, now, ACK_SIZE);
        ack.stamp = answered.stamp;
        ack.marks.ack = true;
        ack.marks.congestion = answered.congestion;
        ack.set_blocks(self.reassembly.blocks());
        fabric.send(now, ack);
    }

    pub(crate) fn on_acknowledge_timer(&mut self, now: Time, fabric: &mut Fabric) {
        let event = Event::Acknowledge(self.flow);
        if self.ack_timer.expires(now, event, fabric)
            && let Some(answered) = self.unanswered.take()
        {
            self.policy.on_timer(now);
            self.acknowledge(now, answered, fabric);
        }
    }

    pub(crate) fn end(&mut self, now: Time) {
        // What is offered when the flow stops is not sent any more.
        let last = now.min(self.settings.stop - Duration::from_nanos(1));
        if let Some(messages) = self.receiver.messages_mut() {
            let offered = self.source.offered(last);
            let next = self.reassembly.next();
            for message in self.source.incomplete(next, offered, messages.payload()) {
                messages.sent(message.written, message.payload);
            }
            messages.end(now);
        }
        if !self.receiver.wants_due_times() {
            return;
        }
        let offered = self.source.offered(last);
        for unit in self.reassembly.next()..offered {
            if let Some(due) = self.source.due(unit) {
                self.receiver.miss(unit, due);
            }
        }
    }

    /// A SYN arrived: it is answered at once, each copy.
    pub(super) fn answer_syn(&mut self, now: Time, syn: &Packet, fabric: &mut Fabric) {
        self.policy.on_sent(now, 0);
        let mut answer = Packet::data(self.flow, self.back, 0, now, HANDSHAKE_SIZE);
        answer.stamp = syn.stamp;
        answer.marks.ack = true;
        answer.set_syn();
        fabric.send(now, answer);
    }
}
