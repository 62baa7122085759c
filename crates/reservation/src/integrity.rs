//! Cryptographic authentication of RSVP messages (RFC 2747).
//!
//! A sealed message has an INTEGRITY object after its common header: flags, Key Identifier,
//! Sequence Number and a keyed message digest over the whole message. The RFC's algorithm is
//! HMAC-MD5. The length of the digest is that of the key's algorithm, so that neighbours configured
//! alike can use HMAC-SHA-256 (32 bytes).

use core::fmt;
use std::collections::BTreeMap;
use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use ontempo_foundation::{Duration, Time};
use sha2::{Digest, Sha256};

use crate::message::{HEADER_LENGTH, class};

/// Bytes of the object before its digest: header, flags, key, sequence number.
const FIXED: usize = 20;
/// The sender answers challenges (RFC 2747 section 2.1).
const HANDSHAKE: u8 = 1;
const KEY_BITS: u32 = 48;
/// Of them the key number; those above identify the sending interface (RFC 2747 section 2.1).
const NUMBER_BITS: u32 = 16;
/// After a neighbour's numbers have fallen, a jump of more than this below their former height is a
/// replay: numbers rise by one with each message.
const MAX_JUMP: u64 = 1 << 20;
/// Numbers this far behind the highest may still come, each once (RFC 2747 section 4.2 allows for
/// messages out of order).
const WINDOW: u64 = 64;
/// Least time between two challenges to one neighbour (RFC 2747 section 4.3 requires a limit).
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);

/// The keyed hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 2747's own, for routers of other makes.
    HmacMd5,
    /// Between ontempo's own daemons.
    HmacSha256,
}

/// A secret that neighbours share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: u64,
    /// Key Identifiers of what is sent and received, where a router of another make sets them.
    fixed: Option<[u64; 2]>,
    algorithm: Algorithm,
    secret: Vec<u8>,
}

impl Key {
    /// A key by its number, of which 48 bits count.
    pub fn new(id: u64, algorithm: Algorithm, secret: Vec<u8>) -> Self {
        Self { id: id & ((1 << KEY_BITS) - 1), fixed: None, algorithm, secret }
    }

    /// With fixed Key Identifiers for the two directions, 48 bits each, which must differ. Those of
    /// received messages then do not show which neighbour has sent them.
    #[must_use]
    pub fn with_identifiers(mut self, send: u64, receive: u64) -> Self {
        self.fixed = Some([send, receive].map(|id| id & ((1 << KEY_BITS) - 1)));
        self
    }

    /// The key of messages that an interface of this address sends. Its Key Identifier is the
    /// address (of IPv6 the first 32 bits of its SHA-256) and the key number: a security
    /// association has one sender and so one direction (RFC 2747 section 2.1).
    #[must_use]
    pub fn of_sender(&self, sender: IpAddr) -> Self {
        let system = match sender {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => {
                let digest: [u8; 32] = Sha256::digest(address.octets()).into();
                let [a, b, c, d, ..] = digest;
                u32::from_be_bytes([a, b, c, d])
            }
        };
        let number = self.id & ((1 << NUMBER_BITS) - 1);
        let id = match self.fixed {
            Some([send, _]) => send,
            None => u64::from(system) << NUMBER_BITS | number,
        };
        Self { id, ..self.clone() }
    }

    /// The key of messages that a neighbour of this address sends.
    fn of_neighbour(&self, neighbour: IpAddr) -> Self {
        match self.fixed {
            Some([_, receive]) => Self { id: receive, ..self.clone() },
            None => self.of_sender(neighbour),
        }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn digest_length(&self) -> usize {
        match self.algorithm {
            Algorithm::HmacMd5 => 16,
            Algorithm::HmacSha256 => 32,
        }
    }

    fn digest(&self, bytes: &[u8]) -> Vec<u8> {
        match self.algorithm {
            Algorithm::HmacMd5 => mac::<Hmac<Md5>>(&self.secret, bytes).map(finish),
            Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(&self.secret, bytes).map(finish),
        }
        .unwrap_or_default()
    }

    /// Compares in constant time.
    fn verifies(&self, bytes: &[u8], digest: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::HmacMd5 => mac::<Hmac<Md5>>(&self.secret, bytes)
                .is_some_and(|mac| mac.verify_slice(digest).is_ok()),
            Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(&self.secret, bytes)
                .is_some_and(|mac| mac.verify_slice(digest).is_ok()),
        }
    }
}

