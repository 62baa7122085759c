//! A unit as bytes.
//!
//! A byte with the kind and flags, the times if there are any, the number of parts and the parts,
//! then the data. Numbers have 7 bits a byte, the lowest first. The unit's own number and what it
//! depends on are the transport's to carry.
//!
//! A part begins with a control byte. 128 + n: n more datagrams of seven packets, all of this unit,
//! which arrived with the one before. Otherwise its bits say which of these follow: the number
//! (else the next), the time of arrival (else the same), the packets of this unit (else seven of
//! seven), the null packets.

use ontempo_foundation::{Duration, Time};

use super::packing::{self, Packed};
use super::stuffing::{Fill, NULL_PAYLOAD, Stuffing, counter};
use super::ts::PACKET;
use super::unit::{KINDS, MAX_PIECES, Part, Span, Unit, UnitError};

/// Maximum size of a UDP datagram, bytes.
const MAX_LENGTH: u64 = 65_535;

/// Flags of the first byte, beside the kind in its lowest three bits.
const HAS_TIME: u8 = 0x08;
const HAS_SLACK: u8 = 0x10;
/// Headers of transport packets are left out of the data.
const IS_PACKED: u8 = 0x20;
/// All but the first are predicted: no list says which.
const IS_PLAIN: u8 = 0x40;

/// A control byte with the number of whole datagrams in its other bits.
const RUN: u8 = 0x80;
const HAS_NUMBER: u8 = 0x40;
const HAS_ARRIVAL: u8 = 0x20;
/// Which packets of the datagram: seven of seven, some of seven, some of some, listed.
const SHAPES: u8 = 0x18;
const SOME_OF_SEVEN: u8 = 0x08;
const SOME: u8 = 0x10;
const LISTED: u8 = 0x18;
/// Null packets: none; all others, with 0xff and a counter of 0; some; listed.
const STUFFINGS: u8 = 0x03;
const OTHERS: u8 = 0x01;
const SOME_NULL: u8 = 0x02;
const LISTED_NULL: u8 = 0x03;

/// What describes a null packet: its counter, and flags.
const COUNTS: u8 = 0x10;
const FILLS: u8 = 0x60;
const ZEROS: u8 = 0x20;
const BYTE: u8 = 0x40;
const BYTES: u8 = 0x60;
/// The bytes are those described last in the unit.
const AS_BEFORE: u8 = 0x80;

/// Bytes of an RTP header without lists and extension.
const RTP: u16 = 12;

/// The places of packets in a datagram.
#[derive(Clone, Copy, PartialEq)]
struct Grid {
    /// 1 to 7.
    packets: u8,
    /// A header of RTP precedes them.
    has_header: bool,
}

/// As most programs send.
const SEVEN: Grid = Grid { packets: 7, has_header: false };

/// In a mask of packets: the header.
const HEADER: u8 = 0x80;

impl Grid {
    fn of(length: u16) -> Option<Self> {
        let packet = PACKET as u16;
        let has_header = length % packet == RTP;
        let packets = (length - if has_header { RTP } else { 0 }) / packet;
        let grid = Self { packets: u8::try_from(packets).ok()?, has_header };
        ((1..=7).contains(&packets) && grid.length() == length).then_some(grid)
    }

    const fn length(self) -> u16 {
        self.offset(self.packets)
    }

    /// Where a packet begins.
    const fn offset(self, packet: u8) -> u16 {
        packet as u16 * PACKET as u16 + if self.has_header { RTP } else { 0 }
    }

    /// All packets, and the header if there is one.
    const fn all(self) -> u8 {
        ((1 << self.packets) - 1) | if self.has_header { HEADER } else { 0 }
    }

    /// The spans of the packets in a mask.
    fn spans(self, mask: u8) -> Vec<Span> {
        let header = (self.has_header && mask & HEADER != 0).then_some((0, RTP));
        let packets = (0..self.packets).filter(|packet| mask >> packet & 1 != 0);
        let packets = packets.map(|packet| (self.offset(packet), PACKET as u16));
        let mut spans: Vec<Span> = Vec::new();
        for (offset, length) in header.into_iter().chain(packets) {
            match spans.last_mut() {
                Some(last) if last.offset + last.length == offset => last.length += length,
                _ => spans.push(Span { offset, length }),
            }
        }
        spans
    }

