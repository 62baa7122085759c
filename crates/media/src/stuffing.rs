//! Null packets: what a mux fills its rate with, described in place of their bytes.

use std::sync::Arc;

use super::ts::{PACKET, SYNC};

/// Bytes of a null packet behind its header.
pub const NULL_PAYLOAD: usize = PACKET - 4;

/// The payload of a null packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// One byte again and again: 0xff of most muxes, 0 of some.
    Byte(u8),
    /// Anything else.
    Bytes(Arc<[u8; NULL_PAYLOAD]>),
}

/// Null packets that follow each other in a datagram, of the same payload: their header is
/// 47 1F FF 1x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuffing {
    /// Where the first begins in the datagram.
    pub offset: u16,
    /// How many they are, at least 1.
    pub packets: u16,
    /// The continuity counter of the first, 0 to 15.
    pub counter: u8,
    /// The counter rises with each packet; otherwise, and where there is one packet, it does not.
    pub counts: bool,
    /// Their payload.
    pub fill: Fill,
}

impl Stuffing {
    /// The packet at `offset` of a datagram, if it is a null packet that can be described.
    pub fn of(packet: &[u8; PACKET], offset: u16) -> Option<Self> {
        let (header, payload) = packet.split_first_chunk::<4>()?;
        if header[..3] != [SYNC, 0x1f, 0xff] || header[3] >> 4 != 1 {
            return None;
        }
        let payload: &[u8; NULL_PAYLOAD] = payload.first_chunk()?;
        let first = payload[0];
        let is_even = payload.iter().all(|byte| *byte == first);
        let fill = if is_even { Fill::Byte(first) } else { Fill::Bytes(Arc::new(*payload)) };
        Some(Self { offset, packets: 1, counter: header[3] & 0x0f, counts: false, fill })
    }

    /// Takes in the packet behind the last, if it goes on as this does.
    pub fn extend(&mut self, next: &Self) -> bool {
        let follows = usize::from(self.offset) + self.length() == usize::from(next.offset);
        if !follows || self.fill != next.fill || next.packets != 1 || self.packets == u16::MAX {
            return false;
        }
        let counts = if self.packets == 1 { next.counter != self.counter } else { self.counts };
        if next.counter != counter(self.counter, counts, self.packets) {
            return false;
        }
        (self.packets, self.counts) = (self.packets + 1, counts);
        true
    }

    /// Bytes of the datagram that it describes.
    pub fn length(&self) -> usize {
        usize::from(self.packets) * PACKET
    }

    /// Bytes of memory beside its own.
    pub(super) fn memory(&self) -> usize {
        match self.fill {
            Fill::Byte(_) => 0,
            Fill::Bytes(_) => NULL_PAYLOAD + 16,
        }
    }

    /// Appends the packets.
    pub fn write_packets(&self, to: &mut Vec<u8>) {
        for packet in 0..self.packets {
            to.extend([SYNC, 0x1f, 0xff, 0x10 | counter(self.counter, self.counts, packet)]);
            match &self.fill {
                Fill::Byte(byte) => to.resize(to.len() + NULL_PAYLOAD, *byte),
                Fill::Bytes(bytes) => to.extend(bytes.iter()),
            }
        }
    }
}

/// The counter so many packets after `first`.
pub(super) fn counter(first: u8, counts: bool, packets: u16) -> u8 {
    if counts { first.wrapping_add(packets as u8) & 0x0f } else { first }
}
