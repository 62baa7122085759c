//! Bits of a NAL unit of H.264 or HEVC, and of an OBU of AV1. Ours, because only the first fields of a few headers are read,
//! some 200 lines; existing crates (h264-reader, hevc-parser) read whole streams.

/// NAL units of an access unit in the byte stream format (H.264 annex B, HEVC annex B), without their
/// start codes and trailing zeros.
pub(super) fn nal_units(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = start_code(bytes).map(|(_, after)| &bytes[after..]);
    std::iter::from_fn(move || {
        let here = rest?;
        let (end, next) = match start_code(here) {
            Some((at, after)) => (at, Some(&here[after..])),
            None => (here.len(), None),
        };
        rest = next;
        Some(&here[..end])
    })
    .filter(|unit| !unit.is_empty())
}

/// Where the next start code begins and ends.
fn start_code(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    // The third byte decides how far to go on.
    while let Some(&third) = bytes.get(at + 2) {
        match third {
            0 => at += 1,
            1 if bytes[at] == 0 && bytes[at + 1] == 0 => return Some((at, at + 3)),
            _ => at += 3,
        }
    }
    None
}

/// Reads bits, the highest of a byte first, and skips emulation prevention bytes (H.264 7.4.1.1, HEVC
/// 7.4.2.1) where there are any.
#[derive(Clone, Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits of the first byte that are read.
    used: u32,
    /// Zero bytes before the first one.
    zeros: u32,
    is_escaped: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, used: 0, zeros: 0, is_escaped: true }
    }

    /// Of bytes without emulation prevention.
    pub(super) fn plain(bytes: &'a [u8]) -> Self {
        Self { is_escaped: false, ..Self::new(bytes) }
    }

    /// `None` at the end.
    pub(super) fn bit(&mut self) -> Option<bool> {
        if self.is_escaped && self.used == 0 && self.zeros >= 2 && self.bytes.first() == Some(&3) {
            self.bytes = &self.bytes[1..];
            self.zeros = 0;
        }
        let (&first, rest) = self.bytes.split_first()?;
        let bit = first >> (7 - self.used) & 1 == 1;
        self.used += 1;
        if self.used == 8 {
            self.zeros = if first == 0 { self.zeros + 1 } else { 0 };
            self.bytes = rest;
            self.used = 0;
        }
        Some(bit)
    }

    /// An unsigned number of up to 32 bits.
    pub(super) fn number(&mut self, bits: u32) -> Option<u32> {
        (0..bits).try_fold(0u32, |number, _| Some(number << 1 | u32::from(self.bit()?)))
    }

    /// Leaves out so many bits; `None` if there are fewer.
    pub(super) fn skip(&mut self, bits: u32) -> Option<()> {
        (0..bits).try_for_each(|_| self.bit().map(|_| ()))
    }

    /// An unsigned number in Exp-Golomb code (H.264 9.1; `uvlc` of AV1, 4.10.3); `None` above 2^32 - 2.
    pub(super) fn golomb(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.bit()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let rest = self.number(zeros)?;
        Some((1u32 << zeros) - 1 + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_lie_between_start_codes() {
        let bytes = [9, 0, 0, 1, 7, 8, 0, 0, 0, 1, 5, 0, 1, 0, 0, 1, 0, 0, 1, 6];
        let units: Vec<&[u8]> = nal_units(&bytes).collect();
        assert_eq!(units, [&[7u8, 8, 0][..], &[5, 0, 1], &[6]]);
        assert_eq!(nal_units(&[1, 2, 3]).count(), 0);
    }

    #[test]
    fn numbers_are_read_across_prevention_bytes() {
        // 1 | 010 | 011 | 00100 | then 32 bits with a prevention byte inside.
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0000, 0, 0, 3, 1, 0xff]);
        let read: Vec<_> = (0..4).map(|_| bits.golomb()).collect();
        assert_eq!(read, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(bits.number(4), Some(0));
        assert_eq!(bits.number(32), Some(0x0000_01ff), "two zero bytes, 1, 0xff");
        assert_eq!(bits.bit(), None);
        assert_eq!(Bits::new(&[0; 20]).golomb(), None);
    }
}
