//! Data of a stream, put in order.
//!
//! The QUIC stack does so as well, but does not tell how much it holds. Everything is therefore
//! taken from it at once, in any order, and held here, where it is counted.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::Violation;

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
    /// Takes data at an offset, which the stack passes once; returns it if it is the next.
    pub(super) fn insert(&mut self, offset: u64, data: Bytes) -> Result<Option<Bytes>, Violation> {
        if offset == self.next {
            self.next += data.len() as u64;
            return Ok(Some(data));
        }
        let before = self.ahead.range_mut(..offset).next_back();
        if let Some((at, piece)) = before
            && at + piece.len() as u64 == offset
        {
            let had = piece.capacity();
            piece.extend_from_slice(&data);
            self.bytes += piece.capacity().saturating_sub(had) as u64;
            return Ok(None);
        }
        if self.ahead.len() >= MAX_PIECES {
            return Err(Violation::Absurd);
        }
        let piece = BytesMut::from(data.as_ref());
        self.bytes += piece.capacity() as u64;
        self.ahead.insert(offset, piece);
        Ok(None)
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
            let mut assembly = Assembly::default();
            let mut got = Vec::new();
            while !pieces.is_empty() {
                let place = random.next_u64() as usize % pieces.len();
                let (offset, data) = pieces.swap_remove(place);
                got.extend(assembly.insert(offset, data).unwrap().unwrap_or_default());
                while let Some(next) = assembly.next() {
                    got.extend(next);
                }
            }
            assert_eq!(got, whole);
            assert_eq!(assembly.memory(), 0);
        }
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
