//! What has been received and is not yet pushed, and what is known of it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as Wall, Instant};

use gstreamer as gst;
use ontempo_foundation::Duration;
use ontempo_media::{Elementary, ElementaryDatagram, FrameKind};
use ontempo_session::Flowing;
use ontempo_session::message::Report;
use ontempo_transport::ReceiveStatistics;

use crate::failure::Failed;
use crate::place::Place;

/// Bytes that wait at most: while the element is paused, or what follows is slow. Of a stream that is
/// delivered in time the oldest is dropped then, of an elementary one whole frames; another waits.
pub(super) const MAX_BYTES: usize = 32 << 20;

/// Bytes counted for each datagram beside its own.
const DATAGRAM_BYTES: usize = 96;

/// A datagram.
pub(super) struct Item {
    pub(super) data: Vec<u8>,
    /// Running time at which it would have come without the latency; `None` while the element is not playing.
    pub(super) at: Option<gst::ClockTime>,
    /// It does not follow the one before.
    pub(super) is_discontinuous: bool,
    /// How its stream is coded, if that is an elementary one.
    pub(super) coding: Option<Elementary>,
    /// Its stream is delivered in time.
    pub(super) is_timed: bool,
    /// The stream, or the set of streams, counted from the first.
    pub(super) epoch: u64,
    /// The number of the stream in its set.
    pub(super) number: usize,
}

/// Where in its stream a datagram is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// The next key frame, which follows.
    Description,
    /// A frame with which decoding begins.
    Key,
    Nothing,
}

impl Item {
    fn begins(&self) -> Begins {
        if self.coding.is_none() {
            return Begins::Key;
        }
        match ElementaryDatagram::read(&self.data) {
            Ok(ElementaryDatagram::Description(_)) => Begins::Description,
            Ok(ElementaryDatagram::Part(part)) if part.first.is_some() => match part.kind {
                FrameKind::Key | FrameKind::Sound => Begins::Key,
                FrameKind::Reference | FrameKind::Disposable => Begins::Nothing,
            },
            Ok(ElementaryDatagram::Part(_)) | Err(_) => Begins::Nothing,
        }
    }

    fn cost(&self) -> usize {
        self.data.len() + DATAGRAM_BYTES
    }
}

/// The thread that pushes what it takes.
#[derive(Clone, Copy)]
enum Taking {
    /// It is busy with what it took at this time, or has not begun.
    Busy(Instant),
    /// It waits for more since this time.
    Waiting(Instant),
    /// It has taken the last at this time, and pushes the end of the stream.
    Ending(Instant),
    /// It has ended.
    Ended,
}

/// When a stream is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) latency: Duration,
    pub(super) grace: Duration,
}

impl Default for Taking {
    fn default() -> Self {
        Self::Busy(Instant::now())
    }
}

/// What is known of the stream.
#[derive(Default)]
pub(super) struct State {
    items: VecDeque<Item>,
    bytes: usize,
    /// The next datagram does not follow the last.
    is_discontinuous: bool,
    /// How the stream is coded, if it is an elementary one.
    coding: Option<Elementary>,
    /// Streams, or sets of streams, so far, and the number of this one in its set.
    epoch: u64,
    number: usize,
    /// Of a stream that is delivered in time.
    pub(super) timing: Option<Timing>,
    pub(super) report: Report,
    pub(super) flowing: Option<Flowing>,
    pub(super) flow: Option<ReceiveStatistics>,
    /// Datagrams dropped because they waited for too long.
    pub(super) overflow: u64,
    /// How the stream of this pad has ended.
    pub(super) ended: Option<Result<(), Failed>>,
    /// Nothing is received any more.
    pub(super) is_over: bool,
    /// The streaming thread must not wait.
    is_unlocked: bool,
    taking: Taking,
    /// What is of this set or a later one waits until that before it has been played.
    held_from: Option<u64>,
    /// Something was dropped since all had been taken.
    is_overflowing: bool,
    /// The element has played.
    pub(super) has_played: bool,
    /// Behind what was dropped nothing is kept before a frame with which decoding begins.
    awaits_key: bool,
    /// The element stops: nothing is kept.
    is_stopping: bool,
    /// The pad.
    place: Place,
}

