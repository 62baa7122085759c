//! MPEG transport streams (ISO/IEC 13818-1): headers of packets and PES, tables, and the PCR.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::Duration;

use super::Codec;
use super::rtp::unwrapped;
use super::scan::codec_of;
use super::sections::{Section, Sections};

/// Bytes of a packet.
pub const PACKET: usize = 188;

/// Bytes of a packet followed by 16 bytes of Reed-Solomon parity, as in DVB.
pub const PACKET_WITH_PARITY: usize = 204;

/// The sync byte.
pub const SYNC: u8 = 0x47;

/// PID of stuffing (null packets).
pub const FILLER: u16 = 0x1fff;

/// PIDs of tables: PAT, CAT, TSDT, and those of DVB (EN 300 468, table 1).
const TABLES: std::ops::RangeInclusive<u16> = 0..=0x1f;

/// Elementary streams and tables tracked; a satellite multiplex has fewer.
const MAX_STREAMS: usize = 512;

/// The duration of `ticks` at `per_second` ticks a second.
fn of_ticks(ticks: u64, per_second: u64) -> Duration {
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(per_second);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Fields of a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Packet identifier, 0 to 8191.
    pub pid: u16,
    /// A PES packet or a section begins in it (payload_unit_start_indicator).
    pub begins: bool,
    /// Decoding can begin here (random_access_indicator).
    pub random_access: bool,
    /// Program clock reference (PCR), in ticks of 27 MHz.
    pub pcr: Option<u64>,
    /// Offset of the payload; [`PACKET`] if there is none.
    pub payload: usize,
    /// The packet says that it has a payload (adaptation_field_control).
    pub has_payload: bool,
    /// Counts the PID's packets with a payload, 0 to 15 (continuity_counter).
    pub counter: u8,
    /// The counter may jump here (discontinuity_indicator).
    pub discontinuity: bool,
}

/// Parses the header of a packet; `None` if the bytes are not one.
pub fn header(packet: &[u8]) -> Option<Header> {
    let packet: &[u8; PACKET] = packet.first_chunk()?;
    if packet[0] != SYNC {
        return None;
    }
    let has_adaptation = packet[3] & 0x20 != 0;
    let has_payload = packet[3] & 0x10 != 0;
    let adaptation = if has_adaptation { usize::from(packet[4]) } else { 0 };
    let flags = if adaptation > 0 { packet[5] } else { 0 };
    let pcr = (flags & 0x10 != 0 && adaptation >= 7).then(|| {
        let bytes = &packet[6..12];
        let base = u64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) << 1
            | u64::from(bytes[4] >> 7);
        base * 300 + (u64::from(bytes[4] & 1) << 8 | u64::from(bytes[5]))
    });
    let payload = 4 + adaptation + usize::from(has_adaptation);
    Some(Header {
        pid: u16::from_be_bytes([packet[1] & 0x1f, packet[2]]),
        begins: packet[1] & 0x40 != 0,
        random_access: flags & 0x40 != 0,
        pcr,
        payload: if has_payload { payload.min(PACKET) } else { PACKET },
        has_payload,
        counter: packet[3] & 0x0f,
        discontinuity: flags & 0x80 != 0,
    })
}

/// Whether the adaptation field has more bytes than its fields need (section 2.4.3.4): they fill the packet.
pub(crate) fn is_stuffed(packet: &[u8]) -> bool {
    if packet.len() < PACKET || packet[3] & 0x20 == 0 {
        return false;
    }
    let length = usize::from(packet[4]);
    let flags = packet[5];
    if length == 0 || flags == 0 {
        return true;
    }
    let mut used = 1 + 6 * usize::from(flags & 0x10 != 0) + 6 * usize::from(flags & 0x08 != 0);
    used += usize::from(flags & 0x04 != 0);
    // Private data, then the extension: each with its length before it.
    for flag in [0x02, 0x01] {
        if flags & flag != 0 {
            used += 1 + packet.get(5 + used).map_or(0, |&more| usize::from(more));
        }
    }
    length > used
}

