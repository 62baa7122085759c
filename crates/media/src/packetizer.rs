//! Datagrams to units.

mod elementary;
mod gathering;
mod pace;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use ontempo_foundation::{Duration, Time};

use gathering::Gathered;
use stream::Stream;

use super::rtp::{self, unwrapped};
use super::scan::MarkReader;
use super::stuffing::Stuffing;
use super::ts::{self, Content, Multiplex};
use super::unit::{Kind, MAX_DEPENDENCIES, MAX_PIECES, Part, Span, Unit};

pub use gathering::Gathering;

/// Incomplete units at a time: streams of a multiplex, or RTP frames that wait for a late packet.
const MAX_OPEN: usize = 64;

/// RTP senders (SSRC) tracked at a time.
const MAX_SENDERS: usize = 16;

/// Format of the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// MPEG-TS: packets of 188 or 204 bytes.
    TransportStream,
    /// RTP, with MPEG-TS inside or not.
    Rtp,
    /// Unknown: each datagram is a unit.
    Datagrams,
    /// A stream of bytes that a [`Chunker`](crate::Chunker) has cut: MPEG-TS, or else each chunk is
    /// a unit. Chunks that begin like RTP are no packets of RTP.
    Bytes,
    /// Frames of one [elementary stream](crate::ElementaryDatagram); it is never detected.
    Elementary,
    /// Frames of several, each datagram behind the [number](crate::split_number) of its stream; it is never
    /// detected.
    Elementaries,
}

/// Options of a packetizer.
#[derive(Clone, Copy, Debug)]
pub struct PacketizerOptions {
    /// Format of the datagrams; `None`: detected for each.
    pub format: Option<Format>,
    /// How long after its first byte an incomplete unit is emitted. The rest becomes a unit that
    /// continues it. Zero: each datagram is emitted immediately.
    pub hold: Duration,
    /// Units are emitted together, as soon as they fill packets; zero: each at once when it is
    /// complete or has been held.
    pub gathering: Gathering,
    /// Maximum size of a unit, in bytes; a longer frame is split into several units.
    pub max_bytes: usize,
}

impl Default for PacketizerOptions {
    fn default() -> Self {
        // An encoder that does not pace sends a whole frame within less than this; for one that
        // paces, waiting for the last packet gains nothing.
        let hold = Duration::from_micros(500);
        Self { format: None, hold, gathering: Gathering::default(), max_bytes: 256 << 10 }
    }
}

/// The stream that a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Tables,
    /// What a decoder has to know of an elementary stream.
    Description(u16),
    Pid(u16),
    /// SSRC and timestamp.
    Frame(u32, u32),
    Alone,
}

/// A piece of a datagram, parsed.
#[derive(Clone, Copy, Debug)]
struct Piece {
    key: Key,
    span: Span,
    kind: Kind,
    /// It begins a unit.
    begins: bool,
    /// It ends a unit.
    ends: bool,
    media_time: Option<Duration>,
    slack: Option<Duration>,
}

impl Piece {
    /// No bytes: null packets alone.
    const FILLER: Self = Self {
        key: Key::Pid(ts::FILLER),
        span: Span { offset: 0, length: 0 },
        kind: Kind::Filler,
        begins: false,
        ends: false,
        media_time: None,
        slack: None,
    };

    /// The header in front of transport packets.
    fn of_header(length: usize) -> Self {
        let span = Span { offset: 0, length: length as u16 };
        Self { key: Key::Alone, span, ..Self::FILLER }
    }

    fn alone(datagram: &[u8]) -> Self {
        Self {
            key: Key::Alone,
            span: Span { offset: 0, length: datagram.len() as u16 },
            kind: Kind::Datagram,
            begins: true,
            ends: true,
            media_time: None,
            slack: None,
        }
    }
}

/// State of an RTP sender.
#[derive(Clone, Copy, Debug)]
struct Sender {
    last_heard: Time,
    sequence: u64,
    first_timestamp: u64,
    timestamp: u64,
    /// The sequence number after the last complete frame.
    next: Option<u64>,
}

/// RTP packets of a frame received so far.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    first: u64,
    last: u64,
    count: u64,
    has_end: bool,
}