impl State {
    fn clear(&mut self) {
        self.items.clear();
        self.bytes = 0;
    }

    /// Nothing that comes is kept.
    fn takes_nothing(&self) -> bool {
        let has_thread = !matches!(self.taking, Taking::Ending(_) | Taking::Ended);
        self.is_stopping || !has_thread || self.ended.is_some()
    }

    /// The oldest that may be taken.
    fn front(&self) -> Option<&Item> {
        let held_from = self.held_from.unwrap_or(u64::MAX);
        self.items.front().filter(|first| first.epoch < held_from)
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.bytes -= item.cost();
        Some(item)
    }

    /// Drops the oldest, up to the next with which decoding can begin.
    fn drop_oldest(&mut self) {
        let mut is_described = false;
        while let Some(dropped) = self.pop() {
            self.overflow += 1;
            // What was described with it is not known then.
            is_described = match dropped.begins() {
                Begins::Description => true,
                Begins::Key => false,
                Begins::Nothing => is_described,
            };
            if let Some(next) = self.items.front_mut().filter(|_| !is_described)
                && next.begins() != Begins::Nothing
            {
                next.is_discontinuous = true;
                return;
            }
        }
        (self.awaits_key, self.is_discontinuous) = (true, true);
    }
}

/// How far apart datagrams are that are pushed together.
const TOGETHER: gst::ClockTime = gst::ClockTime::from_mseconds(2);

fn are_together(one: Option<gst::ClockTime>, other: Option<gst::ClockTime>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => other.absdiff(one) <= TOGETHER,
        (one, other) => one == other,
    }
}

/// Shared by element and thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// Why there is nothing to push.
pub(super) enum Nothing {
    Unlocked,
    Ended(Result<(), Failed>),
}

