//! What a gateway does with its connections, whatever carries them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{MessageRate, host_prefix};

/// Maximum bytes that are read at once, and become one message: each read and write costs a wake-up
/// of the other side.
const MAX_PIECE: usize = 128 * 1024;

/// The same at first. It doubles whenever a read fills it, so that a connection of short messages
/// holds little memory.
const FIRST_PIECE: usize = 8 * 1024;

/// Part of a gateway's places that is a host's own: a quarter. It may take more while nobody else
/// asks for them.
const SHARE: usize = 4;

/// A connection over which no byte has moved for so long yields its place if none is left.
const IDLE: Wall = Wall::from_secs(30);

/// How late a message may be that still counts as sent on time.
const LATE: Wall = Wall::from_millis(5);

/// The connections of a gateway, numbered from 1.
#[derive(Debug)]
pub struct Relayed<C> {
    max: usize,
    /// Number of the latest connection.
    last: u64,
    open: BTreeMap<u64, Entry<C>>,
}

#[derive(Debug)]
struct Entry<C> {
    host: IpAddr,
    activity: Activity,
    /// `None` until both ends of the connection have agreed.
    connection: Option<C>,
}

/// When bytes of a connection last moved; a clone is the same.
#[derive(Clone, Debug)]
pub struct Activity {
    begun: Instant,
    /// Milliseconds after it.
    latest: Arc<AtomicU64>,
}

impl Activity {
    fn new(now: Instant) -> Self {
        Self { begun: now, latest: Arc::default() }
    }

    /// Bytes move now.
    pub fn note(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.begun).as_millis();
        self.latest.store(u64::try_from(millis).unwrap_or(u64::MAX), Relaxed);
    }

    /// How long none has moved.
    pub fn idle(&self, now: Instant) -> Wall {
        now.saturating_duration_since(self.latest())
    }

    fn latest(&self) -> Instant {
        self.begun + Wall::from_millis(self.latest.load(Relaxed))
    }
}

/// A new connection of a gateway.
#[derive(Debug)]
pub struct Begun<C> {
    /// Its number.
    pub number: u64,
    /// To be noted by those who relay it.
    pub activity: Activity,
    /// The connection whose place it takes, to be closed.
    pub ended: Option<C>,
}

impl<C> Relayed<C> {
    /// At most `max` connections at a time.
    pub fn new(max: usize) -> Self {
        Self { max, last: 0, open: BTreeMap::new() }
    }

    /// Maximum connections at a time.
    pub fn max(&self) -> usize {
        self.max
    }

    /// A new connection of a peer at `address`; `None` if there is no place for it. If all are
    /// taken, it takes that of the connection that has been idle for the longest: of the host that
    /// has the largest number, if that is more than a quarter and the new one's host has less; or
    /// one that has been idle for 30 s, of a host with at least as many as the new one's.
    pub fn begin(&mut self, now: Instant, address: IpAddr) -> Option<Begun<C>> {
        let host = host_prefix(address);
        let mut ended = None;
        if self.open.len() >= self.max {
            let number = self.yielding(now, host)?;
            ended = self.end(number);
        }
        self.last += 1;
        let activity = Activity::new(now);
        let entry = Entry { host, activity: activity.clone(), connection: None };
        self.open.insert(self.last, entry);
        Some(Begun { number: self.last, activity, ended })
    }

