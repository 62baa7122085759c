//! A transport stream made of a table of frames: what an encoder and its multiplexer would send.
//!
//! Its headers, times and marks are those of a film; what they frame are bytes without meaning. A
//! packetizer finds the same frames in it, and a program can carry it over a network.

use ontempo_foundation::{Bytes, Duration, Rate};

use super::frames::{Codec, Frame, FrameKind, FrameTable};
use super::sections::checksum;
use super::ts::{PACKET, SYNC};

/// PIDs, as ffmpeg chooses them.
const PMT_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x100;
const SOUND_PID: u16 = 0x101;
pub(crate) const NULL_PID: u16 = 0x1fff;

/// How often tables are repeated, as ffmpeg does.
const TABLES_EVERY: Duration = Duration::from_millis(100);

/// Bytes of a packet without its header of 4 bytes.
const ROOM: usize = PACKET - 4;

/// Bytes of an adaptation field with a clock reference.
const CLOCK_FIELD: usize = 8;

/// In place of a frame's number: tables and stuffing.
pub const NO_FRAME: u32 = u32::MAX;

/// Byte that fills frames: it begins no start code.
const FILL: u8 = 0xaa;

/// When packets leave the multiplexer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sending {
    /// All packets of a frame at the moment at which the encoder gives it out, as `ffmpeg -re` and an
    /// encoder without a buffer do.
    Bursts,
    /// One after the other at a constant rate, as a multiplexer with a buffer sends.
    Paced {
        /// Bits per second, of transport packets.
        rate: Rate,
        /// Null packets fill what the frames leave.
        stuffing: bool,
    },
}

/// A transport stream: its packets, when each leaves, and the frame of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Muxed {
    /// Packets of 188 bytes.
    pub bytes: Vec<u8>,
    /// When each packet leaves, from the film's beginning; never goes back.
    pub due: Vec<Duration>,
    /// The frame of each packet, or [`NO_FRAME`].
    pub frame: Vec<u32>,
}

/// Puts packets one behind the other.
struct Mux<'a> {
    codec: Codec,
    sending: &'a Sending,
    /// From a frame's time to that at which it is decoded.
    decoding: Duration,
    muxed: Muxed,
    /// Continuity counters: of tables (PAT, PMT), video, sound.
    counters: [u8; 4],
    /// When the next packet may leave.
    free: Duration,
    tables_due: Duration,
}

/// Multiplexes the frames of a table.
pub(crate) fn mux(table: &FrameTable, sending: &Sending) -> Muxed {
    let mut mux = Mux {
        codec: table.codec,
        sending,
        decoding: longest_wait(table, sending),
        muxed: Muxed::default(),
        counters: [0; 4],
        free: Duration::ZERO,
        tables_due: Duration::ZERO,
    };
    mux.all(table);
    mux.muxed
}

impl FrameTable {
    /// Transport packets of its stream, tables among them and stuffing not.
    pub fn transport_packets(&self) -> u64 {
        batches(self).map(|batch| batch.packets).sum()
    }
}

/// Packets that are ready together: those of a frame, behind tables where these are due.
struct Batch {
    ready: Duration,
    packets: u64,
}

fn batches(table: &FrameTable) -> impl Iterator<Item = Batch> + '_ {
    let mut tables_due = Duration::ZERO;
    table.frames.iter().map(move |frame| {
        let has_tables = frame.made >= tables_due;
        if has_tables {
            tables_due = frame.made + TABLES_EVERY;
        }
        let size = (frame.size as usize).max(marks(table.codec, frame.kind).len());
        let size = size + pes_header(frame, Duration::ZERO).len();
        let clock = if frame.kind == FrameKind::Sound { 0 } else { CLOCK_FIELD };
        let packets = (size + clock).div_ceil(ROOM) + if has_tables { 2 } else { 0 };
        Batch { ready: frame.made, packets: packets as u64 }
    })
}

/// How long a frame may wait for its last packet to leave.
fn longest_wait(table: &FrameTable, sending: &Sending) -> Duration {
    let Sending::Paced { rate, stuffing } = sending else { return Duration::ZERO };
    let step = rate.time_to_send(Bytes::new(PACKET as u64));
    let (mut free, mut longest) = (Duration::ZERO, Duration::ZERO);
    for Batch { ready, packets } in batches(table) {
        if *stuffing && free < ready && step > Duration::ZERO {
            free += step * (ready.saturating_sub(free).as_nanos() / step.as_nanos());
        }
        let last = free.max(ready) + step * (packets - 1);
        free = last + step;
        longest = longest.max(last.saturating_sub(ready));
    }
    longest
}