    /// The mask of what begins within these ranges.
    fn mask(self, ranges: impl Iterator<Item = (usize, usize)>) -> u8 {
        let mut mask = 0;
        for (from, length) in ranges {
            let within = |at: u16| (from..from + length).contains(&usize::from(at));
            mask |= if self.has_header && within(0) { HEADER } else { 0 };
            let packets = (0..self.packets).filter(|packet| within(self.offset(*packet)));
            mask |= packets.fold(0, |mask, packet| mask | 1 << packet);
        }
        mask
    }

    /// The null packets in a mask.
    fn stuffing(self, mask: u8, first: u8, counts: bool, fill: &Fill) -> Vec<Stuffing> {
        let mut all: Vec<Stuffing> = Vec::new();
        let packets = (0..self.packets).filter(|packet| mask >> packet & 1 != 0);
        for (packet, place) in packets.zip(0..) {
            let counter = counter(first, counts, place);
            let (offset, fill) = (self.offset(packet), fill.clone());
            let one = Stuffing { offset, packets: 1, counter, counts: false, fill };
            if !all.last_mut().is_some_and(|last| last.extend(&one)) {
                all.push(one);
            }
        }
        all
    }
}

impl Unit {
    /// Appends the unit's bytes, without its number and what it depends on or continues.
    pub fn write(&self, to: &mut Vec<u8>) {
        let packed = packing::pack(self);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        to.push(
            self.kind.priority()
                | flag(self.media_time.is_some(), HAS_TIME)
                | flag(self.slack.is_some(), HAS_SLACK)
                | flag(packed.is_some(), IS_PACKED)
                | flag(packed.as_ref().is_some_and(|packed| packed.list.is_empty()), IS_PLAIN),
        );
        for time in [self.media_time, self.slack].into_iter().flatten() {
            put(time.as_nanos(), to);
        }
        put(self.parts.len() as u64, to);
        let mut pattern = None;
        let mut place = 0;
        while let Some(part) = self.parts.get(place) {
            let before = place.checked_sub(1).and_then(|before| self.parts.get(before));
            let run = before.map_or(0, |before| whole_after(before, &self.parts[place..]));
            if run > 0 {
                to.push(RUN | run);
                place += usize::from(run);
            } else {
                write_part(part, before, &mut pattern, to);
                place += 1;
            }
        }
        match packed {
            Some(Packed { list, data }) => {
                to.extend(list);
                to.extend(data);
            }
            None => to.extend(&self.data),
        }
    }

    /// Reads a unit of this number; `bytes` is all of it. What it depends on or continues is left
    /// empty.
    ///
    /// # Errors
    /// If the bytes are not a whole unit.
    pub fn read(id: u64, bytes: &[u8]) -> Result<Self, UnitError> {
        let rest = &mut &*bytes;
        let flags = byte(rest)?;
        let kind = *KINDS.get(usize::from(flags & 7)).ok_or(UnitError::UnknownKind)?;
        if flags & 0x80 != 0 || flags & (IS_PACKED | IS_PLAIN) == IS_PLAIN {
            return Err(UnitError::UnknownKind);
        }
        let mut time = |flag| {
            let has_time = flags & flag != 0;
            has_time.then(|| take(rest).map(Duration::from_nanos)).transpose()
        };
        let (media_time, slack) = (time(HAS_TIME)?, time(HAS_SLACK)?);
        let parts = read_parts(rest)?;
        let lengths = parts.iter().flat_map(|part| &part.spans).map(|span| span.length);
        let length: usize = lengths.map(usize::from).sum();
        let data = if flags & IS_PACKED != 0 {
            packing::unpack(rest, &parts, length, flags & IS_PLAIN != 0)?
        } else {
            rest.to_vec()
        };
        if length != data.len() {
            return Err(UnitError::Spans);
        }
        let (continues, dependencies) = (None, Vec::new());
        Ok(Self { id, kind, media_time, slack, continues, dependencies, parts, data })
    }
}

