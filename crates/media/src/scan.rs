//! The frames of a film in a transport stream.

use std::fmt;

use ontempo_foundation::Duration;

use crate::frames::length;
use crate::ts::{self, Content, NamedStream, PACKET, PACKET_WITH_PARITY};
use crate::{Codec, Frame, FrameKind, FrameTable, MAX_FRAME_SIZE, MAX_FRAMES};

mod av1;
mod bits;
mod chains;
mod course;
mod demultiplexer;
mod live;
mod marks;
mod sound;
mod stamps;
#[cfg(test)]
mod tests;

pub(crate) use av1::Av1State;
use chains::{Picture, chains};
use course::Course;
use demultiplexer::{Demultiplexer, Pes};
pub use live::{AccessUnit, LiveDemultiplexer, StreamCoding};
pub(crate) use marks::{MarkReader, Marks};
use sound::{Framing, SoundCutter, SoundFrame};

/// Why a transport stream gives no table of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilmError {
    /// From this byte on there are no packets of 188, 192 or 204 bytes.
    NoPacket(usize),
    /// No table names a stream of pictures; how many streams of other content there are.
    NoStream(usize),
    /// There is a stream of pictures, but no whole picture in it.
    NoPictures,
    /// The pictures are scrambled: most of their packets say so.
    Scrambled,
    /// More than [`MAX_FRAMES`].
    TooManyFrames,
    /// A frame is larger than [`MAX_FRAME_SIZE`]: its bytes.
    TooLarge(usize),
    /// It lasts longer than a table may ([`MAX_PERIOD`](crate::MAX_PERIOD)).
    TooLong,
}

impl fmt::Display for FilmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPacket(at) => write!(
                f,
                "no transport stream: from byte {at} on there are no packets, which have {PACKET} bytes, the \
                 first of them {:#04x}, or {} with 4 bytes before each (M2TS), or {PACKET_WITH_PARITY} with 16 \
                 after each",
                ts::SYNC,
                PACKET + 4,
            ),
            Self::NoStream(0) => f.write_str("no film: the stream has no table that names streams"),
            Self::NoStream(others) => write!(
                f,
                "no pictures: none of the streams that the tables name is one of pictures ({others} of \
                 other content)"
            ),
            Self::NoPictures => f.write_str("no pictures: the stream of pictures has no whole one"),
            Self::Scrambled => f.write_str("the pictures are scrambled"),
            Self::TooManyFrames => write!(f, "the film has more than {MAX_FRAMES} frames"),
            Self::TooLarge(size) => {
                write!(
                    f,
                    "a frame has {size} bytes, more than {MAX_FRAME_SIZE}: its end is missing"
                )
            }
            Self::TooLong => f.write_str("the film lasts longer than a table of frames may"),
        }
    }
}

impl std::error::Error for FilmError {}

impl FrameTable {
    /// The frames of the first program with pictures in a transport stream, and sentences about what could not be told.
    /// Packets have 188 bytes, or 192 (M2TS: 4 bytes before each are left out), or 204 (parity: 16 after each).
    /// A packet that is cut at the end is left out, and so is what is not made of packets, up to 64 KiB at a time and
    /// an eighth of all.
    ///
    /// The program is the first one with pictures in the order of the PAT. A picture is a PES packet of its first stream
    /// of pictures, in the order of the PMT, as multiplexers make them; where a later PMT gives the pictures or the sound
    /// another PID, they go on there, and what is then coded in another way is left out.
    /// packets without the beginning of a picture belong to the picture before. Sizes are bytes of the
    /// elementary stream: with the delimiters and parameter sets, without headers of PES and packets.
    /// AAC in ADTS, layers I to III of MPEG and Opus are cut into their frames, of other sound each PES packet
    /// is a frame.
    ///
    /// `made` is the decoding time (DTS) from the first of the film on, not the time at which its last
    /// packet is due by the clock reference (PCR). For frames are what a transport is given, and it is the
    /// transport that paces them: the PCR has the multiplexer's own pacing, which spreads a picture over
    /// a constant rate (or, remultiplexed by ffmpeg, over nothing that an encoder did), while decoding
    /// times are those at which an encoder without a buffer gives its pictures out, one after the other.
    ///
    /// Kinds are told by the marks of H.264 (IDR, or I slices with a recovery point; `nal_ref_idc`) and
    /// HEVC (IRAP; `*_N` in the highest temporal layer), and by the headers of AV1's frames (key frames with a sequence header;
    /// frames that replace no reference). Frames of AV1 that are not shown count with the picture that follows them. Dependencies are on the safe side, since reference
    /// lists are not decoded: a P picture depends on the reference decoded before it; a B picture also on
    /// the two shown nearest to it; a key picture on none, and no picture shown after a key picture on
    /// one before; a leading picture of an open group on both sides of its key. Thus frames that do not
    /// depend on a lost one, directly or through others, decode as if nothing was lost; some of those that
    /// do would, too. Of other codecs only is known at which pictures decoding can begin, if packets say
    /// so (random_access_indicator): every other picture is taken for a P picture that others refer to.
    /// So is one of AV1 that is neither key nor disposable.
    ///
    /// # Errors
    /// The bytes are no transport stream, have no pictures, or a frame beyond the bounds of a table.
    pub fn from_transport_stream(bytes: &[u8]) -> Result<(Self, Vec<String>), FilmError> {
        let (course, mut untold) = Course::of(bytes)?;
        let mut before = Demultiplexer::of_stamps(&course.streams);
        for (packet, header, pids) in course.packets(bytes) {
            if let Some(place) = pids.place(header.pid, &before) {
                before.push_to(place, packet, &header);
            }
        }
        if before.is_scrambled(0) {
            return Err(FilmError::Scrambled);
        }
        let mut film = Film::new(&course.streams);
        let mut demultiplexer = Demultiplexer::after(&course.streams, &before);
        for (packet, header, pids) in course.packets(bytes) {
            let Some(place) = pids.place(header.pid, &demultiplexer) else { continue };
            if let Some((place, pes)) = demultiplexer.push_to(place, packet, &header) {
                film.take(place, &pes)?;
            }
        }
        for (place, pes) in demultiplexer.finish() {
            film.take(place, &pes)?;
        }
        untold.extend(demultiplexer.untold());
        let table = film.table(&mut untold)?;
        Ok((table, untold))
    }
}

