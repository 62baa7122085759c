//! Cuts datagrams into units.

use std::collections::{BTreeMap, VecDeque};

use ontempo_foundation::{Duration, Time};

use super::rtp::{self, unwrapped};
use super::ts::{self, Content, Multiplex};
use super::unit::{Kind, MAX_DEPENDENCIES, Part, Span, Unit};

/// Units open at once: streams of a multiplex, or frames of RTP that wait for a late packet.
const MAX_OPEN: usize = 64;

/// Senders of RTP that are told apart at once.
const MAX_SENDERS: usize = 16;

/// What datagrams hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// MPEG-TS: packets of 188 or 204 bytes.
    TransportStream,
    /// RTP, with MPEG-TS inside or not.
    Rtp,
    /// Anything: each datagram is a unit.
    Datagrams,
}

/// How units are cut.
#[derive(Clone, Copy, Debug)]
pub struct CutterOptions {
    /// What the datagrams hold; `None`: each is looked at.
    pub format: Option<Format>,
    /// How long after its first byte a unit is handed on though its end has not come. What follows
    /// is a unit that depends on it. Zero: each datagram is handed on at once.
    pub hold: Duration,
    /// Bytes of a unit at most; a longer one is cut, too.
    pub most_bytes: usize,
}

impl Default for CutterOptions {
    fn default() -> Self {
        // An encoder hands a frame to the network within less than that; whoever paces its packets
        // gains nothing from waiting for the last.
        Self { format: None, hold: Duration::from_micros(500), most_bytes: 256 << 10 }
    }
}

/// What bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Tables,
    Pid(u16),
    /// SSRC and timestamp.
    Frame(u32, u32),
    Alone,
}

/// A piece of a datagram, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Piece {
    key: Key,
    span: Span,
    kind: Kind,
    /// A unit begins with it.
    begins: bool,
    /// A unit ends with it.
    ends: bool,
    media_time: Option<Duration>,
    slack: Option<Duration>,
}

impl Piece {
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

/// What is remembered of an elementary stream.
#[derive(Clone, Copy, Debug)]
struct Stream {
    kind: Kind,
    /// The last unit that decoding can begin at.
    key: Option<u64>,
    /// Bytes of its PES packet still to come, where it said how many.
    left: Option<usize>,
    media_time: Option<Duration>,
}

/// What is remembered of a sender of RTP.
#[derive(Clone, Copy, Debug)]
struct Sender {
    last_heard: Time,
    sequence: u64,
    first_timestamp: u64,
    timestamp: u64,
    /// The sequence number after the last frame that was whole.
    next: Option<u64>,
}

/// Which of a frame's RTP packets have come.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    first: u64,
    last: u64,
    count: u64,
    has_end: bool,
}

/// A unit whose end has not come.
#[derive(Debug)]
struct Open {
    key: Key,
    unit: Unit,
    since: Time,
    sequence: Option<Sequence>,
}

/// Cuts datagrams into units.
#[derive(Debug)]
pub struct Cutter {
    options: CutterOptions,
    next_id: u64,
    next_datagram: u64,
    /// The oldest first.
    open: Vec<Open>,
    ready: VecDeque<Unit>,
    multiplex: Multiplex,
    streams: BTreeMap<u16, Stream>,
    senders: BTreeMap<u32, Sender>,
    last_tables: Option<u64>,
    /// Units cut before their end, by what follows belongs to.
    unfinished: BTreeMap<Key, u64>,
    pieces: Vec<Piece>,
}