/// How many parts follow that are whole datagrams of seven packets and arrived with the one before.
fn whole_after(before: &Part, parts: &[Part]) -> u8 {
    let is_whole = |(part, number): &(&Part, u64)| {
        part.datagram == before.datagram.wrapping_add(*number)
            && micros(part.arrived) == micros(before.arrived)
            && part.length == SEVEN.length()
            && part.spans == [Span { offset: 0, length: SEVEN.length() }]
            && part.stuffing.is_empty()
    };
    parts.iter().zip(1..).take(0x7f).take_while(is_whole).count() as u8
}

fn micros(time: Time) -> u64 {
    time.as_nanos() / 1_000
}

fn write_part(part: &Part, before: Option<&Part>, pattern: &mut Option<Fill>, to: &mut Vec<u8>) {
    let (number, arrived) = before.map_or((0, 0), |one| (one.datagram, micros(one.arrived)));
    let step = part.datagram.wrapping_sub(number);
    let since = micros(part.arrived).wrapping_sub(arrived);
    let grid = Grid::of(part.length);
    let spans = part.spans.iter().map(|span| (usize::from(span.offset), usize::from(span.length)));
    let mask = grid.map(|grid| (grid, grid.mask(spans)));
    let mask = mask.filter(|(grid, mask)| grid.spans(*mask) == part.spans);
    let has_number = before.is_none() || step != 1;
    let has_arrival = before.is_none() || since != 0;
    let shape = match mask {
        Some((SEVEN, mask)) if mask == SEVEN.all() => 0,
        Some((SEVEN, _)) => SOME_OF_SEVEN,
        Some(_) => SOME,
        None => LISTED,
    };
    let nulls = NullsAs::of(part, mask);
    to.push(
        if has_number { HAS_NUMBER } else { 0 }
            | if has_arrival { HAS_ARRIVAL } else { 0 }
            | shape
            | nulls.flag(),
    );
    if has_number {
        put(step, to);
    }
    if has_arrival {
        // Times may go back: small differences are small numbers, with their sign in the last bit.
        put(since << 1 ^ (since as i64 >> 63) as u64, to);
    }
    if let Some((grid, mask)) = mask {
        if shape == SOME {
            to.push(grid.packets | if grid.has_header { 0x08 } else { 0 });
        }
        if shape != 0 {
            to.push(mask);
        }
    } else {
        put(u64::from(part.length), to);
        put(part.spans.len() as u64, to);
        let mut end = 0;
        for span in &part.spans {
            put(u64::from(span.offset.saturating_sub(end)), to);
            put(u64::from(span.length), to);
            end = span.offset.saturating_add(span.length);
        }
    }
    nulls.write(part, pattern, to);
}

/// How the null packets of a part are written.
enum NullsAs {
    None,
    Others,
    Mask(u8, bool),
    List,
}

impl NullsAs {
    fn of(part: &Part, mask: Option<(Grid, u8)>) -> Self {
        let Some(first) = part.stuffing.first() else { return Self::None };
        let Some((grid, own)) = mask else { return Self::List };
        let nulls = part.stuffing.iter().map(|one| (usize::from(one.offset), one.length()));
        let nulls = grid.mask(nulls) & !HEADER;
        let is = |counts| grid.stuffing(nulls, first.counter, counts, &first.fill) == part.stuffing;
        let is_default = (first.counter, &first.fill) == (0, &Fill::Byte(0xff));
        match (is(false), is(true)) {
            (true, _) if is_default && nulls == grid.all() & !own & !HEADER => Self::Others,
            (true, _) => Self::Mask(nulls, false),
            (_, true) => Self::Mask(nulls, true),
            _ => Self::List,
        }
    }

    fn flag(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Others => OTHERS,
            Self::Mask(..) => SOME_NULL,
            Self::List => LISTED_NULL,
        }
    }

    fn write(&self, part: &Part, pattern: &mut Option<Fill>, to: &mut Vec<u8>) {
        match self {
            Self::None | Self::Others => {}
            Self::Mask(mask, counts) => {
                to.push(*mask);
                if let Some(first) = part.stuffing.first() {
                    write_null(first.counter, *counts, &first.fill, pattern, to);
                }
            }
            Self::List => {
                put(part.stuffing.len() as u64, to);
                let mut end = 0;
                for one in &part.stuffing {
                    put(u64::from(one.offset).saturating_sub(end), to);
                    put(u64::from(one.packets), to);
                    write_null(one.counter, one.counts, &one.fill, pattern, to);
                    end = u64::from(one.offset) + one.length() as u64;
                }
            }
        }
    }
}