/// An incomplete unit.
#[derive(Debug)]
struct Open {
    key: Key,
    unit: Unit,
    since: Time,
    sequence: Option<Sequence>,
    /// Spans and null packets.
    pieces: usize,
}

/// Turns datagrams into units.
#[derive(Debug)]
pub struct Packetizer {
    options: PacketizerOptions,
    next_id: u64,
    next_datagram: u64,
    /// Oldest first.
    open: Vec<Open>,
    ready: VecDeque<Unit>,
    multiplex: Multiplex,
    streams: BTreeMap<u16, Stream>,
    senders: BTreeMap<u32, Sender>,
    last_tables: Option<u64>,
    /// Units emitted before their end, by the stream of their continuation.
    unfinished: BTreeMap<Key, u64>,
    pieces: Vec<Piece>,
    /// Null packets of the current datagram, until a unit describes them.
    nulls: Vec<Stuffing>,
    gathered: Gathered,
}

impl Packetizer {
    /// A packetizer without state.
    pub fn new(options: PacketizerOptions) -> Self {
        Self {
            options,
            next_id: 0,
            next_datagram: 0,
            open: Vec::new(),
            ready: VecDeque::new(),
            multiplex: Multiplex::default(),
            streams: BTreeMap::new(),
            senders: BTreeMap::new(),
            last_tables: None,
            unfinished: BTreeMap::new(),
            pieces: Vec::new(),
            nulls: Vec::new(),
            gathered: Gathered::default(),
        }
    }

    /// Takes a datagram; bytes beyond 65,535, which UDP cannot carry, are ignored. Call
    /// [`poll`](Self::poll) afterwards until it returns `None`.
    pub fn push(&mut self, now: Time, datagram: &[u8]) {
        let datagram = &datagram[..datagram.len().min(usize::from(u16::MAX))];
        self.handle_timeout(now);
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        self.nulls.clear();
        let sequence = self.look(now, datagram, &mut pieces);
        let is_alone = |piece: &Piece| matches!(piece.key, Key::Alone | Key::Frame(..));
        self.gathered.note(now, !pieces.iter().any(is_alone), self.options.hold);
        let number = self.next_datagram;
        self.next_datagram += 1;
        for piece in &pieces {
            self.place(now, datagram, number, piece, sequence);
        }
        self.pieces = pieces;
        // Without a hold, or with nothing to come in time that fits.
        if self.next_timeout() <= now {
            self.handle_timeout(now);
        }
    }

    /// The next unit.
    pub fn poll(&mut self) -> Option<Unit> {
        self.ready.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); [`Time::NEVER`] if not at all.
    pub fn next_timeout(&self) -> Time {
        if !self.gathers() {
            return self.open.first().map_or(Time::NEVER, |open| open.since + self.options.hold);
        }
        self.gathered_until()
    }

    /// Emits units that have been incomplete for [`PacketizerOptions::hold`], and those that have
    /// been [gathered](Gathering). To be called at [`next_look`](Self::next_look), too.
    pub fn handle_timeout(&mut self, now: Time) {
        self.note_look(now);
        while self.next_timeout() <= now {
            if self.gathers() { self.emit(false) } else { self.close(0, false) }
        }
    }

    /// End of input: emits all incomplete units.
    pub fn finish(&mut self) {
        self.emit(true);
    }

    /// Bytes of units that are not emitted yet.
    pub fn held(&self) -> usize {
        let open = self.open.iter().map(|open| &open.unit);
        open.chain(&self.gathered.units).map(|unit| unit.data.len()).sum()
    }

    /// Splits a datagram into pieces.
    fn look(&mut self, now: Time, datagram: &[u8], pieces: &mut Vec<Piece>) -> Option<Sequence> {
        let wanted = |format| self.options.format.is_none_or(|only| only == format);
        if let Some(format @ (Format::Elementary | Format::Elementaries)) = self.options.format {
            let is_numbered = format == Format::Elementaries;
            pieces.push(self.piece_of_frame(datagram, is_numbered));
            return None;
        }
        let may_be_ts = wanted(Format::TransportStream) || wanted(Format::Bytes);
        if may_be_ts && let Some(size) = ts::packet_size(datagram) {
            self.look_at_packets(datagram, 0, size, pieces);
        } else if wanted(Format::Rtp)
            && let Some(header) = rtp::header(datagram)
        {
            let payload = &datagram[header.payload..];
            if let Some(size) = ts::packet_size(payload) {
                // The RTP header belongs to the first packet's piece.
                self.look_at_packets(datagram, header.payload, size, pieces);
            } else {
                return Some(self.look_at_frame(now, datagram, &header, pieces));
            }
        } else {
            pieces.push(Piece::alone(datagram));
        }
        None
    }

