//! ADUs: each datagram of the film is one, sent within a window, and again until it arrives.

use std::collections::VecDeque;
use std::sync::Arc;

use ontempo_foundation::Time;
use ontempo_mechanisms::adu::{AduAck, AduReceiver, AduSender, Next, Transmission};
use ontempo_mechanisms::delivery::{DeliveryOrder, Resequencer};
use ontempo_media::{Film, Sent};

use super::{End, Ends, HEADERS, Outgoing, Payload};
use crate::agents::adu::ACK_SIZE;

/// Both ends.
pub(crate) struct Adus {
    film: Arc<Film>,
    sender: AduSender,
    /// When the sender may send again.
    turn: Time,
    receiver: AduReceiver,
    /// An acknowledgement to be sent.
    ack: Option<AduAck>,
    buffer: Resequencer,
    delivered: VecDeque<u64>,
    /// The ADUs that the one which arrives depends on.
    needed: Vec<u64>,
}

impl Adus {
    pub(crate) fn new(
        film: Arc<Film>,
        (sender, receiver): (AduSender, AduReceiver),
        order: DeliveryOrder,
    ) -> Self {
        Self {
            film,
            sender,
            turn: Time::NEVER,
            receiver,
            ack: None,
            // The sender's window bounds what is under way.
            buffer: Resequencer::new(order, u64::MAX),
            delivered: VecDeque::new(),
            needed: Vec::new(),
        }
    }

    /// The application takes what it may have at once.
    fn on_arrival(&mut self, transmission: Transmission) {
        let mut is_due = self.receiver.on_transmission(transmission.number, transmission.asks);
        self.film.needed_by(transmission.adu, &mut self.needed);
        // A duplicate adds nothing.
        let _ = self.buffer.arrive(transmission.adu, &self.needed);
        while let Some(adu) = self.buffer.deliver() {
            self.delivered.push_back(adu);
            is_due |= self.receiver.on_freed();
        }
        if is_due {
            self.ack = self.receiver.acknowledge();
        }
    }
}

impl Ends for Adus {
    fn push(&mut self, _: Time, number: u64, _: &Sent, _: &Film) {
        self.sender.offer(number + 1);
    }

    fn receive(&mut self, now: Time, _: (End, u8), payload: Payload, _: bool) {
        match payload {
            Payload::Adu(transmission) => self.on_arrival(transmission),
            Payload::AduAck(ack) => self.sender.on_ack(now, &ack),
            _ => {}
        }
    }

    fn on_lost(&mut self, payload: Payload) {
        if let Payload::Adu(transmission) = payload {
            self.sender.on_lost(transmission.number);
        }
    }

    fn next_timeout(&self) -> Time {
        self.sender.deadline().min(self.turn)
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.sender.deadline() <= now {
            self.sender.on_timer(now);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(End, Outgoing)> {
        if let Some(ack) = self.ack.take() {
            let payload = Payload::AduAck(ack);
            return Some((
                End::Receiver,
                Outgoing { payload, size: ACK_SIZE, is_ecn_capable: false, to: 0 },
            ));
        }
        self.turn = Time::NEVER;
        match self.sender.next(now) {
            Next::Send(transmission) => {
                let size = self.film.datagram(transmission.adu)?.size() as u32 + HEADERS;
                let payload = Payload::Adu(transmission);
                Some((End::Sender, Outgoing { payload, size, is_ecn_capable: false, to: 0 }))
            }
            Next::At(turn) => {
                self.turn = turn;
                None
            }
            Next::Blocked => None,
        }
    }

    fn poll_delivery(&mut self, _: Time) -> Option<(u64, u64)> {
        Some((self.delivered.pop_front()?, u64::MAX))
    }

    fn name(&self) -> &'static str {
        "adu"
    }
}
