//! Hostile peers of the fuzz tests in virtual time: their seeds, and the numbers that they send.

use std::env;
use std::ops::Range;

use ontempo_foundation::RandomStream;

/// The environment variable with the seeds of hostile peers: a count such as `100000`, or a range
/// such as `5120..5121`, which repeats one.
pub const SEEDS: &str = "ONTEMPO_HOSTILE_SEEDS";

/// The seeds of a test: those that [`SEEDS`] gives, or the first `count`.
///
/// # Panics
///
/// If the variable is neither a count nor a range that has a seed: the test would run nothing, or
/// something else.
#[must_use]
pub fn seeds(count: u64) -> Range<u64> {
    seeds_of(SEEDS, count)
}

/// The seeds that an environment variable gives as [`SEEDS`] does, or the first `count`.
///
/// # Panics
///
/// As [`seeds`].
#[must_use]
pub fn seeds_of(variable: &str, count: u64) -> Range<u64> {
    let Some(text) = env::var_os(variable) else { return 0..count };
    let text = text.to_string_lossy();
    match read(&text) {
        Some(range) => range,
        None => {
            panic!("{variable}={text}: neither a count such as 100000 nor a range such as 5..6")
        }
    }
}

fn read(text: &str) -> Option<Range<u64>> {
    let range = match text.split_once("..") {
        None => 0..text.parse().ok()?,
        Some((first, end)) => first.parse().ok()?..end.parse().ok()?,
    };
    (!range.is_empty()).then_some(range)
}

/// What a hostile peer draws from.
#[derive(Clone, Debug)]
pub struct Dice(RandomStream);

impl Dice {
    /// The dice of a seed and of a purpose: two purposes draw differently.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(RandomStream::new(seed, purpose))
    }

    /// A number from 0 to `bound` - 1; `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// True once in `count` draws, on average.
    pub fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// A number near a limit, near one that the other end knows, or any.
    pub fn number(&mut self, known: u64) -> u64 {
        match self.below(8) {
            0 => self.below(3),
            1 => u64::MAX - self.below(3),
            2 => (1 << 63) + self.below(3) - 1,
            3 => 1 << self.below(64),
            4 => known,
            5 => known.wrapping_add(self.below(9)).wrapping_sub(4),
            6 => self.below(10_000),
            _ => self.any(),
        }
    }

    /// So many bytes, made of numbers as above.
    pub fn bytes(&mut self, length: usize, known: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(self.number(known).to_be_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// Damages a message: some lose their end, some have a bit turned, nine in ten are left.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let place = self.below(bytes.len() as u64) as usize;
        match self.below(20) {
            0 => bytes.truncate(place),
            1 => bytes[place] ^= 1 << self.below(8),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_count_or_a_range() {
        assert_eq!(read("100000"), Some(0..100_000));
        assert_eq!(read("7..9"), Some(7..9));
        for nothing in ["", "0", "9..9", "9..7", "many", "-1", "1..", "1..x"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn numbers_are_near_limits_and_near_the_known_one_and_repeat_with_the_seed() {
        let draw = || {
            let mut dice = Dice::new(1, "numbers");
            (0..1_000).map(|_| dice.number(1 << 40)).collect::<Vec<_>>()
        };
        let all = draw();
        for one in [0, u64::MAX, 1 << 63, 1 << 40, (1 << 40) - 4, (1 << 40) + 4] {
            assert!(all.contains(&one), "{one}");
        }
        assert_eq!(all, draw());
        assert_eq!(Dice::new(1, "bytes").bytes(13, 0).len(), 13);
    }
}
