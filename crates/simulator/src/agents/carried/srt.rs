//! SRT in live mode, as `srt-live-transmit` at both ends.

use ontempo_foundation::{Bytes, Time};
use ontempo_mechanisms::srt::{SrtParameters, SrtReceiver, SrtSender};
use ontempo_media::{Film, Sent};

use super::{End, Ends, Outgoing, Payload};

/// Both programs, from when the flow starts.
pub(crate) struct Srt {
    sender: SrtSender,
    receiver: SrtReceiver,
}

impl Srt {
    pub(crate) fn new(start: Time, parameters: SrtParameters) -> Self {
        Self { sender: SrtSender::new(parameters, start), receiver: SrtReceiver::new(parameters) }
    }
}

impl Ends for Srt {
    fn push(&mut self, now: Time, _: u64, datagram: &Sent, _: &Film) {
        // What is refused is lost, as the program loses it.
        self.sender.push(now, Bytes::new(datagram.size() as u64));
    }

    fn receive(&mut self, now: Time, end: End, payload: Payload, _: bool) {
        let Payload::Srt(packet) = payload else { return };
        match end {
            End::Sender => self.sender.on_packet(now, &packet),
            End::Receiver => self.receiver.on_packet(now, &packet),
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
        Some((end, Outgoing { payload, size, is_ecn_capable: false }))
    }

    fn poll_delivery(&mut self, now: Time) -> Option<(u64, u64)> {
        Some((self.receiver.poll_delivery(now)?, u64::MAX))
    }

    fn name(&self) -> &'static str {
        "srt"
    }
}