/// HMAC takes secrets of any length, so that this is never `None`.
fn mac<M: Mac + KeyInit>(secret: &[u8], bytes: &[u8]) -> Option<M> {
    let mut mac = <M as KeyInit>::new_from_slice(secret).ok()?;
    mac.update(bytes);
    Some(mac)
}

fn finish(mac: impl Mac) -> Vec<u8> {
    mac.finalize().into_bytes().to_vec()
}

impl fmt::Debug for Key {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("algorithm", &self.algorithm).finish()
    }
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No INTEGRITY object behind the header, or one of wrong length.
    Unsealed,
    /// Its Key Identifier is of another key, or of another sender than its RSVP_HOP or source.
    UnknownKey,
    /// The digest is wrong.
    Forged,
    /// Its number came before, or is too old.
    Replayed,
    /// The neighbour has first to answer a challenge.
    Unproven,
    /// Too many neighbours are known already.
    TooMany,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsealed => "the message has no INTEGRITY object",
            Self::UnknownKey => "the message's Key Identifier is not that of a key and its sender",
            Self::Forged => "the message's digest is wrong",
            Self::Replayed => "the message's sequence number was seen before or is too old",
            Self::Unproven => "the neighbour has not answered a challenge yet",
            Self::TooMany => "too many neighbours are known already",
        })
    }
}

impl core::error::Error for Refusal {}

/// The fields of a valid INTEGRITY object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The sender answers challenges.
    pub handshake: bool,
    /// The message's number.
    pub sequence: u64,
}

/// Puts an INTEGRITY object behind the header of an encoded message.
///
/// The checksum is set to 0, "none": the digest covers it as 0 (RFC 2747 section 4.1). `None` where
/// the message then exceeds 65,535 bytes.
pub fn seal(message: &[u8], key: &Key, seal: Seal) -> Option<Vec<u8>> {
    let (header, objects) = message.split_at_checked(HEADER_LENGTH)?;
    let object = FIXED + key.digest_length();
    let length = u16::try_from(message.len() + object).ok()?;
    let mut out = Vec::with_capacity(usize::from(length));
    out.extend(header);
    out[2..4].fill(0);
    out[6..8].copy_from_slice(&length.to_be_bytes());
    out.extend((object as u16).to_be_bytes()); // at most 56
    out.extend([class::INTEGRITY, 1, if seal.handshake { HANDSHAKE } else { 0 }, 0]);
    out.extend(&key.id.to_be_bytes()[2..]);
    out.extend(seal.sequence.to_be_bytes());
    let digest_at = out.len();
    out.resize(digest_at + key.digest_length(), 0);
    out.extend(objects);
    let digest = key.digest(&out);
    out[digest_at..digest_at + digest.len()].copy_from_slice(&digest);
    Some(out)
}

/// Checks the Key Identifier and the digest of a message; not its Sequence Number.
///
/// # Errors
/// Where the message is not sealed with this key.
pub fn open(message: &[u8], key: &Key) -> Result<Seal, Refusal> {
    let object = message.get(HEADER_LENGTH..).ok_or(Refusal::Unsealed)?;
    let fixed: &[u8; FIXED] = object.first_chunk().ok_or(Refusal::Unsealed)?;
    let length = usize::from(u16::from_be_bytes([fixed[0], fixed[1]]));
    if fixed[2..4] != [class::INTEGRITY, 1] {
        return Err(Refusal::Unsealed);
    }
    if fixed[6..12] != key.id.to_be_bytes()[2..] {
        return Err(Refusal::UnknownKey);
    }
    if length != FIXED + key.digest_length() || object.len() < length {
        return Err(Refusal::Unsealed);
    }
    let mut zeroed = message.to_vec();
    zeroed[2..4].fill(0);
    zeroed[HEADER_LENGTH + FIXED..HEADER_LENGTH + length].fill(0);
    if !key.verifies(&zeroed, &object[FIXED..length]) {
        return Err(Refusal::Forged);
    }
    let [.., a, b, c, d, e, f, g, h] = *fixed;
    let sequence = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    Ok(Seal { handshake: fixed[4] & HANDSHAKE != 0, sequence })
}

