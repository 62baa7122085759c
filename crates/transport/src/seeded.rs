//! What an endpoint derives from its seed and from the time that it is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as StdDuration, SystemTime};

use noq_proto::{ConnectionIdGenerator, TimeSource};
use ontempo_foundation::RandomStream;
use ring::hmac;

use crate::share::Share;

/// The time source of the stack's tokens: the time passed in.
pub(crate) struct GivenTime(pub(crate) Arc<AtomicU64>);

impl TimeSource for GivenTime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + StdDuration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Bytes of a connection id.
const ID: usize = 8;

/// Those of them that are random.
const RANDOM: usize = 6;

/// Connection ids from a named random stream, which only who has the key knows again. The stack must
/// not: it answers packets with ids of an earlier process by stateless resets.
#[derive(Clone)]
pub(crate) struct SeededIds {
    random: RandomStream,
    key: hmac::Key,
    share: Share,
}

impl SeededIds {
    /// Ids that belong to `key`, drawn by `seed`, and lead to the endpoint of `share`.
    pub(crate) fn new(seed: u64, key: hmac::Key, share: Share) -> Self {
        Self { random: RandomStream::new(seed, "connection ids"), key, share }
    }

    fn tag(&self, random: &[u8]) -> [u8; ID - RANDOM] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(b"connection id");
        context.update(random);
        let mut tag = [0; ID - RANDOM];
        tag.copy_from_slice(&context.sign().as_ref()[..ID - RANDOM]);
        tag
    }

    /// True of a datagram that begins with a short header (RFC 9000, section 17.3.1) and an id which is
    /// none of these: if it belongs to a connection nevertheless, that is by the token of a stateless
    /// reset. One reset of 65,536 has such an id by chance.
    pub(crate) fn is_foreign(&self, datagram: &Start) -> bool {
        let [first, id @ ..] = datagram;
        let (random, tag) = id.split_at(RANDOM);
        first & 0x80 == 0 && self.tag(random) != tag
    }
}

/// The first bytes of a datagram: flags, and the id of a short header.
pub(crate) type Start = [u8; 1 + ID];

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> noq_proto::ConnectionId {
        let mut id = self.random.next_u64().to_le_bytes();
        id[0] = self.share.own(id[0]);
        let tag = self.tag(&id[..RANDOM]);
        id[RANDOM..].copy_from_slice(&tag);
        noq_proto::ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID
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
