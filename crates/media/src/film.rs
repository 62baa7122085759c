//! A film that is sent again and again: its datagrams, when each is sent, and the frames in each.

use std::collections::BTreeMap;
use std::ops::Range;

use ontempo_foundation::{Duration, Rate};

use super::frames::FrameTable;
use super::mux::{Muxed, NO_FRAME, NULL_PID, Sending, clock_reference, mux, time_stamp};
use super::ts::{self, PACKET};

/// Transport packets in a datagram, as most programs send them.
const PACKETS: usize = 7;

/// A datagram of one round of the film.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    at: Duration,
    first: u32,
    packets: u8,
}

/// A datagram as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When, from the film's beginning.
    pub at: Duration,
    /// Its transport packets, as places in one round of the film.
    packets: Range<usize>,
    /// How often the film has begun before.
    round: u64,
}

impl Sent {
    /// Bytes.
    pub fn size(&self) -> usize {
        self.packets.len() * PACKET
    }

    /// Transport packets.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }
}

/// A film and how it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Film {
    table: FrameTable,
    muxed: Muxed,
    datagrams: Vec<Datagram>,
    /// Packets with a payload of each PID in a round.
    counts: BTreeMap<u16, u64>,
    /// Packets of each frame.
    packets_of_frame: Vec<u32>,
    /// The first and the last datagram with one of them.
    datagrams_of_frame: Vec<(u32, u32)>,
}

impl Film {
    /// The film of a table, sent so.
    pub fn new(table: FrameTable, sending: &Sending) -> Self {
        let muxed = mux(&table, sending);
        Self::of_muxed(table, muxed, matches!(sending, Sending::Bursts))
    }

    /// `is_flushed`: a frame's last packets do not wait for the next frame's.
    fn of_muxed(table: FrameTable, muxed: Muxed, is_flushed: bool) -> Self {
        let mut datagrams: Vec<Datagram> = Vec::new();
        let mut open = 0;
        for (place, due) in muxed.due.iter().enumerate() {
            let goes_on = |last: &&mut Datagram| !is_flushed || last.at == *due;
            match datagrams.last_mut().filter(|_| open > 0).filter(goes_on) {
                Some(last) => {
                    // It leaves with its last packet.
                    (last.at, last.packets) = (*due, last.packets + 1);
                    open -= 1;
                }
                None => {
                    datagrams.push(Datagram { at: *due, first: place as u32, packets: 1 });
                    open = PACKETS - 1;
                }
            }
        }
        let mut counts = BTreeMap::new();
        for packet in muxed.bytes.chunks_exact(PACKET) {
            if let Some(header) = ts::header(packet).filter(|header| header.has_payload) {
                *counts.entry(header.pid).or_default() += 1;
            }
        }
        let mut packets_of_frame = vec![0; table.frames.len()];
        let mut datagrams_of_frame = vec![(u32::MAX, 0); table.frames.len()];
        for (number, datagram) in (0u32..).zip(&datagrams) {
            let first = datagram.first as usize;
            for frame in &muxed.frame[first..first + usize::from(datagram.packets)] {
                let frame = *frame as usize;
                if frame < table.frames.len() {
                    packets_of_frame[frame] += 1;
                    let (first, last) = &mut datagrams_of_frame[frame];
                    (*first, *last) = (number.min(*first), number);
                }
            }
        }
        Self { table, muxed, datagrams, counts, packets_of_frame, datagrams_of_frame }
    }

    /// The mean rate of its transport packets.
    pub fn mean_rate(&self) -> Rate {
        let bits = self.muxed.bytes.len() as f64 * 8.0;
        Rate::from_bits_per_sec((bits / self.period().as_secs_f64()).ceil() as u64)
    }

    /// The table of one round.
    pub fn table(&self) -> &FrameTable {
        &self.table
    }

    /// How long a round lasts: a packet that the multiplexer sends later than the period's end delays the
    /// next one.
    pub fn period(&self) -> Duration {
        let last = self.datagrams.last().map_or(Duration::ZERO, |last| last.at);
        self.table.period.max(last)
    }

    /// Datagram `number` of all rounds, from 0.
    pub fn datagram(&self, number: u64) -> Option<Sent> {
        let each = self.datagrams.len() as u64;
        let round = number.checked_div(each)?;
        let datagram = self.datagrams[(number % each) as usize];
        let first = datagram.first as usize;
        let packets = first..first + usize::from(datagram.packets);
        Some(Sent { at: self.period() * round + datagram.at, packets, round })
    }

