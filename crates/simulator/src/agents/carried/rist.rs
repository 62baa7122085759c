//! RIST, as `ristsender` and `ristreceiver`.

use ontempo_foundation::{Bytes, Time};
use ontempo_mechanisms::rist::{RistParameters, RistReceiver, RistSender};
use ontempo_media::{Film, Sent};

use super::{End, Ends, Outgoing, Payload};

/// Both programs, from when the flow starts.
pub(crate) struct Rist {
    sender: RistSender,
    receiver: RistReceiver,
    /// The address from which the receiver's peer sends.
    peer: u8,
}

impl Rist {
    pub(crate) fn new(start: Time, parameters: RistParameters) -> Self {
        let sender = RistSender::new(parameters, start);
        Self { sender, receiver: RistReceiver::new(parameters, start), peer: 0 }
    }
}

impl Ends for Rist {
    fn push(&mut self, now: Time, _: u64, datagram: &Sent, film: &Film) {
        let size = Bytes::new(datagram.size() as u64);
        // What is refused is lost, as the program loses it.
        self.sender.push(now, size, film.null_packets(datagram));
    }

    fn receive(&mut self, now: Time, (end, address): (End, u8), payload: Payload, _: bool) {
        let Payload::Rist(packet) = payload else { return };
        match end {
            End::Sender => self.sender.on_packet(now, &packet),
            End::Receiver => {
                if address > self.peer {
                    self.peer = address;
                    self.receiver.on_new_address();
                }
                self.receiver.on_packet(now, &packet);
            }
        }
    }

    fn next_timeout(&self) -> Time {
        self.sender.next_timeout().min(self.receiver.next_timeout())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(End, Outgoing)> {
        let (end, packet) = match self.sender.poll_transmit(now) {
            Some(packet) => (End::Sender, packet),
            None => (End::Receiver, self.receiver.poll_transmit(now)?),
        };
        let size = u32::try_from(packet.wire_size().get()).unwrap_or(u32::MAX);
        let payload = Payload::Rist(Box::new(packet));
        Some((end, Outgoing { payload, size, is_ecn_capable: false, to: self.peer }))
    }

    fn poll_delivery(&mut self, now: Time) -> Option<(u64, u64)> {
        Some((self.receiver.poll_delivery(now)?, u64::MAX))
    }

    fn name(&self) -> &'static str {
        "rist"
    }
}