/// The numbers of a neighbour's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    highest: u64,
    /// Bit n: `highest - n` has come.
    seen: u64,
}

impl Numbers {
    /// Numbers up to the first one count as received: lower ones may be replays.
    fn first(sequence: u64) -> Self {
        Self { highest: sequence, seen: u64::MAX }
    }

    /// Records the number; true where it was not received before and is not too old.
    fn take(&mut self, sequence: u64) -> bool {
        if sequence > self.highest {
            let ahead = sequence - self.highest;
            self.seen = if ahead < WINDOW { self.seen << ahead } else { 0 } | 1;
            self.highest = sequence;
            return true;
        }
        let behind = self.highest - sequence;
        let fresh = behind < WINDOW && self.seen & (1 << behind) == 0;
        if fresh {
            self.seen |= 1 << behind;
        }
        fresh
    }

    /// Whether the number is too old for the window: of a replay, or of a neighbour restarted with
    /// its clock behind.
    fn is_old(&self, sequence: u64) -> bool {
        self.highest.saturating_sub(sequence) >= WINDOW
    }
}

#[derive(Clone, Debug)]
struct Neighbour {
    numbers: Option<Numbers>,
    /// The cookie that is to be answered, and when it was sent.
    challenge: Option<(Vec<u8>, Time)>,
    /// The highest number from before a restart with lower numbers; 0 without one.
    retired: u64,
}

/// The result of the check of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The neighbour has sent it, and it is no replay.
    Accept,
    /// It must be dropped. Where a cookie is given, the neighbour must be sent a Challenge with it.
    Refuse(Refusal, Option<Vec<u8>>),
}

/// The keys of one neighbour, if it has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourKeys {
    /// Of what is sent to it.
    pub send: Key,
    /// Of what it sends.
    pub receive: Key,
}

/// For whom a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audience {
    /// For one neighbour: sealed with the key of its own, if it has one.
    One,
    /// For a group of receivers, who must share a key: that of the interface.
    Many,
}

/// The security associations of one interface: seals messages that leave, checks those that arrive.
///
/// A neighbour with keys of its own is refused with any other key, except for messages to a group of
/// receivers: of a message whose receivers are many, only a key that all of them have can be the
/// seal, so that each of them could have made it.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Of messages to groups, and of neighbours without keys of their own.
    key: Option<Key>,
    own_keys: BTreeMap<IpAddr, NeighbourKeys>,
    next: u64,
    /// An unknown neighbour must pass the integrity handshake first (RFC 2747 section 4.3).
    challenging: bool,
    /// By address and key: who knows a shared key must not use up the numbers of another one.
    neighbours: BTreeMap<(IpAddr, Audience), Neighbour>,
    max_neighbours: usize,
}

impl Guard {
    /// A guard whose first number is `first_sequence`, which must be above all that were used with
    /// the keys before: the time of day in nanoseconds is (RFC 2747 section 3). Without a key of the
    /// interface, only neighbours with keys of their own are heard.
    pub fn new(
        key: impl Into<Option<Key>>,
        first_sequence: u64,
        challenging: bool,
        max_neighbours: usize,
    ) -> Self {
        let (own_keys, neighbours) = (BTreeMap::new(), BTreeMap::new());
        let (key, next) = (key.into(), first_sequence);
        Self { key, own_keys, next, challenging, neighbours, max_neighbours }
    }

    /// With keys of its own for the neighbour of this address.
    #[must_use]
    pub fn with_neighbour(mut self, address: IpAddr, keys: NeighbourKeys) -> Self {
        self.own_keys.insert(address, keys);
        self
    }

    /// The key of messages to a neighbour; of `None`, to a group or to one that is not known.
    fn key_to(&self, neighbour: Option<IpAddr>) -> Option<&Key> {
        let own = neighbour.and_then(|address| self.own_keys.get(&address));
        own.map(|keys| &keys.send).or(self.key.as_ref())
    }

