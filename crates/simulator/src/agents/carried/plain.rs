//! UDP: each datagram of the film is a packet, sent once.

use std::collections::VecDeque;

use ontempo_foundation::Time;
use ontempo_media::{Film, Sent};
use ontempo_runtime::Arrivals;

use super::{End, Ends, HEADERS, Outgoing, Payload};

/// Both ends.
pub(crate) struct Plain {
    is_ecn_capable: bool,
    waiting: VecDeque<(u64, u32)>,
    arrived: Arrivals,
    delivered: VecDeque<u64>,
}

impl Plain {
    pub(crate) fn new(is_ecn_capable: bool) -> Self {
        let (waiting, arrived, delivered) = Default::default();
        Self { is_ecn_capable, waiting, arrived, delivered }
    }
}

impl Ends for Plain {
    fn push(&mut self, _: Time, number: u64, datagram: &Sent, _: &Film) {
        self.waiting.push_back((number, datagram.size() as u32 + HEADERS));
    }

    fn receive(&mut self, _: Time, _: (End, u8), payload: Payload, _: bool) {
        let Payload::Film(number) = payload else { return };
        if self.arrived.add(number) {
            self.delivered.push_back(number);
        }
    }

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time) -> Option<(End, Outgoing)> {
        let (number, size) = self.waiting.pop_front()?;
        let payload = Payload::Film(number);
        Some((End::Sender, Outgoing { payload, size, is_ecn_capable: self.is_ecn_capable, to: 0 }))
    }

    fn poll_delivery(&mut self, _: Time) -> Option<(u64, u64)> {
        Some((self.delivered.pop_front()?, u64::MAX))
    }

    fn name(&self) -> &'static str {
        "udp"
    }
}
