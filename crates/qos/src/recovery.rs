//! What an end keeps of a TCP connection, so that it goes on where it broke: the messages that the peer
//! has not acknowledged, and whether the connection is up, broken or over. Without sockets.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration as Wall, Instant};

use super::core::lock;
use super::wire::{Cookie, WireError};

/// Memory of all connections of a process for messages that are not acknowledged, bytes.
const ALL_KEPT: usize = 64 << 20;

/// Of it, the most that one connection keeps; a new message waits meanwhile.
const MAX_KEPT: usize = 4 << 20;

/// What each connection may keep at least, and one message more.
const MIN_KEPT: usize = 64 << 10;

/// A connection keeps at most this part of the memory that is left.
const SHARE: usize = 8;

/// Payload after which a receiver acknowledges: less than [`MIN_KEPT`], so that all is acknowledged to a
/// sender that waits.
pub(super) const ACKNOWLEDGED_EACH: usize = 32 << 10;

/// No connection is waited for longer, whatever `rec_time` says.
pub(super) const MAX_REC_TIME: Wall = Wall::from_secs(300);

/// A channel that breaks sooner is made anew after a pause: what is sent over it may be what breaks it.
const SOON: Wall = Wall::from_secs(1);

/// The first pause between attempts to connect again, and how often it is doubled where channels break soon.
pub(super) const FIRST_PAUSE: Wall = Wall::from_millis(20);
const MAX_DOUBLINGS: u32 = 5;

/// Bytes that all connections keep.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// What may be kept by a connection.
fn limit() -> usize {
    (ALL_KEPT.saturating_sub(KEPT.load(Relaxed)) / SHARE).clamp(MIN_KEPT, MAX_KEPT)
}

/// Where a connection stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Up,
    /// Since then, by which cause.
    Broken(Instant),
    /// It does not come back, and why.
    Over(String),
}

/// A message with its header, as it is sent again.
type Whole = Arc<[u8]>;

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Grows with each channel.
    epoch: u64,
    /// Messages that are not acknowledged, from number `acknowledged`.
    kept: VecDeque<Whole>,
    kept_bytes: usize,
    /// Messages below this number have been received.
    acknowledged: u64,
    /// Of the kept messages, so many have been written to this channel.
    written: usize,
    /// A thread writes what is kept: new messages go behind it.
    is_pumped: bool,
    /// Messages were given up that the peer has not acknowledged.
    is_lossy: bool,
    /// Since when the channel is up, and how many in a row broke within [`SOON`].
    up_at: Instant,
    hurried: u32,
    /// This end sends no more.
    is_finished: bool,
    /// The application reads no more.
    is_read_shut: bool,
    /// The latest attempt of the peer, or of this end.
    attempt: u32,
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum Taken {
    /// The budget is used up: to be tried again.
    Full,
    /// It is sent when the connection is up again, or behind others.
    Later,
    /// To be written now, on the channel of this epoch.
    Now(u64, Whole),
}

/// What a thread that writes what is kept does next.
#[derive(Debug)]
pub(super) enum Step {
    Write(Whole),
    /// There is nothing left, or the channel is another one.
    Done,
}

