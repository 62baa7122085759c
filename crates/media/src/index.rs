//! An index of a transport stream that is held in memory: its units and where their packets lie.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use ontempo_foundation::{Duration, Time};

use super::packetizer::Gathering;
use super::ts::{self, PACKET, SYNC};
use super::{Format, Kind, Packetizer, PacketizerOptions, PcrClock, Unit};

/// The PID of stuffing packets, whose continuity counter means nothing (section 2.4.3.3).
const STUFFING: u16 = 0x1fff;

/// One in so many packets may be damaged.
const MAX_DAMAGED: usize = 8;

/// A unit of the stream: a frame, a PES packet of sound, tables or stuffing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedUnit {
    /// Its content.
    pub kind: Kind,
    /// The PID of its first packet, 0 to 8191.
    pub pid: u16,
    /// When it is shown (PTS), by the media's clock; `None` where it does not say.
    pub media_time: Option<Duration>,
    /// Bytes of the elementary stream, without the headers of transport packets and PES.
    pub size: usize,
    /// The packets that carry its payload, counted from 0 in the whole stream, in rising order.
    pub packets: Vec<usize>,
}

/// A transport stream's units, the times of its packets, and its continuity errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportStreamIndex {
    /// How many packets of 188 bytes the stream has.
    pub packets: usize,
    /// The units in the order in which they begin. What precedes the first start of a PID belongs
    /// to no unit.
    pub units: Vec<IndexedUnit>,
    /// When each packet is due by [`PcrClock`], after the first clock reference; empty where the
    /// stream has fewer than two of them.
    pub due: Vec<Duration>,
    /// Packets at which the continuity counter of their PID is not what it must be
    /// (section 2.4.3.3): packets before them are missing, or are out of order.
    pub continuity_errors: Vec<usize>,
    /// Packets without the sync byte: they count as stuffing.
    pub damaged: Vec<usize>,
    /// Bytes of a packet that is cut at the end, 0 to 187: it is left out.
    pub cut: usize,
}

/// Why bytes are no transport stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// Their number, which is less than 188.
    Length(usize),
    /// Where a packet should begin and the sync byte is missing.
    Sync(usize),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(
                f,
                "{length} bytes are no whole number of transport packets of {PACKET} bytes: not even one"
            ),
            Self::Sync(at) => {
                write!(f, "no transport packet at byte {at}: it does not begin with {SYNC:#04x}")
            }
        }
    }
}

impl std::error::Error for IndexError {}

impl TransportStreamIndex {
    /// Reads a stream of packets of 188 bytes, of at most 64 PIDs. Its end may be cut, and an eighth of its packets
    /// may lack the sync byte.
    ///
    /// # Errors
    /// The bytes are not made of such packets.
    pub fn read(bytes: &[u8]) -> Result<Self, IndexError> {
        let cut_off = bytes.len() % PACKET;
        if bytes.len() < PACKET {
            return Err(IndexError::Length(bytes.len()));
        }
        let whole = &bytes[..bytes.len() - cut_off];
        let places = whole.chunks_exact(PACKET).enumerate();
        let damaged: Vec<usize> =
            places.filter(|(_, packet)| packet[0] != SYNC).map(|(place, _)| place).collect();
        // Between two that are right another one is only damaged; the rest is not made of such packets.
        let is_wrong =
            |&&place: &&usize| place == 0 || damaged.len() * MAX_DAMAGED > whole.len() / PACKET;
        if let Some(place) = damaged.iter().find(is_wrong) {
            return Err(IndexError::Sync(place * PACKET));
        }
        let mut mended = Cow::Borrowed(whole);
        for place in &damaged {
            let packet = &mut mended.to_mut()[place * PACKET..][..PACKET];
            packet[..4].copy_from_slice(&[SYNC, (STUFFING >> 8) as u8, STUFFING as u8, 0x10]);
        }
        let bytes = &*mended;
        let headers: Vec<ts::Header> = bytes.chunks_exact(PACKET).filter_map(ts::header).collect();
        let units = cut(bytes).iter().filter_map(|unit| indexed(unit, bytes, &headers)).collect();
        let clock = headers.iter().find(|header| header.pcr.is_some()).map(|header| header.pid);
        let references =
            headers.iter().filter(|header| header.pcr.is_some() && Some(header.pid) == clock);
        let due = if references.count() < 2 {
            Vec::new()
        } else {
            let mut clock = PcrClock::default();
            bytes.chunks_exact(PACKET).map(|packet| clock.due(packet)).collect()
        };
        let continuity_errors = continuity_errors(bytes, &headers);
        let packets = headers.len();
        Ok(Self { packets, units, due, continuity_errors, damaged, cut: cut_off })
    }
}

