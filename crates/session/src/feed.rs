//! Media that the program itself gives, packetized as that of a socket or a pipe is.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration as Wall;

use ontempo_foundation::Time;
use ontempo_media::Codings;
use ontempo_udp::{Clock, Protocol as _};

use crate::backlog::Backlog;
use crate::source::Datagrams;

struct State {
    datagrams: Datagrams,
    has_ended: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    clock: Clock,
    backlog: Arc<Backlog>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Emits what has been held long enough, until the end.
    fn run(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            let now = self.clock.now();
            let next = state.datagrams.next_timeout();
            if next <= now {
                state.datagrams.handle_timeout(now);
                continue;
            }
            state = if next == Time::NEVER {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let left = Wall::from_nanos(next.since(now).as_nanos());
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

/// Packetizes datagrams of the program into a [`Backlog`], for a [`Sender`](crate::Sender) with
/// [`Source::Program`](crate::Source::Program). A thread of its own emits what waits for more of its frame.
pub struct Feed {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Packetizes into `backlog`.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn new(backlog: &Arc<Backlog>) -> io::Result<Self> {
        Self::of(Datagrams::new(backlog, false), backlog)
    }

    /// Packetizes [datagrams of an elementary stream](ontempo_media::ElementaryDatagram) into `backlog`; of
    /// several, each behind the [number](ontempo_media::split_number) of its stream.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn elementary(codings: Codings, backlog: &Arc<Backlog>) -> io::Result<Self> {
        Self::of(Datagrams::elementary(codings, backlog), backlog)
    }

    fn of(datagrams: Datagrams, backlog: &Arc<Backlog>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { datagrams, has_ended: false }),
            changed: Condvar::new(),
            clock: backlog.clock(),
            backlog: Arc::clone(backlog),
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new().name("packetizer".to_owned()).spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Begins to take datagrams that arrive together.
    pub fn batch(&self) -> Batch<'_> {
        Batch { feed: self, state: self.shared.lock() }
    }

    /// The end of the media: what waits is queued, and the backlog ends.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.has_ended, true) {
            return;
        }
        state.datagrams.finish();
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Without a reader a full backlog takes nothing more.
        self.shared.backlog.end(None);
        self.end();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Takes datagrams that arrive together; when it is dropped, what came of them is sent.
pub struct Batch<'a> {
    feed: &'a Feed,
    state: MutexGuard<'a, State>,
}

impl Batch<'_> {
    /// Takes a datagram of at most 65,535 bytes: of MPEG-TS or of RTP; anything else is carried as it is. As
    /// [`Backlog::push`] it waits while the backlog is full, unless that is a live one.
    pub fn push(&mut self, datagram: &[u8]) {
        if !self.state.has_ended {
            self.state.datagrams.push(self.feed.shared.clock.now(), datagram);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.feed.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::Next;

    /// A transport packet of a PES packet of video without a length, or of its continuation.
    fn packet(counter: u8) -> Vec<u8> {
        let mut packet = vec![0xff; 188];
        if counter == 0 {
            packet[..10].copy_from_slice(&[0x47, 0x41, 0, 0x10, 0, 0, 1, 0xe0, 0, 0]);
        } else {
            packet[..4].copy_from_slice(&[0x47, 1, 0, 0x10 | counter]);
        }
        packet
    }

    #[test]
    fn a_frame_is_queued_though_nothing_follows() {
        let backlog = Arc::new(Backlog::new(1 << 20, true));
        let feed = Feed::new(&backlog).expect("a thread");
        let mut batch = feed.batch();
        // In one datagram: between two, a busy machine may pause for longer than one waits for more.
        batch.push(&(0..3).flat_map(packet).collect::<Vec<u8>>());
        drop(batch);
        let Next::Unit(queued) = backlog.next(Wall::from_secs(5)) else { panic!("no unit") };
        assert_eq!(queued.unit.data.len(), 3 * 188);
    }

    #[test]
    fn the_end_queues_what_waits_and_then_nothing_more() {
        let backlog = Arc::new(Backlog::new(1 << 20, true));
        let feed = Feed::new(&backlog).expect("a thread");
        feed.batch().push(&packet(0));
        feed.end();
        feed.batch().push(&packet(0));
        assert!(matches!(backlog.next(Wall::ZERO), Next::Unit(_)));
        assert!(matches!(backlog.next(Wall::ZERO), Next::End));
    }

    #[test]
    fn a_full_backlog_that_nobody_reads_does_not_keep_the_feed_from_ending() {
        let backlog = Arc::new(Backlog::new(1, false));
        let feed = Arc::new(Feed::new(&backlog).expect("a thread"));
        let pushing = Arc::clone(&feed);
        let thread = std::thread::spawn(move || {
            for number in 0..50 {
                pushing.batch().push(&[number; 100]);
            }
        });
        std::thread::sleep(Wall::from_millis(50));
        backlog.end(None);
        thread.join().expect("no panic");
    }
}