impl Queue {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and wakes who waits for it.
    pub(super) fn note(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    pub(super) fn unlock(&self, unlocked: bool) {
        self.note(|state| state.is_unlocked = unlocked);
    }

    pub(super) fn stop(&self) {
        self.note(|state| {
            state.is_stopping = true;
            state.clear();
        });
    }

    /// Nothing is taken any more, as the streaming thread ends: nothing is kept until it takes again.
    pub(super) fn abandon(&self) {
        self.note(|state| {
            (state.taking, state.is_discontinuous) = (Taking::Ending(Instant::now()), true);
            state.clear();
        });
    }

    /// The streaming thread has handed on the end of the stream, or what follows is flushed.
    pub(super) fn leave(&self) {
        self.note(|state| state.taking = Taking::Ended);
    }

    /// A stream begins: this number of the `epoch`th set, which may be one alone.
    pub(super) fn begin(&self, coding: Option<Elementary>, epoch: u64, number: usize) {
        self.note(|state| {
            (state.is_discontinuous, state.coding) = (true, coding);
            (state.epoch, state.number) = (epoch, number);
            (state.timing, state.awaits_key) = (None, false);
        });
    }

    /// What is of this set waits for [`release`](Self::release).
    pub(super) fn hold(&self, epoch: u64) {
        self.note(|state| state.held_from = Some(epoch));
    }

    pub(super) fn release(&self) {
        self.note(|state| state.held_from = None);
    }

    /// All that is of sets before this one has been taken.
    pub(super) fn has_passed(&self, epoch: u64) -> bool {
        self.lock().items.front().is_none_or(|first| first.epoch >= epoch)
    }

    /// The end of the stream has been handed on.
    pub(super) fn has_left(&self) -> bool {
        matches!(self.lock().taking, Taking::Ended)
    }

    /// Drops all.
    pub(super) fn forget(&self) {
        self.note(State::clear);
    }

    /// The streaming thread has been with what follows for `limit`, in which the element was playing.
    pub(super) fn stands_still(&self, playing: Option<Instant>, limit: Wall) -> bool {
        let state = self.lock();
        let timing = state.timing.unwrap_or_default();
        // What is to be shown in time may wait for that long.
        let delay = timing.latency.saturating_add(timing.grace);
        let limit = limit.saturating_add(Wall::from_nanos(delay.as_nanos()));
        match (state.taking, playing) {
            (Taking::Busy(since) | Taking::Ending(since), Some(playing)) => {
                since.max(playing).elapsed() >= limit
            }
            _ => false,
        }
    }

    /// The streaming thread has waited for more for `limit`, and nothing is held back from it.
    pub(super) fn starves(&self, limit: Wall) -> bool {
        let state = self.lock();
        let waits = matches!(state.taking, Taking::Waiting(since) if since.elapsed() >= limit);
        waits && state.held_from.is_none()
    }

    /// Something was dropped since all had been taken.
    pub(super) fn is_overflowing(&self) -> bool {
        self.lock().is_overflowing
    }

    pub(super) fn place(&self) -> Place {
        self.lock().place
    }

    pub(super) fn set_place(&self, place: Place) {
        self.note(|state| state.place = place);
    }

    /// Waits, at most for `limit`, until there is room; of a stream that is delivered in time there always is, as the
    /// oldest is dropped.
    pub(super) fn has_room(&self, limit: Wall) -> bool {
        let is_full = |state: &mut State| {
            state.bytes >= MAX_BYTES && !state.takes_nothing() && state.timing.is_none()
        };
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_full);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes a datagram that was due at this running time. True if the oldest had to be dropped for it, for the first
    /// time since all had been taken.
    ///
    /// An element that has played and is paused keeps nothing of a stream that is delivered in time, as live sources
    /// do (GStreamer, "Live sources"): when it plays again that would be late by the pause.
    pub(super) fn push(&self, data: &[u8], due: Option<gst::ClockTime>) -> bool {
        let mut state = self.lock();
        if state.takes_nothing() {
            return false;
        }
        match due {
            Some(_) => state.has_played = true,
            None if state.has_played && state.timing.is_some() => {
                state.overflow += 1;
                (state.awaits_key, state.is_discontinuous) = (true, true);
                return false;
            }
            None => {}
        }
        let is_full = state.bytes >= MAX_BYTES;
        while state.bytes >= MAX_BYTES {
            state.drop_oldest();
        }
        let is_first = is_full && !std::mem::replace(&mut state.is_overflowing, is_full);
        let latency = state.timing.map_or(0, |timing| timing.latency.as_nanos());
        let item = Item {
            data: data.to_vec(),
            at: due.map(|due| due.saturating_sub(gst::ClockTime::from_nseconds(latency))),
            is_discontinuous: std::mem::take(&mut state.is_discontinuous),
            coding: state.coding,
            is_timed: state.timing.is_some(),
            epoch: state.epoch,
            number: state.number,
        };
        if state.awaits_key && item.begins() == Begins::Nothing {
            (state.overflow, state.is_discontinuous) = (state.overflow + 1, true);
            return is_first;
        }
        state.awaits_key = false;
        state.bytes += item.cost();
        state.items.push_back(item);
        drop(state);
        self.changed.notify_all();
        is_first
    }

    /// Waits for datagrams: takes those that came together, up to one that does not follow.
    pub(super) fn take(&self) -> Result<Vec<Item>, Nothing> {
        let mut state = self.lock();
        state.taking = Taking::Waiting(Instant::now());
        let taken = loop {
            if state.is_unlocked {
                break Err(Nothing::Unlocked);
            }
            if state.front().is_some() {
                break Ok(Self::together(&mut state));
            }
            if let Some(ended) = state.ended.as_ref().filter(|_| state.items.is_empty()) {
                break Err(Nothing::Ended(ended.clone()));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.taking = Taking::Busy(Instant::now());
        state.is_overflowing &= !state.items.is_empty();
        drop(state);
        self.changed.notify_all();
        taken
    }

    /// The oldest, and those that came together with it.
    fn together(state: &mut State) -> Vec<Item> {
        let mut taken: Vec<Item> = state.pop().into_iter().collect();
        let came = taken.first().and_then(|first| first.at);
        let is_with = |next: &Item| !next.is_discontinuous && are_together(came, next.at);
        while state.front().is_some_and(is_with) {
            taken.extend(state.pop());
        }
        taken
    }

    /// Waits for the end of receiving; false after `limit`.
    pub(super) fn is_over(&self, limit: Wall) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// The stream of this pad has ended, unless it had before.
    pub(super) fn end(&self, ended: Result<(), Failed>) {
        self.note(|state| {
            state.ended.get_or_insert(ended);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ontempo_media::FrameTimes;

    use super::*;

    fn at(ms: u64) -> Option<gst::ClockTime> {
        Some(gst::ClockTime::from_mseconds(ms))
    }

    fn timed() -> Queue {
        let queue = Queue::default();
        queue.begin(None, 1, 0);
        let timing = Timing { latency: Duration::from_millis(60), grace: Duration::ZERO };
        queue.note(|state| state.timing = Some(timing));
        queue
    }

    #[test]
    fn datagrams_have_the_time_at_which_they_would_have_come_without_the_latency() {
        let queue = timed();
        let came = [None, at(10), at(100), at(101)];
        came.into_iter().for_each(|at| assert!(!queue.push(b"a", at)));
        let mut times = Vec::new();
        for together in [1, 1, 2] {
            let Ok(taken) = queue.take() else { panic!("nothing") };
            assert_eq!(taken.len(), together);
            assert_eq!(taken[0].is_discontinuous, times.is_empty());
            times.extend(taken.iter().map(|item| item.at));
        }
        assert_eq!(times, [None, at(0), at(40), at(41)]);
    }

    #[test]
    fn of_a_timed_stream_that_nobody_takes_the_oldest_is_dropped() {
        let queue = timed();
        let datagram = vec![0; 60_000];
        for _ in 0..700 {
            queue.push(&datagram, at(0));
        }
        let overflow = queue.lock().overflow;
        assert!(overflow > 100, "{overflow}");
        let Ok(taken) = queue.take() else { panic!("nothing") };
        assert!(taken[0].is_discontinuous);
        assert_eq!(taken.len() as u64 + overflow, 700);
        assert_eq!(queue.lock().bytes, 0);
    }

    /// The datagrams of a frame.
    fn frame(kind: FrameKind, number: u16, bytes: usize) -> Vec<Vec<u8>> {
        let (frame, mut all) = (vec![7; bytes], Vec::new());
        let cut = ontempo_media::cut_frame(kind, number, FrameTimes::default(), &frame, |one| {
            all.push(one.to_vec());
        });
        cut.expect("not too long");
        all
    }

    #[test]
    fn of_an_elementary_stream_whole_frames_are_dropped_up_to_a_key_frame_and_that_is_told_once() {
        let queue = timed();
        queue.begin(Some(Elementary::H264), 1, 0);
        queue.note(|state| state.timing = Some(Timing::default()));
        let (mut told, mut pushed) = (Vec::new(), 0);
        // Ten frames a group of 500 kB.
        for number in 0..1_000 {
            let kind = if number % 10 == 0 { FrameKind::Key } else { FrameKind::Reference };
            let mut datagrams = frame(kind, number, 50_000);
            if kind == FrameKind::Key {
                datagrams.insert(0, b"\0caps".to_vec());
            }
            for datagram in datagrams {
                pushed += 1;
                told.extend(queue.push(&datagram, at(0)).then_some(number));
            }
            let state = queue.lock();
            assert!(state.bytes < MAX_BYTES + 100_000, "{}", state.bytes);
            let Some(first) = state.items.front() else { panic!("nothing") };
            let first = ElementaryDatagram::read(&first.data);
            assert!(matches!(first, Ok(ElementaryDatagram::Description("caps"))), "{first:?}");
        }
        assert_eq!(told.len(), 1, "{told:?}");
        let overflow = queue.lock().overflow;
        let Ok(taken) = queue.take() else { panic!("nothing") };
        assert!(taken[0].is_discontinuous);
        assert_eq!(taken.len() as u64 + overflow, pushed);
    }

    #[test]
    fn behind_a_group_that_is_dropped_whole_nothing_is_kept_before_a_key_frame() {
        let queue = timed();
        queue.begin(Some(Elementary::H264), 1, 0);
        queue.note(|state| state.timing = Some(Timing::default()));
        let push = |kind, number, bytes| {
            for datagram in frame(kind, number, bytes) {
                queue.push(&datagram, at(number.into()));
            }
        };
        push(FrameKind::Key, 0, 50_000);
        (1..800).for_each(|number| push(FrameKind::Reference, number, 50_000));
        assert_eq!(queue.lock().bytes, 0);
        push(FrameKind::Key, 800, 100);
        push(FrameKind::Reference, 801, 100);
        let Ok(taken) = queue.take() else { panic!("nothing") };
        assert!(taken[0].is_discontinuous && taken.len() == 2);
    }

    #[test]
    fn of_a_timed_stream_a_pause_keeps_nothing_and_a_key_frame_is_next() {
        let queue = timed();
        queue.begin(Some(Elementary::H264), 1, 0);
        queue.note(|state| state.timing = Some(Timing::default()));
        let push = |kind, number, at| queue.push(&frame(kind, number, 100)[0], at);
        push(FrameKind::Key, 0, None);
        push(FrameKind::Reference, 1, at(40));
        assert!(queue.take().is_ok() && queue.take().is_ok(), "before it plays all is kept");
        push(FrameKind::Key, 2, None);
        assert_eq!(queue.lock().items.len(), 0);
        push(FrameKind::Reference, 3, at(80));
        push(FrameKind::Key, 4, at(120));
        let Ok(taken) = queue.take() else { panic!("nothing") };
        assert!(taken.len() == 1 && taken[0].is_discontinuous && taken[0].at == at(120));
    }

    #[test]
    fn what_is_of_the_next_set_waits_for_its_release() {
        let queue = Arc::new(timed());
        queue.push(b"a", at(0));
        queue.hold(2);
        queue.begin(None, 2, 0);
        queue.push(b"b", at(0));
        assert!(!queue.has_passed(2));
        let Ok(taken) = queue.take() else { panic!("nothing") };
        assert!(taken.len() == 1 && queue.has_passed(2));
        let taking = Arc::clone(&queue);
        let thread = std::thread::spawn(move || taking.take().map(|taken| taken[0].data.clone()));
        while !matches!(queue.lock().taking, Taking::Waiting(_)) {
            std::thread::yield_now();
        }
        queue.release();
        assert!(thread.join().expect("no panic").is_ok_and(|data| data == b"b"));
    }

    #[test]
    fn what_nobody_takes_any_more_holds_nobody() {
        let queue = Arc::new(Queue::default());
        queue.begin(None, 1, 0);
        let datagram = vec![0; 60_000];
        let (filling, data) = (Arc::clone(&queue), datagram.clone());
        // A stream that is not delivered in time waits for room.
        let thread = std::thread::spawn(move || {
            for _ in 0..700 {
                while !filling.has_room(Wall::from_secs(60)) {}
                filling.push(&data, at(0));
            }
        });
        while queue.lock().bytes < MAX_BYTES {
            std::thread::yield_now();
        }
        queue.abandon();
        thread.join().expect("no panic");
        assert_eq!(queue.lock().bytes, 0);
        queue.push(&datagram, at(0));
        assert_eq!(queue.lock().bytes, 0);
        // A thread that begins again takes what comes then.
        queue.unlock(true);
        assert!(matches!(queue.take(), Err(Nothing::Unlocked)));
        queue.unlock(false);
        queue.push(&datagram, at(0));
        let Ok(taken) = queue.take() else { panic!("nothing") };
        assert!(taken.len() == 1 && taken[0].is_discontinuous);
    }

    #[test]
    fn what_was_received_is_taken_before_the_end() {
        let queue = timed();
        queue.push(b"a", at(0));
        queue.end(Ok(()));
        queue.push(b"late", at(1));
        assert!(queue.take().is_ok());
        assert!(matches!(queue.take(), Err(Nothing::Ended(Ok(())))));
        queue.unlock(true);
        assert!(matches!(queue.take(), Err(Nothing::Unlocked)));
    }
}
