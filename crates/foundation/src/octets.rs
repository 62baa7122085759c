//! Reads big-endian numbers from the front of a byte slice.

/// The bytes not yet read.
pub struct Octets<'a>(pub &'a [u8]);

/// The slice ends too early.
pub struct Short;

impl<'a> Octets<'a> {
    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_be_bytes)
    }

    /// The next 2 bytes as a number.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 4 bytes as a number.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 8 bytes as a number.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }

    /// All remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