fn write_null(
    counter: u8,
    counts: bool,
    fill: &Fill,
    pattern: &mut Option<Fill>,
    to: &mut Vec<u8>,
) {
    let head = counter & 0x0f | if counts { COUNTS } else { 0 };
    match fill {
        Fill::Byte(0xff) => to.push(head),
        Fill::Byte(0) => to.push(head | ZEROS),
        Fill::Byte(byte) => to.extend([head | BYTE, *byte]),
        Fill::Bytes(_) if pattern.as_ref() == Some(fill) => to.push(head | BYTES | AS_BEFORE),
        Fill::Bytes(bytes) => {
            to.push(head | BYTES);
            to.extend(bytes.iter());
            *pattern = Some(fill.clone());
        }
    }
}

fn read_parts(rest: &mut &[u8]) -> Result<Vec<Part>, UnitError> {
    let count = usize::try_from(take(rest)?).ok().filter(|count| *count <= MAX_PIECES);
    let count = count.ok_or(UnitError::Pieces)?;
    let mut parts: Vec<Part> = Vec::new();
    let (mut pieces, mut pattern) = (0, None);
    while parts.len() < count {
        let control = byte(rest)?;
        if control & RUN == 0 {
            let part = read_part(control, rest, parts.last(), &mut pattern)?;
            let nulls = part.stuffing.iter().map(|one| usize::from(one.packets)).sum::<usize>();
            pieces += (part.spans.len() + nulls).max(1);
            parts.push(part);
        } else {
            let run = usize::from(control & !RUN);
            let last = parts.last().filter(|_| run <= count - parts.len());
            let &Part { mut datagram, arrived, .. } = last.ok_or(UnitError::Spans)?;
            for _ in 0..run {
                datagram = datagram.checked_add(1).ok_or(UnitError::Spans)?;
                let (length, spans) = (SEVEN.length(), SEVEN.spans(SEVEN.all()));
                parts.push(Part { datagram, length, arrived, spans, stuffing: Vec::new() });
            }
            pieces += run;
        }
        if pieces > MAX_PIECES {
            return Err(UnitError::Pieces);
        }
    }
    Ok(parts)
}

fn read_part(
    control: u8,
    rest: &mut &[u8],
    before: Option<&Part>,
    pattern: &mut Option<Fill>,
) -> Result<Part, UnitError> {
    let earlier = before.map_or((0, 0), |part| (part.datagram, micros(part.arrived)));
    let step = if control & HAS_NUMBER != 0 { take(rest)? } else { 1 };
    let datagram = earlier.0.checked_add(step).filter(|_| before.is_none() || step > 0);
    let datagram = datagram.ok_or(UnitError::Spans)?;
    let since = if control & HAS_ARRIVAL != 0 { take(rest)? } else { 0 };
    let micros = earlier.1.wrapping_add(since >> 1 ^ (since & 1).wrapping_neg());
    let arrived = Time::from_nanos(micros.checked_mul(1_000).ok_or(UnitError::CutShort)?);
    let (grid, mask) = match control & SHAPES {
        0 => (Some(SEVEN), SEVEN.all()),
        SOME_OF_SEVEN => (Some(SEVEN), byte(rest)?),
        SOME => {
            let shape = byte(rest)?;
            let grid = Grid { packets: shape & 7, has_header: shape & 8 != 0 };
            if shape > 0x0f || grid.packets == 0 {
                return Err(UnitError::Spans);
            }
            (Some(grid), byte(rest)?)
        }
        _ => (None, 0),
    };
    let (length, spans) = match grid {
        Some(grid) if mask & !grid.all() == 0 => (grid.length(), grid.spans(mask)),
        Some(_) => return Err(UnitError::Spans),
        None => read_spans(rest)?,
    };
    let stuffing = match (control & STUFFINGS, grid) {
        (0, _) => Vec::new(),
        (OTHERS, Some(grid)) => grid.stuffing(grid.all() & !mask, 0, false, &Fill::Byte(0xff)),
        (SOME_NULL, Some(grid)) => {
            let nulls = byte(rest)?;
            let (first, counts, fill) = read_null(rest, pattern)?;
            if nulls & !(grid.all() & !HEADER) != 0 {
                return Err(UnitError::Spans);
            }
            grid.stuffing(nulls, first, counts, &fill)
        }
        (LISTED_NULL, _) => read_stuffing(rest, length, pattern)?,
        _ => return Err(UnitError::Spans),
    };
    if control & 0x04 != 0 || overlap(&spans, &stuffing) {
        return Err(UnitError::Spans);
    }
    Ok(Part { datagram, length, arrived, spans, stuffing })
}