    /// The key of messages of a neighbour.
    fn key_from(&self, neighbour: IpAddr, audience: Audience) -> Option<Key> {
        let own = self.own_keys.get(&neighbour).filter(|_| audience == Audience::One);
        let key = own.map(|keys| &keys.receive).or(self.key.as_ref());
        key.map(|key| key.of_neighbour(neighbour))
    }

    /// Which of this interface's keys has the Key Identifier that a neighbour's Challenge names: the
    /// address to seal the answer for. `None`: none of them.
    pub fn challenged(&self, sender: IpAddr, peer: IpAddr, id: u64) -> Option<Option<IpAddr>> {
        let has = |to| self.key_to(to).is_some_and(|key| key.of_sender(sender).id == id);
        [Some(peer), None].into_iter().find(|to| has(*to))
    }

    /// The Key Identifier of messages of a neighbour.
    pub fn receiving_id(&self, neighbour: IpAddr, audience: Audience) -> Option<u64> {
        self.key_from(neighbour, audience).map(|key| key.id)
    }

    /// Seals an encoded message, sent from this address of the interface, with the next number: to
    /// this neighbour, or to a group or one that is not known. `None`: there is no key for it.
    pub fn seal(
        &mut self,
        sender: IpAddr,
        neighbour: Option<IpAddr>,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        let stamp = Seal { handshake: true, sequence: self.next };
        let sealed = seal(message, &self.key_to(neighbour)?.of_sender(sender), stamp);
        self.next += 1;
        sealed
    }

    /// Checks a message of the neighbour `peer`; `response` is the cookie where it answers a
    /// challenge.
    pub fn check(
        &mut self,
        now: Time,
        (peer, audience): (IpAddr, Audience),
        message: &[u8],
        response: Option<&[u8]>,
    ) -> Verdict {
        let Some(key) = self.key_from(peer, audience) else {
            return Verdict::Refuse(Refusal::UnknownKey, None);
        };
        let seal = match open(message, &key) {
            Ok(seal) => seal,
            Err(refusal) => return Verdict::Refuse(refusal, None),
        };
        let is_own = audience == Audience::One || !self.own_keys.contains_key(&peer);
        let peer = (peer, if is_own { Audience::One } else { Audience::Many });
        if !self.has_room(peer) {
            return Verdict::Refuse(Refusal::TooMany, None);
        }
        let new = Neighbour { numbers: None, challenge: None, retired: 0 };
        let known = self.neighbours.entry(peer).or_insert(new);
        if let Some(cookie) = response {
            return match &known.challenge {
                Some((sent, _)) if sent == cookie => {
                    let highest = known.numbers.map_or(0, |numbers| numbers.highest);
                    known.retired = known.retired.max(highest);
                    known.numbers = Some(Numbers::first(seal.sequence));
                    known.challenge = None;
                    Verdict::Accept
                }
                _ => Verdict::Refuse(Refusal::Replayed, None),
            };
        }
        let provable = self.challenging && seal.handshake;
        match &mut known.numbers {
            Some(numbers) => {
                let jumps = seal.sequence <= known.retired
                    && seal.sequence > numbers.highest.saturating_add(MAX_JUMP);
                if !jumps && numbers.take(seal.sequence) {
                    return Verdict::Accept;
                }
                // Only the neighbour itself answers: it may have restarted with its clock behind.
                let doubtful = provable && (jumps || numbers.is_old(seal.sequence));
                let cookie = if doubtful { self.challenge(now, peer) } else { None };
                Verdict::Refuse(Refusal::Replayed, cookie)
            }
            None if !provable => {
                known.numbers = Some(Numbers::first(seal.sequence));
                Verdict::Accept
            }
            None => Verdict::Refuse(Refusal::Unproven, self.challenge(now, peer)),
        }
    }

    /// Whether the neighbour is known or there is room for it. A full list loses the neighbour that
    /// has left its challenge unanswered for longest, and no proven one.
    fn has_room(&mut self, peer: (IpAddr, Audience)) -> bool {
        if self.neighbours.contains_key(&peer) || self.neighbours.len() < self.max_neighbours {
            return true;
        }
        let unproven = self.neighbours.iter().filter(|(_, known)| known.numbers.is_none());
        let sent = |known: &Neighbour| known.challenge.as_ref().map(|(_, sent)| *sent);
        let oldest = unproven.min_by_key(|(_, known)| sent(known)).map(|(known, _)| *known);
        oldest.is_some_and(|known| self.neighbours.remove(&known).is_some())
    }

