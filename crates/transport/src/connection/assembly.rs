//! Data of a stream, put in order.
//!
//! The QUIC stack does so as well, but does not tell how much it holds. Everything is therefore
//! taken from it at once, in any order, and held here, where it is counted.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};

use super::Violation;
use crate::wire::Range;

/// Overhead of a piece of data beside its bytes; bytes.
pub(super) const PIECE_COST: u64 = 128;

/// Maximum pieces of a stream with gaps between them: more gaps than the packets of a window have,
/// unless they are made on purpose.
const MAX_PIECES: usize = 4096;

/// The data of one stream that cannot be processed because earlier data is missing.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Bytes returned so far.
    next: u64,
    /// By offset. Copied: a chunk would keep its whole packet and its neighbours in memory.
    ahead: BTreeMap<u64, BytesMut>,
    /// Capacity of these.
    bytes: u64,
}

impl Assembly {
    /// Takes data at an offset; returns it if it is the next. The stack passes each byte once, a repair may
    /// bring it, too: what is there already is discarded.
    pub(super) fn insert(
        &mut self,
        offset: u64,
        mut data: Bytes,
    ) -> Result<Option<Bytes>, Violation> {
        let end = offset + data.len() as u64;
        let mut at = self.covered_to(offset.max(self.next), end);
        data.advance((at - offset) as usize);
        let mut first = None;
        while !data.is_empty() {
            let later = self.ahead.range(at..).next().map(|(later, _)| *later);
            let gap = later.map_or(data.len() as u64, |later| (later - at).min(data.len() as u64));
            let piece = data.split_to(gap as usize);
            if at == self.next {
                self.next += gap;
                first = Some(piece);
            } else {
                self.keep(at, &piece)?;
            }
            let covered = self.covered_to(at + gap, end);
            data.advance((covered - at - gap) as usize);
            at = covered;
        }
        Ok(first)
    }

    /// The end of what is held from here on without a gap, at most `end`.
    fn covered_to(&self, offset: u64, end: u64) -> u64 {
        let before = self.ahead.range(..=offset).next_back();
        let from = before.map_or(offset, |(from, _)| *from);
        let mut at = offset;
        for (from, piece) in self.ahead.range(from..) {
            if *from > at || at >= end {
                break;
            }
            at = at.max(from + piece.len() as u64);
        }
        at.min(end)
    }

    /// Keeps data that is not held yet.
    fn keep(&mut self, offset: u64, data: &[u8]) -> Result<(), Violation> {
        let before = self.ahead.range_mut(..offset).next_back();
        if let Some((at, piece)) = before
            && at + piece.len() as u64 == offset
        {
            let had = piece.capacity();
            piece.extend_from_slice(data);
            self.bytes += piece.capacity().saturating_sub(had) as u64;
            return Ok(());
        }
        if self.ahead.len() >= MAX_PIECES {
            return Err(Violation::Absurd);
        }
        let piece = BytesMut::from(data);
        self.bytes += piece.capacity() as u64;
        self.ahead.insert(offset, piece);
        Ok(())
    }

    /// The offset of what is next.
    pub(super) fn next_offset(&self) -> u64 {
        self.next
    }

    /// The first gap: what follows has arrived; `None` if there is none.
    pub(super) fn gap(&self) -> Option<u64> {
        (!self.ahead.is_empty()).then_some(self.next)
    }

    /// The end of all that has arrived.
    pub(super) fn reach(&self) -> u64 {
        let last = self.ahead.last_key_value();
        last.map_or(self.next, |(at, piece)| at + piece.len() as u64)
    }

    /// The first `most` gaps, and, with `rest`, what follows all that has arrived.
    pub(super) fn missing(&self, rest: bool, most: usize) -> Vec<Range> {
        let mut at = self.next;
        let mut ranges: Vec<Range> = Vec::new();
        for (from, piece) in &self.ahead {
            // Pieces that touch are not merged.
            if *from > at {
                ranges.push(Range { from: at, to: Some(*from) });
            }
            at = from + piece.len() as u64;
        }
        if rest {
            ranges.push(Range { from: at, to: None });
        }
        ranges.truncate(most);
        ranges
    }

    /// What had arrived early and is the next now.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let first = self.ahead.first_entry().filter(|entry| *entry.key() == self.next)?;
        let piece = first.remove();
        self.bytes = self.bytes.saturating_sub(piece.capacity() as u64);
        if self.ahead.is_empty() {
            self.bytes = 0;
        }
        self.next += piece.len() as u64;
        Some(piece.freeze())
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.bytes + self.ahead.len() as u64 * PIECE_COST
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::RandomStream;

    use super::*;

    #[test]
    fn pieces_in_any_order_are_returned_in_their_own() {
        for seed in 0..100 {
            let mut random = RandomStream::new(seed, "pieces");
            let whole: Vec<u8> = (0..3000).map(|_| random.next_u64() as u8).collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            while at < whole.len() {
                let end = whole.len().min(at + 1 + random.next_u64() as usize % 200);
                pieces.push((at as u64, Bytes::copy_from_slice(&whole[at..end])));
                at = end;
            }
            // Some come again, otherwise cut.
            for _ in 0..random.next_u64() % 20 {
                let from = random.next_u64() as usize % whole.len();
                let end = whole.len().min(from + random.next_u64() as usize % 500);
                pieces.push((from as u64, Bytes::copy_from_slice(&whole[from..end])));
            }
            let mut assembly = Assembly::default();
            let mut got = Vec::new();
            while !pieces.is_empty() {
                let place = random.next_u64() as usize % pieces.len();
                let (offset, data) = pieces.swap_remove(place);
                got.extend(assembly.insert(offset, data).unwrap().unwrap_or_default());
                while let Some(next) = assembly.next() {
                    got.extend(next);
                }
                let held: u64 = assembly.ahead.values().map(|piece| piece.len() as u64).sum();
                let gaps = assembly.missing(false, usize::MAX);
                let missing = gaps.iter().map(|gap| gap.to.unwrap() - gap.from).sum::<u64>();
                assert_eq!(assembly.next + held + missing, assembly.reach());
                assert_eq!(gaps.first().map(|gap| gap.from), assembly.gap());
            }
            assert_eq!(got, whole);
            assert_eq!(assembly.memory(), 0);
        }
    }

    #[test]
    fn what_is_missing_of_a_stream_is_named_with_and_without_its_rest() {
        let mut assembly = Assembly::default();
        for at in [10, 11, 30] {
            assert_eq!(assembly.insert(at, Bytes::from_static(b"x")), Ok(None));
        }
        let gaps = [(0, Some(10)), (12, Some(30)), (31, None)];
        let gaps = gaps.map(|(from, to)| Range { from, to });
        assert_eq!(assembly.missing(true, 9), gaps);
        assert_eq!(assembly.missing(false, 9), gaps[..2]);
        assert_eq!(assembly.missing(true, 1), gaps[..1]);
        assert_eq!((assembly.gap(), assembly.reach()), (Some(0), 31));
    }

    #[test]
    fn gaps_are_few() {
        let mut assembly = Assembly::default();
        let data = Bytes::from_static(b"x");
        let taken =
            (0..).take_while(|gap| assembly.insert(1 + gap * 2, data.clone()).is_ok()).count();
        assert_eq!(taken, MAX_PIECES);
        assert!(assembly.memory() < 1 << 20);
    }
}
