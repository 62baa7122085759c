//! The coded pictures and the sound of a transport stream that is going on.

use ontempo_foundation::Duration;

use super::av1::Plain;
use super::codec_of;
use super::demultiplexer::{Demultiplexer, MAX_LIVE_PES, Pes};
use super::marks::{MarkReader, Marks};
use super::sound::{Framing, SoundCutter};
use crate::Codec;
use crate::rtp;
use crate::ts::{self, Content, Multiplex, NamedStream, PACKET};

/// Maximum bytes of a PES packet of sound; its length, which must be said there, has 16 bits (ISO/IEC 13818-1, 2.4.3.7).
const MAX_SOUND: usize = 64 << 10;

/// What an elementary stream is coded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCoding {
    /// Sound; else pictures.
    pub is_sound: bool,
    /// stream_type (ISO/IEC 13818-1, table 2-34): 0x1b H.264, 0x24 HEVC, 0x0f AAC in ADTS, 0x03 and 0x04 layers
    /// I to III of MPEG; [`ts::PRIVATE`] AV1 of pictures, and Opus of sound.
    pub stream_type: u8,
    /// channel_config_code of Opus: 1 to 8 channels in the order of Vorbis; 0 of any other coding.
    pub channel_code: u8,
}

impl StreamCoding {
    const fn of(stream: &NamedStream) -> Self {
        let NamedStream { content, stream_type, channel_code, .. } = *stream;
        Self { is_sound: matches!(content, Content::Audio), stream_type, channel_code }
    }
}

/// A coded picture, or a frame of sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessUnit {
    /// What it is coded with.
    pub coding: StreamCoding,
    /// Its bytes, as the elementary stream has them: H.264 and HEVC in the byte stream format (annex B), AAC with
    /// the header of ADTS. AV1 in its low-overhead format, all frames up to one that is shown, without delimiters; Opus
    /// without its control header.
    pub bytes: Vec<u8>,
    /// When it is shown or heard, from a zero that all units of a timeline share.
    pub shown: Duration,
    /// Counts the jumps of the time stamps: times of different timelines cannot be compared.
    pub timeline: u64,
    /// Decoding can begin here. Always of sound.
    pub is_key: bool,
    /// No other picture needs it. Always of sound.
    pub is_disposable: bool,
    /// Bytes of it are missing.
    pub is_damaged: bool,
}

/// Finds the pictures and the sound of the first program of a transport stream, piece by piece: its first stream
/// of pictures, and the first one of sound.
///
/// A picture is given as soon as its last packet is there, if stuffing tells that it is the last one, or else with the
/// first packet of the next. Memory is bounded: 8 MB for each of the two streams, and as much for frames of AV1 that wait for
/// the one that is shown.
#[derive(Debug, Default)]
pub struct LiveDemultiplexer {
    multiplex: Multiplex,
    program: Option<Program>,
    timeline: u64,
    foreign: u64,
}

/// The two streams, and how they are read.
#[derive(Debug)]
struct Program {
    streams: Vec<NamedStream>,
    demultiplexer: Demultiplexer,
    marks: MarkReader,
    cutters: Vec<Option<SoundCutter>>,
    /// Frames of AV1 that belong to the picture to come.
    hidden: Option<Hidden>,
}

/// Frames that are not shown themselves.
#[derive(Debug)]
struct Hidden {
    bytes: Vec<u8>,
    marks: Marks,
    is_damaged: bool,
}

impl Program {
    fn new(streams: Vec<NamedStream>) -> Self {
        let pictures = streams.iter().find(|stream| stream.content == Content::Video);
        let marks = MarkReader::new(pictures.map_or(Codec::Unknown, codec_of));
        let cutter = |stream: &NamedStream| {
            let is_sound = stream.content == Content::Audio;
            is_sound.then(|| SoundCutter::new(Framing::of(stream)))
        };
        let cutters = streams.iter().map(cutter).collect();
        let demultiplexer = Demultiplexer::new(&streams);
        Self { streams, demultiplexer, marks, cutters, hidden: None }
    }

