//! What an end keeps of a TCP connection, so that it goes on where it broke: the messages that the peer
//! has not acknowledged, and whether the connection is up, broken or over. Without sockets.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
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

/// The first pause between attempts to connect again.
pub(super) const FIRST_PAUSE: Wall = Wall::from_millis(20);

/// How often it is doubled, at most, where channels break soon.
const DOUBLINGS: u32 = 5;

/// The same of connections. Tests break connections again and again within milliseconds, and would wait for nothing else.
const MAX_DOUBLINGS: u32 = if cfg!(test) { 1 } else { DOUBLINGS };

/// The pause before the first attempt to connect again, after so many channels in a row that broke soon: none
/// after none, and at most a fourth of `rec_time`.
fn pause_after(hurried: u32, most_doublings: u32, rec_time: Wall) -> Wall {
    match hurried {
        0 => Wall::ZERO,
        _ => (FIRST_PAUSE * (1 << hurried.min(most_doublings))).min(rec_time / 4),
    }
}

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
    /// It does not come back, and why: what one end has not acknowledged may be lost.
    Over(String),
    /// It does not come back and need not: each end has all that the other one sent.
    Closed,
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
    /// The peer sends no more: all that it sent has been received, with its end as one more so many.
    to_receive: Option<u64>,
    /// The peer has said that each end has all of the other's.
    has_left: bool,
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
    /// The application reads no more.
    is_read_shut: AtomicBool,
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
            to_receive: None,
            has_left: false,
            attempt: 0,
        };
        Self {
            token,
            rec_time: rec_time.min(MAX_REC_TIME),
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_read_shut: AtomicBool::new(false),
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
        if state.is_finished || state.is_over() {
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

    /// Whether each end has all of the other's, as this end knows it: nothing that happens to the path changes that.
    pub(super) fn is_settled(&self) -> bool {
        self.state().is_settled()
    }

    /// The same if the peer has been told that `acknowledged` were received: it may be told so.
    pub(super) fn may_leave(&self, acknowledged: u64) -> bool {
        let state = self.state();
        state.is_settled() && state.to_receive.is_some_and(|all| acknowledged >= all)
    }

    /// The peer says that it sends no more; with its end, `to_receive` have been received.
    pub(super) fn on_end(&self, to_receive: u64) {
        self.state().to_receive = Some(to_receive);
    }

    /// The peer says that each end has all of the other's. False if that is not so: then it breaks off.
    pub(super) fn on_bye(&self) -> bool {
        let mut state = self.state();
        // What it acknowledges came before: this end knows it as well.
        state.has_left = state.is_settled();
        let has_left = state.has_left;
        drop(state);
        self.changed.notify_all();
        has_left
    }

    /// Whether the peer has said so, and is waited for no more.
    pub(super) fn has_left(&self) -> bool {
        self.state().has_left
    }

    /// This end sends no more: `end` says so, and is kept as messages are. True if it is to be sent by
    /// [`step`](Self::step). The caller holds the writer's lock.
    pub(super) fn finish(&self, end: impl FnOnce() -> Whole) -> bool {
        let mut state = self.state();
        if state.is_finished || state.is_over() {
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
        self.is_read_shut.store(true, Relaxed);
    }

    pub(super) fn is_read_shut(&self) -> bool {
        self.is_read_shut.load(Relaxed)
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
        pause_after(self.state().hurried, MAX_DOUBLINGS, self.rec_time)
    }

    pub(super) fn bring_back(&self) {
        if let Some(begin) = self.begin.get() {
            begin();
        }
    }

    /// The connection does not come back, because of `why`, unless each end has all; false if that was so before.
    pub(super) fn end(&self, why: &str) -> bool {
        let mut state = self.state();
        if state.is_over() {
            return false;
        }
        let is_settled = state.is_settled();
        state.phase = if is_settled { Phase::Closed } else { Phase::Over(why.to_owned()) };
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
        if state.is_over() || attempt <= state.attempt {
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
                Phase::Up | Phase::Closed => return Ok(()),
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

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_) | Phase::Closed)
    }

    fn is_settled(&self) -> bool {
        let has_all = self.is_finished && self.kept.is_empty() && !self.is_lossy;
        has_all && self.to_receive.is_some()
    }

    /// Whether the peer can have received so many.
    fn may_be(&self, received: u64) -> Result<(), WireError> {
        let known = self.acknowledged..=self.acknowledged + self.kept.len() as u64;
        let can = known.contains(&received) || self.is_over();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_640_ms_and_leaves_most_of_rec_time() {
        let long = Wall::from_secs(10);
        let pauses = [0, 1, 2, 3, 4, 5, 6, u32::MAX];
        let pauses = pauses.map(|hurried| pause_after(hurried, DOUBLINGS, long).as_millis());
        assert_eq!(pauses, [0, 40, 80, 160, 320, 640, 640, 640]);
        let short = Wall::from_secs(1);
        assert_eq!(pause_after(4, DOUBLINGS, short), Wall::from_millis(250));
        assert_eq!(pause_after(0, DOUBLINGS, short), Wall::ZERO);
    }
}
