//! Events of a connection that no call returns.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration as Wall, Instant};

use crate::connection::Connection;

/// How often expired messages and another address are looked for while nothing else happens.
const LOOK: Wall = Wall::from_millis(50);

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message's lifetime passed before it had arrived.
    Expired {
        /// What [`Connection::send`] returned.
        number: u64,
    },
    /// The peer has another address (RFC 9622, section 8.3.2).
    PathChange {
        /// The new one.
        remote: SocketAddr,
    },
    /// The connection has ended in order.
    Closed,
    /// It was aborted, or lost.
    ConnectionError {
        /// Why, in a sentence.
        reason: String,
    },
}

/// Events of a connection; as an iterator it waits for the next one.
pub struct Events<'a> {
    connection: &'a Connection,
    remote: SocketAddr,
    waiting: VecDeque<Event>,
    /// The last one is among those that wait, or told.
    is_over: bool,
}

impl<'a> Events<'a> {
    pub(crate) fn new(connection: &'a Connection) -> Self {
        let remote = connection.remote();
        Self { connection, remote, waiting: VecDeque::new(), is_over: false }
    }

    /// The next one; `None` if none comes within `limit`, or the last one was told.
    pub fn next_within(&mut self, limit: Wall) -> Option<Event> {
        let end = Instant::now().checked_add(limit);
        self.until(end)
    }

    fn until(&mut self, end: Option<Instant>) -> Option<Event> {
        loop {
            self.look();
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if self.is_over || left.is_zero() {
                return None;
            }
            self.connection.group.carrier.closed(left.min(LOOK));
        }
    }

    fn look(&mut self) {
        if self.is_over {
            return;
        }
        // Before what was dropped: nothing is after it.
        let closed = self.connection.group.carrier.is_closed();
        let expired = self.connection.expired().into_iter();
        self.waiting.extend(expired.map(|number| Event::Expired { number }));
        match closed {
            Some(closed) => {
                self.is_over = true;
                self.waiting.push_back(match closed.reason.is_orderly() {
                    true => Event::Closed,
                    false => Event::ConnectionError { reason: closed.to_string() },
                });
            }
            None => {
                let remote = self.connection.remote();
                if std::mem::replace(&mut self.remote, remote) != remote {
                    self.waiting.push_back(Event::PathChange { remote });
                }
            }
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.until(None)
    }
}
