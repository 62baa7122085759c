//! Frames of one elementary stream as datagrams, for programs that have frames and no multiplexer.
//!
//! A datagram is a description or a part of a frame. A description is a byte 0 and a text of at most
//! [`MAX_DESCRIPTION`] bytes: what a decoder has to know, in the words of GStreamer's caps. A part is
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | flags: 0x80 always, 0x40 a duration, 0x20 a time of decoding, 0x10 a time, 0x08 the last part of its frame, 0x04 the first, 0x03 the kind: 0 disposable, 1 reference, 2 key, 3 sound |
//! | 2 | the frame's number, modulo 2^16 |
//! | 4 | of the first part: bytes of the whole frame |
//! | 8 | the time at which it is shown or heard, ns, by the sender's clock |
//! | 4 | how much earlier it is decoded, us |
//! | 4 | its duration, ns |
//! | | bytes of the frame |
//!
//! with the times only where the flags say so, which only the first part may. Numbers are big-endian. The
//! first byte is never that of a transport stream.

use std::fmt;
use std::str::FromStr;

use ontempo_foundation::Duration;

use super::frames::FrameKind;

/// Maximum bytes of a description.
pub const MAX_DESCRIPTION: usize = 16 << 10;

/// Maximum bytes of a frame that is put together; a key picture of 8K has fewer.
pub const MAX_ELEMENTARY_FRAME: usize = 16 << 20;

/// Bytes of a frame in one datagram: with the longest header as many as UDP could carry.
const PART: usize = 65_000;

const DESCRIPTION: u8 = 0;
const IS_PART: u8 = 0x80;
const HAS_DURATION: u8 = 0x40;
const HAS_DECODING: u8 = 0x20;
const HAS_TIME: u8 = 0x10;
const IS_LAST: u8 = 0x08;
const IS_FIRST: u8 = 0x04;
const KIND: u8 = 0x03;

/// How an elementary stream is coded. What is carried needs nothing beside the frames: byte streams with
/// their parameter sets (H.264, H.265), ADTS (AAC), OBUs with their sizes (AV1); but for Opus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elementary {
    /// H.264, as a byte stream (annex B).
    H264,
    /// H.265, as a byte stream (annex B).
    H265,
    /// AV1, the low-overhead format.
    Av1,
    /// AAC in frames of ADTS.
    Aac,
    /// Opus, packet by packet.
    Opus,
}

impl Elementary {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::H264, Self::H265, Self::Av1, Self::Aac, Self::Opus];

    /// The word of the wire: `h264`, `h265`, `av1`, `aac` or `opus`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "h265",
            Self::Av1 => "av1",
            Self::Aac => "aac",
            Self::Opus => "opus",
        }
    }

    /// Whether it is sound.
    pub const fn is_sound(self) -> bool {
        matches!(self, Self::Aac | Self::Opus)
    }

    /// Whether its frames one behind the other are a file that programs read; Opus needs a container.
    pub const fn is_file(self) -> bool {
        !matches!(self, Self::Opus)
    }
}

impl fmt::Display for Elementary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H264 => "H.264",
            Self::H265 => "H.265",
            Self::Av1 => "AV1",
            Self::Aac => "AAC",
            Self::Opus => "Opus",
        })
    }
}

impl FromStr for Elementary {
    type Err = ();

    /// # Errors
    /// It is none of the [words](Self::word).
    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|one| one.word() == word).ok_or(())
    }
}

/// Times of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTimes {
    /// When it is shown or heard, by the sender's clock.
    pub shown: Option<Duration>,
    /// How much earlier it is decoded; whole microseconds, at most 71 minutes.
    pub decoded_before: Option<Duration>,
    /// How long it is shown or heard, at most 4.2 s.
    pub duration: Option<Duration>,
}

/// What the first part says of its frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the frame.
    pub length: u32,
    /// Its times.
    pub times: FrameTimes,
}

/// A part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePart<'a> {
    /// What the frame is to others.
    pub kind: FrameKind,
    /// The frame's number, modulo 2^16.
    pub number: u16,
    /// Of the first part.
    pub first: Option<FrameHead>,
    /// It is the last part.
    pub is_last: bool,
    /// Bytes of the frame.
    pub data: &'a [u8],
}

/// A datagram of an elementary stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementaryDatagram<'a> {
    /// What a decoder has to know.
    Description(&'a str),
    /// A part of a frame.
    Part(FramePart<'a>),
}

/// Why bytes are no datagram of an elementary stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementaryError;

impl fmt::Display for ElementaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither a part of a frame nor its description")
    }
}

impl std::error::Error for ElementaryError {}