impl Mux<'_> {
    fn all(&mut self, table: &FrameTable) {
        for (frame, number) in table.frames.iter().zip(0..) {
            if frame.made >= self.tables_due {
                self.tables(frame.made);
                self.tables_due = frame.made + TABLES_EVERY;
            }
            self.frame(frame, number);
        }
        self.stuff_until(table.period);
    }

    /// Adds a packet at the earliest time from `ready` on.
    fn put(&mut self, packet: &[u8; PACKET], ready: Duration, frame: u32) {
        let due = match self.sending {
            Sending::Bursts => self.free.max(ready),
            Sending::Paced { rate, .. } => {
                self.stuff_until(ready);
                let due = self.free.max(ready);
                self.free = due + rate.time_to_send(Bytes::new(PACKET as u64));
                due
            }
        };
        self.muxed.bytes.extend_from_slice(packet);
        self.muxed.due.push(due);
        self.muxed.frame.push(frame);
    }

    /// Null packets from where the last packet ends until `time`, if there is stuffing.
    fn stuff_until(&mut self, time: Duration) {
        let Sending::Paced { rate, stuffing: true } = self.sending else { return };
        let step = rate.time_to_send(Bytes::new(PACKET as u64));
        let mut packet = [0xff; PACKET];
        packet[..4].copy_from_slice(&head(NULL_PID, false, false, 0));
        while self.free + step <= time {
            self.muxed.bytes.extend_from_slice(&packet);
            self.muxed.due.push(self.free);
            self.muxed.frame.push(NO_FRAME);
            self.free += step;
        }
    }

    fn counter(&mut self, stream: usize) -> u8 {
        let counter = self.counters[stream];
        self.counters[stream] = (counter + 1) & 0x0f;
        counter
    }

    fn tables(&mut self, ready: Duration) {
        let [high, low] = (PMT_PID | 0xe000).to_be_bytes();
        let programs = [0, 1, high, low];
        let pat = section(0, &[], &programs);
        let stream = |kind: u8, pid: u16| {
            let [high, low] = (pid | 0xe000).to_be_bytes();
            [kind, high, low, 0xf0, 0]
        };
        let video = match self.codec {
            Codec::H264 => 0x1b,
            Codec::Hevc => 0x24,
            // MPEG-2 video, whose marks nobody looks at.
            Codec::Av1 | Codec::Unknown => 0x02,
        };
        let [high, low] = (VIDEO_PID | 0xe000).to_be_bytes();
        let streams = [stream(video, VIDEO_PID), stream(0x0f, SOUND_PID)].concat();
        let pmt = section(2, &[high, low, 0xf0, 0], &streams);
        for (place, (pid, section)) in [(0, pat), (PMT_PID, pmt)].into_iter().enumerate() {
            let mut packet = [0xff; PACKET];
            packet[..4].copy_from_slice(&head(pid, true, false, self.counter(place)));
            packet[4] = 0;
            packet[5..5 + section.len()].copy_from_slice(&section);
            self.put(&packet, ready, NO_FRAME);
        }
    }

    fn frame(&mut self, frame: &Frame, number: u32) {
        let is_sound = frame.kind == FrameKind::Sound;
        let mut pes = pes_header(frame, self.decoding);
        let from = pes.len();
        pes.extend(marks(self.codec, frame.kind));
        let size = usize::try_from(frame.size).unwrap_or(usize::MAX);
        pes.resize(from.saturating_add(size).max(pes.len()), FILL);
        let (pid, stream) = if is_sound { (SOUND_PID, 3) } else { (VIDEO_PID, 2) };
        let mut rest = pes.as_slice();
        let mut is_first = true;
        while !rest.is_empty() {
            let has_clock = is_first && !is_sound;
            let room = if has_clock { ROOM - CLOCK_FIELD } else { ROOM };
            let (now, later) = rest.split_at(room.min(rest.len()));
            let counter = self.counter(stream);
            let clock = has_clock.then(|| self.leaves(frame.made));
            let is_key = frame.kind == FrameKind::Key;
            let packet = packet((pid, is_first, counter), clock.map(|at| (at, is_key)), now);
            self.put(&packet, frame.made, number);
            (rest, is_first) = (later, false);
        }
    }

    /// When a packet that is ready at `ready` leaves.
    fn leaves(&self, ready: Duration) -> Duration {
        self.free.max(ready)
    }
}

/// A packet's header; with an adaptation field or without.
fn head(pid: u16, begins: bool, has_field: bool, counter: u8) -> [u8; 4] {
    let [high, low] = pid.to_be_bytes();
    let field = if has_field { 0x30 } else { 0x10 };
    [SYNC, high | if begins { 0x40 } else { 0 }, low, field | counter]
}

/// A packet of a frame. `clock`: its clock reference, and whether decoding can begin here.
fn packet(
    (pid, begins, counter): (u16, bool, u8),
    clock: Option<(Duration, bool)>,
    payload: &[u8],
) -> [u8; PACKET] {
    let mut packet = [0xff; PACKET];
    let field = ROOM - payload.len();
    packet[..4].copy_from_slice(&head(pid, begins, field > 0, counter));
    if field > 0 {
        // The field's length is without itself; one byte alone is a length of 0.
        packet[4] = (field - 1) as u8;
        if field > 1 {
            packet[5] = 0;
        }
    }
    if let Some((at, is_key)) = clock {
        packet[5] = 0x10 | if is_key { 0x40 } else { 0 };
        packet[6..12].copy_from_slice(&clock_reference(at));
    }
    packet[PACKET - payload.len()..].copy_from_slice(payload);
    packet
}