    fn take(&mut self, place: usize, pes: Pes, timeline: u64, units: &mut Vec<AccessUnit>) {
        let (Some(stream), Some(cutter)) = (self.streams.get(place), self.cutters.get_mut(place))
        else {
            return;
        };
        let coding = StreamCoding::of(stream);
        if pes.is_scrambled {
            return;
        }
        let mut is_damaged = pes.is_damaged;
        let nanos = pes.shown_nanos();
        if let Some(cutter) = cutter {
            if pes.bytes.len() > MAX_SOUND {
                return;
            }
            cutter.push(nanos, &pes.bytes, |frame, bytes| {
                let (shown, bytes) = (Duration::from_nanos(frame.nanos), bytes.to_vec());
                let (is_key, is_disposable) = (true, true);
                units.push(AccessUnit {
                    coding,
                    bytes,
                    shown,
                    timeline,
                    is_key,
                    is_disposable,
                    is_damaged,
                });
            });
            return;
        }
        let mut bytes = pes.bytes;
        let marks = if codec_of(stream) == Codec::Av1 {
            let plain = Plain::read(&bytes);
            is_damaged |= plain.is_cut;
            bytes = plain.bytes;
            self.marks.read_plain(&bytes)
        } else {
            self.marks.read(&bytes, pes.random_access)
        };
        let Some(mut marks) = marks else { return };
        if let Some(mut before) = self.hidden.take() {
            marks = before.marks.and(marks);
            is_damaged |= before.is_damaged;
            before.bytes.append(&mut bytes);
            bytes = before.bytes;
        }
        if marks.is_hidden {
            // What is too much is left out, as a PES packet of this size is.
            let is_bounded = bytes.len() <= MAX_LIVE_PES;
            self.hidden = is_bounded.then_some(Hidden { bytes, marks, is_damaged });
            return;
        }
        units.push(AccessUnit {
            coding,
            bytes,
            shown: Duration::from_nanos(nanos),
            timeline,
            is_key: marks.is_key || marks.recovers,
            is_disposable: marks.is_disposable,
            is_damaged,
        });
    }
}

impl LiveDemultiplexer {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a datagram, MPEG-TS by itself or in RTP, and adds the units that have ended to `units`. Packets that are
    /// missing are noticed by their counters.
    pub fn push(&mut self, datagram: &[u8], units: &mut Vec<AccessUnit>) {
        let payload = match rtp::header(datagram) {
            Some(header) if datagram.first() != Some(&ts::SYNC) => &datagram[header.payload..],
            _ => datagram,
        };
        let size = ts::packet_size(payload).unwrap_or(PACKET);
        for packet in payload.chunks(size) {
            match packet.get(..PACKET).and_then(ts::header) {
                Some(header) => self.push_packet(&packet[..PACKET], &header, units),
                None => self.foreign += 1,
            }
        }
    }

    /// Pieces of datagrams in which no packet of a transport stream begins.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// The coding of the streams that are read, those of pictures first; empty as long as no tables have come.
    pub fn streams(&self) -> Vec<StreamCoding> {
        let streams = self.program.iter().flat_map(|program| &program.streams);
        streams.map(StreamCoding::of).collect()
    }

    fn push_packet(&mut self, packet: &[u8], header: &ts::Header, units: &mut Vec<AccessUnit>) {
        let changes = self.multiplex.changes();
        if self.multiplex.learn(packet, header) == Content::Tables {
            if self.multiplex.changes() > changes {
                self.choose();
            }
            return;
        }
        let Some(program) = &mut self.program else { return };
        let (jumps, mut ended) = (program.demultiplexer.jumps(), Vec::new());
        program.demultiplexer.push_live(packet, &mut ended);
        if program.demultiplexer.jumps() > jumps {
            // Both streams begin anew together, so that they stay in step.
            self.timeline += 1;
            *program = Program::new(std::mem::take(&mut program.streams));
            ended.clear();
            program.demultiplexer.push_live(packet, &mut ended);
        }
        for (place, pes) in ended {
            program.take(place, pes, self.timeline, units);
        }
    }

    /// Chooses the streams anew, after a table.
    fn choose(&mut self) {
        let first_of = |streams: &[NamedStream], content: Content| {
            streams.iter().find(|one| one.content == content).copied()
        };
        let has = |content: Content| {
            self.multiplex.programs().find(|streams| first_of(streams, content).is_some())
        };
        // Without pictures, the first program with sound.
        let program = has(Content::Video).or_else(|| has(Content::Audio)).unwrap_or_default();
        let both = [Content::Video, Content::Audio].map(|content| first_of(program, content));
        let streams: Vec<NamedStream> = both.into_iter().flatten().collect();
        if streams.is_empty() || self.program.as_ref().is_some_and(|now| now.streams == streams) {
            return;
        }
        self.timeline += u64::from(self.program.is_some());
        self.program = Some(Program::new(streams));
    }
}
