//! SRT in live mode, as `srt-live-transmit` at both ends.

use ontempo_foundation::{Bytes, Time};
use ontempo_mechanisms::srt::{SrtParameters, SrtReceiver, SrtSender};
use ontempo_media::{Film, Sent};

use super::{End, Ends, Outgoing, Payload};

/// Both programs, from when the flow starts.
pub(crate) struct Srt {
    sender: SrtSender,
    receiver: SrtReceiver,
    /// The sender's address that the receiver knows: of its connection, or of who asks for one.
    caller: u8,
}

impl Srt {
    pub(crate) fn new(start: Time, parameters: SrtParameters) -> Self {
        let (sender, receiver) = (SrtSender::new(parameters, start), SrtReceiver::new(parameters));
        Self { sender, receiver, caller: 0 }
    }
}

impl Ends for Srt {
    fn push(&mut self, now: Time, _: u64, datagram: &Sent, _: &Film) {
        // What is refused is lost, as the program loses it.
        self.sender.push(now, Bytes::new(datagram.size() as u64));
    }

    fn receive(&mut self, now: Time, (end, address): (End, u8), payload: Payload, _: bool) {
        let Payload::Srt(packet) = payload else { return };
        match end {
            End::Sender => self.sender.on_packet(now, &packet),
            // A connection's packet from another address is ignored (`worker_ProcessAddressedPacket` in
            // `queue.cpp`: "considered attack attempt").
            End::Receiver if self.receiver.is_connected() && address != self.caller => {}
            End::Receiver => {
                self.caller = address;
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
        let payload = Payload::Srt(Box::new(packet));
        Some((end, Outgoing { payload, size, is_ecn_capable: false, to: self.caller }))
    }

    fn poll_delivery(&mut self, now: Time) -> Option<(u64, u64)> {
        Some((self.receiver.poll_delivery(now)?, u64::MAX))
    }

    fn name(&self) -> &'static str {
        "srt"
    }
}