    /// The connection that yields its place to a new one of `host`. One whose ends have not agreed
    /// keeps it: its thread cannot be woken, and waits for a bounded time only.
    fn yielding(&self, now: Instant, host: IpAddr) -> Option<u64> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for entry in self.open.values() {
            *counts.entry(entry.host).or_default() += 1;
        }
        let share = (self.max / SHARE).max(1);
        let of = |host: IpAddr| counts.get(&host).copied().unwrap_or(0);
        let (own, largest) = (of(host), counts.values().copied().max().unwrap_or(0));
        let is_returned = own < share && share < largest;
        let agreed = self.open.iter().filter(|(_, entry)| entry.connection.is_some());
        agreed
            .filter(|(_, entry)| {
                let idle = entry.activity.idle(now);
                let count = of(entry.host);
                (is_returned && count == largest) || (idle >= IDLE && count >= own)
            })
            .min_by_key(|(_, entry)| (of(entry.host) < largest, entry.activity.latest()))
            .map(|(number, _)| *number)
    }

    /// Both ends of a connection have agreed.
    pub fn agreed(&mut self, number: u64, connection: C) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.connection = Some(connection);
        }
    }

    /// A connection has ended: its place is free. What is returned may take long to drop.
    pub fn end(&mut self, number: u64) -> Option<C> {
        self.open.remove(&number)?.connection
    }

    /// Ends all: the numbers of those that had agreed, and their connections.
    pub fn end_all(&mut self) -> Vec<(u64, C)> {
        let all = std::mem::take(&mut self.open);
        all.into_iter().filter_map(|(number, one)| Some((number, one.connection?))).collect()
    }
}

/// Doubles a buffer that was filled.
fn grow(buffer: &mut Vec<u8>, filled: usize, most: usize) {
    if filled == buffer.len() && filled < most {
        buffer.resize((2 * filled).min(most), 0);
    }
}

/// From a stream to messages: what one read gives is one message.
#[derive(Debug)]
pub struct Forward {
    buffer: Vec<u8>,
    /// Maximum bytes of a message.
    most: usize,
    /// Bytes of a message that is not sent yet.
    unsent: usize,
}

impl Forward {
    /// Messages have at most this many bytes, and at most 128 KiB.
    pub fn new(max_message: usize) -> Self {
        let most = max_message.min(MAX_PIECE);
        Self { buffer: vec![0; most.min(FIRST_PIECE)], most, unsent: 0 }
    }

    /// Reads once and sends; `false` at the end of the stream. After an error of `send`, the
    /// message is sent by the next call.
    ///
    /// # Errors
    /// That of the stream or of `send`.
    pub fn step(
        &mut self,
        mut from: impl Read,
        send: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.unsent == 0 {
            self.unsent = match from.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
                Err(error) => return Err(error),
            };
        }
        send(&self.buffer[..self.unsent])?;
        grow(&mut self.buffer, self.unsent, self.most);
        self.unsent = 0;
        Ok(true)
    }
}

/// The time of messages at a rate: none before its interval is over, and none later is made up for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    due: Option<Instant>,
}

impl Pace {
    /// How long to wait before the next message.
    pub fn wait(&self, now: Instant) -> Wall {
        self.due.map_or(Wall::ZERO, |due| due.saturating_duration_since(now))
    }

    /// A message was sent: at most `rate` of them are agreed.
    pub fn on_sent(&mut self, now: Instant, rate: Option<MessageRate>) {
        let gap = rate.map(|rate| 1_000_000_000_000 / rate.as_thousandths().max(1));
        // From the time when it was due, so that a late wake-up does not add up.
        let since = self.due.filter(|due| now.saturating_duration_since(*due) < LATE);
        self.due = gap.map(|gap| since.unwrap_or(now) + Wall::from_nanos(gap));
    }
}

/// From messages to a stream.
#[derive(Debug)]
pub struct Backward {
    buffer: Vec<u8>,
    /// Where the bytes begin that are not written yet, and where they end.
    unwritten: (usize, usize),
}

impl Default for Backward {
    fn default() -> Self {
        Self { buffer: vec![0; FIRST_PIECE], unwritten: (0, 0) }
    }
}

impl Backward {
    /// Reads once, unless bytes are left, and writes once; `false` at the end of the messages.
    ///
    /// # Errors
    /// That of either.
    pub fn step(&mut self, mut from: impl Read, mut to: impl Write) -> io::Result<bool> {
        if self.unwritten.0 == self.unwritten.1 {
            self.unwritten = match from.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => (0, length),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
                Err(error) => return Err(error),
            };
        }
        let (start, end) = self.unwritten;
        match to.write(&self.buffer[start..end]) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                self.unwritten.0 += written;
                if self.unwritten.0 == end {
                    grow(&mut self.buffer, end, MAX_PIECE);
                }
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Takes a place and agrees; the connection is its own number.
    fn take(all: &mut Relayed<u64>, now: Instant, last: u8) -> Option<Begun<u64>> {
        let begun = all.begin(now, host(last))?;
        all.agreed(begun.number, begun.number);
        Some(begun)
    }