/// Packet size of `bytes`, if they consist of transport stream packets.
pub fn packet_size(bytes: &[u8]) -> Option<usize> {
    [PACKET, PACKET_WITH_PARITY].into_iter().find(|&size| {
        !bytes.is_empty()
            && bytes.len().is_multiple_of(size)
            && bytes.chunks(size).all(|packet| packet[0] == SYNC)
    })
}

/// Fields of a PES header (section 2.4.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pes {
    /// Presentation time stamp, in ticks of 90 kHz, modulo 2^33.
    pub pts: Option<u64>,
    /// Decoding time stamp; the PTS if it has none.
    pub dts: Option<u64>,
    /// Bytes of the PES packet with its header; `None` if unbounded, as for video.
    pub length: Option<usize>,
    /// Where its payload begins.
    pub payload: usize,
}

/// Parses the PES header at the beginning of a payload.
pub fn pes(payload: &[u8]) -> Option<Pes> {
    let start: &[u8; 6] = payload.first_chunk()?;
    if start[..3] != [0, 0, 1] {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([start[4], start[5]]));
    let stamp = |at: usize| {
        let bytes: &[u8; 5] = payload.get(at..)?.first_chunk()?;
        Some(
            u64::from(bytes[0] >> 1 & 7) << 30
                | u64::from(bytes[1]) << 22
                | u64::from(bytes[2] >> 1) << 15
                | u64::from(bytes[3]) << 7
                | u64::from(bytes[4] >> 1),
        )
    };
    // Only audio and video streams have these fields.
    let has_fields = payload.get(6).is_some_and(|byte| byte >> 6 == 2);
    let flags = if has_fields { payload.get(7).map_or(0, |byte| byte >> 6) } else { 0 };
    let pts = if flags & 2 != 0 { stamp(9) } else { None };
    let dts = if flags == 3 { stamp(14) } else { pts };
    let header = payload.get(8).filter(|_| has_fields);
    let begin = header.map_or(6, |&length| 9 + usize::from(length));
    Some(Pes { pts, dts, length: (length > 0).then_some(6 + length), payload: begin })
}

/// Whether a PES header begins so whose end is in a packet to come: adaptation fields leave a payload as little room as
/// they like.
pub(crate) fn is_pes_header_cut(payload: &[u8]) -> bool {
    match payload {
        [0, 0, 1, _, _, _, flags, ..] if flags >> 6 == 2 => {
            payload.get(8).is_none_or(|&length| payload.len() < 9 + usize::from(length))
        }
        _ => payload.len() < 7 && payload.iter().zip([0, 0, 1]).all(|(one, other)| *one == other),
    }
}

/// Content of an elementary stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Tables.
    Tables,
    /// Pictures.
    Video,
    /// Sound.
    Audio,
    /// Stuffing.
    Filler,
    /// Something else, or not known yet.
    Other,
}

/// What a table says of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedStream {
    /// Packet identifier, 0 to 8191.
    pub pid: u16,
    /// Its content.
    pub content: Content,
    /// stream_type (table 2-34); 0 of a table. Of private data, [`PRIVATE`], the descriptors say what they are:
    /// pictures are AV1 and sound is Opus; AC-3 and E-AC-3 have here the types of ATSC, 0x81 and 0x87.
    pub stream_type: u8,
    /// channel_config_code of Opus: 1 to 8 channels in the order of Vorbis; 0 of any other coding.
    pub channel_code: u8,
    /// The PID of the table that names it: of its program's PMT.
    pub table: u16,
    /// program_number, which tells apart programs whose tables have one PID; 0 of a table.
    pub program: u16,
}

