//! PES packets of some streams of a multiplex, with their times.

use super::stamps::{Judged, Stamps, judge};
use crate::MAX_FRAMES;
use crate::rtp::unwrapped;
use crate::ts::{self, Header, NamedStream, PACKET};

/// Time stamps have 33 bits, of 90 kHz.
const STAMP_BITS: u32 = 33;
pub(super) const CYCLE: u64 = 1 << STAMP_BITS;

/// A longer step between two frames is a jump of the clock: a stream must have a time stamp every
/// 0.7 s (ISO/IEC 13818-1, 2.7.4); some have one picture in some seconds.
pub(super) const MAX_STEP: u64 = 10 * 90_000;

/// The distance of frames while only one is known: that of 25 a second.
pub(super) const USUAL_STEP: u64 = 90_000 / 25;

/// A PES packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Pes {
    /// Its content.
    pub(super) bytes: Vec<u8>,
    /// Decoding time, 90 kHz, unwrapped, without jumps.
    pub(super) decoded: u64,
    /// When it is shown, by the same clock; `None` if it does not say.
    pub(super) shown: Option<u64>,
    /// It says when it is decoded; otherwise that is a guess, of the distance of those before.
    pub(super) is_stamped: bool,
    /// Its first packet says that decoding can begin.
    pub(super) random_access: bool,
    pub(super) is_scrambled: bool,
    /// Packets of it are missing.
    pub(super) is_damaged: bool,
    /// Bytes of its content that are still to come; `None` if it does not say.
    left: Option<usize>,
}

impl Pes {
    /// Decoding time in nanoseconds.
    pub(super) fn nanos(&self) -> u64 {
        // 90 kHz are 100,000 / 9 ns; times are far below 2^47.
        self.decoded * 100_000 / 9
    }

    /// When it is shown in nanoseconds; its decoding time if it does not say.
    pub(super) fn shown_nanos(&self) -> u64 {
        self.shown.unwrap_or(self.decoded) * 100_000 / 9
    }
}

/// The beginning of a PES packet whose header goes on in the next packet.
#[derive(Debug)]
struct Begun {
    bytes: Vec<u8>,
    random_access: bool,
    is_scrambled: bool,
}

/// An elementary stream.
#[derive(Debug)]
struct Stream {
    pid: u16,
    begun: Option<Begun>,
    open: Option<Pes>,
    counter: Option<u8>,
    /// The last time stamp as it was, unwrapped.
    stamp: Option<u64>,
    /// The last decoding time that was said, or else the first, and how many PES packets have come since.
    last: Option<(u64, u64)>,
    /// The distance of PES packets.
    step: u64,
    /// What is added to time stamps since a jump, modulo 2^64.
    shift: u64,
    /// PES packets so far.
    count: usize,
    /// What its stamps say, of a film that has been read before.
    judged: Judged,
    /// When its first PES packet is decoded, by that.
    begin: Option<u64>,
    /// Packets with a payload, and of them those that say that they are scrambled.
    packets: u64,
    scrambled: u64,
    /// [`Demultiplexer::push_live`] has taken a PES packet for whole by its stuffing, and nothing of it has
    /// come since.
    is_taken: bool,
    /// More of such a one has come: stuffing says nothing here.
    is_stuffed_midway: bool,
}

/// Maximum bytes of a PES packet of a live stream; a larger one is left out.
pub(super) const MAX_LIVE_PES: usize = 8 << 20;

/// Collects PES packets.
#[derive(Debug)]
pub(super) struct Demultiplexer {
    streams: Vec<Stream>,
    /// A time stamp near which those of all streams begin.
    near: Option<u64>,
    gaps: u64,
    /// PES packets without a whole header.
    without_header: u64,
    /// Packets with transport_error_indicator.
    erroneous: u64,
    jumps: u64,
    without_stamp: u64,
    /// PES packets whose time stamp is left out.
    left_out: u64,
    cut: u64,
    /// Only the time stamps are read.
    stamps: Option<Vec<Stamps>>,
}