    /// A cookie for the neighbour, which cannot be predicted without the key; none where it was
    /// challenged a moment ago.
    fn challenge(&mut self, now: Time, peer: (IpAddr, Audience)) -> Option<Vec<u8>> {
        let number = [self.next.to_be_bytes(), now.as_nanos().to_be_bytes()].concat();
        let cookie = self.key_from(peer.0, peer.1)?.digest(&number);
        self.next += 1;
        let known = self.neighbours.get_mut(&peer)?;
        if matches!(&known.challenge, Some((_, sent)) if now.since(*sent) < CHALLENGE_INTERVAL) {
            return None;
        }
        known.challenge = Some((cookie.clone(), now));
        Some(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Body, Message};

    fn key(algorithm: Algorithm) -> Key {
        Key::new(0x1234_5678_9abc, algorithm, b"a secret of the hop".to_vec())
    }

    fn message() -> Vec<u8> {
        Message::new(Body::Challenge { key: 7, cookie: vec![1, 2, 3, 4] }).encode().unwrap()
    }

    #[test]
    fn what_is_sealed_opens_and_any_changed_byte_is_noticed() {
        for algorithm in [Algorithm::HmacMd5, Algorithm::HmacSha256] {
            let stamp = Seal { handshake: true, sequence: 99 };
            let sealed = seal(&message(), &key(algorithm), stamp).unwrap();
            assert_eq!(open(&sealed, &key(algorithm)), Ok(stamp));
            Message::decode(&sealed).unwrap();
            for place in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[place] ^= 0x40;
                // The checksum alone is not covered: an earlier hop's is of no use.
                let covered = !(2..4).contains(&place);
                assert_eq!(open(&changed, &key(algorithm)).is_err(), covered, "byte {place}");
            }
            for length in 0..sealed.len() {
                assert!(open(&sealed[..length], &key(algorithm)).is_err());
            }
        }
    }

