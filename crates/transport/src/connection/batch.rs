//! Transmissions of several packets.
//!
//! The stack (noq-proto 1.4.0) can fill one by itself, but then no packet may be longer than the first. Behind a short one, as
//! a probe or an acknowledgement, it was observed to fill cwnd with packets too short for any frame, and to panic where a
//! frame was due that has more bytes than such a packet. Therefore each packet of media is asked for alone. Not so in
//! handshakes and at the end: there the stack repeats a packet for ever that another one must follow.

use std::num::NonZeroUsize;

use noq_proto::Transmit;
use ontempo_foundation::Time;

use super::{Connection, Stage};

/// What the next transmission begins with.
#[derive(Debug, Default)]
pub(super) struct Next {
    /// A packet longer than those it was to go with, or to another address.
    held: Option<(Transmit, Vec<u8>)>,
    /// The stack had nothing more for the last transmission.
    is_dry: bool,
    scratch: Vec<u8>,
}

impl Next {
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn is_dry(&self) -> bool {
        self.is_dry
    }
}

impl Connection {
    /// Up to `most` packets of one size, of which the last may be shorter, written behind `out`.
    pub(super) fn poll_batch(
        &mut self,
        now: Time,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.next.is_dry = false;
        if self.stage != Stage::Open || self.stack.is_closed() {
            let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
            return self.stack.poll_transmit(self.epoch.instant(now), most, out);
        }
        let mut batch = match self.next.held.take() {
            Some((transmit, bytes)) => {
                out.extend_from_slice(&bytes);
                transmit
            }
            None => self.poll_packet(now, out)?,
        };
        let (segment, mut last) = (batch.size, batch.size);
        let mut scratch = std::mem::take(&mut self.next.scratch);
        for _ in 1..most {
            scratch.clear();
            let Some(packet) = self.poll_packet(now, &mut scratch) else {
                self.next.is_dry = true;
                break;
            };
            // Only the last may be shorter.
            let goes_with = last == segment
                && packet.size <= segment
                && (packet.destination, packet.ecn, packet.src_ip)
                    == (batch.destination, batch.ecn, batch.src_ip);
            if !goes_with {
                self.next.held = Some((packet, std::mem::take(&mut scratch)));
                break;
            }
            out.extend_from_slice(&scratch);
            batch.size += packet.size;
            batch.segment_size = Some(segment);
            last = packet.size;
        }
        self.next.scratch = scratch;
        Some(batch)
    }

    fn poll_packet(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        self.stack.poll_transmit(self.epoch.instant(now), NonZeroUsize::MIN, out)
    }
}