/// When the film can begin anew: when its pictures and its sound have ended, so that both go on after a
/// usual distance; but after its last frame, since they do not begin together.
fn period(frames: &[Frame]) -> Duration {
    let of = |is_sound: bool| -> Vec<Duration> {
        let those = frames.iter().filter(|frame| (frame.kind == FrameKind::Sound) == is_sound);
        those.map(|frame| frame.made).collect()
    };
    let ends = [false, true].map(|is_sound| length(&of(is_sound)));
    let last = frames.last().map_or(Duration::ZERO, |frame| frame.made);
    ends[0].max(ends[1]).max(last.saturating_add(Duration::from_nanos(1)))
}

/// How the pictures of a stream are coded.
pub(crate) fn codec_of(stream: &NamedStream) -> Codec {
    match stream.stream_type {
        0x1b => Codec::H264,
        0x24 => Codec::Hevc,
        ts::PRIVATE if stream.content == Content::Video => Codec::Av1,
        _ => Codec::Unknown,
    }
}

/// A picture with its size and time.
struct TimedPicture {
    picture: Picture,
    size: usize,
    nanos: u64,
    /// The stream says this time.
    is_stamped: bool,
}

/// Spreads pictures that do not say their time evenly between those that do.
fn spread(pictures: &mut [TimedPicture]) {
    let mut before: Option<usize> = None;
    for place in 0..pictures.len() {
        if !pictures[place].is_stamped {
            continue;
        }
        if let Some(before) = before.replace(place) {
            let (from, until) = (pictures[before].nanos, pictures[place].nanos);
            let count = (place - before) as u64;
            for (number, one) in (1..count).zip(&mut pictures[before + 1..place]) {
                one.nanos = from + until.saturating_sub(from) / count * number;
            }
        }
    }
}

/// What was read of a film so far.
struct Film {
    codec: Codec,
    stream_type: u8,
    marks: MarkReader,
    cutters: Vec<SoundCutter>,
    pictures: Vec<TimedPicture>,
    /// Frames of AV1 that the next picture shows, or refers to: their size.
    hidden: Option<(Marks, usize)>,
    sound: Vec<SoundFrame>,
    /// PES packets with several pictures, and with none.
    several: u64,
    without: u64,
}

impl Film {
    fn new(streams: &[NamedStream]) -> Self {
        let stream_type = streams.first().map_or(0, |first| first.stream_type);
        let codec = streams.first().map_or(Codec::Unknown, codec_of);
        let sound = streams.iter().skip(1);
        Self {
            codec,
            stream_type,
            marks: MarkReader::new(codec),
            cutters: sound.map(|one| SoundCutter::new(Framing::of(one))).collect(),
            pictures: Vec::new(),
            hidden: None,
            sound: Vec::new(),
            several: 0,
            without: 0,
        }
    }

    /// Takes a PES packet of the stream of this place.
    fn take(&mut self, place: usize, pes: &Pes) -> Result<(), FilmError> {
        match place.checked_sub(1).and_then(|place| self.cutters.get_mut(place)) {
            Some(cutter) => cutter.push(pes.nanos(), &pes.bytes, |frame, _| self.sound.push(frame)),
            None => self.take_picture(pes)?,
        }
        match self.pictures.len() + self.sound.len() > MAX_FRAMES {
            true => Err(FilmError::TooManyFrames),
            false => Ok(()),
        }
    }