    /// Pieces of the transport stream packets from offset `start`.
    fn look_at_packets(
        &mut self,
        datagram: &[u8],
        start: usize,
        size: usize,
        pieces: &mut Vec<Piece>,
    ) {
        let mut from = 0;
        for at in (start..datagram.len()).step_by(size) {
            let packet = &datagram[at..at + size];
            if let Some(null) = packet.try_into().ok().and_then(|one| Stuffing::of(one, at as u16))
            {
                if !self.nulls.last_mut().is_some_and(|last| last.extend(&null)) {
                    self.nulls.push(null);
                }
                if at == start && start > 0 {
                    // The header of RTP goes with the next piece.
                    pieces.push(Piece::of_header(start));
                }
                from = at + size;
                continue;
            }
            let span = Span { offset: from as u16, length: (at + size - from) as u16 };
            from = at + size;
            let Some(header) = ts::header(packet) else { continue };
            let content = self.multiplex.learn(packet, &header);
            let piece = self.piece_of(packet, &header, content, span);
            pieces.push(piece);
        }
        if let [header, next, ..] = pieces.as_mut_slice()
            && header.key == Key::Alone
        {
            *header = Piece { span: header.span, ends: false, ..*next };
            next.begins = false;
        }
        if pieces.is_empty() && self.nulls.is_empty() {
            pieces.push(Piece::alone(datagram));
        } else if pieces.iter().all(|piece| piece.key == Key::Alone) {
            // Only null packets, and perhaps a header.
            let span = Span { offset: 0, length: start as u16 };
            pieces.clear();
            pieces.push(Piece { span, ..Piece::FILLER });
        }
    }

    fn piece_of(
        &mut self,
        packet: &[u8],
        header: &ts::Header,
        content: Content,
        span: Span,
    ) -> Piece {
        let pid = header.pid;
        let kind = match content {
            Content::Tables => Kind::Tables,
            Content::Filler => Kind::Filler,
            Content::Video if header.random_access && header.begins => Kind::Key,
            Content::Video => Kind::Frame,
            Content::Audio => Kind::Sound,
            Content::Other => Kind::Other,
        };
        let key = if content == Content::Tables { Key::Tables } else { Key::Pid(pid) };
        let piece =
            Piece { key, span, kind, begins: false, ends: false, media_time: None, slack: None };
        if matches!(content, Content::Tables | Content::Filler) {
            // A set of tables begins with the PAT, which encoders send first.
            return Piece { begins: pid == 0 && header.begins, ..piece };
        }
        let payload = packet.get(header.payload..ts::PACKET).unwrap_or_default();
        let pes = if header.begins { ts::pes(payload) } else { None };
        let known = self.streams.get(&pid).copied();
        let mut stream = known.unwrap_or(Stream::new(kind));
        let mut slack = None;
        if header.begins {
            let picture = pes.and_then(|pes| payload.get(pes.payload..));
            let marks = self.multiplex.codec(pid).zip(picture).and_then(|(codec, picture)| {
                MarkReader::look(codec, &mut stream.av1, picture, header.random_access)
            });
            stream.kind = stream.kind_of(kind, marks);
            stream.left = pes.and_then(|pes| pes.length);
            let time = |ticks| self.multiplex.time(ticks);
            stream.media_time = pes.and_then(|pes| pes.pts).map(time);
            slack = pes.and_then(|pes| pes.dts).and_then(|dts| self.multiplex.slack(dts));
        }
        stream.left = stream.left.map(|left| left.saturating_sub(payload.len()));
        let ends = stream.left == Some(0);
        // A PID has 13 bits: at most 8,192 entries.
        self.streams.insert(pid, stream);
        let media_time = stream.media_time;
        Piece { kind: stream.kind, begins: header.begins, ends, media_time, slack, ..piece }
    }

