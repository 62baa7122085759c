//! AV1 in a transport stream: OBUs behind start codes ("Carriage of AV1 in MPEG-2 TS", AOM), and what the headers of
//! frames say ("AV1 Bitstream & Decoding Process Specification", whose sections are cited). Ours, because of a frame
//! only the first dozen fields are read.

use super::bits::{Bits, nal_units};
use super::marks::{Marks, Refers};

/// obu_type (section 6.2.2).
mod obu {
    pub(super) const SEQUENCE_HEADER: u8 = 1;
    pub(super) const TEMPORAL_DELIMITER: u8 = 2;
    pub(super) const FRAME_HEADER: u8 = 3;
    pub(super) const FRAME: u8 = 6;
    pub(super) const TILE_LIST: u8 = 8;
    pub(super) const PADDING: u8 = 15;
}

/// frame_type (section 6.8.2).
mod frame {
    pub(super) const KEY: u32 = 0;
    pub(super) const INTRA_ONLY: u32 = 2;
    pub(super) const SWITCH: u32 = 3;
}

/// SELECT_SCREEN_CONTENT_TOOLS and SELECT_INTEGER_MV (section 3): each frame says it.
const SELECT: u32 = 2;

/// An OBU.
struct Obu<'a> {
    kind: u8,
    /// The second byte of its header, if it has one.
    extension: Option<u8>,
    payload: &'a [u8],
    /// Its size is more than is there.
    is_cut: bool,
}

impl<'a> Obu<'a> {
    /// The OBU at the beginning of `bytes`, and what follows it; without a size it takes all (section 5.3).
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&head, mut rest) = bytes.split_first()?;
        // obu_forbidden_bit
        if head & 0x80 != 0 {
            return None;
        }
        let mut extension = None;
        if head & 4 != 0 {
            let (&second, after) = rest.split_first()?;
            (extension, rest) = (Some(second), after);
        }
        let mut size = rest.len();
        if head & 2 != 0 {
            (size, rest) = leb128(rest)?;
        }
        let is_cut = size > rest.len();
        let (payload, after) = rest.split_at(size.min(rest.len()));
        Some((Self { kind: head >> 3 & 0x0f, extension, payload, is_cut }, after))
    }

    /// With its size, which readers of the low-overhead format need.
    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.kind << 3 | if self.extension.is_some() { 4 } else { 0 } | 2);
        to.extend(self.extension);
        let mut size = self.payload.len();
        while size > 0x7f {
            to.push(size as u8 | 0x80);
            size >>= 7;
        }
        to.push(size as u8);
        to.extend_from_slice(self.payload);
    }
}

/// A number of 7 bits a byte, the lowest first (section 4.10.5), and what follows it.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0u64;
    for (place, &byte) in bytes.iter().take(8).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).ok()?;
            return Some((usize::try_from(value).ok()?, &bytes[place + 1..]));
        }
    }
    None
}

/// OBUs in the low-overhead format (section 5.2), each with its size.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) bytes: Vec<u8>,
    /// Something of it is missing, or is no OBU.
    pub(super) is_cut: bool,
}

impl Plain {
    /// The content of a PES packet: OBUs behind start codes, escaped, or as GStreamer has them (`AV1G`) in the low-overhead
    /// format. No OBU of it begins as a start code does. Delimiters and stuffing are left out, as in files.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut plain = Self { bytes: Vec::with_capacity(bytes.len()), is_cut: false };
        if bytes.starts_with(&[0, 0]) {
            let mut unit = Vec::new();
            for escaped in nal_units(bytes) {
                unescape(escaped, &mut unit);
                plain.add(&unit);
            }
        } else {
            let mut rest = bytes;
            while !rest.is_empty() {
                rest = plain.add(rest);
            }
        }
        plain
    }

    /// Adds the first OBU of `bytes`; answers what follows it.
    fn add<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some((one, after)) = Obu::read(bytes) else {
            self.is_cut = true;
            return &[];
        };
        self.is_cut |= one.is_cut;
        if !matches!(one.kind, obu::TEMPORAL_DELIMITER | obu::TILE_LIST | obu::PADDING) {
            one.write(&mut self.bytes);
        }
        after
    }
}