/// True if a null packet lies where a span is.
fn overlap(spans: &[Span], stuffing: &[Stuffing]) -> bool {
    stuffing.iter().any(|one| {
        let (from, to) = (usize::from(one.offset), usize::from(one.offset) + one.length());
        let end = |span: &Span| usize::from(span.offset) + usize::from(span.length);
        let after = spans.get(spans.partition_point(|span| end(span) <= from));
        after.is_some_and(|span| usize::from(span.offset) < to)
    })
}

fn read_spans(rest: &mut &[u8]) -> Result<(u16, Vec<Span>), UnitError> {
    let length = short(take(rest)?)?;
    let count = take(rest)?;
    if count > MAX_PIECES as u64 {
        return Err(UnitError::Pieces);
    }
    let mut spans = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let offset = end + u64::from(short(take(rest)?)?);
        let span = Span { offset: short(offset)?, length: short(take(rest)?)? };
        end = offset + u64::from(span.length);
        let is_empty = span.length == 0 && !(length == 0 && count == 1);
        if end > u64::from(length) || is_empty {
            return Err(UnitError::Spans);
        }
        spans.push(span);
    }
    Ok((length, spans))
}

fn read_stuffing(
    rest: &mut &[u8],
    length: u16,
    pattern: &mut Option<Fill>,
) -> Result<Vec<Stuffing>, UnitError> {
    let count = take(rest)?;
    // As many as fit into a datagram.
    if count > MAX_LENGTH / PACKET as u64 {
        return Err(UnitError::Pieces);
    }
    let mut all = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let offset = short(end + u64::from(short(take(rest)?)?))?;
        let packets = short(take(rest)?)?;
        let (counter, counts, fill) = read_null(rest, pattern)?;
        let one = Stuffing { offset, packets, counter, counts, fill };
        end = u64::from(offset) + one.length() as u64;
        if packets == 0 || end > u64::from(length) || counts && packets == 1 {
            return Err(UnitError::Spans);
        }
        all.push(one);
    }
    Ok(all)
}

fn read_null(rest: &mut &[u8], pattern: &mut Option<Fill>) -> Result<(u8, bool, Fill), UnitError> {
    let head = byte(rest)?;
    let fill = match (head & FILLS, head & AS_BEFORE != 0) {
        (0, false) => Fill::Byte(0xff),
        (ZEROS, false) => Fill::Byte(0),
        (BYTE, false) => Fill::Byte(byte(rest)?),
        (BYTES, true) => pattern.clone().ok_or(UnitError::Spans)?,
        (BYTES, false) => {
            let (bytes, after) =
                rest.split_first_chunk::<NULL_PAYLOAD>().ok_or(UnitError::CutShort)?;
            *rest = after;
            let fill = Fill::Bytes(std::sync::Arc::new(*bytes));
            *pattern = Some(fill.clone());
            fill
        }
        _ => return Err(UnitError::UnknownKind),
    };
    Ok((head & 0x0f, head & COUNTS != 0, fill))
}

fn short(number: u64) -> Result<u16, UnitError> {
    u16::try_from(number.min(MAX_LENGTH + 1)).map_err(|_| UnitError::Spans)
}

pub(super) fn byte(rest: &mut &[u8]) -> Result<u8, UnitError> {
    let (&byte, after) = rest.split_first().ok_or(UnitError::CutShort)?;
    *rest = after;
    Ok(byte)
}

fn put(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Result<u64, UnitError> {
    let mut number = 0u64;
    for place in 0..10 {
        let byte = byte(rest)?;
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            break;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(UnitError::CutShort)
}
