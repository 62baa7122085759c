//! The bounded queue between a source and the network.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as Wall, Instant};

use ontempo_media::{Numbers, Unit};
use ontempo_udp::Clock;

use crate::message;

/// A queued unit.
pub(crate) struct QueuedUnit {
    pub(crate) unit: Unit,
    pub(crate) queued_at: Instant,
}

impl QueuedUnit {
    /// The number of its last datagram plus 1.
    pub(crate) fn next_datagram(&self) -> u64 {
        self.unit.parts.last().map_or(0, |last| last.datagram.saturating_add(1))
    }
}

/// The next item to send.
pub(crate) enum Next {
    Unit(Box<QueuedUnit>),
    /// Numbers of datagrams of which a part was dropped.
    Gap(Vec<u64>),
    /// Nothing was queued within the time limit.
    TimedOut,
    /// The source has ended.
    End,
    /// The source failed; an error sentence.
    Failed(String),
}

/// Takes units on the thread that has them, while the one that sends them waits for more.
pub(crate) trait Taker: Send + Sync {
    /// False if it has not taken the unit, for whatever reason.
    fn take(&self, queued: &QueuedUnit) -> bool;

    /// No more are taken at this time. Called without a lock of the backlog, whose [`next_beside`](Backlog::next_beside) does
    /// not return before this has.
    fn done(&self);
}

/// Units dropped because the backlog was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Number of units.
    pub units: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    units: VecDeque<QueuedUnit>,
    bytes: usize,
    /// Datagrams of which a part was dropped and nothing is queued, which the receiver is to hear of.
    gaps: Numbers,
    /// Datagrams of which a part was dropped, and another is queued.
    damaged: Numbers,
    overflow: Overflow,
    input_bytes: u64,
    has_ended: bool,
    error: Option<String>,
    /// Threads that wait for a change: without them a notification's system call is saved.
    waiters: usize,
    /// That of a thread that waits for the next item.
    taker: Option<Arc<dyn Taker>>,
    /// The highest number of a datagram of the units taken by it plus 1.
    taken: u64,
    /// Threads that have it in hand, and those that wait until none has.
    takers_at_work: usize,
    waiting_for_takers: usize,
}

/// The taker in the hand of a thread that gives it units.
struct Given<'a> {
    backlog: &'a Backlog,
    taker: Option<Arc<dyn Taker>>,
}

impl Given<'_> {
    /// Has the taker send what it was given. The lock of the backlog is not to be held.
    fn finish(&mut self) {
        let Some(taker) = self.taker.take() else { return };
        let in_hand = InHand(self.backlog);
        taker.done();
        // Whoever has the last reference waits for the end of a connection: that is not to be the source.
        drop(taker);
        drop(in_hand);
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A thread counts as one that has the taker until this is dropped.
struct InHand<'a>(&'a Backlog);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.takers_at_work -= 1;
        let is_waited_for = state.waiting_for_takers > 0;
        drop(state);
        if is_waited_for {
            self.0.changed.notify_all();
        }
    }
}

/// Units queued for the network, up to a maximum number of bytes of memory.
pub struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
    max_bytes: usize,
    clock: Clock,
    /// The source cannot wait: when the backlog is full, units are dropped.
    is_live: bool,
}

impl Backlog {
    /// A backlog of at most `max_bytes` by [`Unit::memory`]. When it is full, a live one drops the
    /// oldest of the least important units; otherwise [`push`](Self::push) waits.
    pub fn new(max_bytes: usize, is_live: bool) -> Self {
        let (state, changed, clock) = (Mutex::default(), Condvar::new(), Clock::new());
        Self { state, changed, max_bytes, clock, is_live }
    }

    /// The clock of the arrivals of what is packetized into it.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves no change half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a unit. When the backlog is full, a live one first drops units; otherwise this waits. After
    /// the [end](Self::end) units are ignored.
    pub fn push(&self, unit: Unit) {
        self.push_all(std::iter::once(unit));
    }

