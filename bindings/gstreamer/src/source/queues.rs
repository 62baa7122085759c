//! The queues of all pads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as Wall, Instant};

use super::queue::Queue;
use crate::failure::Failed;

/// The queues of all pads.
pub(super) struct Queues {
    /// That of `src`, which is always there, and has what is known of the whole.
    pub(super) first: Arc<Queue>,
    /// Those of the other pads; what all of them share.
    others: Mutex<Others>,
}

#[derive(Default)]
struct Others {
    queues: Vec<Arc<Queue>>,
    /// Since when the element is playing.
    playing: Option<Instant>,
    is_stopping: bool,
}

/// How often what is waited for is looked at.
pub(super) const STEP: Wall = Wall::from_millis(10);

/// How long a branch may be busy with what it got last before the others no longer wait for it; beside the latency of
/// its stream.
const STANDSTILL: Wall = Wall::from_secs(5);

impl Queues {
    pub(super) fn new() -> Self {
        Self { first: Arc::default(), others: Mutex::default() }
    }

    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of a pad that is new; one that takes nothing if the element stops.
    pub(super) fn add(&self) -> Arc<Queue> {
        let mut others = self.others();
        let queue = Arc::<Queue>::default();
        if others.is_stopping {
            queue.stop();
        }
        let has_played = |other: &Arc<Queue>| other.lock().has_played;
        if has_played(&self.first) || others.queues.iter().any(has_played) {
            queue.note(|state| state.has_played = true);
        }
        others.queues.push(Arc::clone(&queue));
        queue
    }

    /// The queue of a pad that is no longer there.
    pub(super) fn remove(&self, queue: &Arc<Queue>) {
        self.others().queues.retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// The element plays from now on, or does not.
    pub(super) fn play(&self, is_playing: bool) {
        self.others().playing = is_playing.then(Instant::now);
    }

    /// What follows this queue's pad takes nothing, though the element is playing.
    pub(super) fn stands_still(&self, queue: &Queue) -> bool {
        let playing = self.others().playing;
        queue.stands_still(playing, STANDSTILL)
    }

    /// Waits until there is room in this queue, of those of a set. One that stands still is not waited for while others
    /// have nothing left: the oldest is dropped then.
    pub(super) fn make_room(&self, queue: &Queue, of_set: &[Arc<Queue>]) {
        while !queue.has_room(Wall::ZERO) {
            let is_holding = queue.is_overflowing() || of_set.iter().any(|q| q.starves(STANDSTILL));
            if is_holding && self.stands_still(queue) {
                return;
            }
            queue.has_room(STEP);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.others().is_stopping
    }

    fn all(&self) -> Vec<Arc<Queue>> {
        let mut all = vec![Arc::clone(&self.first)];
        all.extend(self.others().queues.iter().cloned());
        all
    }

    /// How receiving has ended; an error is of one pad alone, of a stream that has not ended before.
    pub(super) fn end(&self, ended: Result<(), Failed>) {
        let mut ended = Some(ended);
        for queue in self.all() {
            if queue.lock().ended.is_none() {
                queue.end(ended.take().unwrap_or(Ok(())));
            }
        }
    }

    /// Nothing is received any more, and no pads come or go.
    pub(super) fn set_over(&self) {
        self.first.note(|state| state.is_over = true);
    }

    /// Datagrams dropped because they waited for too long.
    pub(super) fn overflow(&self) -> u64 {
        self.all().iter().map(|queue| queue.lock().overflow).sum()
    }

    /// Nothing is taken any more; waits for the end of receiving, false after `limit`.
    pub(super) fn stop(&self, limit: Wall) -> bool {
        self.others().is_stopping = true;
        self.all().iter().for_each(|queue| queue.stop());
        self.first.is_over(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_that_stands_still_is_dropped_from_only_while_another_has_nothing_left() {
        let queues = Arc::new(Queues::new());
        let (film, voice) = (Arc::clone(&queues.first), queues.add());
        [&film, &voice].iter().for_each(|queue| queue.begin(None, 1, 0));
        let datagram = vec![0; 60_000];
        while film.has_room(Wall::ZERO) {
            film.push(&datagram, None);
        }
        assert!(film.lock().overflow == 0);
        let of_set = [Arc::clone(&film), Arc::clone(&voice)];
        let (making, on) = (Arc::clone(&queues), Arc::clone(&film));
        let thread = std::thread::spawn(move || making.make_room(&on, &of_set));
        // Neither plays: it is held for as long as that lasts.
        std::thread::sleep(STANDSTILL + 10 * STEP);
        assert!(!thread.is_finished());
        queues.play(true);
        let taking = Arc::clone(&voice);
        let taker = std::thread::spawn(move || taking.take().is_ok());
        thread.join().expect("no panic");
        assert!(film.push(&datagram, None) && !film.push(&datagram, None));
        assert!(film.lock().overflow > 0);
        voice.push(b"a", None);
        assert!(taker.join().expect("no panic"));
    }
}
