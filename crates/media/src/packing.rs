//! Transport packets of a unit without the headers that follow from the one before.
//!
//! A packet's header is predicted by the header of the packet before it in the unit: the same PID,
//! the next continuity counter, no beginning of a PES packet or section, no adaptation field. A
//! unit is packed by itself, so that the loss of another takes nothing from it.

use super::encoding::byte;
use super::ts::PACKET;
use super::unit::{Part, Unit, UnitError};

/// An entry of the list: how many packets are as predicted, and the kind of the one behind them.
const MAX_RUN: u8 = 0x3f;
const THEN: u8 = 0xc0;
const THEN_NOTHING: u8 = 0x00;
/// Whole, with its header.
const THEN_WHOLE: u8 = 0x40;
/// As predicted, but with an adaptation field that only fills: its length, and the payload.
const THEN_FILLED: u8 = 0x80;

/// Data of more than so many times its packed size is not packed: what a peer says must not become
/// much larger than it is.
const MAX_RATIO: usize = 4;

/// Packed data.
pub(super) struct Packed {
    /// Which packets are predicted; empty: all but the first.
    pub(super) list: Vec<u8>,
    pub(super) data: Vec<u8>,
}

/// The header that follows this one.
fn predicted([sync, high, low, last]: [u8; 4]) -> [u8; 4] {
    let step = last >> 4 & 1;
    [sync, high & !0x40, low, last & 0xc0 | 0x10 | last.wrapping_add(step) & 0x0f]
}

fn header(packet: &[u8]) -> [u8; 4] {
    packet.first_chunk().copied().unwrap_or_default()
}

/// The length of an adaptation field that only fills, of a packet whose header is otherwise the
/// predicted one.
fn filled(packet: &[u8], [sync, high, low, last]: [u8; 4]) -> Option<u8> {
    if header(packet) != [sync, high, low, last | 0x20] {
        return None;
    }
    let length = packet.get(4).copied().filter(|length| usize::from(*length) <= PACKET - 5)?;
    let (first, rest) = packet[5..5 + usize::from(length)].split_first().unwrap_or((&0, &[]));
    (*first == 0 && rest.iter().all(|byte| *byte == 0xff)).then_some(length)
}

/// Packs the data of a unit; `None` if that is not worth it.
pub(super) fn pack(unit: &Unit) -> Option<Packed> {
    let mut packed = Packed { list: Vec::new(), data: Vec::with_capacity(unit.data.len()) };
    let (mut before, mut run, mut is_plain) = (None, 0, true);
    for (_, _, piece) in unit.pieces() {
        let (front, packets) = piece.split_at(piece.len() % PACKET);
        packed.data.extend(front);
        for packet in packets.chunks_exact(PACKET) {
            let next = before.replace(header(packet)).map(predicted);
            let Some(next) = next else {
                packed.data.extend(packet);
                continue;
            };
            if header(packet) == next {
                packed.data.extend(&packet[4..]);
                run += 1;
                if run == MAX_RUN {
                    packed.list.push(run | THEN_NOTHING);
                    run = 0;
                }
                continue;
            }
            is_plain = false;
            if let Some(length) = filled(packet, next) {
                packed.list.push(run | THEN_FILLED);
                packed.data.push(length);
                packed.data.extend(&packet[5 + usize::from(length)..]);
            } else {
                packed.list.push(run | THEN_WHOLE);
                packed.data.extend(packet);
            }
            run = 0;
        }
    }
    if is_plain {
        packed.list.clear();
    } else if run > 0 {
        packed.list.push(run | THEN_NOTHING);
    }
    let size = packed.list.len() + packed.data.len();
    (size < unit.data.len() && unit.data.len() <= MAX_RATIO * size).then_some(packed)
}

/// The data of these parts, `length` bytes, from the rest of a unit.
pub(super) fn unpack(
    mut rest: &[u8],
    parts: &[Part],
    length: usize,
    is_plain: bool,
) -> Result<Vec<u8>, UnitError> {
    if length > MAX_RATIO * rest.len() {
        return Err(UnitError::Spans);
    }
    let spans = parts.iter().flat_map(|part| &part.spans).map(|span| usize::from(span.length));
    let packets: usize = spans.clone().map(|length| length / PACKET).sum();
    let mut coming = Coming { list: Vec::new(), is_plain, place: 0, run: 0 };
    coming.read(&mut rest, packets)?;
    let mut data = Vec::with_capacity(length);
    let mut before: Option<[u8; 4]> = None;
    for length in spans {
        data.extend(cut(&mut rest, length % PACKET)?);
        for _ in 0..length / PACKET {
            let start = data.len();
            match before.map(predicted) {
                None => data.extend(cut(&mut rest, PACKET)?),
                Some(next) => coming.packet(&mut rest, next, &mut data)?,
            }
            before = Some(header(&data[start..]));
        }
    }
    if rest.is_empty() { Ok(data) } else { Err(UnitError::Spans) }
}

/// The packets that come, as the list says.
struct Coming {
    list: Vec<u8>,
    is_plain: bool,
    place: usize,
    /// Predicted packets of the current entry that are past.
    run: u8,
}

impl Coming {
    /// Reads the list: as many entries as `packets` need.
    fn read(&mut self, rest: &mut &[u8], packets: usize) -> Result<(), UnitError> {
        let mut left = packets.saturating_sub(1);
        while left > 0 && !self.is_plain {
            let entry = byte(rest)?;
            let count = usize::from(entry & MAX_RUN) + usize::from(entry & THEN != THEN_NOTHING);
            left = left.checked_sub(count).filter(|_| count > 0).ok_or(UnitError::Spans)?;
            self.list.push(entry);
        }
        Ok(())
    }

    /// Appends the next packet, whose predicted header this is.
    fn packet(
        &mut self,
        rest: &mut &[u8],
        next: [u8; 4],
        data: &mut Vec<u8>,
    ) -> Result<(), UnitError> {
        let plain = |rest: &mut &[u8], data: &mut Vec<u8>| {
            data.extend(next);
            data.extend(cut(rest, PACKET - 4)?);
            Ok(())
        };
        if self.is_plain {
            return plain(rest, data);
        }
        let entry = *self.list.get(self.place).ok_or(UnitError::Spans)?;
        if self.run < entry & MAX_RUN {
            self.run += 1;
            if self.run == entry & MAX_RUN && entry & THEN == THEN_NOTHING {
                (self.place, self.run) = (self.place + 1, 0);
            }
            return plain(rest, data);
        }
        (self.place, self.run) = (self.place + 1, 0);
        match entry & THEN {
            THEN_WHOLE => data.extend(cut(rest, PACKET)?),
            THEN_FILLED => {
                let length = usize::from(byte(rest)?);
                let payload = (PACKET - 5).checked_sub(length).ok_or(UnitError::Spans)?;
                data.extend([next[0], next[1], next[2], next[3] | 0x20, length as u8]);
                let field = data.len();
                data.resize(field + length, 0xff);
                if let Some(flags) = data.get_mut(field).filter(|_| length > 0) {
                    *flags = 0;
                }
                data.extend(cut(rest, payload)?);
            }
            _ => return Err(UnitError::Spans),
        }
        Ok(())
    }
}

fn cut<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], UnitError> {
    let (cut, after) = rest.split_at_checked(length).ok_or(UnitError::CutShort)?;
    *rest = after;
    Ok(cut)
}