    /// As [`push`](Self::push), of all units that there are now.
    pub(crate) fn push_all(&self, units: impl Iterator<Item = Unit>) {
        let mut given = Given { backlog: self, taker: None };
        let (mut state, mut is_any_kept) = (self.lock(), false);
        for unit in units {
            if state.has_ended {
                break;
            }
            state.input_bytes += unit.data.len() as u64;
            let queued = QueuedUnit { unit, queued_at: Instant::now() };
            if state.give(&queued, &mut given.taker) {
                continue;
            }
            if given.taker.is_some() {
                drop(state);
                given.finish();
                state = self.lock();
                if state.has_ended {
                    break;
                }
            }
            let Some(kept) = self.keep(state, queued) else { return };
            (state, is_any_kept) = (kept, true);
        }
        if is_any_kept {
            self.notify(state);
        } else {
            drop(state);
        }
        given.finish();
    }

    /// `None` after the end.
    fn keep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queued: QueuedUnit,
    ) -> Option<MutexGuard<'a, State>> {
        let size = queued.unit.memory();
        while state.bytes + size > self.max_bytes && !state.units.is_empty() {
            if self.is_live {
                state.drop_one();
            } else if state.has_ended {
                // Nobody may be there who takes more.
                return None;
            } else {
                // Perhaps for what has been queued just now.
                self.changed.notify_all();
                state.waiters += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiters -= 1;
            }
        }
        state.bytes += size;
        state.units.push_back(queued);
        Some(state)
    }

    /// Wakes those that wait.
    fn notify(&self, state: MutexGuard<'_, State>) {
        let is_waited_for = state.waiters > 0;
        drop(state);
        if is_waited_for {
            self.changed.notify_all();
        }
    }

    /// The source has ended; `error` is a sentence if it failed.
    pub fn end(&self, error: Option<String>) {
        let mut state = self.lock();
        state.has_ended = true;
        state.error = error;
        self.notify(state);
    }

    /// Waits for the next item, at most `limit`.
    pub(crate) fn next(&self, limit: Wall) -> Next {
        self.next_beside(limit, || None)
    }

    /// As [`next`](Self::next), of what `taker` has not taken while this waits. Nobody has it any more when this returns.
    pub(crate) fn next_beside(
        &self,
        limit: Wall,
        taker: impl Fn() -> Option<Arc<dyn Taker>>,
    ) -> Next {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if !state.gaps.is_empty() {
                return Next::Gap(state.gaps.take(message::MAX_GAPS));
            }
            if let Some(queued) = state.units.pop_front() {
                state.bytes -= queued.unit.memory();
                state.note_gaps(&queued.unit);
                self.notify(state);
                return Next::Unit(Box::new(queued));
            }
            if state.has_ended {
                return state.error.take().map_or(Next::End, Next::Failed);
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return Next::TimedOut;
            };
            state.waiters += 1;
            state.taker = taker();
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.taker = None;
            state.waiters -= 1;
            while state.takers_at_work > 0 {
                state.waiting_for_takers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting_for_takers -= 1;
            }
        }
    }

    /// The highest number of a datagram of the units that takers have taken plus 1.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// True if the source cannot wait.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Units dropped so far.
    pub fn overflow(&self) -> Overflow {
        self.lock().overflow
    }

    /// Units dropped since `before`, which becomes what was dropped so far; `None` if there are none.
    pub(crate) fn overflow_since(&self, before: &mut Overflow) -> Option<Overflow> {
        let last = std::mem::replace(before, self.overflow());
        (*before != last).then(|| Overflow {
            units: before.units - last.units,
            bytes: before.bytes - last.bytes,
        })
    }

    /// Bytes of the data of all units so far, also of those dropped.
    pub fn input_bytes(&self) -> u64 {
        self.lock().input_bytes
    }

    /// Bytes of memory that queued units take.
    pub fn waiting(&self) -> usize {
        self.lock().bytes
    }
}

impl State {
    /// Gives a unit to the taker, behind all that is queued; false if it has not taken the unit. Who gives the first has the
    /// taker in hand from then on.
    fn give(&mut self, queued: &QueuedUnit, in_hand: &mut Option<Arc<dyn Taker>>) -> bool {
        let is_next = self.units.is_empty() && self.gaps.is_empty() && self.damaged.is_empty();
        let Some(taker) = self.taker.as_ref().filter(|taker| is_next && taker.take(queued)) else {
            return false;
        };
        self.taken = self.taken.max(queued.next_datagram());
        if in_hand.is_none() {
            *in_hand = Some(Arc::clone(taker));
            self.takers_at_work += 1;
        }
        true
    }

