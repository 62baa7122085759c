//! What an endpoint derives from its seed and from the time that it is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as StdDuration, SystemTime};

use noq_proto::{ConnectionIdGenerator, TimeSource};
use ontempo_foundation::RandomStream;
use ring::hmac;

/// The time source of the stack's tokens: the time passed in.
pub(crate) struct GivenTime(pub(crate) Arc<AtomicU64>);

impl TimeSource for GivenTime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + StdDuration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Connection ids from a named random stream.
pub(crate) struct SeededIds(pub(crate) RandomStream);

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> noq_proto::ConnectionId {
        noq_proto::ConnectionId::new(&self.0.next_u64().to_le_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<StdDuration> {
        None
    }
}

/// Random bytes for the stack's seeds and our own.
pub(crate) fn random_bytes<const N: usize>(random: &mut RandomStream) -> [u8; N] {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        let word = random.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

/// A number that differs with every seed: ids of two endpoints must not be equal.
pub(crate) fn folded(seed: &hmac::Key) -> u64 {
    let tag = hmac::sign(seed, b"folded");
    tag.as_ref().iter().take(8).fold(0, |folded, byte| (folded << 8) | u64::from(*byte))
}