    #[test]
    fn no_second_has_more_messages_than_the_rate_also_after_a_pause() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let rate = Some(MessageRate::per_second(80));
        let mut sent: Vec<Wall> = Vec::new();
        let mut now = start;
        for number in 0..1_000u64 {
            // Late wake-ups, and now and then nothing to send.
            now += pace.wait(now) + Wall::from_micros(number * 7_919 % 3_000);
            if number % 97 == 0 {
                now += Wall::from_millis(700);
            }
            pace.on_sent(now, rate);
            sent.push(now - start);
        }
        for (first, at) in sent.iter().enumerate() {
            let until = *at + Wall::from_secs(1);
            let count = sent[first..].iter().take_while(|one| **one < until).count();
            assert!(count <= 81, "{count} from {at:?}");
        }
        let whole = sent.last().unwrap().as_secs_f64() - 11.0 * 0.7;
        assert!((12.4..12.7).contains(&whole), "{whole} s for 1,000 messages");
        pace.on_sent(now, None);
        assert_eq!(pace.wait(now), Wall::ZERO);
    }

    #[test]
    fn buffers_grow_up_to_their_bound_while_reads_fill_them() {
        let mut stream = io::repeat(7);
        let (mut forward, mut lengths) = (Forward::new(100_000), Vec::new());
        let mut backward = Backward::default();
        for _ in 0..10 {
            let sent = |message: &[u8]| {
                lengths.push(message.len());
                Ok(())
            };
            assert!(forward.step(&mut stream, sent).unwrap());
            assert!(backward.step(&mut stream, io::sink()).unwrap());
        }
        assert_eq!(lengths[..5], [8 << 10, 16 << 10, 32 << 10, 64 << 10, 100_000]);
        assert_eq!(lengths[9], 100_000);
        assert_eq!(backward.buffer.len(), MAX_PIECE);
        // Short reads need no more.
        let mut forward = Forward::new(usize::MAX);
        assert!(forward.step(&b"short"[..], |_| Ok(())).unwrap());
        assert_eq!(forward.buffer.len(), FIRST_PIECE);
    }

    #[test]
    fn a_host_keeps_more_than_its_share_only_while_nobody_else_asks() {
        let (mut all, now) = (Relayed::new(8), Instant::now());
        for _ in 0..8 {
            assert!(take(&mut all, now, 1).is_some());
        }
        assert!(take(&mut all, now, 1).is_none(), "its connections are not idle");
        let later = now + Wall::from_secs(1);
        // Other hosts get their shares, of the least active; nobody gets more.
        let ended = |begun: Option<Begun<u64>>| begun.and_then(|begun| begun.ended);
        assert_eq!(ended(take(&mut all, later, 2)), Some(1));
        assert_eq!(ended(take(&mut all, later, 2)), Some(2));
        assert!(take(&mut all, later, 2).is_none());
        assert_eq!(ended(take(&mut all, later, 3)), Some(3));
    }

    #[test]
    fn only_idle_connections_yield_to_others_of_hosts_with_as_many() {
        let (mut all, now) = (Relayed::new(4), Instant::now());
        let begun: Vec<_> =
            (1..=4).map(|last| take(&mut all, now, last).expect("a place")).collect();
        let late = now + IDLE;
        begun[0].activity.note(late);
        assert!(take(&mut all, late - Wall::from_secs(1), 5).is_none());
        assert_eq!(take(&mut all, late, 5).expect("a place").ended, Some(2));
        // A host with two takes none of a host with one.
        assert_eq!(take(&mut all, late, 5).map(|begun| begun.ended), Some(Some(3)));
        assert!(take(&mut all, late, 5).is_none());
    }

    #[test]
    fn connections_that_have_not_agreed_keep_their_places() {
        let (mut all, now): (Relayed<u64>, _) = (Relayed::new(2), Instant::now());
        assert!(all.begin(now, host(1)).is_some() && all.begin(now, host(1)).is_some());
        assert!(all.begin(now + 2 * IDLE, host(2)).is_none());
    }
}