impl<'a> ElementaryDatagram<'a> {
    /// # Errors
    /// The bytes are too short, the description is too long or no text, or a part that is not the first
    /// has times.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ElementaryError> {
        let (&flags, rest) = bytes.split_first().ok_or(ElementaryError)?;
        if flags == DESCRIPTION {
            let text = std::str::from_utf8(rest).ok().filter(|text| text.len() <= MAX_DESCRIPTION);
            return text.map(Self::Description).ok_or(ElementaryError);
        }
        let has = |flag: u8| flags & flag != 0;
        let has_times = has(HAS_TIME | HAS_DECODING | HAS_DURATION);
        if !has(IS_PART) || has_times && !has(IS_FIRST) {
            return Err(ElementaryError);
        }
        let (number, mut rest) = rest.split_first_chunk().ok_or(ElementaryError)?;
        let mut next = |flag: u8, length: usize| -> Result<Option<u64>, ElementaryError> {
            if !has(flag) {
                return Ok(None);
            }
            let (digits, after) = rest.split_at_checked(length).ok_or(ElementaryError)?;
            rest = after;
            Ok(Some(digits.iter().fold(0, |number, digit| number << 8 | u64::from(*digit))))
        };
        let length = next(IS_FIRST, 4)?.unwrap_or_default();
        let times = FrameTimes {
            shown: next(HAS_TIME, 8)?.map(Duration::from_nanos),
            decoded_before: next(HAS_DECODING, 4)?.map(Duration::from_micros),
            duration: next(HAS_DURATION, 4)?.map(Duration::from_nanos),
        };
        let kind = match flags & KIND {
            0 => FrameKind::Disposable,
            1 => FrameKind::Reference,
            2 => FrameKind::Key,
            _ => FrameKind::Sound,
        };
        Ok(Self::Part(FramePart {
            kind,
            number: u16::from_be_bytes(*number),
            // Four bytes.
            first: has(IS_FIRST).then_some(FrameHead { length: length as u32, times }),
            is_last: has(IS_LAST),
            data: rest,
        }))
    }

    /// Appends its bytes. Times that are too long are left out.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let FramePart { kind, number, first, is_last, data } = match self {
            Self::Description(text) => {
                bytes.push(DESCRIPTION);
                return bytes.extend_from_slice(text.as_bytes());
            }
            Self::Part(part) => *part,
        };
        let times = first.unwrap_or_default().times;
        let shown = times.shown.map(|time| time.as_nanos().to_be_bytes());
        let short = |number: u64| u32::try_from(number).ok().map(u32::to_be_bytes);
        let decoding = times.decoded_before.and_then(|time| short(time.as_nanos() / 1_000));
        let duration = times.duration.and_then(|time| short(time.as_nanos()));
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let kind = match kind {
            FrameKind::Disposable => 0,
            FrameKind::Reference => 1,
            FrameKind::Key => 2,
            FrameKind::Sound => 3,
        };
        bytes.push(
            IS_PART
                | kind
                | flag(first.is_some(), IS_FIRST)
                | flag(is_last, IS_LAST)
                | flag(shown.is_some(), HAS_TIME)
                | flag(decoding.is_some(), HAS_DECODING)
                | flag(duration.is_some(), HAS_DURATION),
        );
        bytes.extend(number.to_be_bytes());
        bytes.extend(first.map(|head| head.length.to_be_bytes()).into_iter().flatten());
        bytes.extend(shown.into_iter().flatten());
        bytes.extend(decoding.into_iter().chain(duration).flatten());
        bytes.extend_from_slice(data);
    }
}

/// A frame is longer than [`MAX_ELEMENTARY_FRAME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTooLong {
    /// Its bytes.
    pub length: usize,
}

impl fmt::Display for FrameTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a frame of {} bytes, more than the {MAX_ELEMENTARY_FRAME} that are carried",
            self.length
        )
    }
}

impl std::error::Error for FrameTooLong {}

/// Cuts a frame into datagrams, and calls `take` for each.
///
/// # Errors
/// It is longer than [`MAX_ELEMENTARY_FRAME`]: `take` is not called.
pub fn cut_frame(
    kind: FrameKind,
    number: u16,
    times: FrameTimes,
    frame: &[u8],
    mut take: impl FnMut(&[u8]),
) -> Result<(), FrameTooLong> {
    let too_long = FrameTooLong { length: frame.len() };
    if frame.len() > MAX_ELEMENTARY_FRAME {
        return Err(too_long);
    }
    let length = u32::try_from(frame.len()).map_err(|_| too_long)?;
    let head = FrameHead { length, times };
    let count = frame.len().div_ceil(PART).max(1);
    let mut bytes = Vec::new();
    for place in 0..count {
        let data = &frame[place * PART..frame.len().min((place + 1) * PART)];
        let (first, is_last) = ((place == 0).then_some(head), place + 1 == count);
        bytes.clear();
        let part = FramePart { kind, number, first, is_last, data };
        ElementaryDatagram::Part(part).write(&mut bytes);
        take(&bytes);
    }
    Ok(())
}

/// A frame that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementaryFrame {
    /// What it is to others.
    pub kind: FrameKind,
    /// Its times.
    pub times: FrameTimes,
    /// Its bytes.
    pub data: Vec<u8>,
    /// It does not follow the last frame: those between are missing.
    pub follows_loss: bool,
}

/// Puts frames together from the datagrams of a stream, in their order.
#[derive(Debug, Default)]
pub struct FrameAssembler {
    /// The frame whose last part has not come, its number and length.
    open: Option<(u16, usize, ElementaryFrame)>,
    /// The number after that of the last frame.
    next: Option<u16>,
}