    /// A unit has left the queue: the damaged datagrams whose last part it had are gaps. What is queued of
    /// a datagram goes before its gap, behind which the receiver takes nothing of it.
    fn note_gaps(&mut self, gone: &Unit) {
        if self.damaged.is_empty() {
            return;
        }
        for datagram in gone.parts.iter().map(|part| part.datagram) {
            let has_it = |queued: &QueuedUnit| {
                queued.unit.parts.iter().any(|part| part.datagram == datagram)
            };
            if self.damaged.contains(datagram) && !self.units.iter().any(has_it) {
                self.damaged.remove(datagram);
                self.gaps.insert(datagram);
            }
        }
    }

    /// Drops the oldest of the least important units.
    fn drop_one(&mut self) {
        let least_important =
            self.units.iter().enumerate().min_by_key(|(place, queued)| (queued.unit.kind, *place));
        let Some(dropped) =
            least_important.map(|(place, _)| place).and_then(|place| self.units.remove(place))
        else {
            return;
        };
        self.bytes -= dropped.unit.memory();
        self.overflow.units += 1;
        self.overflow.bytes += dropped.unit.data.len() as u64;
        for part in &dropped.unit.parts {
            self.damaged.insert(part.datagram);
        }
        self.note_gaps(&dropped.unit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use ontempo_foundation::Time;
    use ontempo_media::{Kind, Part, Span};

    use super::*;

    fn unit(id: u64, kind: Kind) -> Unit {
        of_datagrams(id, kind, &[id])
    }

    fn of_datagrams(id: u64, kind: Kind, datagrams: &[u64]) -> Unit {
        let length = 1000 / datagrams.len() as u16;
        let part = |datagram: &u64| {
            let spans = vec![Span { offset: 0, length }];
            let (datagram, arrived) = (*datagram, Time::ZERO);
            Part { datagram, length: 1000, arrived, spans, stuffing: vec![] }
        };
        let (parts, data) = (datagrams.iter().map(part).collect(), vec![0; 1000]);
        Unit {
            id,
            kind,
            media_time: None,
            slack: None,
            continues: None,
            dependencies: vec![],
            parts,
            data,
        }
    }

    #[test]
    fn a_full_live_backlog_drops_the_oldest_of_the_least_important_units_and_reports_the_gaps() {
        let backlog = Backlog::new(4 * unit(0, Kind::Key).memory(), true);
        for (id, kind) in [Kind::Key, Kind::Frame, Kind::Frame, Kind::Sound].iter().enumerate() {
            backlog.push(unit(id as u64, *kind));
        }
        backlog.push(unit(4, Kind::Frame));
        backlog.push(unit(5, Kind::Sound));
        assert_eq!(backlog.overflow(), Overflow { units: 2, bytes: 2000 });
        backlog.end(None);
        let mut left = Vec::new();
        loop {
            match backlog.next(Wall::ZERO) {
                Next::Gap(datagrams) => assert_eq!(datagrams, [1, 2]),
                Next::Unit(queued) => left.push(queued.unit.id),
                Next::End => break,
                _ => panic!("neither a unit nor the end"),
            }
        }
        assert_eq!((left, backlog.waiting()), (vec![0, 3, 4, 5], 0));
    }

    #[test]
    fn no_gap_is_forgotten_however_many_there_are() {
        let backlog = Backlog::new(4 * unit(0, Kind::Frame).memory(), true);
        (0..20_000).for_each(|id| backlog.push(unit(id, Kind::Frame)));
        let mut gaps = Vec::new();
        while let Next::Gap(some) = backlog.next(Wall::ZERO) {
            assert!(some.len() <= message::MAX_GAPS);
            gaps.extend(some);
        }
        assert!(gaps.into_iter().eq(0..19_996));
    }

    #[test]
    fn what_is_kept_of_a_datagram_goes_before_its_gap() {
        let frame = of_datagrams(0, Kind::Frame, &[0, 1]);
        let backlog = Backlog::new(2 * frame.memory(), true);
        backlog.push(frame);
        backlog.push(of_datagrams(1, Kind::Sound, &[1, 2]));
        backlog.push(of_datagrams(2, Kind::Key, &[3, 4]));
        let told = |next| match next {
            Next::Gap(datagrams) => datagrams,
            Next::Unit(queued) => vec![100 + queued.unit.id],
            _ => vec![],
        };
        let all: Vec<_> = (0..4).map(|_| told(backlog.next(Wall::ZERO))).collect();
        assert_eq!(all, [vec![0], vec![101], vec![1], vec![102]]);
    }

    /// Takes the first units, and notes what it is told.
    struct Few(Mutex<(Vec<u64>, u32)>);

    impl Taker for Few {
        fn take(&self, queued: &QueuedUnit) -> bool {
            let mut noted = self.0.lock().expect("no panic");
            let is_taken = noted.0.len() < 2;
            noted.0.extend(is_taken.then_some(queued.unit.id));
            is_taken
        }

        fn done(&self) {
            self.0.lock().expect("no panic").1 += 1;
        }
    }

    #[test]
    fn a_taker_has_units_while_the_sender_waits_and_what_it_does_not_take_is_queued_in_order() {
        let (backlog, few) = (Backlog::new(1 << 20, true), Arc::new(Few(Mutex::default())));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let taker = || Some(Arc::clone(&few) as Arc<dyn Taker>);
                backlog.next_beside(Wall::from_secs(5), taker)
            });
            while backlog.lock().taker.is_none() {
                std::thread::yield_now();
            }
            backlog.push_all((0..4).map(|id| unit(id, Kind::Frame)));
            let Ok(Next::Unit(queued)) = sender.join() else { panic!("no unit") };
            assert_eq!(queued.unit.id, 2);
        });
        assert_eq!(
            (few.0.lock().expect("no panic").clone(), backlog.taken()),
            ((vec![0, 1], 1), 2)
        );
        // Nobody waits: it is asked for nothing.
        backlog.push(unit(4, Kind::Frame));
        let left = [3, 4]
            .map(|id| matches!(backlog.next(Wall::ZERO), Next::Unit(one) if one.unit.id == id));
        assert_eq!(left, [true; 2]);
    }
    /// Waits in `done` until it is told to go on, and looks at the backlog there.
    struct Slow {
        backlog: Arc<Backlog>,
        began: SyncSender<()>,
        go_on: Mutex<Receiver<()>>,
    }

    impl Taker for Slow {
        fn take(&self, queued: &QueuedUnit) -> bool {
            queued.unit.id == 0
        }

        fn done(&self) {
            assert_eq!(self.backlog.waiting(), 0, "it is not locked");
            self.began.send(()).expect("somebody waits");
            let _ = self.go_on.lock().expect("no panic").recv_timeout(Wall::from_secs(5));
        }
    }

    #[test]
    fn a_taker_works_without_the_lock_and_nobody_has_it_once_the_sender_goes_on() {
        let backlog = Arc::new(Backlog::new(1 << 20, true));
        let ((began, begins), (go_on, goes_on)) = (sync_channel(1), sync_channel(1));
        let slow = Slow { backlog: Arc::clone(&backlog), began, go_on: Mutex::new(goes_on) };
        let slow = Arc::new(slow);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let taker = || Some(Arc::clone(&slow) as Arc<dyn Taker>);
                let next = backlog.next_beside(Wall::from_secs(5), taker);
                (next, Arc::strong_count(&slow))
            });
            while backlog.lock().taker.is_none() {
                std::thread::yield_now();
            }
            // The second is queued once the first has left.
            let source = scope.spawn(|| backlog.push_all((0..2).map(|id| unit(id, Kind::Frame))));
            begins.recv_timeout(Wall::from_secs(5)).expect("it works");
            backlog.push(unit(2, Kind::Key));
            assert!(!sender.is_finished(), "the source has the taker");
            go_on.send(()).expect("it waits");
            let Ok((Next::Unit(queued), 1)) = sender.join() else { panic!("no unit") };
            assert_eq!(queued.unit.id, 2);
            source.join().expect("no panic");
        });
    }
}
