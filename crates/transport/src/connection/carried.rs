//! Units with a deadline in DATAGRAM frames: pieces that fill packets, and their repair.
//!
//! No message of ours acknowledges pieces: the controller sees which packets arrive, and which packet
//! a piece was in is known from what left the stack's queue when the packet was made.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use noq_proto::SendDatagramError;
use ontempo_foundation::Time;
use ontempo_mechanisms::repair::{Piece, Repair};

use crate::quic::{Account, Fate, SharedFates};
use crate::wire::{FragmentHeader, MAX_UNIT_HEADER, UnitHeader};

/// The header of a later piece has at most four numbers of 8 bytes; offset and length of a unit take
/// four at most here.
const LATER_HEADER: usize = 8 + 8 + 4 + 4;

/// Bytes around a datagram in its packet: the type and the length of its frame, at least.
const FRAME_OVERHEAD: u64 = 1;

/// A unit that is begun and not resolved.
#[derive(Debug)]
struct Unit {
    flow: u64,
    id: u64,
    header: UnitHeader,
    data: Bytes,
    /// Where each piece ends.
    ends: Vec<usize>,
}

impl Unit {
    fn datagram(&self, place: usize) -> Option<Bytes> {
        let end = *self.ends.get(place)?;
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let header = if begin == 0 {
            FragmentHeader::First(self.header.clone())
        } else {
            let (flow, id, length) = (self.flow, self.id, self.header.length);
            FragmentHeader::Later { flow, id, length, offset: begin as u64 }
        };
        let mut front = Vec::with_capacity(MAX_UNIT_HEADER);
        header.write(&mut front);
        let mut datagram = BytesMut::with_capacity(front.len() + end - begin);
        datagram.put_slice(&front);
        datagram.put_slice(&self.data[begin..end]);
        Some(datagram.freeze())
    }
}

/// Where the pieces of a unit end, each datagram with at most `most` bytes.
fn cut(header: &UnitHeader, length: usize, most: usize) -> Vec<usize> {
    let mut front = Vec::with_capacity(MAX_UNIT_HEADER);
    FragmentHeader::First(header.clone()).write(&mut front);
    let mut ends = vec![length.min(most.saturating_sub(front.len()).max(1))];
    let room = most.saturating_sub(LATER_HEADER).max(1);
    while let Some(end) = ends.last().copied().filter(|end| *end < length) {
        ends.push(length.min(end + room));
    }
    ends
}

/// What of a queue could be handed to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// A piece.
    Piece,
    /// The path's packets have become too small for the pieces of this unit of a flow.
    TooLarge(u64, u64),
    /// Nothing is left, or the stack takes nothing.
    Nothing,
}

/// All units that are carried in this way.
#[derive(Debug, Default)]
pub(super) struct Carried {
    repair: Repair,
    units: BTreeMap<u64, Unit>,
    /// The numbers of units here, by flow and number in the flow.
    numbers: BTreeMap<(u64, u64), u64>,
    next: u64,
    /// The unit of which not all pieces are sent, and its next piece.
    current: Option<Piece>,
    /// The datagrams in the stack's queue: their sizes, and the pieces; those of flows that are not
    /// repaired have none.
    queued: VecDeque<(u64, Option<Piece>)>,
    fates: SharedFates,
}

impl Carried {
    pub(super) fn new(fates: SharedFates) -> Self {
        fates.want();
        Self { fates, ..Self::default() }
    }

    /// Begins a unit; `most` is the size of a datagram.
    pub(super) fn begin(&mut self, header: UnitHeader, data: Bytes, deadline: Time, most: usize) {
        for on in &header.depends_on {
            if let Some(number) = self.numbers.get(&(header.flow, *on)) {
                self.repair.is_needed(*number);
            }
        }
        let ends = cut(&header, data.len(), most);
        let number = self.next;
        self.next += 1;
        self.repair.begin(number, ends.len() as u32, deadline);
        let (flow, id) = (header.flow, header.id);
        self.numbers.insert((flow, id), number);
        self.units.insert(number, Unit { flow, id, header, data, ends });
        self.current = Some(Piece { unit: number, place: 0 });
    }

    /// Whether a piece may be handed over without beginning a unit.
    pub(super) fn has_piece(&self) -> bool {
        self.current.is_some() || self.repair.is_ready()
    }

