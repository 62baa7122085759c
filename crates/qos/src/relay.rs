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

/// Part of the interval between messages for which the rest of one is waited for, and the longest pause in it.
const GATHERED: u32 = 10;
const PAUSE: Wall = Wall::from_millis(5);

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

/// From a stream to messages: what comes together is one message.
#[derive(Debug)]
pub struct Forward {
    buffer: Vec<u8>,
    /// Maximum bytes of a message.
    most: usize,
    /// Bytes of a message that is not sent yet.
    unsent: usize,
    /// The stream has ended behind them.
    has_ended: bool,
}

impl Forward {
    /// Messages have at most this many bytes, and at most 128 KiB.
    pub fn new(max_message: usize) -> Self {
        let most = max_message.min(MAX_PIECE);
        Self { buffer: vec![0; most.min(FIRST_PIECE)], most, unsent: 0, has_ended: false }
    }

    /// Reads once, then as long as there is `more` and room, and sends; `false` at the end of the stream. After
    /// an error of `send`, the message is sent by the next call.
    ///
    /// # Errors
    /// That of the stream, of `more` or of `send`.
    pub fn step(
        &mut self,
        mut from: impl Read,
        mut more: impl FnMut() -> io::Result<bool>,
        send: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        while self.unsent == 0 && !self.has_ended {
            self.read(&mut from)?;
        }
        if self.unsent == 0 {
            return Ok(false);
        }
        while self.unsent < self.most && !self.has_ended && more()? {
            grow(&mut self.buffer, self.unsent, self.most);
            self.read(&mut from)?;
        }
        send(&self.buffer[..self.unsent])?;
        grow(&mut self.buffer, self.unsent, self.most);
        self.unsent = 0;
        Ok(true)
    }

    fn read(&mut self, from: &mut impl Read) -> io::Result<()> {
        match from.read(&mut self.buffer[self.unsent..]) {
            Ok(0) => self.has_ended = true,
            Ok(length) => self.unsent += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The rates at which messages are sent: those that are agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// In the mean.
    pub max: Option<MessageRate>,
    /// Of two messages.
    pub peak: Option<MessageRate>,
}

impl Rates {
    /// Between two messages, and in the mean.
    fn gaps(self) -> Option<(Wall, Wall)> {
        let mean = self.max.or(self.peak).map(gap)?;
        Some((self.peak.or(self.max).map(gap)?, mean))
    }
}

/// The time of messages: two are at least as far apart as the peak rate says, and in the mean as the maximum rate, of which
/// one more may go at once: what a reservation has room for (b of the TSpec, docs/qos-specification.md). No peak rate: it is the maximum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The next message, by the peak rate.
    due: Option<Instant>,
    /// The same by the mean, where no message is saved up.
    mean: Option<Instant>,
}

impl Pace {
    /// How long to wait before the next message.
    pub fn wait(&self, now: Instant, rates: Rates) -> Wall {
        let Some((_, mean)) = rates.gaps() else { return Wall::ZERO };
        let left =
            |at: Option<Instant>| at.map_or(Wall::ZERO, |at| at.saturating_duration_since(now));
        left(self.due).max(left(self.mean).saturating_sub(mean))
    }

    /// How long to wait at `now` for more of a message of which the first bytes came at `since`: until it may be sent, and
    /// after that through short pauses for a tenth of the interval, as the next message has to wait. Zero: it is sent.
    pub fn gather(&self, now: Instant, since: Instant, rates: Rates) -> Wall {
        let rest = rates.gaps().map_or(Wall::ZERO, |(_, mean)| {
            (since + mean / GATHERED).saturating_duration_since(now).min(PAUSE)
        });
        self.wait(now, rates).max(rest)
    }

