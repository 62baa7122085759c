//! What the threads of a relay send each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::BytesMut;
use ontempo_session::StreamName;
use ontempo_session::message::Label;
use ontempo_transport::{ConnectionId, FlowConfig, FlowId, Source};
use ontempo_udp::Wake;

use crate::stream::Relayed;

/// Units that wait for one thread; beyond it the next goes to nobody.
const MAX_UNITS: usize = 4_096;

/// Bytes of datagrams that wait for one thread; beyond it the next is lost, as in a full socket.
const MAX_DATAGRAM_BYTES: usize = 1 << 20;

/// Memory counted for a datagram beside its bytes.
const DATAGRAM: usize = 256;

/// A stream as all threads know it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Option<StreamName>,
    /// Another stream of the same name has another.
    pub(crate) number: u64,
}

/// See [`Named`].
pub(crate) type Key = Arc<Named>;

/// A message to a thread. All get what is for all in the same order.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A source sends a stream, for the first time or again: what viewers see of it.
    Begun(Key, Box<(Label, FlowConfig)>),
    Unit(Key, Relayed),
    /// There was no room for a unit, for the first time since the last one that was passed on.
    Lacking(Key),
    /// Memory is short: what is kept of a stream for new viewers is let go of.
    LetGo(Key),
    /// A stream has ended.
    Ended(Key),
    /// The time of a stream's viewers for their reports is over.
    Due(Key),
    /// A stream is removed.
    Removed(Key),
    /// Another connection has taken the place of this source.
    Retired(ConnectionId),
    /// Another source waits for the place of one of this thread's.
    Contested,
    /// The source whose place this connection waits for is there.
    Refused(ConnectionId),
    /// The source whose place this connection waits for is gone.
    Follow(ConnectionId),
    /// The last report for a source, if it has a flow of reports.
    Report(ConnectionId, Option<FlowId>, Box<str>),
    /// Say which viewer holds most.
    Measure,
    /// Close the viewer that holds most of all.
    Relieve(ConnectionId),
}

/// A datagram that another thread has received.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) source: Source,
    pub(crate) data: BytesMut,
}

#[derive(Debug, Default)]
struct Datagrams {
    queue: VecDeque<Handed>,
    bytes: usize,
}

/// What waits for a thread.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    messages: Mutex<VecDeque<Message>>,
    datagrams: Mutex<Datagrams>,
    /// Messages and datagrams that wait.
    waiting: AtomicUsize,
    /// Units among them.
    units: AtomicUsize,
    wake: OnceLock<Wake>,
}

/// What is guarded is whole at each unlocking, also where a thread ended by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// What wakes its thread from now on.
    pub(crate) fn wake_by(&self, wake: Wake) {
        // Who sets it a second time sets the same.
        let wake = self.wake.get_or_init(|| wake);
        wake.wake();
    }

    pub(crate) fn post(&self, message: Message) {
        let mut messages = lock(&self.messages);
        self.units.fetch_add(usize::from(matches!(message, Message::Unit(..))), Ordering::Relaxed);
        messages.push_back(message);
        self.waiting.fetch_add(1, Ordering::Release);
        drop(messages);
        self.wake();
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    pub(crate) fn next(&self) -> Option<Message> {
        if !self.has_any() {
            return None;
        }
        let message = lock(&self.messages).pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.units.fetch_sub(usize::from(matches!(message, Message::Unit(..))), Ordering::Relaxed);
        Some(message)
    }

    /// Hands over a datagram, which is lost if too many wait.
    pub(crate) fn hand(&self, handed: Handed) {
        let (mut datagrams, size) = (lock(&self.datagrams), handed.data.len() + DATAGRAM);
        if datagrams.bytes + size > MAX_DATAGRAM_BYTES {
            return;
        }
        datagrams.bytes += size;
        datagrams.queue.push_back(handed);
        self.waiting.fetch_add(1, Ordering::Release);
        drop(datagrams);
        self.wake();
    }

    pub(crate) fn next_datagram(&self) -> Option<Handed> {
        if !self.has_any() {
            return None;
        }
        let mut datagrams = lock(&self.datagrams);
        let handed = datagrams.queue.pop_front()?;
        datagrams.bytes -= handed.data.len() + DATAGRAM;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(handed)
    }

    /// True if anything waits.
    pub(crate) fn has_any(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// True if it has as many units as may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.units.load(Ordering::Relaxed) >= MAX_UNITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(size: usize) -> Handed {
        let source = Source::of("10.0.0.1:1".parse().expect("an address"));
        Handed { source, data: BytesMut::zeroed(size) }
    }

    #[test]
    fn datagrams_wait_in_order_up_to_a_megabyte_and_further_ones_are_lost() {
        let inbox = Inbox::default();
        let fit = MAX_DATAGRAM_BYTES / (1_000 + DATAGRAM);
        (0..2 * fit).for_each(|_| inbox.hand(handed(1_000)));
        let taken = std::iter::from_fn(|| inbox.next_datagram()).count();
        assert_eq!((taken, inbox.has_any()), (fit, false));
        inbox.hand(handed(1));
        inbox.hand(handed(2));
        assert_eq!(inbox.next_datagram().map(|handed| handed.data.len()), Some(1));
        assert_eq!(inbox.next_datagram().map(|handed| handed.data.len()), Some(2));
    }

    #[test]
    fn an_inbox_is_full_of_units_until_they_are_taken() {
        let (inbox, name) = (Inbox::default(), Arc::new(Named { name: None, number: 1 }));
        let unit = Relayed {
            number: 0,
            data: bytes::Bytes::new(),
            deadline: None,
            priority: 0,
            continues: None,
            depends_on: Vec::new(),
        };
        (0..MAX_UNITS).for_each(|_| inbox.post(Message::Measure));
        assert!(!inbox.is_full());
        (0..MAX_UNITS).for_each(|_| inbox.post(Message::Unit(name.clone(), unit.clone())));
        assert!(inbox.is_full());
        while inbox.next().is_some() {}
        assert!(!inbox.is_full() && !inbox.has_any());
    }
}
