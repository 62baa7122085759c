use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Time};

/// Datagrams that wait to be read at most. The system's socket buffer, which is about this large, is
/// not modelled in detail.
const MAX_WAITING: usize = 1_024;

/// The datagrams that `srt-live-transmit` has not read yet. It reads all each time that it wakes up.
#[derive(Clone, Debug)]
pub(super) struct Input {
    /// At least 1 ns.
    interval: Duration,
    next_read: Time,
    waiting: VecDeque<(u64, Bytes)>,
}

impl Input {
    pub(super) fn new(interval: Duration, now: Time) -> Self {
        let interval = interval.max(Duration::from_nanos(1));
        Self { interval, next_read: now + interval, waiting: VecDeque::new() }
    }

    /// Whether there was room.
    pub(super) fn push(&mut self, now: Time, message: u64, payload: Bytes) -> bool {
        if self.waiting.len() >= MAX_WAITING {
            return false;
        }
        // It woke up in vain since.
        if self.waiting.is_empty() && self.next_read <= now {
            let intervals = now.since(self.next_read).as_nanos() / self.interval.as_nanos();
            self.next_read += self.interval * (intervals + 1);
        }
        self.waiting.push_back((message, payload));
        true
    }

    /// When a datagram is read.
    pub(super) fn next_read(&self) -> Time {
        if self.waiting.is_empty() { Time::NEVER } else { self.next_read }
    }

    /// An event of the library wakes the program up.
    pub(super) fn wake(&mut self, now: Time) {
        self.next_read = now;
    }

    /// The next datagram, if the program is awake.
    pub(super) fn read(&mut self, now: Time) -> Option<(u64, Bytes)> {
        if self.next_read > now {
            return None;
        }
        let datagram = self.waiting.pop_front();
        if datagram.is_none() {
            self.next_read = now + self.interval;
        }
        datagram
    }
}