/// Without the bytes that prevent start codes.
fn unescape(escaped: &[u8], to: &mut Vec<u8>) {
    to.clear();
    let mut zeros = 0;
    for &byte in escaped {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        to.push(byte);
    }
}

/// What of a sequence header (section 5.5) is needed to read the headers of its frames.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    is_reduced: bool,
    /// Frames have times of a decoder's model, which are not read.
    has_model: bool,
    /// seq_force_screen_content_tools and seq_force_integer_mv.
    screen_content: u32,
    integer_mv: u32,
    /// Bits of current_frame_id and of order_hint; 0 without.
    id_bits: u32,
    order_bits: u32,
}

impl Sequence {
    fn read(payload: &[u8]) -> Option<Self> {
        let mut bits = Bits::plain(payload);
        // seq_profile, still_picture
        bits.number(4)?;
        let is_reduced = bits.bit()?;
        let mut has_model = false;
        match is_reduced {
            // seq_level_idx
            true => bits.skip(5)?,
            false => has_model = operating_points(&mut bits)?,
        }
        let (width, height) = (bits.number(4)?, bits.number(4)?);
        bits.skip(width + height + 2)?;
        let mut id_bits = 0;
        if !is_reduced && bits.bit()? {
            let delta = bits.number(4)? + 2;
            id_bits = delta + bits.number(3)? + 1;
        }
        // use_128x128_superblock, enable_filter_intra, enable_intra_edge_filter
        bits.skip(3)?;
        let mut sequence = Self {
            is_reduced,
            has_model,
            screen_content: SELECT,
            integer_mv: SELECT,
            id_bits,
            order_bits: 0,
        };
        if is_reduced {
            return Some(sequence);
        }
        // enable_interintra_compound, enable_masked_compound, enable_warped_motion, enable_dual_filter
        bits.skip(4)?;
        let has_order = bits.bit()?;
        if has_order {
            // enable_jnt_comp, enable_ref_frame_mvs
            bits.skip(2)?;
        }
        let choice = |bits: &mut Bits<'_>| match bits.bit()? {
            true => Some(SELECT),
            false => bits.number(1),
        };
        sequence.screen_content = choice(&mut bits)?;
        if sequence.screen_content > 0 {
            sequence.integer_mv = choice(&mut bits)?;
        }
        if has_order {
            sequence.order_bits = bits.number(3)? + 1;
        }
        Some(sequence)
    }
}

/// Reads timing and operating points of a sequence header; whether there is a decoder's model.
fn operating_points(bits: &mut Bits<'_>) -> Option<bool> {
    let mut delay_bits = None;
    if bits.bit()? {
        // num_units_in_display_tick, time_scale
        bits.skip(64)?;
        if bits.bit()? {
            // num_ticks_per_picture_minus_1
            bits.golomb()?;
        }
        if bits.bit()? {
            delay_bits = Some(bits.number(5)? + 1);
            // num_units_in_decoding_tick, buffer_removal_time_length, frame_presentation_time_length
            bits.skip(32 + 5 + 5)?;
        }
    }
    let has_display_delay = bits.bit()?;
    for _ in 0..=bits.number(5)? {
        // operating_point_idc
        bits.skip(12)?;
        if bits.number(5)? > 7 {
            // seq_tier
            bits.skip(1)?;
        }
        if let Some(delay_bits) = delay_bits
            && bits.bit()?
        {
            // decoder_buffer_delay, encoder_buffer_delay, low_delay_mode_flag
            bits.skip(2 * delay_bits + 1)?;
        }
        if has_display_delay && bits.bit()? {
            bits.skip(4)?;
        }
    }
    Some(delay_bits.is_some())
}

/// What the header of a frame says (section 5.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    is_key: bool,
    is_shown: bool,
    /// The references that it replaces, a bit for each of eight; `None`: not known.
    refreshes: Option<u8>,
}