impl Demultiplexer {
    pub(super) fn new(streams: &[NamedStream]) -> Self {
        let stream = |named: &NamedStream| Stream {
            pid: named.pid,
            begun: None,
            open: None,
            counter: None,
            stamp: None,
            last: None,
            step: USUAL_STEP,
            shift: 0,
            count: 0,
            judged: Judged::default(),
            begin: None,
            packets: 0,
            scrambled: 0,
            is_taken: false,
            is_stuffed_midway: false,
        };
        let streams = streams.iter().map(stream).collect();
        Self {
            streams,
            near: None,
            gaps: 0,
            without_header: 0,
            erroneous: 0,
            jumps: 0,
            without_stamp: 0,
            left_out: 0,
            cut: 0,
            stamps: None,
        }
    }

    /// One that only reads the time stamps, for [`after`](Self::after); it answers no PES packets.
    pub(super) fn of_stamps(streams: &[NamedStream]) -> Self {
        let stamps = vec![Stamps::default(); streams.len()];
        Self { stamps: Some(stamps), ..Self::new(streams) }
    }

    /// One for the same packets again, after one [of stamps](Self::of_stamps): it leaves out stamps that those around them
    /// contradict.
    pub(super) fn after(streams: &[NamedStream], before: &Self) -> Self {
        let mut this = Self::new(streams);
        let judged = judge(before.stamps.as_deref().unwrap_or_default());
        // A cycle later, so that a stream that begins a little earlier is not below zero.
        let near = judged.iter().find_map(|one| one.first).map(|(low, _)| CYCLE + low);
        // Of streams without a stamp, too.
        this.near = near;
        for (stream, judged) in this.streams.iter_mut().zip(judged) {
            if let (Some((low, number)), Some(near)) = (judged.first, near) {
                let first = unwrapped(near, low, STAMP_BITS);
                stream.stamp = Some(first);
                stream.begin =
                    Some(first.saturating_sub(judged.step.saturating_mul(number as u64)));
                stream.step = judged.step;
            }
            stream.judged = judged;
        }
        this
    }

    /// The place of the stream that has this PID.
    pub(super) fn place(&self, pid: u16) -> Option<usize> {
        self.streams.iter().position(|stream| stream.pid == pid)
    }

    /// Most packets of the stream at this place say that they are scrambled. Whoever scrambles a stream does so for
    /// all of it, or all but some clear spells; damage hits a few packets.
    pub(super) fn is_scrambled(&self, place: usize) -> bool {
        self.streams.get(place).is_some_and(|one| one.scrambled * 2 > one.packets)
    }

    /// Takes a packet; answers the PES packet that has ended, and the place of its stream.
    pub(super) fn push(&mut self, packet: &[u8]) -> Option<(usize, Pes)> {
        let header = ts::header(packet)?;
        let place = self.place(header.pid)?;
        self.push_to(place, packet, &header)
    }

    /// Takes a packet of the stream at this place, whatever PID that had before: with another one it goes on where a PES
    /// packet begins.
    pub(super) fn push_to(
        &mut self,
        place: usize,
        packet: &[u8],
        header: &Header,
    ) -> Option<(usize, Pes)> {
        let payload = packet.get(header.payload..PACKET).filter(|_| header.has_payload)?;
        let stream = self.streams.get_mut(place)?;
        if stream.pid != header.pid {
            if !header.begins {
                // Of the end, or the beginning, packets are missing.
                self.gaps += u64::from(stream.counter.take().is_some());
                return None;
            }
            (stream.pid, stream.counter) = (header.pid, None);
        }
        if self.is_repeated(place, header) {
            return None;
        }
        let is_scrambled = packet[3] & 0xc0 != 0;
        self.erroneous += u64::from(packet[1] & 0x80 != 0);
        let stream = &mut self.streams[place];
        stream.packets += 1;
        stream.scrambled += u64::from(is_scrambled);
        let (begun, ended) = if header.begins {
            self.without_header += u64::from(stream.begun.take().is_some());
            let random_access = header.random_access;
            let begun = Begun { bytes: Vec::new(), random_access, is_scrambled };
            (Some(begun), stream.open.take())
        } else {
            (stream.begun.take(), None)
        };
        if let Some(mut begun) = begun {
            begun.bytes.extend_from_slice(payload);
            begun.is_scrambled |= is_scrambled;
            match ts::is_pes_header_cut(&begun.bytes) {
                true => stream.begun = Some(begun),
                false => self.begin(place, &begun),
            }
        } else if let Some(open) = &mut stream.open {
            open.is_scrambled |= is_scrambled;
            add(open, payload);
        }
        ended.map(|pes| (place, self.whole(pes)))
    }