/// State of a multiplex: streams named in its tables, and its clock.
#[derive(Debug, Default)]
pub struct Multiplex {
    /// The streams of each program in the order of its PMT; by the PID of that, and program_number.
    maps: BTreeMap<(u16, u16), Vec<NamedStream>>,
    /// PMTs, and the streams in `maps`: of what several programs have the first program's.
    named: BTreeMap<u16, NamedStream>,
    sections: Sections,
    programs: Programs,
    /// How often other streams were named.
    changes: u64,
    /// The last clock reference, unwrapped, ticks of 27 MHz.
    pcr: Option<u64>,
}

/// The PAT as far as it has come.
#[derive(Debug, Default)]
struct Programs {
    /// transport_stream_id, version_number and the number of the last section.
    of: Option<(u16, u8, u8)>,
    /// program_number and the PID of the PMT, by section.
    sections: BTreeMap<u8, Vec<(u16, u16)>>,
    /// All of the last PAT that was whole, and of parts since, in their order; at most [`MAX_STREAMS`].
    order: Vec<(u16, u16)>,
    /// The same, to look for one.
    all: BTreeSet<(u16, u16)>,
}

impl Programs {
    /// Takes a section; true if programs are other ones, or in another order.
    fn learn(&mut self, section: &Section) -> bool {
        let of = (section.of, section.version, section.number.1);
        if self.of.replace(of) != Some(of) {
            self.sections.clear();
        }
        let entries = section.content().chunks_exact(4).map(|entry| {
            let pid = u16::from_be_bytes([entry[2] & 0x1f, entry[3]]);
            (u16::from_be_bytes([entry[0], entry[1]]), pid)
        });
        let entries: Vec<(u16, u16)> = entries.filter(|(program, _)| *program != 0).collect();
        self.sections.insert(section.number.0, entries.clone());
        let is_whole = self.sections.len() > usize::from(section.number.1);
        let order: Vec<(u16, u16)> = if is_whole {
            self.sections.values().flatten().copied().take(MAX_STREAMS).collect()
        } else {
            let new = entries.into_iter().filter(|entry| !self.all.contains(entry));
            self.order.iter().copied().chain(new).take(MAX_STREAMS).collect()
        };
        let is_other = order != self.order;
        if is_other {
            self.all = order.iter().copied().collect();
            self.order = order;
        }
        is_other
    }

    /// Whether they name this PMT of a program.
    fn name(&self, pid: u16, program: u16) -> bool {
        self.all.contains(&(program, pid))
    }
}

/// stream_type of PES packets with private data (table 2-34), AV1 and Opus among them.
pub const PRIVATE: u8 = 0x06;

/// Descriptors (table 2-45; EN 300 468, table 12).
mod descriptor {
    pub(super) const REGISTRATION: u8 = 0x05;
    pub(super) const AC3: u8 = 0x6a;
    pub(super) const ENHANCED_AC3: u8 = 0x7a;
    pub(super) const EXTENSION: u8 = 0x7f;
    /// The tag within an extension that says the channels of Opus ("Opus in MPEG-TS", draft 0.1.3, table 4-2).
    pub(super) const OPUS: u8 = 0x80;
}

/// Opus of one or two channels: a decoder of two takes both.
const STEREO: u8 = 2;

/// Bits of the 90 kHz clock.
const CLOCK_BITS: u32 = 33;

impl Multiplex {
    /// Reads PCR and tables of a packet; returns the content of its stream.
    pub fn learn(&mut self, packet: &[u8], header: &Header) -> Content {
        if let Some(pcr) = header.pcr {
            let base = unwrapped(self.pcr.unwrap_or(0) / 300, pcr / 300, CLOCK_BITS);
            self.pcr = Some(base * 300 + pcr % 300);
        }
        let content = self.content(header.pid);
        let is_read = header.pid == 0 || self.is_table(header.pid);
        if is_read {
            let payload = packet.get(header.payload..PACKET).unwrap_or_default();
            for section in self.sections.push(header, payload) {
                self.learn_section(header.pid, &section);
            }
        }
        content
    }

    fn content(&self, pid: u16) -> Content {
        match pid {
            FILLER => Content::Filler,
            pid if TABLES.contains(&pid) => Content::Tables,
            pid => self.named.get(&pid).map_or(Content::Other, |stream| stream.content),
        }
    }