/// What is remembered from one frame to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Av1State {
    sequence: Option<Sequence>,
    /// References that may be key frames that were not shown yet, a bit for each.
    hidden_keys: u8,
}

impl Av1State {
    /// The marks of what is coded in OBUs in the low-overhead format, perhaps cut at the end; `None` if no frame begins in them.
    pub(super) fn marks(&mut self, mut bytes: &[u8]) -> Option<Marks> {
        let mut has_sequence = false;
        let mut marks: Option<Marks> = None;
        while let Some((one, after)) = Obu::read(bytes) {
            bytes = after;
            match one.kind {
                obu::SEQUENCE_HEADER => {
                    has_sequence = true;
                    self.sequence = Sequence::read(one.payload);
                }
                obu::FRAME_HEADER | obu::FRAME => {
                    let Some(header) = self.header(one.payload) else { continue };
                    let begins = header.is_key && has_sequence;
                    let own = Marks {
                        is_disposable: header.refreshes == Some(0),
                        is_hidden: !header.is_shown,
                        // Pictures may come before it that need what was before: as with intra refresh.
                        recovers: begins && !header.is_shown,
                        ..Marks::unknown(begins && header.is_shown)
                    };
                    marks = Some(marks.map_or(own, |before| before.and(own)));
                }
                _ => {}
            }
        }
        marks
    }

    /// Reads the header of a frame, and keeps what it changes.
    fn header(&mut self, payload: &[u8]) -> Option<FrameHeader> {
        let mut bits = Bits::plain(payload);
        if self.sequence.is_some_and(|sequence| sequence.is_reduced) {
            return Some(FrameHeader { is_key: true, is_shown: true, refreshes: Some(0xff) });
        }
        // show_existing_frame
        if bits.bit()? {
            let is_key = self.hidden_keys >> bits.number(3)? & 1 == 1;
            // A key frame that is shown so takes the place of all references (section 7.21).
            let refreshes = if is_key { 0xff } else { 0 };
            self.hidden_keys &= !refreshes;
            return Some(FrameHeader { is_key: false, is_shown: true, refreshes: Some(refreshes) });
        }
        let kind = bits.number(2)?;
        let is_shown = bits.bit()?;
        let is_key = kind == frame::KEY;
        let refreshes = self.refreshes(&mut bits, kind, is_shown);
        let replaced = refreshes.unwrap_or(if is_key { 0xff } else { 0 });
        match is_key && !is_shown {
            true => self.hidden_keys |= replaced,
            false => self.hidden_keys &= !replaced,
        }
        Some(FrameHeader { is_key, is_shown, refreshes })
    }

    /// refresh_frame_flags, behind show_frame; `None` where it cannot be read.
    fn refreshes(&self, bits: &mut Bits<'_>, kind: u32, is_shown: bool) -> Option<u8> {
        if kind == frame::SWITCH || kind == frame::KEY && is_shown {
            return Some(0xff);
        }
        let sequence = self.sequence.filter(|sequence| !sequence.has_model)?;
        if !is_shown {
            // showable_frame
            bits.skip(1)?;
        }
        let is_resilient = bits.bit()?;
        // disable_cdf_update
        bits.skip(1)?;
        let is_screen = match sequence.screen_content {
            SELECT => bits.bit()?,
            always => always == 1,
        };
        if is_screen && sequence.integer_mv == SELECT {
            // force_integer_mv
            bits.skip(1)?;
        }
        // current_frame_id, frame_size_override_flag, order_hint
        bits.skip(sequence.id_bits + 1 + sequence.order_bits)?;
        if kind != frame::KEY && kind != frame::INTRA_ONLY && !is_resilient {
            // primary_ref_frame
            bits.skip(3)?;
        }
        u8::try_from(bits.number(8)?).ok()
    }
}

