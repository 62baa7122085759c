//! Encoding of numbers and byte strings.

use super::WireError;

/// The largest number of the encoding (RFC 9000, section 16).
pub(super) const MAX_VARINT: u64 = (1 << 62) - 1;

/// Appends `value`, limited to [`MAX_VARINT`].
pub(super) fn write(out: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX_VARINT);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends a byte string with its length.
pub(super) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Parses from the front of a slice.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Bytes not read yet.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, left) = self.left.split_at_checked(count).ok_or(WireError::Short)?;
        self.left = left;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<u64, WireError> {
        let first = *self.left.first().ok_or(WireError::Short)?;
        let bytes = self.take(1 << (first >> 6))?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        Ok(value & (MAX_VARINT >> (62 - (bytes.len() * 8 - 2))))
    }

    /// A number of at most `most`; `field` names it in the error.
    pub(super) fn at_most(&mut self, most: u64, field: &'static str) -> Result<u64, WireError> {
        let value = self.number()?;
        if value > most { Err(WireError::OutOfRange(field)) } else { Ok(value) }
    }

    /// A byte string of at most `most` bytes.
    pub(super) fn bytes(
        &mut self,
        most: usize,
        field: &'static str,
    ) -> Result<&'a [u8], WireError> {
        let length = self.at_most(most as u64, field)?;
        self.take(length as usize)
    }

    /// Error if bytes are left.
    pub(super) fn end(&self) -> Result<(), WireError> {
        if self.left.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}