    /// The frame of each of its packets, counted over all rounds; `None` for tables and stuffing.
    pub fn frames(&self, sent: &Sent) -> impl Iterator<Item = Option<u64>> + '_ {
        let before = sent.round * self.table.frames.len() as u64;
        let frames = self.muxed.frame[sent.packets.clone()].iter();
        frames.map(move |frame| (*frame != NO_FRAME).then(|| before + u64::from(*frame)))
    }

    /// Transport packets of a frame.
    pub fn packets_of(&self, frame: u64) -> u32 {
        let each = self.table.frames.len() as u64;
        frame.checked_rem(each).map_or(0, |place| self.packets_of_frame[place as usize])
    }

    /// When the last packet of a frame is sent, from the film's beginning.
    pub fn last_datagram_of(&self, frame: u64) -> Option<Duration> {
        let each = self.table.frames.len() as u64;
        let place = frame.checked_rem(each)? as usize;
        let (_, last) = self.datagrams_of_frame.get(place)?;
        Some(self.period() * (frame / each) + self.datagrams.get(*last as usize)?.at)
    }

    /// The datagrams without which what datagram `number` has of frames cannot be decoded: those of the
    /// frames that these depend on. Written into `needed`; each is before `number`.
    pub fn needed_by(&self, number: u64, needed: &mut Vec<u64>) {
        needed.clear();
        let each = self.datagrams.len() as u64;
        let Some(place) = number.checked_rem(each).and_then(|place| u32::try_from(place).ok())
        else {
            return;
        };
        let frames_of = |place: u32| {
            let datagram = &self.datagrams[place as usize];
            let first = datagram.first as usize;
            self.muxed.frame[first..first + usize::from(datagram.packets)].iter().copied()
        };
        let mut before = None;
        for frame in frames_of(place).filter(|frame| *frame != NO_FRAME) {
            if before.replace(frame) == Some(frame) {
                continue;
            }
            for on in &self.table.frames[frame as usize].depends_on {
                let (first, last) = self.datagrams_of_frame[*on as usize];
                let datagrams = (first..last.saturating_add(1).min(place))
                    .filter(|datagram| frames_of(*datagram).any(|frame| frame == *on));
                needed.extend(datagrams.map(|datagram| number - u64::from(place - datagram)));
            }
        }
    }

    /// How many of its transport packets are stuffing.
    pub fn null_packets(&self, sent: &Sent) -> u8 {
        let packets = self.muxed.bytes[sent.packets.start * PACKET..].chunks_exact(PACKET);
        let pids = packets.take(sent.packets.len()).filter_map(ts::header).map(|header| header.pid);
        pids.filter(|pid| *pid == NULL_PID).count() as u8
    }

    /// Its bytes, behind those in `out`, with the times and counters of its round.
    pub fn write(&self, sent: &Sent, out: &mut Vec<u8>) {
        for place in sent.packets.clone() {
            let from = out.len();
            out.extend_from_slice(&self.muxed.bytes[place * PACKET..][..PACKET]);
            if sent.round > 0 {
                self.move_on(&mut out[from..], sent.round);
            }
        }
    }

    /// Times and counter of a packet, so many rounds later.
    fn move_on(&self, packet: &mut [u8], round: u64) {
        let Some(header) = ts::header(packet) else { return };
        let later = self.period() * round;
        if header.has_payload {
            let count = self.counts.get(&header.pid).copied().unwrap_or(0);
            let counter = (u64::from(header.counter) + count % 16 * (round % 16)) % 16;
            packet[3] = packet[3] & 0xf0 | counter as u8;
        }
        if let Some(pcr) = header.pcr {
            let at = Duration::from_nanos((u128::from(pcr) * 1_000 / 27) as u64);
            packet[6..12].copy_from_slice(&clock_reference(at + later));
        }
        let Some(pes) = packet.get(header.payload..).filter(|_| header.begins).and_then(ts::pes)
        else {
            return;
        };
        let stamps = if pes.dts == pes.pts { [pes.pts, None] } else { [pes.pts, pes.dts] };
        for (stamp, place) in stamps.into_iter().zip([9, 14]) {
            let Some(ticks) = stamp else { continue };
            let at = Duration::from_nanos((u128::from(ticks) * 100_000 / 9) as u64);
            let place = header.payload + place;
            if let Some(bytes) = packet.get_mut(place..place + 5) {
                bytes.copy_from_slice(&time_stamp(bytes[0] >> 4, at + later));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Time;

    use super::*;
    use crate::{
        Codec, Format, Frame, FrameKind, Kind, Packetizer, PacketizerOptions, PcrClock,
        TransportStreamIndex, Unit,
    };

    /// 50 pictures of 25 a second, of which each tenth is a key frame, and sound.
    fn table(codec: Codec) -> FrameTable {
        let mut frames = Vec::new();
        for picture in 0..50u32 {
            let made = Duration::from_millis(40) * u64::from(picture);
            let kind = match picture % 10 {
                0 => FrameKind::Key,
                3 | 6 => FrameKind::Disposable,
                _ => FrameKind::Reference,
            };
            let size = if kind == FrameKind::Key { 20_000 } else { 1_000 + 37 * picture };
            let before = frames.len() as u32;
            let depends_on = if kind == FrameKind::Key { vec![] } else { vec![before - 2] };
            frames.push(Frame { made, kind, size, depends_on });
            let depends_on = vec![];
            frames.push(Frame { made, kind: FrameKind::Sound, size: 300, depends_on });
        }
        FrameTable { codec, frames, period: Duration::from_secs(2) }
    }

    fn rounds(film: &Film, rounds: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0.. {
            let sent = film.datagram(number).expect("a film has datagrams");
            if sent.round == rounds {
                return bytes;
            }
            film.write(&sent, &mut bytes);
        }
        bytes
    }

    #[test]
    fn a_multiplexed_table_is_read_back_with_its_frames_over_several_rounds() {
        let rate = Rate::from_bits_per_sec(2_000_000);
        let paced = [false, true].map(|stuffing| Sending::Paced { rate, stuffing });
        for sending in [Sending::Bursts, paced[0], paced[1]] {
            for codec in [Codec::H264, Codec::Hevc, Codec::Unknown] {
                let film = Film::new(table(codec), &sending);
                let bytes = rounds(&film, 3);
                let index = TransportStreamIndex::read(&bytes).expect("a transport stream");
                assert_eq!(index.continuity_errors, Vec::<usize>::new(), "{sending:?}");
                let sizes = |kinds: &[Kind]| -> Vec<usize> {
                    let of = index.units.iter().filter(|unit| kinds.contains(&unit.kind));
                    of.map(|unit| unit.size).collect()
                };
                let written = |is_sound: bool| -> Vec<usize> {
                    let frames = (0..3).flat_map(|_| &film.table().frames);
                    let of = frames.filter(|one| (one.kind == FrameKind::Sound) == is_sound);
                    of.map(|one| one.size as usize).collect()
                };
                assert_eq!(
                    sizes(&[Kind::Key, Kind::Frame, Kind::Disposable]),
                    written(false),
                    "{sending:?}"
                );
                assert_eq!(sizes(&[Kind::Sound]), written(true), "{sending:?}");
                assert_eq!(sizes(&[Kind::Key]).len(), 15);
                let has_filler = index.units.iter().any(|unit| unit.kind == Kind::Filler);
                assert_eq!(has_filler, sending == paced[1]);
            }
        }
    }

    #[test]
    fn the_clock_of_a_paced_film_says_when_its_datagrams_leave() {
        let rate = Rate::from_bits_per_sec(2_000_000);
        let film = Film::new(table(Codec::H264), &Sending::Paced { rate, stuffing: true });
        let mut clock = PcrClock::default();
        let mut bytes = Vec::new();
        for number in 0..2 * film.datagrams.len() as u64 {
            let sent = film.datagram(number).expect("it has datagrams");
            bytes.clear();
            film.write(&sent, &mut bytes);
            let due = clock.due(&bytes);
            // The first reference comes after the tables; a rate is known from the second on.
            let apart = sent.at.saturating_sub(due).max(due.saturating_sub(sent.at));
            assert!(number < 70 || apart < Duration::from_millis(8), "{number}: {apart}");
        }
    }

    #[test]
    fn each_frame_has_the_packets_that_the_packetizer_finds_and_datagrams_go_in_order() {
        let film = Film::new(table(Codec::H264), &Sending::Bursts);
        let mut packetizer = Packetizer::new(PacketizerOptions {
            format: Some(Format::TransportStream),
            ..PacketizerOptions::default()
        });
        let mut units: Vec<Unit> = Vec::new();
        let mut carried = vec![0u32; 2 * film.table().frames.len()];
        let (mut last, mut bytes) = (Duration::ZERO, Vec::new());
        for number in 0..2 * film.datagrams.len() as u64 {
            let sent = film.datagram(number).expect("it has datagrams");
            assert!(sent.at >= last && sent.packets() <= PACKETS);
            last = sent.at;
            for frame in film.frames(&sent).flatten() {
                carried[frame as usize] += 1;
            }
            bytes.clear();
            film.write(&sent, &mut bytes);
            assert_eq!(bytes.len(), sent.size());
            packetizer.push(Time::ZERO + sent.at, &bytes);
            units.extend(std::iter::from_fn(|| packetizer.poll()));
        }
        packetizer.finish();
        units.extend(std::iter::from_fn(|| packetizer.poll()));
        let expected: Vec<u32> =
            (0..carried.len() as u64).map(|one| film.packets_of(one)).collect();
        assert_eq!(carried, expected);
        let kinds = [Kind::Key, Kind::Frame, Kind::Disposable];
        assert_eq!(units.iter().filter(|unit| kinds.contains(&unit.kind)).count(), 100);
    }
}