    /// Datagrams in the stack's queue.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Hands a piece to the stack: one to be repaired, or the next of the unit that is begun.
    pub(super) fn hand_over(&mut self, now: Time, stack: &mut noq_proto::Connection) -> Handed {
        let again = self.repair.next(now);
        let Some(piece) = again.or(self.current) else { return Handed::Nothing };
        let Some(unit) = self.units.get(&piece.unit) else {
            self.current = self.current.filter(|current| current.unit != piece.unit);
            return Handed::Piece;
        };
        let Some(datagram) = unit.datagram(piece.place as usize) else { return Handed::Nothing };
        let size = datagram.len() as u64;
        match stack.datagrams().send(datagram, false) {
            Ok(()) => self.queued.push_back((size, Some(piece))),
            Err(SendDatagramError::Blocked(_)) => {
                if again.is_some() {
                    self.repair.put_back(piece);
                }
                return Handed::Nothing;
            }
            Err(_) => return Handed::TooLarge(unit.flow, unit.id),
        }
        if again.is_none() {
            let next = Piece { place: piece.place + 1, ..piece };
            let is_left = (next.place as usize) < unit.ends.len();
            self.current = Some(next).filter(|_| is_left);
        }
        Handed::Piece
    }

    /// A datagram of another flow was handed to the stack.
    pub(super) fn on_other(&mut self, bytes: u64) {
        self.queued.push_back((bytes, None));
    }

    /// The stack has only so many bytes in its queue: it has dropped what became too large for the
    /// path's packets. The pieces are sent again.
    pub(super) fn reconcile(&mut self, bytes: u64) {
        let mut ours: u64 = self.queued.iter().map(|(size, _)| size).sum();
        while ours > bytes
            && let Some((size, piece)) = self.queued.pop_front()
        {
            ours -= size;
            if let Some(piece) = piece {
                self.repair.put_back(piece);
            }
        }
    }

    /// Packets were made: `bytes` of datagrams have left the stack's queue in them.
    pub(super) fn on_transmit(&mut self, now: Time, mut bytes: u64, account: &Account) {
        let mut packet = None;
        for fate in self.fates.take() {
            match fate {
                Fate::Sent { packet: number, bytes: size } => {
                    self.repair.on_packet(now);
                    packet = Some(number);
                    bytes -= self.fill(now, number, bytes, size);
                }
                Fate::Arrived { packet } => self.repair.on_acknowledged(now, packet),
            }
        }
        // What the estimate of a packet's room has left over was in the last one.
        if let Some(number) = packet {
            self.fill(now, number, bytes, u64::MAX);
        }
        if let Some(srtt) = account.srtt {
            self.repair.on_rtt(srtt);
        }
    }

    /// Notes the pieces at the front of the queue that a packet with so much room has taken of the
    /// `bytes` that have left the queue. Returns their bytes.
    fn fill(&mut self, now: Time, packet: u64, bytes: u64, room: u64) -> u64 {
        let mut taken = 0;
        while let Some(&(size, piece)) = self.queued.front()
            && taken + size <= bytes
            && taken + size + FRAME_OVERHEAD <= room
        {
            self.queued.pop_front();
            if let Some(piece) = piece {
                self.repair.on_sent(now, packet, piece);
            }
            taken += size;
        }
        taken
    }

    /// Learns what has arrived and what is lost; returns the units that have arrived, with their flows.
    pub(super) fn learn(&mut self, now: Time, account: &Account) -> Vec<(u64, u64)> {
        self.on_transmit(now, 0, account);
        self.repair.detect(now);
        let mut arrived = Vec::new();
        while let Some(number) = self.repair.next_arrived() {
            if let Some(unit) = self.units.remove(&number) {
                self.numbers.remove(&(unit.flow, unit.id));
                arrived.push((unit.flow, unit.id));
            }
        }
        arrived.sort_unstable();
        arrived
    }

    /// The unit is dropped.
    pub(super) fn forget(&mut self, flow: u64, id: u64) {
        let Some(number) = self.numbers.remove(&(flow, id)) else { return };
        self.units.remove(&number);
        self.repair.forget(number);
        self.current = self.current.filter(|current| current.unit != number);
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.repair.next_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_datagrams_and_cover_the_unit_once() {
        let header = UnitHeader {
            flow: 3,
            id: 70_000,
            length: 10_000,
            sent: Time::from_nanos(5_000_000_000),
            lifetime: None,
            priority: 1,
            depends_on: vec![69_999],
        };
        let data = Bytes::from(vec![7; 10_000]);
        let ends = cut(&header, data.len(), 1_200);
        let unit = Unit { flow: 3, id: 70_000, header, data, ends: ends.clone() };
        let sizes: Vec<usize> =
            (0..ends.len()).filter_map(|place| Some(unit.datagram(place)?.len())).collect();
        assert_eq!(ends.last(), Some(&10_000));
        assert!(sizes.iter().all(|size| *size <= 1_200), "{sizes:?}");
        assert!(sizes[..sizes.len() - 1].iter().all(|size| *size > 1_150), "{sizes:?}");
        assert_eq!(cut(&unit.header, 0, 1_200), [0]);
    }
}