    /// The piece of an RTP packet with an elementary stream.
    fn look_at_frame(
        &mut self,
        now: Time,
        datagram: &[u8],
        header: &rtp::Header,
        pieces: &mut Vec<Piece>,
    ) -> Sequence {
        let (low, timestamp) = (u64::from(header.sequence), u64::from(header.timestamp));
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&header.ssrc) {
            let oldest = self.senders.iter().min_by_key(|(_, sender)| sender.last_heard);
            if let Some((&ssrc, _)) = oldest {
                self.senders.remove(&ssrc);
            }
        }
        let new = Sender {
            last_heard: now,
            sequence: low,
            first_timestamp: timestamp,
            timestamp,
            next: None,
        };
        let sender = self.senders.entry(header.ssrc).or_insert(new);
        let number = unwrapped(sender.sequence, low, 16);
        sender.sequence = sender.sequence.max(number);
        let ticks = unwrapped(sender.timestamp, timestamp, 32);
        sender.timestamp = sender.timestamp.max(ticks);
        sender.last_heard = now;
        let rate = rtp::clock_rate(header.payload_type);
        let media_time = ticks.checked_sub(sender.first_timestamp).map(|ticks| {
            Duration::from_nanos((u128::from(ticks) * 1_000_000_000 / u128::from(rate)) as u64)
        });
        let is_sound = rtp::is_sound(header.payload_type);
        pieces.push(Piece {
            key: Key::Frame(header.ssrc, header.timestamp),
            kind: if is_sound { Kind::Sound } else { Kind::Frame },
            begins: false,
            // In audio the marker means the start of a talkspurt; each packet is a unit.
            ends: is_sound,
            media_time,
            ..Piece::alone(datagram)
        });
        Sequence { first: number, last: number, count: 1, has_end: header.marker && !is_sound }
    }

    /// Adds a piece to its unit.
    fn place(
        &mut self,
        now: Time,
        datagram: &[u8],
        number: u64,
        piece: &Piece,
        sequence: Option<Sequence>,
    ) {
        self.close_before(piece, sequence);
        if self.gathers() {
            self.gather(now, number, piece);
        }
        let length = usize::from(piece.span.length);
        let mut place = self.open.iter().position(|open| open.key == piece.key);
        if let Some(full) = place
            && (self.open[full].unit.data.len() + length > self.options.max_bytes
                || self.open[full].pieces >= MAX_PIECES / 2)
        {
            self.close(full, false);
            place = None;
        }
        let place = place.unwrap_or_else(|| self.begin(now, piece));
        let Some(open) = self.open.get_mut(place) else { return };
        let unit = &mut open.unit;
        let (from, whole) = (usize::from(piece.span.offset), datagram.len() as u16);
        unit.data.extend_from_slice(&datagram[from..from + length]);
        // Null packets alone have no bytes; an empty datagram has a span nevertheless.
        let has_span = length > 0 || piece.key == Key::Alone;
        open.pieces += 1;
        match unit.parts.last_mut().filter(|part| part.datagram == number) {
            Some(part) => match part.spans.last_mut() {
                Some(last) if last.offset + last.length == piece.span.offset => {
                    last.length += piece.span.length;
                }
                _ => part.spans.push(piece.span),
            },
            None => {
                let arrived = Time::from_nanos(now.as_nanos() / 1_000 * 1_000);
                let spans = if has_span { vec![piece.span] } else { Vec::new() };
                let stuffing = std::mem::take(&mut self.nulls);
                open.pieces += stuffing.iter().map(|one| usize::from(one.packets)).sum::<usize>();
                unit.parts.push(Part { datagram: number, length: whole, arrived, spans, stuffing });
            }
        }
        if let Some(new) = sequence {
            let all = open.sequence.get_or_insert(Sequence { count: 0, ..new });
            all.first = all.first.min(new.first);
            all.last = all.last.max(new.last);
            all.count += 1;
            all.has_end |= new.has_end;
        }
        if piece.ends || self.is_whole(place) {
            self.close(place, true);
        }
    }

    /// Closes the units that this piece shows to be complete.
    fn close_before(&mut self, piece: &Piece, sequence: Option<Sequence>) {
        let is_over = |open: &Open| match (open.key, piece.key) {
            // Any other piece ends the tables.
            (Key::Tables, Key::Tables) => piece.begins,
            (Key::Tables, _) => true,
            // A packet of the next frame that follows the last of this one.
            (Key::Frame(ssrc, timestamp), Key::Frame(new_ssrc, new)) => {
                let follows = open.sequence.zip(sequence).is_some_and(|(open, new)| {
                    open.last + 1 == new.first && open.last - open.first + 1 == open.count
                });
                ssrc == new_ssrc && timestamp != new && follows
            }
            (open, new) => open == new && piece.begins,
        };
        while let Some(place) = self.open.iter().position(is_over) {
            self.close(place, true);
        }
    }

    /// All packets of a frame have come, up to the one with the marker.
    fn is_whole(&self, place: usize) -> bool {
        let Some(open) = self.open.get(place) else { return false };
        let (Key::Frame(ssrc, _), Some(all)) = (open.key, open.sequence) else { return false };
        let next = self.senders.get(&ssrc).and_then(|sender| sender.next);
        let begins = next.is_none_or(|next| next == all.first);
        all.has_end && begins && all.last - all.first + 1 == all.count
    }

    /// Opens a unit for this piece; answers its place.
    fn begin(&mut self, now: Time, piece: &Piece) -> usize {
        if self.open.len() >= MAX_OPEN {
            self.close(0, false);
        }
        let id = self.next_id;
        self.next_id += 1;
        let unfinished = self.unfinished.remove(&piece.key).filter(|_| !piece.begins);
        let mut dependencies: Vec<u64> = unfinished.into_iter().collect();
        if let Key::Pid(pid) = piece.key
            && piece.kind != Kind::Filler
            && unfinished.is_none()
        {
            let needed = self.streams.get_mut(&pid).map(|stream| match piece.kind {
                Kind::Key if piece.begins => {
                    (stream.key, stream.reference) = (Some(id), Some(id));
                    [None; 2]
                }
                Kind::Frame if piece.begins => [stream.key, stream.reference.replace(id)],
                Kind::Disposable if piece.begins => [stream.key, stream.reference],
                _ => [stream.key, None],
            });
            dependencies.extend(needed.into_iter().flatten().flatten());
            let description = self.streams.get(&pid).and_then(|stream| stream.description);
            dependencies.extend(description.or(self.last_tables));
        }
        match piece.key {
            Key::Tables => self.last_tables = Some(id),
            Key::Description(pid) => {
                let stream = self.streams.entry(pid).or_insert(Stream::new(Kind::Tables));
                stream.description = Some(id);
            }
            _ => {}
        }
        dependencies.sort_unstable();
        dependencies.dedup();
        dependencies.retain(|&dependency| dependency < id);
        dependencies.truncate(MAX_DEPENDENCIES);
        let unit = Unit {
            id,
            kind: piece.kind,
            media_time: piece.media_time.filter(|_| unfinished.is_none()),
            slack: piece.slack.filter(|_| unfinished.is_none()),
            continues: unfinished,
            dependencies,
            parts: Vec::new(),
            data: Vec::new(),
        };
        self.open.push(Open { key: piece.key, unit, since: now, sequence: None, pieces: 0 });
        self.open.len() - 1
    }

    /// Emits an open unit; `is_whole`: nothing of it follows.
    fn close(&mut self, place: usize, is_whole: bool) {
        let open = self.open.remove(place);
        if let (Key::Frame(ssrc, _), Some(all)) = (open.key, open.sequence)
            && let Some(sender) = self.senders.get_mut(&ssrc)
        {
            sender.next = sender.next.max(Some(all.last + 1));
        }
        if is_whole {
            self.unfinished.remove(&open.key);
        } else if !matches!(open.key, Key::Alone | Key::Tables | Key::Pid(ts::FILLER)) {
            if self.unfinished.len() >= MAX_OPEN {
                self.unfinished.pop_first();
            }
            self.unfinished.insert(open.key, open.unit.id);
        }
        if self.gathers() && !matches!(open.key, Key::Alone | Key::Frame(..)) {
            self.gathered.units.push(open.unit);
        } else {
            self.ready.push_back(open.unit);
        }
        self.release();
    }
}