impl Cutter {
    /// One that has seen nothing.
    pub fn new(options: CutterOptions) -> Self {
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
        }
    }

    /// A datagram has come; one above 65,535 bytes, which UDP has not, is cut there. Then
    /// [`poll`](Self::poll) until nothing more is ready.
    pub fn push(&mut self, now: Time, datagram: &[u8]) {
        let datagram = &datagram[..datagram.len().min(usize::from(u16::MAX))];
        self.handle_timeout(now);
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let sequence = self.look(now, datagram, &mut pieces);
        let number = self.next_datagram;
        self.next_datagram += 1;
        for piece in &pieces {
            self.place(now, datagram, number, piece, sequence);
        }
        self.pieces = pieces;
        if self.options.hold == Duration::ZERO {
            self.handle_timeout(now);
        }
    }

    /// The next unit that is ready.
    pub fn poll(&mut self) -> Option<Unit> {
        self.ready.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is wanted; [`Time::NEVER`] where not.
    pub fn next_timeout(&self) -> Time {
        self.open.first().map_or(Time::NEVER, |open| open.since + self.options.hold)
    }

    /// Hands on what has been held for long enough.
    pub fn handle_timeout(&mut self, now: Time) {
        while self.next_timeout() <= now {
            self.close(0, false);
        }
    }

    /// No more is to come: hands on all that is held.
    pub fn finish(&mut self) {
        while !self.open.is_empty() {
            self.close(0, true);
        }
    }

    /// Bytes of units that are held open.
    pub fn held(&self) -> usize {
        self.open.iter().map(|open| open.unit.data.len()).sum()
    }

    /// Finds the pieces of a datagram.
    fn look(&mut self, now: Time, datagram: &[u8], pieces: &mut Vec<Piece>) -> Option<Sequence> {
        let wanted = |format| self.options.format.is_none_or(|only| only == format);
        let may_be_ts = wanted(Format::TransportStream);
        if may_be_ts && let Some(size) = ts::packet_size(datagram) {
            self.look_at_packets(datagram, 0, size, pieces);
        } else if wanted(Format::Rtp)
            && let Some(header) = rtp::header(datagram)
        {
            let payload = &datagram[header.payload..];
            if let Some(size) = ts::packet_size(payload) {
                // The header stays with the first packet.
                self.look_at_packets(datagram, header.payload, size, pieces);
            } else {
                return Some(self.look_at_frame(now, datagram, &header, pieces));
            }
        } else {
            pieces.push(Piece::alone(datagram));
        }
        None
    }

    /// The packets of a transport stream, behind `start` bytes.
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
            let span = Span { offset: from as u16, length: (at + size - from) as u16 };
            from = at + size;
            let Some(header) = ts::header(packet) else { continue };
            let content = self.multiplex.learn(packet, &header);
            let piece = self.piece_of(packet, &header, content, span);
            pieces.push(piece);
        }
        if pieces.is_empty() {
            pieces.push(Piece::alone(datagram));
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
            // Tables begin with the PAT, which encoders send first.
            return Piece { begins: pid == 0 && header.begins, ..piece };
        }
        let payload = packet.get(header.payload..ts::PACKET).unwrap_or_default();
        let pes = if header.begins { ts::pes(payload) } else { None };
        let known = self.streams.get(&pid).copied();
        let mut stream = known.unwrap_or(Stream { kind, key: None, left: None, media_time: None });
        let mut slack = None;
        if header.begins {
            stream.kind = kind;
            stream.left = pes.and_then(|pes| pes.length);
            let time = |ticks| self.multiplex.time(ticks);
            stream.media_time = pes.and_then(|pes| pes.pts).map(time);
            slack = pes.and_then(|pes| pes.dts).and_then(|dts| self.multiplex.slack(dts));
        }
        stream.left = stream.left.map(|left| left.saturating_sub(payload.len()));
        let ends = stream.left == Some(0);
        // Room for 8,192 streams is little, and there are no more.
        self.streams.insert(pid, stream);
        let media_time = stream.media_time;
        Piece { kind: stream.kind, begins: header.begins, ends, media_time, slack, ..piece }
    }

    /// A packet of RTP that carries its medium itself.
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
            // Sound has a marker where it begins after silence; each packet is a unit.
            ends: is_sound,
            media_time,
            ..Piece::alone(datagram)
        });
        Sequence { first: number, last: number, count: 1, has_end: header.marker && !is_sound }
    }

    /// Puts a piece where it belongs.
    fn place(
        &mut self,
        now: Time,
        datagram: &[u8],
        number: u64,
        piece: &Piece,
        sequence: Option<Sequence>,
    ) {
        self.close_before(piece, sequence);
        let length = usize::from(piece.span.length);
        let mut place = self.open.iter().position(|open| open.key == piece.key);
        if let Some(full) = place
            && self.open[full].unit.data.len() + length > self.options.most_bytes
        {
            self.close(full, false);
            place = None;
        }
        let place = place.unwrap_or_else(|| self.begin(now, piece));
        let Some(open) = self.open.get_mut(place) else { return };
        let unit = &mut open.unit;
        let (from, whole) = (usize::from(piece.span.offset), datagram.len() as u16);
        unit.data.extend_from_slice(&datagram[from..from + length]);
        match unit.parts.last_mut().filter(|part| part.datagram == number) {
            Some(part) => match part.spans.last_mut() {
                Some(last) if last.offset + last.length == piece.span.offset => {
                    last.length += piece.span.length;
                }
                _ => part.spans.push(piece.span),
            },
            None => {
                let arrived = Time::from_nanos(now.as_nanos() / 1_000 * 1_000);
                let spans = vec![piece.span];
                unit.parts.push(Part { datagram: number, length: whole, arrived, spans });
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

    /// Closes what this piece shows to be over.
    fn close_before(&mut self, piece: &Piece, sequence: Option<Sequence>) {
        let is_over = |open: &Open| match (open.key, piece.key) {
            // Whatever follows tables ends them.
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
        {
            let key = self.streams.get_mut(&pid).and_then(|stream| match piece.kind {
                Kind::Key if piece.begins => stream.key.replace(id).and(None),
                _ => stream.key,
            });
            dependencies.extend(key);
            dependencies.extend(self.last_tables);
        }
        if piece.key == Key::Tables {
            self.last_tables = Some(id);
        }
        dependencies.sort_unstable();
        dependencies.dedup();
        dependencies.retain(|&dependency| dependency < id);
        dependencies.truncate(MAX_DEPENDENCIES);
        let unit = Unit {
            id,
            kind: piece.kind,
            media_time: piece.media_time,
            slack: piece.slack,
            dependencies,
            parts: Vec::new(),
            data: Vec::new(),
        };
        self.open.push(Open { key: piece.key, unit, since: now, sequence: None });
        self.open.len() - 1
    }

    /// Hands on an open unit; `is_whole`: nothing of it is to follow.
    fn close(&mut self, place: usize, is_whole: bool) {
        let open = self.open.remove(place);
        if let (Key::Frame(ssrc, _), Some(all)) = (open.key, open.sequence)
            && let Some(sender) = self.senders.get_mut(&ssrc)
        {
            sender.next = sender.next.max(Some(all.last + 1));
        }
        if is_whole {
            self.unfinished.remove(&open.key);
        } else if !matches!(open.key, Key::Alone | Key::Tables) {
            if self.unfinished.len() >= MAX_OPEN {
                self.unfinished.pop_first();
            }
            self.unfinished.insert(open.key, open.unit.id);
        }
        self.ready.push_back(open.unit);
    }
}