    /// A PES packet begins so.
    fn begin(&mut self, place: usize, begun: &Begun) {
        // Of a scrambled packet the PES header is, too.
        let Some(head) = ts::pes(&begun.bytes) else {
            self.without_header += 1;
            return;
        };
        if let Some(stamps) = &mut self.stamps {
            let count: usize = stamps.iter().map(Stamps::count).sum();
            if count < MAX_FRAMES {
                stamps[place].push(head.dts);
            }
            return;
        }
        let (decoded, shown, is_stamped) = self.times(place, &head);
        let left = head.length.map(|length| length.saturating_sub(head.payload));
        let Begun { random_access, is_scrambled, .. } = *begun;
        let (bytes, is_damaged) = (Vec::new(), false);
        let mut pes = Pes {
            bytes,
            decoded,
            shown,
            is_stamped,
            random_access,
            is_scrambled,
            is_damaged,
            left,
        };
        add(&mut pes, begun.bytes.get(head.payload..).unwrap_or_default());
        self.streams[place].open = Some(pes);
    }

    /// The same for a stream that is going on: also the PES packets that this packet completes. Most say their
    /// length; pictures do not, and are taken for whole after a packet that stuffing fills, as only the last
    /// one of a PES packet needs stuffing (section 2.4.3.5). Where more comes after such a packet, the next
    /// PES packet has to begin from then on.
    pub(super) fn push_live(&mut self, packet: &[u8], ended: &mut Vec<(usize, Pes)>) {
        let Some(header) = ts::header(packet).filter(|header| header.has_payload) else { return };
        let place = self.streams.iter().position(|stream| stream.pid == header.pid);
        let Some(place) = place else { return };
        ended.extend(self.push(packet));
        let stream = &mut self.streams[place];
        if header.begins {
            stream.is_taken = false;
        } else if stream.open.is_none() && stream.is_taken {
            stream.is_stuffed_midway = true;
        }
        let Some(open) = &stream.open else { return };
        let is_whole = match open.left {
            Some(left) => left == 0,
            None => !stream.is_stuffed_midway && ts::is_stuffed(packet),
        };
        if is_whole {
            stream.is_taken = true;
            ended.extend(stream.open.take().map(|pes| (place, pes)));
        } else if open.bytes.len() > MAX_LIVE_PES {
            stream.open = None;
        }
    }

    /// Jumps of the time stamps so far.
    pub(super) fn jumps(&self) -> u64 {
        self.jumps
    }

    /// The PES packets that no further packet has ended.
    pub(super) fn finish(&mut self) -> Vec<(usize, Pes)> {
        let begun = self.streams.iter_mut().filter_map(|stream| stream.begun.take());
        self.without_header += begun.count() as u64;
        let open: Vec<_> = self.streams.iter_mut().map(|stream| stream.open.take()).collect();
        let open = open.into_iter().enumerate();
        open.filter_map(|(place, pes)| Some((place, self.whole(pes?)))).collect()
    }

    fn whole(&mut self, pes: Pes) -> Pes {
        self.cut += u64::from(pes.left.is_some_and(|left| left > 0));
        pes
    }