/// The units, in the order in which they begin; each packet is a datagram of its own.
fn cut(bytes: &[u8]) -> Vec<Unit> {
    let mut packetizer = Packetizer::new(PacketizerOptions {
        format: Some(Format::TransportStream),
        // Above 0, and the time stands still: a unit ends where the stream says so.
        hold: Duration::from_secs(1),
        gathering: Gathering::NONE,
        max_bytes: usize::MAX,
    });
    let mut units = Vec::new();
    for packet in bytes.chunks_exact(PACKET) {
        packetizer.push(Time::ZERO, packet);
        units.extend(std::iter::from_fn(|| packetizer.poll()));
    }
    packetizer.finish();
    units.extend(std::iter::from_fn(|| packetizer.poll()));
    units.sort_by_key(|unit| unit.id);
    units
}

/// A unit with the places of its packets; `None` where its beginning is missing.
fn indexed(unit: &Unit, bytes: &[u8], headers: &[ts::Header]) -> Option<IndexedUnit> {
    let places = unit.parts.iter().filter_map(|part| usize::try_from(part.datagram).ok());
    let is_stuffing = unit.kind == Kind::Filler;
    let packets: Vec<usize> =
        places.filter(|&place| is_stuffing || headers[place].payload < PACKET).collect();
    let &first = packets.first()?;
    if !is_stuffing && !headers[first].begins {
        return None;
    }
    let payload = |place: usize| {
        &bytes[place * PACKET + headers[place].payload..][..PACKET - headers[place].payload]
    };
    let head = ts::pes(payload(first)).map_or(0, |pes| pes.payload.min(payload(first).len()));
    let size = packets.iter().map(|&place| payload(place).len()).sum::<usize>() - head;
    let pid = headers[first].pid;
    Some(IndexedUnit { kind: unit.kind, pid, media_time: unit.media_time, size, packets })
}

/// Packets whose counter is neither the next one of their PID nor that of a single repetition.
fn continuity_errors(bytes: &[u8], headers: &[ts::Header]) -> Vec<usize> {
    let mut last: BTreeMap<u16, (usize, bool)> = BTreeMap::new();
    let mut errors = Vec::new();
    for (place, header) in headers.iter().enumerate() {
        if header.pid == STUFFING {
            continue;
        }
        let Some(&(before, is_repeated)) = last.get(&header.pid) else {
            last.insert(header.pid, (place, false));
            continue;
        };
        let counter = headers[before].counter;
        // Without payload the counter stands still.
        let has_payload = header.has_payload;
        let next = if has_payload { (counter + 1) & 0x0f } else { counter };
        let packet = |place: usize| &bytes[place * PACKET..][..PACKET];
        let repeats = has_payload && header.counter == counter && !is_repeated;
        // Two packets that repeat each other differ in their clock reference at most.
        let repeats =
            repeats && packet(place)[header.payload..] == packet(before)[header.payload..];
        if header.counter != next && !repeats && !header.discontinuity {
            errors.push(place);
        }
        last.insert(header.pid, (place, repeats));
    }
    errors
}