    /// Whether the PAT names it as that of a PMT.
    fn is_table(&self, pid: u16) -> bool {
        self.named.get(&pid).is_some_and(|stream| stream.content == Content::Tables)
    }

    fn learn_section(&mut self, pid: u16, section: &Section) {
        match (pid, section.table) {
            (0, 0) if self.programs.learn(section) => {
                self.maps.retain(|(pid, program), _| self.programs.name(*pid, *program));
                self.name_all();
            }
            (1.., 2) => self.learn_program(pid, section),
            _ => {}
        }
    }

    /// Reads a PMT, which is one section; it replaces what it named before.
    fn learn_program(&mut self, pid: u16, section: &Section) {
        let content = section.content();
        let Some(&[high, low]) = content.get(2..4).and_then(|bytes| bytes.first_chunk()) else {
            return;
        };
        let others = self.maps.iter().filter(|(of, _)| **of != (pid, section.of));
        let mut room = MAX_STREAMS - others.map(|(_, streams)| streams.len()).sum::<usize>();
        let mut streams: Vec<NamedStream> = Vec::new();
        let mut at = 4 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
        while let Some(entry) = content.get(at..at + 5).filter(|_| room > 0) {
            let length = usize::from(u16::from_be_bytes([entry[3] & 0x0f, entry[4]]));
            let to = (at + 5 + length).min(content.len());
            let Coded { content, stream_type, channel_code } =
                coded(entry[0], &content[at + 5..to]);
            let (table, program) = (pid, section.of);
            let pid = u16::from_be_bytes([entry[1] & 0x1f, entry[2]]);
            streams.push(NamedStream { pid, content, stream_type, channel_code, table, program });
            room -= 1;
            at += 5 + length;
        }
        // Of programs that the PAT does not name, a PID has the last one's table.
        let count = self.maps.len();
        self.maps.retain(|(table, program), _| {
            *table != pid || *program == section.of || self.programs.name(pid, *program)
        });
        if self.maps.len() < count || self.maps.get(&(pid, section.of)) != Some(&streams) {
            self.maps.insert((pid, section.of), streams);
            self.name_all();
        }
    }

    /// Names all streams anew, after a change.
    fn name_all(&mut self) {
        self.changes += 1;
        let table = |pid: u16| {
            let Coded { content, stream_type, channel_code } = Coded::TABLE;
            NamedStream { pid, content, stream_type, channel_code, table: 0, program: 0 }
        };
        let before = std::mem::take(&mut self.named);
        let mut named: BTreeMap<u16, NamedStream> =
            self.programs.order.iter().map(|(_, pid)| (*pid, table(*pid))).collect();
        for stream in self.programs().flatten() {
            named.entry(stream.pid).or_insert(*stream);
        }
        self.named = named;
        for (pid, _) in before.iter().filter(|(_, stream)| stream.content == Content::Tables) {
            if !self.is_table(*pid) {
                self.sections.forget(*pid);
            }
        }
    }

    /// How the pictures of a stream are coded; `None` if no table names it.
    pub(crate) fn codec(&self, pid: u16) -> Option<Codec> {
        Some(codec_of(self.named.get(&pid)?))
    }

    /// How often other streams were named: as long as it is the same, these are.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The streams that its tables name, and the tables, by their PID; of what several programs have the first
    /// program's.
    pub fn streams(&self) -> impl Iterator<Item = &NamedStream> {
        self.named.values()
    }

    /// The programs that the PAT names: program_number and the PID of the PMT, in its order.
    pub(crate) fn order(&self) -> &[(u16, u16)] {
        &self.programs.order
    }

    /// The streams of each program whose PMT has come, in the order of the PMT; the programs in the order of the PAT.
    pub fn programs(&self) -> impl Iterator<Item = &[NamedStream]> {
        let order = self.programs.order.iter();
        let first = order.filter_map(|(program, pid)| self.maps.get(&(*pid, *program)));
        // Tables whose program the PAT names by another number.
        let rest =
            self.maps.iter().filter(|((pid, program), _)| !self.programs.name(*pid, *program));
        first.chain(rest.map(|(_, streams)| streams)).map(Vec::as_slice)
    }