    fn take_picture(&mut self, pes: &Pes) -> Result<(), FilmError> {
        let mut size = pes.bytes.len();
        let Some(mut marks) = self.marks.read(&pes.bytes, pes.random_access) else {
            self.without += 1;
            if let Some(last) = self.pictures.last_mut() {
                last.size += size;
            }
            return Ok(());
        };
        self.several += u64::from(self.marks.delimiters(&pes.bytes) > 1);
        if let Some((before, bytes)) = self.hidden.take() {
            (marks, size) = (before.and(marks), bytes + size);
        }
        if marks.is_hidden {
            self.hidden = Some((marks, size));
            return Ok(());
        }
        let picture = Picture { marks, shown: pes.shown };
        let (nanos, is_stamped) = (pes.nanos(), pes.is_stamped);
        self.pictures.push(TimedPicture { picture, size, nanos, is_stamped });
        Ok(())
    }

    /// All frames in the order of their times.
    fn table(mut self, untold: &mut Vec<String>) -> Result<FrameTable, FilmError> {
        self.without += u64::from(self.hidden.is_some());
        if self.pictures.is_empty() {
            return Err(FilmError::NoPictures);
        }
        self.say(untold);
        spread(&mut self.pictures);
        let pictures: Vec<Picture> = self.pictures.iter().map(|one| one.picture).collect();
        let mut places: Vec<(u64, Option<usize>, usize)> = Vec::new();
        for (number, one) in self.pictures.iter().enumerate() {
            places.push((one.nanos, Some(number), one.size));
        }
        places.extend(self.sound.iter().map(|one| (one.nanos, None, one.size)));
        // Stable: pictures stay in decoding order, and come before sound of the same time.
        places.sort_by_key(|(nanos, ..)| *nanos);
        let first = places.first().map_or(0, |(nanos, ..)| *nanos);
        let mut chains = chains(&pictures).into_iter();
        let mut numbers: Vec<u32> = Vec::with_capacity(pictures.len());
        let mut frames = Vec::with_capacity(places.len());
        for (nanos, number, size) in places {
            let made = Duration::from_nanos(nanos - first);
            let Some(size) = u32::try_from(size).ok().filter(|size| *size <= MAX_FRAME_SIZE) else {
                return Err(FilmError::TooLarge(size));
            };
            let chain = number.and_then(|_| chains.next());
            let Some((kind, on)) = chain else {
                frames.push(Frame { made, kind: FrameKind::Sound, size, depends_on: Vec::new() });
                continue;
            };
            let depends_on = on.iter().filter_map(|&one| numbers.get(one as usize).copied());
            let depends_on = depends_on.collect();
            // At most MAX_FRAMES.
            numbers.push(frames.len() as u32);
            frames.push(Frame { made, kind, size, depends_on });
        }
        let period = period(&frames);
        let table = FrameTable { codec: self.codec, frames, period };
        // Sizes and order are as they must be; what remains is the length.
        table.check().map_err(|_| FilmError::TooLong)?;
        Ok(table)
    }

    /// Sentences about what could not be told.
    fn say(&self, untold: &mut Vec<String>) {
        let marks = || self.pictures.iter().map(|one| one.picture.marks);
        if self.codec == Codec::Unknown {
            untold.push(format!(
                "the codec of stream type {:#04x} is unknown: which pictures depend on which is not told, \
                 each one that is no key picture is said to depend on the one before",
                self.stream_type
            ));
        }
        match marks().position(|one: Marks| one.is_key) {
            None => untold.push("no picture says that decoding can begin at it".to_owned()),
            Some(0) => {}
            Some(before) => untold.push(format!(
                "pictures before the first key picture, whose dependencies are not in the film: {before}"
            )),
        }
        let recovering = marks().filter(|one| one.recovers).count() as u64;
        let cut = self.cutters.iter().filter(|one| one.unfinished() > 0).count() as u64;
        let of_sound: u64 = self.cutters.iter().map(|one| one.untold).sum();
        let without_time =
            self.pictures.iter().filter(|one| one.picture.shown.is_none()).count() as u64;
        let counts = [
            (
                recovering,
                "pictures at which decoding recovers slowly (intra refresh), which do not count as key",
            ),
            (self.several, "PES packets with several pictures, which count as one"),
            (self.without, "PES packets without a picture, which count with the picture before"),
            (
                without_time,
                "pictures that do not say when they are shown, whose neighbours are not known",
            ),
            (
                of_sound,
                "PES packets of sound whose frames are not told apart, each of which counts as one",
            ),
            (cut, "streams of sound whose last frame is cut, and left out"),
        ];
        let counted = counts.iter().filter(|(count, _)| *count > 0);
        untold.extend(counted.map(|(count, what)| format!("{what}: {count}")));
    }
}
