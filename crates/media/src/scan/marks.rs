//! What a coded picture says of itself.

use super::av1::{Av1State, Plain};
use super::bits::{Bits, nal_units};
use crate::Codec;

/// The marks of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Decoding can begin here.
    pub(crate) is_key: bool,
    /// No other picture of its temporal layer refers to it.
    pub(crate) is_disposable: bool,
    /// What it refers to.
    pub(crate) refers: Refers,
    /// Its temporal layer, 0 to 7; it refers to none of a higher one.
    pub(crate) layer: u8,
    /// It refers to nothing before the last key picture, though it is shown before it (HEVC RADL).
    pub(crate) is_decodable_leading: bool,
    /// Decoding can begin here, but the picture is whole only some pictures later (recovery point of
    /// H.264 with a count, as with intra refresh; a key frame of AV1 that is shown later).
    pub(crate) recovers: bool,
    /// It is not shown itself: it belongs to the picture that is decoded after it (AV1).
    pub(crate) is_hidden: bool,
}

/// How a picture is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refers {
    /// Not at all (I slices only).
    Nothing,
    /// From one list of references (P slices).
    Past,
    /// From two (B slices).
    Both,
}

impl Marks {
    /// A picture of which only is known whether its packet says that decoding can begin.
    pub(super) const fn unknown(is_key: bool) -> Self {
        let refers = if is_key { Refers::Nothing } else { Refers::Past };
        Self {
            is_key,
            is_disposable: false,
            refers,
            layer: 0,
            is_decodable_leading: false,
            recovers: false,
            is_hidden: false,
        }
    }
}

/// Reads the marks of one stream's pictures.
#[derive(Debug)]
pub(crate) struct MarkReader {
    codec: Codec,
    /// HEVC: the bits that each PPS adds to a slice's header.
    extra_bits: [u8; 64],
    av1: Av1State,
}

/// NAL units of H.264 (table 7-1).
mod h264 {
    pub(super) const SLICE: u8 = 1;
    pub(super) const PARTITION_A: u8 = 2;
    pub(super) const IDR: u8 = 5;
    pub(super) const SEI: u8 = 6;
    pub(super) const DELIMITER: u8 = 9;
    /// The payload of an SEI message (table D.1).
    pub(super) const RECOVERY_POINT: u32 = 6;
}

/// NAL units of HEVC (table 7-1).
mod hevc {
    /// Below are coded slices; even ones to 14 are no references of their layer.
    pub(super) const FIRST_NOT_SLICE: u8 = 32;
    pub(super) const LAST_NON_REFERENCE: u8 = 14;
    pub(super) const RADL: std::ops::RangeInclusive<u8> = 6..=7;
    pub(super) const RANDOM_ACCESS: std::ops::RangeInclusive<u8> = 16..=23;
    pub(super) const PPS: u8 = 34;
    pub(super) const DELIMITER: u8 = 35;
}

impl MarkReader {
    pub(crate) fn new(codec: Codec) -> Self {
        Self { codec, extra_bits: [0; 64], av1: Av1State::default() }
    }

    /// The marks of the picture that begins with `bytes`, in a stream whose pictures of AV1 have said `av1` so far.
    pub(crate) fn look(
        codec: Codec,
        av1: &mut Av1State,
        bytes: &[u8],
        random_access: bool,
    ) -> Option<Marks> {
        let mut reader = Self { av1: *av1, ..Self::new(codec) };
        let marks = reader.read(bytes, random_access);
        *av1 = reader.av1;
        marks
    }

    /// The marks of a picture of AV1 in the low-overhead format.
    pub(super) fn read_plain(&mut self, bytes: &[u8]) -> Option<Marks> {
        self.av1.marks(bytes)
    }

    /// The marks of the picture in `bytes`, an access unit, whose packet says whether decoding can begin
    /// here; `None` if there is no picture in it.
    pub(crate) fn read(&mut self, bytes: &[u8], random_access: bool) -> Option<Marks> {
        match self.codec {
            Codec::H264 => h264_marks(bytes),
            Codec::Hevc => self.hevc_marks(bytes),
            Codec::Av1 => self.read_plain(&Plain::read(bytes).bytes),
            Codec::Unknown => (!bytes.is_empty()).then_some(Marks::unknown(random_access)),
        }
    }

    /// How many access units begin in these bytes, as far as delimiters tell.
    pub(super) fn delimiters(&self, bytes: &[u8]) -> usize {
        let delimits = |unit: &&[u8]| match self.codec {
            Codec::H264 => unit[0] & 0x1f == h264::DELIMITER,
            Codec::Hevc => unit[0] >> 1 & 0x3f == hevc::DELIMITER,
            Codec::Av1 | Codec::Unknown => false,
        };
        match self.codec {
            Codec::H264 | Codec::Hevc => nal_units(bytes).filter(delimits).count(),
            Codec::Av1 | Codec::Unknown => 0,
        }
    }