    /// Whether the packet is a copy of the one before (section 2.4.3.3); counts those that are missing.
    fn is_repeated(&mut self, place: usize, header: &Header) -> bool {
        let before = self.streams[place].counter.replace(header.counter);
        let Some(before) = before.filter(|_| !header.discontinuity) else { return false };
        let is_repeated = before == header.counter;
        let is_gap = !is_repeated && header.counter != (before + 1) & 0x0f;
        self.gaps += u64::from(is_gap);
        let stream = &mut self.streams[place];
        if is_gap {
            self.without_header += u64::from(stream.begun.take().is_some());
            stream.open.iter_mut().for_each(|open| open.is_damaged = true);
        }
        is_repeated
    }

    /// Decoding time and time of showing, and whether the stamp says them. Decoding times that are said never go back;
    /// those that are not said are guessed, and count for nothing: only two stamps show a jump of the clock, and the
    /// distance of what is between them.
    fn times(&mut self, place: usize, head: &ts::Pes) -> (u64, Option<u64>, bool) {
        let stream = &mut self.streams[place];
        let is_left_out = stream.judged.left_out.binary_search(&stream.count).is_ok();
        stream.count += 1;
        let next = stream.last.map(|(last, since)| last + stream.step * (since + 1));
        let Some(low) = head.dts.filter(|_| !is_left_out) else {
            self.left_out += u64::from(is_left_out);
            self.without_stamp += u64::from(!is_left_out);
            let decoded = next.or(stream.begin).or(self.near).unwrap_or(CYCLE);
            stream.last = Some(stream.last.map_or((decoded, 0), |(last, since)| (last, since + 1)));
            // Where the DTS is wrong and not the PTS, that still says when it is shown.
            let pts = head.pts.filter(|_| is_left_out && head.pts != head.dts);
            let shown = pts.map(|pts| {
                unwrapped(decoded.wrapping_sub(stream.shift), pts, STAMP_BITS)
                    .wrapping_add(stream.shift)
            });
            let is_near = |shown: &u64| {
                (decoded.saturating_sub(stream.step)..=decoded + MAX_STEP).contains(shown)
            };
            return (decoded, shown.filter(is_near).map(|shown| shown.max(decoded)), false);
        };
        // A cycle later, so that a stream that begins a little earlier is not below zero.
        let near = stream.stamp.or(self.near).unwrap_or(CYCLE + low);
        let stamp = unwrapped(near, low, STAMP_BITS);
        self.near.get_or_insert(stamp);
        let mut decoded = stamp.wrapping_add(stream.shift);
        if let (Some((last, since)), Some(next)) = (stream.last, next) {
            match decoded.checked_sub(last).filter(|step| *step <= MAX_STEP) {
                Some(new) => stream.step = new / (since + 1),
                None => {
                    self.jumps += 1;
                    decoded = next;
                    stream.shift = decoded.wrapping_sub(stamp);
                }
            }
        }
        stream.stamp = Some(stamp);
        stream.last = Some((decoded, 0));
        let ahead = head.pts.map(|pts| pts.wrapping_sub(low) & (CYCLE - 1));
        (decoded, ahead.filter(|ahead| *ahead <= MAX_STEP).map(|ahead| decoded + ahead), true)
    }

    /// Sentences about what is missing.
    pub(super) fn untold(&self) -> Vec<String> {
        let counts = [
            (self.gaps, "places where packets are missing, so that sizes are too small"),
            (self.cut, "PES packets that are cut"),
            (self.without_header, "PES packets without a whole header, which are left out"),
            (self.erroneous, "packets that say that they have errors, which are taken as they are"),
            (self.jumps, "jumps of the time stamps, after which time goes on as before"),
            (self.left_out, "time stamps that those around them contradict, which are left out"),
            (
                self.streams.iter().map(|stream| stream.scrambled).sum(),
                "packets that say that they are scrambled, which are taken as they are",
            ),
            (
                self.without_stamp,
                "PES packets without a time stamp, which are spread between those that have one",
            ),
        ];
        let counted = counts.iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, what)| format!("{what}: {count}")).collect()
    }
}

fn add(pes: &mut Pes, payload: &[u8]) {
    let length = pes.left.map_or(payload.len(), |left| left.min(payload.len()));
    pes.bytes.extend_from_slice(&payload[..length]);
    pes.left = pes.left.map(|left| left - length);
}