pub(super) struct Recovery {
    pub(super) token: Cookie,
    /// How long a broken connection may take to come back.
    pub(super) rec_time: Wall,
    state: Mutex<State>,
    changed: Condvar,
    /// Begins to bring the connection back; set once it is made.
    begin: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the token.
        f.debug_struct("Recovery").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Recovery {
    pub(super) fn new(token: Cookie, rec_time: Wall) -> Self {
        let state = State {
            phase: Phase::Up,
            epoch: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            acknowledged: 0,
            written: 0,
            is_pumped: false,
            is_lossy: false,
            up_at: Instant::now(),
            hurried: 0,
            is_finished: false,
            is_read_shut: false,
            attempt: 0,
        };
        Self {
            token,
            rec_time: rec_time.min(MAX_REC_TIME),
            state: Mutex::new(state),
            changed: Condvar::new(),
            begin: OnceLock::new(),
        }
    }

    /// How to begin to bring the connection back.
    pub(super) fn on_lost(&self, begin: impl Fn() + Send + Sync + 'static) {
        // Set once.
        let _ = self.begin.set(Box::new(begin));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    pub(super) fn phase(&self) -> Phase {
        self.state().phase.clone()
    }

    /// Takes a message of the application, numbered by the caller, who holds the writer's lock.
    ///
    /// # Errors
    /// The connection is over, or this end has finished.
    pub(super) fn take(&self, whole: impl FnOnce() -> Whole) -> io::Result<Taken> {
        let mut state = self.state();
        if let Phase::Over(why) = &state.phase {
            return Err(over(why));
        }
        if state.is_finished {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !state.kept.is_empty() && state.kept_bytes >= limit() {
            return Ok(Taken::Full);
        }
        let whole = whole();
        state.kept_bytes += whole.len();
        KEPT.fetch_add(whole.len(), Relaxed);
        state.kept.push_back(Arc::clone(&whole));
        if state.phase != Phase::Up || state.is_pumped {
            return Ok(Taken::Later);
        }
        state.written = state.kept.len();
        Ok(Taken::Now(state.epoch, whole))
    }

    /// Nothing of the latest message was written: the application may try it again.
    pub(super) fn give_back(&self) {
        let mut state = self.state();
        if let Some(whole) = state.kept.pop_back() {
            state.forget(whole.len());
        }
        state.written = state.written.min(state.kept.len());
    }

    /// The peer says how many messages it has received.
    ///
    /// # Errors
    /// It cannot be: fewer than it has said before, or more than were sent.
    pub(super) fn on_ack(&self, received: u64) -> Result<(), WireError> {
        let mut state = self.state();
        state.trim(received)?;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Whether the peer has received all, and this end has said that it sends no more.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state();
        state.is_finished && state.kept.is_empty() && !state.is_lossy
    }

    /// This end sends no more: `end` says so, and is kept as messages are. True if it is to be sent by
    /// [`step`](Self::step). The caller holds the writer's lock.
    pub(super) fn finish(&self, end: impl FnOnce() -> Whole) -> bool {
        let mut state = self.state();
        if state.is_finished || matches!(state.phase, Phase::Over(_)) {
            return false;
        }
        state.is_finished = true;
        let end = end();
        state.kept_bytes += end.len();
        KEPT.fetch_add(end.len(), Relaxed);
        state.kept.push_back(end);
        let begins = state.phase == Phase::Up && !state.is_pumped;
        state.is_pumped |= begins;
        begins
    }

    pub(super) fn shut_reading(&self) {
        self.state().is_read_shut = true;
    }

    pub(super) fn is_read_shut(&self) -> bool {
        self.state().is_read_shut
    }

    /// The channel of an epoch is broken, noticed now, since `since`. True if it was not known: then
    /// it is to be brought back, by [`bring_back`](Self::bring_back).
    pub(super) fn break_off(&self, epoch: u64, since: Instant) -> bool {
        let mut state = self.state();
        if state.epoch != epoch || state.phase != Phase::Up {
            return false;
        }
        state.phase = Phase::Broken(since);
        state.is_pumped = false;
        state.hurried =
            if state.up_at.elapsed() < SOON { state.hurried.saturating_add(1) } else { 0 };
        drop(state);
        self.changed.notify_all();
        true
    }

    /// The pause before the first attempt to connect again: none, unless channels broke soon one after the other.
    pub(super) fn first_pause(&self) -> Wall {
        match self.state().hurried {
            0 => Wall::ZERO,
            hurried => (FIRST_PAUSE * (1 << hurried.min(MAX_DOUBLINGS))).min(self.rec_time / 4),
        }
    }

    pub(super) fn bring_back(&self) {
        if let Some(begin) = self.begin.get() {
            begin();
        }
    }

    /// The connection does not come back; false if that was so before.
    pub(super) fn end(&self, why: &str) -> bool {
        let mut state = self.state();
        if matches!(state.phase, Phase::Over(_)) {
            return false;
        }
        state.phase = Phase::Over(why.to_owned());
        state.is_pumped = false;
        let (kept, count) = (state.kept_bytes, state.kept.len());
        state.is_lossy |= count > 0;
        state.kept.clear();
        state.forget(kept);
        state.acknowledged += count as u64;
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Whether a peer that has come back may go on: it is its latest attempt, and what it says of what it
    /// has received can be.
    ///
    /// # Errors
    /// What it says cannot be.
    pub(super) fn admit(&self, attempt: u32, received: u64) -> Result<bool, WireError> {
        let mut state = self.state();
        if matches!(state.phase, Phase::Over(_)) || attempt <= state.attempt {
            return Ok(false);
        }
        state.attempt = attempt;
        state.may_be(received).map(|()| true)
    }

    /// The number of this end's next attempt to return.
    pub(super) fn next_attempt(&self) -> u32 {
        let mut state = self.state();
        state.attempt = state.attempt.saturating_add(1);
        state.attempt
    }

    /// A new channel is in place: what the peer has not received is sent again. Returns since when it
    /// was broken, and whether something is to be sent by [`step`](Self::step). The caller holds the locks
    /// of reader and writer.
    ///
    /// # Errors
    /// What the peer says cannot be.
    pub(super) fn go_on(&self, received: u64) -> Result<(Option<Instant>, bool), WireError> {
        let mut state = self.state();
        let Phase::Broken(since) = state.phase else { return Ok((None, false)) };
        state.trim(received)?;
        state.phase = Phase::Up;
        state.up_at = Instant::now();
        state.epoch += 1;
        state.written = 0;
        state.is_pumped = !state.kept.is_empty();
        let is_pumped = state.is_pumped;
        drop(state);
        self.changed.notify_all();
        Ok((Some(since), is_pumped))
    }

    /// What to write next on the channel of an epoch. The caller holds the writer's lock.
    pub(super) fn step(&self, epoch: u64) -> Step {
        let mut state = self.state();
        if state.epoch != epoch || state.phase != Phase::Up || !state.is_pumped {
            return Step::Done;
        }
        if let Some(whole) = state.kept.get(state.written).cloned() {
            state.written += 1;
            return Step::Write(whole);
        }
        state.is_pumped = false;
        Step::Done
    }

    /// Waits for something to change, at most for `most`.
    pub(super) fn pause(&self, most: Wall) {
        let state = self.state();
        let waited = self.changed.wait_timeout(state, most);
        drop(waited.map_err(PoisonError::into_inner));
    }

    /// Waits while the channel is broken, at most until `until`.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) then, or that the connection is over.
    pub(super) fn wait(&self, until: Option<Instant>) -> io::Result<()> {
        let mut state = self.state();
        loop {
            match &state.phase {
                Phase::Up => return Ok(()),
                Phase::Over(why) => return Err(over(why)),
                Phase::Broken(_) => {}
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let waited = self.changed.wait_timeout(state, left.unwrap_or(MAX_REC_TIME));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The error of a connection that has not come back.
fn over(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, why.to_owned())
}

impl State {
    fn forget(&mut self, bytes: usize) {
        self.kept_bytes -= bytes;
        KEPT.fetch_sub(bytes, Relaxed);
    }

    /// Whether the peer can have received so many.
    fn may_be(&self, received: u64) -> Result<(), WireError> {
        let known = self.acknowledged..=self.acknowledged + self.kept.len() as u64;
        let can = known.contains(&received) || matches!(self.phase, Phase::Over(_));
        if can { Ok(()) } else { Err(WireError::Malformed) }
    }

    /// What the peer has received need not be kept.
    fn trim(&mut self, received: u64) -> Result<(), WireError> {
        self.may_be(received)?;
        while self.acknowledged < received
            && let Some(whole) = self.kept.pop_front()
        {
            self.acknowledged += 1;
            self.written = self.written.saturating_sub(1);
            self.forget(whole.len());
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.kept_bytes, Relaxed);
    }
}