    fn hevc_marks(&mut self, bytes: &[u8]) -> Option<Marks> {
        let mut marks: Option<Marks> = None;
        let mut segments = 0;
        for unit in nal_units(bytes) {
            let &[high, low, ..] = unit else { continue };
            let kind = high >> 1 & 0x3f;
            let layer_id = (high & 1) << 5 | low >> 3;
            if kind == hevc::PPS {
                self.hevc_parameters(&unit[2..]);
            }
            // Layers of scalable streams are no pictures of their own.
            if kind >= hevc::FIRST_NOT_SLICE || layer_id > 0 {
                continue;
            }
            segments += 1;
            if marks.is_some() {
                continue;
            }
            let is_key = hevc::RANDOM_ACCESS.contains(&kind);
            let refers = match is_key {
                true => Refers::Nothing,
                // What cannot be read refers to as much as possible.
                false => self.hevc_slice(&unit[2..]).unwrap_or(Refers::Both),
            };
            marks = Some(Marks {
                is_key,
                is_disposable: kind <= hevc::LAST_NON_REFERENCE && kind % 2 == 0,
                refers,
                layer: (low & 7).saturating_sub(1),
                is_decodable_leading: hevc::RADL.contains(&kind),
                ..Marks::unknown(false)
            });
        }
        // Only the header of the first slice is read: others of an I picture may be P slices.
        marks.map(|marks| match marks.refers {
            Refers::Nothing if segments > 1 && !marks.is_key => {
                Marks { refers: Refers::Past, ..marks }
            }
            _ => marks,
        })
    }

    /// Section 7.3.2.3.1.
    fn hevc_parameters(&mut self, bytes: &[u8]) -> Option<()> {
        let mut bits = Bits::new(bytes);
        let number = bits.golomb()?;
        let _sequence = bits.golomb()?;
        // dependent_slice_segments_enabled_flag, output_flag_present_flag
        bits.number(2)?;
        let extra = bits.number(3)?;
        *self.extra_bits.get_mut(usize::try_from(number).ok()?)? = u8::try_from(extra).ok()?;
        Some(())
    }

    /// The prediction of the first slice of a picture that is no key (section 7.3.6.1).
    fn hevc_slice(&self, bytes: &[u8]) -> Option<Refers> {
        let mut bits = Bits::new(bytes);
        if !bits.bit()? {
            return None;
        }
        let parameters = usize::try_from(bits.golomb()?).ok()?;
        bits.number(u32::from(*self.extra_bits.get(parameters)?))?;
        match bits.golomb()? {
            0 => Some(Refers::Both),
            1 => Some(Refers::Past),
            2 => Some(Refers::Nothing),
            _ => None,
        }
    }
}

/// H.264: a picture is what all of its slices say.
fn h264_marks(bytes: &[u8]) -> Option<Marks> {
    let mut marks: Option<Marks> = None;
    let mut recovery = None;
    for unit in nal_units(bytes) {
        let kind = unit[0] & 0x1f;
        if kind == h264::SEI {
            recovery = recovery.or(recovery_count(&unit[1..]));
        }
        if !matches!(kind, h264::SLICE | h264::PARTITION_A | h264::IDR) {
            continue;
        }
        let is_disposable = unit[0] >> 5 & 3 == 0;
        let is_idr = kind == h264::IDR;
        let refers = match is_idr {
            true => Refers::Nothing,
            // What cannot be read refers to as much as possible.
            false => h264_slice(&unit[1..]).unwrap_or(Refers::Both),
        };
        marks = Some(match marks {
            // Of two fields, the second may refer to the first.
            Some(before) => Marks {
                is_disposable: before.is_disposable && is_disposable,
                refers: before.refers.max(refers),
                ..before
            },
            None => Marks { is_key: is_idr, is_disposable, refers, ..Marks::unknown(false) },
        });
    }
    let marks = marks?;
    let is_key = marks.is_key || marks.refers == Refers::Nothing && recovery == Some(0);
    let refers = if is_key { Refers::Nothing } else { marks.refers };
    Some(Marks { is_key, refers, recovers: !is_key && recovery.is_some(), ..marks })
}

/// `slice_type` (section 7.3.3, table 7-6).
fn h264_slice(bytes: &[u8]) -> Option<Refers> {
    let mut bits = Bits::new(bytes);
    let _first_macroblock = bits.golomb()?;
    match bits.golomb()? {
        0 | 3 | 5 | 8 => Some(Refers::Past),
        1 | 6 => Some(Refers::Both),
        2 | 4 | 7 | 9 => Some(Refers::Nothing),
        _ => None,
    }
}

/// `recovery_frame_cnt` of a recovery point among the messages of an SEI unit (sections 7.3.2.3.1, D.1.8).
fn recovery_count(bytes: &[u8]) -> Option<u32> {
    let mut bits = Bits::new(bytes);
    let coded = |bits: &mut Bits<'_>| {
        let mut sum = 0u32;
        loop {
            let byte = bits.number(8)?;
            sum = sum.checked_add(byte)?;
            if byte < 255 {
                return Some(sum);
            }
        }
    };
    loop {
        let kind = coded(&mut bits)?;
        let size = coded(&mut bits)?;
        if kind == h264::RECOVERY_POINT {
            return bits.golomb();
        }
        for _ in 0..size {
            bits.number(8)?;
        }
    }
}
