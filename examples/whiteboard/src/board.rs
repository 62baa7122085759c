//! The objects in the order in which they were drawn, and which depend on which.

use std::fmt;

use crate::object::{Bounds, Object};

/// Maximum units of a board. The sets of what is painted before each then have 17 MB.
pub const MAX_ENTRIES: usize = 16_384;

/// Maximum bytes of a board's units.
pub const MAX_BYTES: usize = 4 << 20;

/// What a unit can name.
const MAX_NAMED: usize = 32;

/// Bits of a word of a set.
const WORD: usize = 64;

/// A unit of the board: its number is its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the unit says; empty for one that only joins more dependencies than a unit can name.
    pub data: Vec<u8>,
    /// Units that have to be painted before it; at most 32, from the latest on. Those on which these depend are left
    /// out.
    pub depends_on: Vec<u64>,
    bounds: Option<Bounds>,
}

/// The board is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardFull;

impl fmt::Display for BoardFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the board is full: it has {MAX_ENTRIES} objects, or {} MiB", MAX_BYTES >> 20)
    }
}

impl std::error::Error for BoardFull {}

/// The units of a board.
#[derive(Clone, Debug, Default)]
pub struct Board {
    entries: Vec<Entry>,
    /// For each, a set of those that are painted before it in any case.
    before: Vec<Vec<u64>>,
    bytes: usize,
}

fn insert(set: &mut Vec<u64>, number: usize) {
    if set.len() <= number / WORD {
        set.resize(number / WORD + 1, 0);
    }
    set[number / WORD] |= 1 << (number % WORD);
}

fn has(set: &[u64], number: usize) -> bool {
    set.get(number / WORD).is_some_and(|word| word >> (number % WORD) & 1 == 1)
}

fn unite(set: &mut Vec<u64>, other: &[u64]) {
    if set.len() < other.len() {
        set.resize(other.len(), 0);
    }
    set.iter_mut().zip(other).for_each(|(word, other)| *word |= other);
}

impl Board {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Its units.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an object, of which `data` is told. It depends on those before it that its bounds touch.
    ///
    /// # Errors
    /// If the board is full; it is then unchanged.
    pub fn add(&mut self, object: &Object, data: Vec<u8>) -> Result<(), BoardFull> {
        let bounds = object.bounds();
        let mut before = Vec::new();
        let mut named = Vec::new();
        for (number, entry) in self.entries.iter().enumerate().rev() {
            let touches = entry.bounds.is_some_and(|other| bounds.touches(&other));
            if touches && !has(&before, number) {
                named.push(number as u64);
                insert(&mut before, number);
                unite(&mut before, &self.before[number]);
            }
        }
        // Each joint names 32 and takes one place among those that are left.
        let joints = named.len().saturating_sub(MAX_NAMED).div_ceil(MAX_NAMED - 1);
        let is_full = self.entries.len() + joints >= MAX_ENTRIES;
        if is_full || self.bytes + data.len() > MAX_BYTES {
            return Err(BoardFull);
        }
        while named.len() > MAX_NAMED {
            let joined: Vec<u64> = named.drain(..MAX_NAMED).collect();
            let mut before = Vec::new();
            for number in joined.iter().map(|number| *number as usize) {
                insert(&mut before, number);
                unite(&mut before, &self.before[number]);
            }
            named.push(
                self.push(Entry { data: Vec::new(), depends_on: joined, bounds: None }, before),
            );
        }
        named.iter().for_each(|number| insert(&mut before, *number as usize));
        self.bytes += data.len();
        self.push(Entry { data, depends_on: named, bounds: Some(bounds) }, before);
        Ok(())
    }

    fn push(&mut self, entry: Entry, before: Vec<u64>) -> u64 {
        self.entries.push(entry);
        self.before.push(before);
        self.entries.len() as u64 - 1
    }
}