    /// Ticks of 90 kHz near the multiplex's clock, as time of that clock.
    pub fn time(&self, ticks: u64) -> Duration {
        let near = self.pcr.map_or(0, |pcr| pcr / 300);
        of_ticks(unwrapped(near, ticks, CLOCK_BITS), 90_000)
    }

    /// Time from the last PCR to these ticks of 90 kHz; `None` if earlier, or without a PCR.
    pub fn slack(&self, ticks: u64) -> Option<Duration> {
        let now = of_ticks(self.pcr?, 27_000_000);
        let then = self.time(ticks);
        (then >= now).then(|| then - now)
    }

    /// The last PCR, as time since its zero.
    pub fn clock(&self) -> Option<Duration> {
        self.pcr.map(|pcr| of_ticks(pcr, 27_000_000))
    }
}

/// What an entry of a PMT says of its stream.
#[derive(Clone, Copy)]
struct Coded {
    content: Content,
    stream_type: u8,
    channel_code: u8,
}

impl Coded {
    const TABLE: Self = Self::new(Content::Tables, 0);

    const fn new(content: Content, stream_type: u8) -> Self {
        Self { content, stream_type, channel_code: 0 }
    }
}

/// By stream_type (section 2.4.4.9, table 2-34, with its amendments; 0x81 and 0x87 of ATSC), and where that says nothing by
/// the descriptors.
fn coded(stream_type: u8, descriptors: &[u8]) -> Coded {
    let content = match stream_type {
        0x01 | 0x02 | 0x10 | 0x1b | 0x20 | 0x21 | 0x24 | 0x32 | 0x33 | 0x42 | 0xd1 | 0xea => {
            Content::Video
        }
        0x03 | 0x04 | 0x0f | 0x11 | 0x1c | 0x81 | 0x87 => Content::Audio,
        PRIVATE => return private(descriptors),
        _ => Content::Other,
    };
    Coded::new(content, stream_type)
}

/// What private data are: registered by a format_identifier (section 2.6.8), or named by DVB. `AV1G` is what GStreamer
/// registers for AV1 whose bytes are not escaped.
fn private(mut descriptors: &[u8]) -> Coded {
    const AC3: Coded = Coded::new(Content::Audio, 0x81);
    const ENHANCED_AC3: Coded = Coded::new(Content::Audio, 0x87);
    let mut found = Coded::new(Content::Other, PRIVATE);
    let mut channels = None;
    while let Some((&[tag, length], rest)) = descriptors.split_first_chunk() {
        let Some((body, after)) = rest.split_at_checked(usize::from(length)) else { break };
        descriptors = after;
        match (tag, body) {
            (
                descriptor::REGISTRATION,
                [b'A', b'V', b'0', b'1', ..] | [b'A', b'V', b'1', b'G', ..],
            ) => {
                found = Coded::new(Content::Video, PRIVATE);
            }
            (descriptor::REGISTRATION, [b'O', b'p', b'u', b's', ..]) => {
                found = Coded { channel_code: STEREO, ..Coded::new(Content::Audio, PRIVATE) };
            }
            (descriptor::REGISTRATION, [b'A', b'C', b'-', b'3', ..]) => found = AC3,
            (descriptor::REGISTRATION, [b'E', b'A', b'C', b'3', ..]) => found = ENHANCED_AC3,
            (descriptor::AC3, _) => found = AC3,
            (descriptor::ENHANCED_AC3, _) => found = ENHANCED_AC3,
            (descriptor::EXTENSION, [descriptor::OPUS, code, ..]) => channels = Some(*code),
            _ => {}
        }
    }
    if found.channel_code > 0 {
        found.channel_code = channels.unwrap_or(STEREO);
    }
    found
}