    /// A message is sent now.
    pub fn on_sent(&mut self, now: Instant, rates: Rates) {
        // From the time when it was due, so that a late wake-up does not add up.
        let after = |due: Option<Instant>, gap: Wall| {
            due.filter(|due| now.saturating_duration_since(*due) < LATE).unwrap_or(now) + gap
        };
        let (peak, mean) = rates.gaps().unzip();
        self.due = peak.map(|gap| after(self.due, gap));
        self.mean = mean.map(|gap| after(self.mean, gap));
    }
}

fn gap(rate: MessageRate) -> Wall {
    Wall::from_nanos(1_000_000_000_000 / rate.as_thousandths().max(1))
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

    fn at_most(rate: u32) -> Rates {
        Rates { max: Some(MessageRate::per_second(rate)), peak: None }
    }

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
        let rates = at_most(80);
        let mut sent: Vec<Wall> = Vec::new();
        let mut now = start;
        for number in 0..1_000u64 {
            // Late wake-ups, and now and then nothing to send.
            now += pace.wait(now, rates) + Wall::from_micros(number * 7_919 % 3_000);
            if number % 97 == 0 {
                now += Wall::from_millis(700);
            }
            pace.on_sent(now, rates);
            sent.push(now - start);
        }
        for (first, at) in sent.iter().enumerate() {
            let until = *at + Wall::from_secs(1);
            let count = sent[first..].iter().take_while(|one| **one < until).count();
            assert!(count <= 81, "{count} from {at:?}");
        }
        let whole = sent.last().unwrap().as_secs_f64() - 11.0 * 0.7;
        assert!((12.4..12.7).contains(&whole), "{whole} s for 1,000 messages");
        pace.on_sent(now, Rates::default());
        assert_eq!(pace.wait(now, Rates::default()), Wall::ZERO);
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
            assert!(forward.step(&mut stream, || Ok(false), sent).unwrap());
            assert!(backward.step(&mut stream, io::sink()).unwrap());
        }
        assert_eq!(lengths[..5], [8 << 10, 16 << 10, 32 << 10, 64 << 10, 100_000]);
        assert_eq!(lengths[9], 100_000);
        assert_eq!(backward.buffer.len(), MAX_PIECE);
        // Short reads need no more.
        let mut forward = Forward::new(usize::MAX);
        assert!(forward.step(&b"short"[..], || Ok(false), |_| Ok(())).unwrap());
        assert_eq!(forward.buffer.len(), FIRST_PIECE);
    }

    #[test]
    fn what_comes_before_a_message_is_sent_is_part_of_it() {
        let bytes = vec![7; 50_000];
        let (mut stream, mut forward) = (&bytes[..], Forward::new(40_000));
        let mut lengths = Vec::new();
        let mut step = |fails: bool| {
            let sent = |message: &[u8]| {
                lengths.push(message.len());
                if fails { Err(ErrorKind::Other.into()) } else { Ok(()) }
            };
            forward.step(&mut stream, || Ok(true), sent)
        };
        assert!(step(true).is_err());
        assert!(step(false).unwrap() && step(false).unwrap());
        assert!(!step(false).unwrap(), "it has ended");
        assert_eq!(lengths, [40_000, 40_000, 10_000]);
    }

    #[test]
    fn more_of_a_message_is_waited_for_until_it_may_be_sent_and_for_a_tenth_of_the_interval() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let one = at_most(1);
        let ms = Wall::from_millis;
        assert_eq!(pace.gather(now, now, Rates::default()), Wall::ZERO);
        assert_eq!(pace.gather(now, now, one), ms(5));
        assert_eq!(pace.gather(now + ms(98), now, one), ms(2));
        assert_eq!(pace.gather(now + ms(100), now, one), Wall::ZERO);
        assert_eq!(pace.gather(now, now, at_most(100)), ms(1));
        pace.on_sent(now, one);
        assert_eq!(pace.gather(now + ms(300), now + ms(300), one), ms(700));
        assert_eq!(pace.gather(now + ms(1_000), now + ms(300), one), Wall::ZERO);
    }

    #[test]
    fn two_messages_may_be_as_near_as_the_peak_rate_says_and_many_as_the_maximum() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let rates =
            Rates { max: Some(MessageRate::per_second(1)), peak: Some(MessageRate::per_second(4)) };
        let mut now = start;
        let sent = [0; 4].map(|_| {
            now += pace.wait(now, rates);
            pace.on_sent(now, rates);
            (now - start).as_millis()
        });
        assert_eq!(sent, [0, 250, 1_000, 2_000]);
        // After a pause one more goes at once, not two.
        now += Wall::from_secs(10);
        let later = [0; 3].map(|_| {
            now += pace.wait(now, rates);
            pace.on_sent(now, rates);
            (now - start).as_millis()
        });
        assert_eq!(later, [12_000, 12_250, 13_000]);
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
