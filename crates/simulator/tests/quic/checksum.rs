//! The checksum of these tests: packet tags, packet traces, reproducible keys.

/// A running 64-bit checksum over words.
///
/// Each step is a bijection of the state and of the word, so two inputs of equal length that
/// differ in a single word never have the same checksum: a flipped bit is always found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// The checksum of an empty input; `seed` distinguishes uses.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Adds one word.
    pub(crate) const fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Adds `bytes` and their number.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().expect("a chunk has 8 bytes")));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.word(u64::from_le_bytes(last));
    }

    /// The checksum, with its bits mixed (the finisher of SplitMix64, a bijection too).
    pub(crate) const fn finish(self) -> u64 {
        let mut state = self.0;
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    }

    /// Fills `out` with the checksum and values derived from it.
    pub(crate) fn fill(mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            part.copy_from_slice(&self.finish().to_le_bytes()[..part.len()]);
            self.word(1);
        }
    }
}