impl FrameAssembler {
    /// Takes a part; answers the frame that it ends. A frame without all of its parts is left out, and
    /// one above [`MAX_ELEMENTARY_FRAME`].
    pub fn push(&mut self, part: &FramePart<'_>) -> Option<ElementaryFrame> {
        let FramePart { kind, number, first, is_last, data } = *part;
        if let Some(FrameHead { length, times }) = first {
            let follows_loss = self.next.is_some_and(|next| next != number);
            let frame = ElementaryFrame { kind, times, data: Vec::new(), follows_loss };
            self.open = Some((number, length as usize, frame));
        }
        let (of, length, mut frame) = self.open.take()?;
        let most = length.min(MAX_ELEMENTARY_FRAME);
        if of != number || frame.data.len() + data.len() > most {
            return None;
        }
        frame.data.extend_from_slice(data);
        if !is_last {
            self.open = Some((of, length, frame));
            return None;
        }
        // One in the middle is missing.
        if frame.data.len() < length {
            return None;
        }
        self.next = Some(number.wrapping_add(1));
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(number: u16, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let times = FrameTimes {
            shown: Some(Duration::from_nanos(u64::from(number) * 40_000_001)),
            decoded_before: Some(Duration::from_millis(80)),
            duration: Some(Duration::from_millis(40)),
        };
        cut_frame(FrameKind::Key, number, times, frame, |part| all.push(part.to_vec()))
            .expect("not too long");
        all
    }

    fn push(assembler: &mut FrameAssembler, datagram: &[u8]) -> Option<ElementaryFrame> {
        match ElementaryDatagram::read(datagram) {
            Ok(ElementaryDatagram::Part(part)) => assembler.push(&part),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn frames_of_any_length_are_put_together_and_one_without_a_part_is_left_out() {
        let mut assembler = FrameAssembler::default();
        for (number, length) in [(65_534, 0), (65_535, 1), (0, PART), (1, PART + 1), (2, 200_000)] {
            let frame: Vec<u8> = (0..length).map(|place| place as u8).collect();
            let parts = parts(number, &frame);
            assert_eq!(parts.len(), length.div_ceil(PART).max(1));
            let mut back: Vec<_> =
                parts.iter().filter_map(|part| push(&mut assembler, part)).collect();
            let back = back.pop().expect("a frame");
            assert!(back.data == frame && !back.follows_loss, "{number}");
            assert_eq!(back.times.decoded_before, Some(Duration::from_millis(80)));
        }
        let long = vec![7; 200_000];
        let lacking = parts(3, &long);
        assert!(lacking[1..].iter().all(|part| push(&mut assembler, part).is_none()));
        assert_eq!(push(&mut assembler, &lacking[0]), None);
        for missing in [1, 2] {
            let lacking = (0..4).filter(|place| *place != missing).map(|place| &lacking[place]);
            assert!(lacking.into_iter().all(|part| push(&mut assembler, part).is_none()));
        }
        let next = push(&mut assembler, &parts(4, b"next")[0]).expect("a frame");
        assert!(next.follows_loss);
    }

    #[test]
    fn a_frame_without_an_end_is_not_held_beyond_the_limit() {
        let mut assembler = FrameAssembler::default();
        let data = vec![0; PART];
        let part = |first| FramePart {
            kind: FrameKind::Reference,
            number: 1,
            first,
            is_last: false,
            data: &data,
        };
        assembler.push(&part(Some(FrameHead { length: u32::MAX, times: FrameTimes::default() })));
        for _ in 0..2 * MAX_ELEMENTARY_FRAME / PART {
            assert_eq!(assembler.push(&part(None)), None);
            let held = assembler.open.as_ref().map_or(0, |(.., frame)| frame.data.len());
            assert!(held <= MAX_ELEMENTARY_FRAME);
        }
        assert!(assembler.open.is_none());
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_cut() {
        let mut long = vec![0; MAX_ELEMENTARY_FRAME + 1];
        let cut = |frame: &[u8]| {
            let mut count = 0;
            cut_frame(FrameKind::Key, 0, FrameTimes::default(), frame, |_| count += 1)?;
            Ok(count)
        };
        let refused = FrameTooLong { length: long.len() };
        assert_eq!(cut(&long), Err(refused));
        assert!(refused.to_string().contains("16777217 bytes"), "{refused}");
        long.pop();
        assert_eq!(cut(&long), Ok(MAX_ELEMENTARY_FRAME.div_ceil(PART)));
    }

    #[test]
    fn the_words_are_read_back() {
        for one in Elementary::ALL {
            assert_eq!(one.word().parse(), Ok(one));
        }
        assert_eq!("vp8".parse::<Elementary>(), Err(()));
    }

    proptest! {
        #[test]
        fn any_bytes_that_are_read_are_written_the_same(bytes in any::<Vec<u8>>()) {
            if let Ok(datagram) = ElementaryDatagram::read(&bytes) {
                let mut written = Vec::new();
                datagram.write(&mut written);
                prop_assert_eq!(written, bytes);
            }
        }
    }
}