    /// RFC 2202: test case 2 of HMAC-MD5; RFC 4231: test case 2 of HMAC-SHA-256.
    #[test]
    fn digests_are_those_of_the_rfcs() {
        let text = b"what do ya want for nothing?";
        let md5 = Key::new(0, Algorithm::HmacMd5, b"Jefe".to_vec()).digest(text);
        assert_eq!(md5[..4], [0x75, 0x0c, 0x78, 0x3e]);
        let sha = Key::new(0, Algorithm::HmacSha256, b"Jefe".to_vec()).digest(text);
        assert_eq!(sha[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }

    #[test]
    fn a_number_counts_once_even_out_of_order() {
        let mut numbers = Numbers::first(100);
        assert!(!numbers.take(100));
        assert!(numbers.take(103) && numbers.take(101) && numbers.take(102));
        assert!(!numbers.take(101));
        assert!(numbers.take(1000));
        assert!(!numbers.take(103), "too old");
    }

    #[test]
    fn a_recording_from_before_a_restart_fails_the_challenge() {
        let peer: IpAddr = [10, 0, 0, 1].into();
        let mut sender = Guard::new(key(Algorithm::HmacMd5), 1, true, 4);
        let recorded = sender.seal(peer, None, &message()).unwrap();
        let mut receiver = Guard::new(key(Algorithm::HmacMd5), 1, true, 4);
        let Verdict::Refuse(Refusal::Unproven, Some(cookie)) =
            receiver.check(Time::ZERO, (peer, Audience::One), &recorded, None)
        else {
            panic!("not challenged");
        };
        let again = receiver.check(Time::ZERO, (peer, Audience::One), &recorded, None);
        assert_eq!(again, Verdict::Refuse(Refusal::Unproven, None), "one challenge a second");
        let answer = sender.seal(peer, None, &message()).unwrap();
        assert_eq!(
            receiver.check(Time::ZERO, (peer, Audience::One), &answer, Some(&cookie)),
            Verdict::Accept
        );
        let replay = receiver.check(Time::ZERO, (peer, Audience::One), &recorded, None);
        assert_eq!(replay, Verdict::Refuse(Refusal::Replayed, None));
        let new = sender.seal(peer, None, &message()).unwrap();
        assert_eq!(receiver.check(Time::ZERO, (peer, Audience::One), &new, None), Verdict::Accept);
    }

    #[test]
    fn a_neighbour_with_keys_of_its_own_is_not_heard_with_another() {
        let [ours, bob, mallory]: [IpAddr; 3] = [1, 2, 3].map(|last| [10, 0, 0, last].into());
        let key = |id, secret: &str| Key::new(id, Algorithm::HmacSha256, secret.into());
        let both = |key: Key| NeighbourKeys { send: key.clone(), receive: key };
        let (shared, of_bob) = (key(1, "of the whole interface"), key(2, "bob's and ours"));
        let of_mallory = key(3, "mallory's and ours");
        let mut guard = Guard::new(shared.clone(), 1, false, 8)
            .with_neighbour(bob, both(of_bob.clone()))
            .with_neighbour(mallory, both(of_mallory.clone()));
        let mut check = |from: &Key, peer: IpAddr, audience, sequence| {
            let stamp = Seal { handshake: true, sequence };
            let sealed = seal(&message(), &from.of_sender(peer), stamp).unwrap();
            guard.check(Time::ZERO, (peer, audience), &sealed, None)
        };
        let unknown = Verdict::Refuse(Refusal::UnknownKey, None);
        assert_eq!(check(&of_bob, bob, Audience::One, 10), Verdict::Accept);
        // As bob: with its own key, with that of the interface, with its own under bob's number.
        assert_eq!(check(&of_mallory, bob, Audience::One, 11), unknown);
        assert_eq!(check(&shared, bob, Audience::One, 11), unknown);
        let renamed = key(2, "mallory's and ours");
        let forged = Verdict::Refuse(Refusal::Forged, None);
        assert_eq!(check(&renamed, bob, Audience::One, 11), forged);
        // To a group all use the interface's key, and its numbers use up none of the others.
        assert_eq!(check(&of_bob, bob, Audience::Many, 11), unknown);
        assert_eq!(check(&shared, bob, Audience::Many, 1 << 40), Verdict::Accept);
        assert_eq!(check(&of_bob, bob, Audience::One, 11), Verdict::Accept);
        // What is for mallory is sealed with mallory's key.
        let sealed = guard.seal(ours, Some(mallory), &message()).unwrap();
        assert!(open(&sealed, &of_mallory.of_sender(ours)).is_ok());
        let sealed = guard.seal(ours, None, &message()).unwrap();
        assert!(open(&sealed, &shared.of_sender(ours)).is_ok());
    }

    #[test]
    fn without_a_key_of_the_interface_only_named_neighbours_are_heard() {
        let [ours, bob, other]: [IpAddr; 3] = [1, 2, 3].map(|last| [10, 0, 0, last].into());
        let [send, receive] =
            ["there", "and back"].map(|secret| Key::new(1, Algorithm::HmacSha256, secret.into()));
        let keys = NeighbourKeys { send: send.clone(), receive: receive.clone() };
        let mut guard = Guard::new(None, 1, false, 8).with_neighbour(bob, keys);
        let stamp = Seal { handshake: true, sequence: 5 };
        let mut check = |key: &Key, peer: IpAddr| {
            let sealed = seal(&message(), &key.of_sender(peer), stamp).unwrap();
            guard.check(Time::ZERO, (peer, Audience::One), &sealed, None)
        };
        assert_eq!(check(&receive, bob), Verdict::Accept);
        assert_eq!(check(&send, bob), Verdict::Refuse(Refusal::Forged, None));
        assert_eq!(check(&receive, other), Verdict::Refuse(Refusal::UnknownKey, None));
        assert!(guard.seal(ours, None, &message()).is_none());
        let sealed = guard.seal(ours, Some(bob), &message()).unwrap();
        assert!(open(&sealed, &send.of_sender(ours)).is_ok());
    }
}