impl Marks {
    /// Of two frames that are one picture: the first is not shown, or both are fields or layers.
    pub(super) fn and(self, next: Self) -> Self {
        let is_key = self.is_key;
        Self {
            is_key,
            is_disposable: self.is_disposable && next.is_disposable,
            refers: if is_key { Refers::Nothing } else { self.refers.max(next.refers) },
            recovers: !is_key && (self.recovers || next.recovers || next.is_key),
            is_hidden: self.is_hidden && next.is_hidden,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::RandomStream;

    use super::*;

    /// An OBU behind a start code.
    fn unit(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 1, kind << 3 | 2, payload.len() as u8];
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn units_are_unescaped_and_get_their_sizes() {
        // Without a size, with an extension, and with bytes that would be a start code.
        let bytes = [
            &[0u8, 0, 1, obu::TEMPORAL_DELIMITER << 3 | 2, 0][..],
            &[0, 0, 1, obu::FRAME << 3 | 4, 0x20, 7, 0, 0, 3, 1, 9],
            &[0, 0, 1, obu::FRAME_HEADER << 3 | 2, 3, 0, 0, 3, 0, 0x55],
        ]
        .concat();
        let plain = Plain::read(&bytes);
        let frame = [obu::FRAME << 3 | 6, 0x20, 5, 7, 0, 0, 1, 9];
        let header = [obu::FRAME_HEADER << 3 | 2, 3, 0, 0, 0];
        assert_eq!(plain.bytes, [&frame[..], &header].concat());
        assert!(!plain.is_cut);
        // What is in the low-overhead format stays so.
        assert_eq!(Plain::read(&plain.bytes).bytes, plain.bytes);
        assert!(!Plain::read(&plain.bytes).is_cut);
    }

    #[test]
    fn what_is_cut_or_no_unit_is_told() {
        for bytes in [
            &[0u8, 0, 1, obu::FRAME << 3 | 2, 9, 1, 2][..],
            &[0, 0, 1, 0x80, 1],
            &[obu::FRAME << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
            &[obu::FRAME << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[obu::FRAME << 3 | 4],
        ] {
            assert!(Plain::read(bytes).is_cut, "{bytes:?}");
        }
        assert!(Plain::read(&[]).bytes.is_empty());
    }

    #[test]
    fn a_large_unit_has_a_size_of_several_bytes() {
        let mut bytes = vec![0, 0, 1, obu::FRAME << 3];
        bytes.extend([0x11; 20_000]);
        let plain = Plain::read(&bytes);
        let (one, after) = Obu::read(&plain.bytes).expect("an OBU");
        assert_eq!((one.payload.len(), after.len(), one.is_cut), (20_000, 0, false));
        assert_eq!(leb128(&plain.bytes[1..]).map(|(size, _)| size), Some(20_000));
    }

    #[test]
    fn without_a_sequence_header_no_picture_is_a_key_and_none_disposable() {
        let mut state = Av1State::default();
        // show_existing_frame 0, frame_type 0, show_frame 1.
        let plain = Plain::read(&unit(obu::FRAME, &[0b0001_0000, 0, 0, 0x55]));
        let marks = state.marks(&plain.bytes).expect("a frame");
        assert!(!marks.is_key && !marks.is_disposable && !marks.is_hidden);
        // frame_type 1, show_frame 0.
        let plain = Plain::read(&unit(obu::FRAME, &[0b0010_0000, 0, 0, 0x55]));
        let marks = state.marks(&plain.bytes).expect("a frame");
        assert!(!marks.is_disposable && marks.is_hidden);
        assert_eq!(state.marks(&[]), None);
        assert_eq!(state.marks(&Plain::read(&unit(obu::FRAME, &[])).bytes), None);
    }

    #[test]
    fn no_bytes_make_the_reader_fail() {
        let mut random = RandomStream::new(1, "av1");
        let mut state = Av1State::default();
        for round in 0..20_000u64 {
            let length = (random.next_u64() % 60) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
            let kinds = [obu::SEQUENCE_HEADER, obu::FRAME, obu::FRAME_HEADER];
            bytes = unit(kinds[(round % 3) as usize], &bytes);
            let plain = Plain::read(&bytes);
            let marks = state.marks(&plain.bytes);
            assert!(round % 3 > 0 || marks.is_none());
            assert!(plain.bytes.len() <= bytes.len());
        }
    }
}