/// Ticks of 27 MHz (section 2.4.3.5).
pub(crate) fn clock_reference(at: Duration) -> [u8; 6] {
    let ticks = u128::from(at.as_nanos()) * 27 / 1_000;
    let (base, extension) = ((ticks / 300) as u64 & 0x1_ffff_ffff, (ticks % 300) as u64);
    let bits = base << 15 | 0x3f << 9 | extension;
    let bytes = bits.to_be_bytes();
    [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

/// A time stamp of a PES header in ticks of 90 kHz, behind its four bits `mark` (section 2.4.3.7).
pub(crate) fn time_stamp(mark: u8, at: Duration) -> [u8; 5] {
    let ticks = (u128::from(at.as_nanos()) * 9 / 100_000) as u64 & 0x1_ffff_ffff;
    let fifteen = |shift: u32| ((ticks >> shift & 0x7fff) << 1 | 1).to_be_bytes();
    let (middle, low) = (fifteen(15), fifteen(0));
    let first = (mark << 4) | ((ticks >> 30 & 7) as u8 * 2) | 1;
    [first, middle[6], middle[7], low[6], low[7]]
}

fn pes_header(frame: &Frame, decoding: Duration) -> Vec<u8> {
    let at = frame.made + decoding;
    if frame.kind == FrameKind::Sound {
        // After the length: three bytes of flags and five of the time stamp.
        let length = u16::try_from(frame.size.saturating_add(8)).unwrap_or(0);
        let mut header = vec![0, 0, 1, 0xc0];
        header.extend(length.to_be_bytes());
        header.extend([0x80, 0x80, 5]);
        header.extend(time_stamp(2, at));
        return header;
    }
    let mut header = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
    header.extend(time_stamp(3, at));
    header.extend(time_stamp(1, at));
    header
}

/// What a coded picture begins with: a delimiter, and the header of its first slice.
fn marks(codec: Codec, kind: FrameKind) -> Vec<u8> {
    let head: &[u8] = match (codec, kind) {
        // Access unit delimiter; NAL unit header; first_mb_in_slice 0 and slice_type 7, 5, 6.
        (Codec::H264, FrameKind::Key) => &[0, 0, 0, 1, 9, 0x10, 0, 0, 1, 0x65, 0x88],
        (Codec::H264, FrameKind::Reference) => &[0, 0, 0, 1, 9, 0x30, 0, 0, 1, 0x41, 0x9a],
        (Codec::H264, FrameKind::Disposable) => &[0, 0, 0, 1, 9, 0x50, 0, 0, 1, 0x01, 0x9e],
        // Access unit delimiter; IDR_W_RADL, TRAIL_R, TRAIL_N.
        (Codec::Hevc, FrameKind::Key) => &[0, 0, 0, 1, 0x46, 1, 0x10, 0, 0, 1, 0x26, 1],
        (Codec::Hevc, FrameKind::Reference) => &[0, 0, 0, 1, 0x46, 1, 0x30, 0, 0, 1, 2, 1],
        (Codec::Hevc, FrameKind::Disposable) => &[0, 0, 0, 1, 0x46, 1, 0x50, 0, 0, 1, 0, 1],
        _ => &[],
    };
    head.to_vec()
}

/// A section of a table, with its checksum (section 2.4.4). `before` precedes the entries.
fn section(table: u8, before: &[u8], entries: &[u8]) -> Vec<u8> {
    let length = 5 + before.len() + entries.len() + 4;
    let mut section = vec![table, 0xb0, length as u8, 0, 1, 0xc1, 0, 0];
    section.extend_from_slice(before);
    section.extend_from_slice(entries);
    let sum = checksum(&section);
    section.extend(sum.to_be_bytes());
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GeneratorParameters, generate};

    #[test]
    fn packets_and_the_longest_wait_are_known_before_the_stream_is_made() {
        let table = generate(&GeneratorParameters::default()).expect("the defaults are possible");
        for sending in [
            Sending::Bursts,
            Sending::Paced { rate: Rate::from_bits_per_sec(5_000_000), stuffing: false },
            Sending::Paced { rate: Rate::from_bits_per_sec(5_000_000), stuffing: true },
            Sending::Paced { rate: Rate::from_bits_per_sec(50_000_000), stuffing: true },
        ] {
            let muxed = mux(&table, &sending);
            let pids = muxed.bytes.chunks_exact(PACKET).filter_map(crate::ts::header);
            let packets = pids.filter(|header| header.pid != NULL_PID).count() as u64;
            assert_eq!(packets, table.transport_packets(), "{sending:?}");
            let waits = muxed.due.iter().zip(&muxed.frame).filter_map(|(due, frame)| {
                Some(due.saturating_sub(table.frames.get(*frame as usize)?.made))
            });
            assert_eq!(waits.max(), Some(longest_wait(&table, &sending)), "{sending:?}");
        }
    }
}
