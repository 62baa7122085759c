//! Buffers that many connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ontempo_foundation::Bytes;

/// Part of what is left that a new connection gets in each direction: the first connections have
/// room for fast paths, and many have some each.
const PART: u64 = 32;

/// Bytes that a connection gets in each direction when nothing is left.
const LEAST: u64 = 32 << 10;

/// Memory for what connections have received and the program has not taken, and for what the program
/// has sent and peers have not acknowledged: of one endpoint, or of several.
///
/// A connection is given a thirty-second of what the others leave for each direction, at least
/// 32 KiB. So connections that nobody reads keep within it, and none is closed because others hold
/// too much. Who has not presented the token takes nothing from the others.
#[derive(Debug)]
pub struct Buffers {
    all: u64,
    given: AtomicU64,
}

impl Buffers {
    /// This many bytes for all connections.
    pub fn new(all: Bytes) -> Self {
        Self { all: all.get(), given: AtomicU64::new(0) }
    }

    /// What a connection that begins now gets in each direction, bytes.
    pub(crate) fn next(&self) -> u64 {
        (self.all.saturating_sub(self.given.load(Relaxed)) / PART).max(LEAST)
    }
}

/// A connection's part, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    of: Arc<Buffers>,
    bytes: u64,
}

impl Part {
    /// Takes `each` bytes in each direction.
    pub(crate) fn take(of: &Arc<Buffers>, each: u64) -> Self {
        let bytes = each.saturating_mul(2);
        of.given.fetch_add(bytes, Relaxed);
        Self { of: Arc::clone(of), bytes }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.given.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_together_stay_within_the_memory_and_the_least_of_each() {
        let buffers = Arc::new(Buffers::new(Bytes::new(64 << 20)));
        let mut parts: Vec<(u64, Part)> = Vec::new();
        for _ in 0..512 {
            let each = buffers.next();
            parts.push((each, Part::take(&buffers, each)));
        }
        assert_eq!(parts[0].0, 2 << 20);
        assert!(parts.windows(2).all(|two| two[1].0 <= two[0].0));
        assert_eq!(parts[511].0, LEAST);
        let given = buffers.given.load(Relaxed);
        assert!(given <= (64 << 20) + 512 * 2 * LEAST, "{given}");
        parts.clear();
        assert_eq!((buffers.given.load(Relaxed), buffers.next()), (0, 2 << 20));
    }
}
