//! What has been received and is not yet pushed, and what is known of it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration as Wall;

use gstreamer as gst;
use ontempo_foundation::Duration;
use ontempo_media::Elementary;
use ontempo_session::Flowing;
use ontempo_session::message::Report;
use ontempo_transport::ReceiveStatistics;

use crate::failure::Failed;

/// Bytes that wait at most: while the element is paused, or what follows is slow. Of a stream that is
/// delivered in time the oldest is dropped then; another waits.
const MAX_BYTES: usize = 32 << 20;

/// Bytes counted for each datagram beside its own.
const DATAGRAM_BYTES: usize = 96;

/// A datagram.
pub(super) struct Item {
    pub(super) data: Vec<u8>,
    /// Running time at which it would have come without the latency; `None` while the element is paused.
    pub(super) at: Option<gst::ClockTime>,
    /// It does not follow the one before.
    pub(super) is_discontinuous: bool,
    /// How its stream is coded, if that is an elementary one.
    pub(super) coding: Option<Elementary>,
    /// Its stream is delivered in time.
    pub(super) is_timed: bool,
}

/// When a stream is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) latency: Duration,
    pub(super) grace: Duration,
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
    /// Of a stream that is delivered in time.
    pub(super) timing: Option<Timing>,
    pub(super) report: Report,
    pub(super) flowing: Option<Flowing>,
    pub(super) flow: Option<ReceiveStatistics>,
    /// Datagrams dropped because they waited for too long.
    pub(super) overflow: u64,
    /// How receiving has ended.
    pub(super) ended: Option<Result<(), Failed>>,
    /// The streaming thread must not wait.
    is_unlocked: bool,
    /// The element stops: nothing is kept.
    is_stopping: bool,
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
            state.items.clear();
            state.bytes = 0;
        });
    }

    /// A stream begins.
    pub(super) fn begin(&self, coding: Option<Elementary>) {
        self.note(|state| {
            (state.is_discontinuous, state.coding) = (true, coding);
            state.timing = None;
        });
    }

    /// Takes a datagram that was due at this running time.
    pub(super) fn push(&self, data: &[u8], due: Option<gst::ClockTime>) {
        let mut state = self.lock();
        while state.bytes >= MAX_BYTES && !state.is_stopping {
            if state.timing.is_none() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if let Some(dropped) = state.items.pop_front() {
                state.bytes -= dropped.data.len() + DATAGRAM_BYTES;
                state.overflow += 1;
            }
            if let Some(next) = state.items.front_mut() {
                next.is_discontinuous = true;
            }
        }
        if state.is_stopping {
            return;
        }
        let latency = state.timing.map_or(0, |timing| timing.latency.as_nanos());
        let at = due.map(|due| due.saturating_sub(gst::ClockTime::from_nseconds(latency)));
        let is_discontinuous = std::mem::take(&mut state.is_discontinuous);
        state.bytes += data.len() + DATAGRAM_BYTES;
        let (data, coding, is_timed) = (data.to_vec(), state.coding, state.timing.is_some());
        state.items.push_back(Item { data, at, is_discontinuous, coding, is_timed });
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for datagrams: takes those that came together, up to one that does not follow.
    pub(super) fn take(&self) -> Result<Vec<Item>, Nothing> {
        let mut state = self.lock();
        loop {
            if state.is_unlocked {
                return Err(Nothing::Unlocked);
            }
            if let Some(first) = state.items.pop_front() {
                let mut taken = vec![first];
                let came = taken[0].at;
                let is_with = |next: &Item| !next.is_discontinuous && are_together(came, next.at);
                while state.items.front().is_some_and(is_with) {
                    taken.extend(state.items.pop_front());
                }
                state.bytes -=
                    taken.iter().map(|one| one.data.len() + DATAGRAM_BYTES).sum::<usize>();
                drop(state);
                self.changed.notify_all();
                return Ok(taken);
            }
            if let Some(ended) = &state.ended {
                return Err(Nothing::Ended(ended.clone()));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the end of receiving; false after `limit`.
    pub(super) fn has_ended(&self, limit: Wall) -> bool {
        let waited =
            self.changed.wait_timeout_while(self.lock(), limit, |state| state.ended.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.ended.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Option<gst::ClockTime> {
        Some(gst::ClockTime::from_mseconds(ms))
    }

    fn timed() -> Queue {
        let queue = Queue::default();
        queue.begin(None);
        let timing = Timing { latency: Duration::from_millis(60), grace: Duration::ZERO };
        queue.note(|state| state.timing = Some(timing));
        queue
    }

    #[test]
    fn datagrams_have_the_time_at_which_they_would_have_come_without_the_latency() {
        let queue = timed();
        let came = [at(10), at(100), at(101), None];
        came.into_iter().for_each(|at| queue.push(b"a", at));
        let mut times = Vec::new();
        for together in [1, 2, 1] {
            let Ok(taken) = queue.take() else { panic!("nothing") };
            assert_eq!(taken.len(), together);
            assert_eq!(taken[0].is_discontinuous, times.is_empty());
            times.extend(taken.iter().map(|item| item.at));
        }
        assert_eq!(times, [at(0), at(40), at(41), None]);
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

    #[test]
    fn what_was_received_is_taken_before_the_end() {
        let queue = timed();
        queue.push(b"a", at(0));
        queue.note(|state| state.ended = Some(Ok(())));
        assert!(queue.take().is_ok());
        assert!(matches!(queue.take(), Err(Nothing::Ended(Ok(())))));
        queue.unlock(true);
        assert!(matches!(queue.take(), Err(Nothing::Unlocked)));
    }
}
