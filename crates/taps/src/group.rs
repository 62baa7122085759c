//! A group of connections: the flows of one connection of QUIC, paired by their numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::printable;
use ontempo_transport::CloseReason;
use ontempo_transport::live::mailbox::Mailbox;
use ontempo_transport::live::{self, ReceiveFlow};

use crate::selection::{LABEL, TransportProperties};

/// Connections of a group, at most; a peer that begins more ends the group.
const MAX_CONNECTIONS: usize = 256;

/// How long a connection that is closed here takes to know it, at most.
const CLOSING: Wall = Wall::from_secs(1);

/// Which side of the connection of QUIC this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Initiates,
    Listens,
}

/// What the connections of a group share.
///
/// Connection 0 is there from the beginning at both ends; those that the side which initiated begins
/// have even numbers, those of the other side odd ones. A flow's label names its connection.
pub(crate) struct Group {
    pub(crate) carrier: live::Connection,
    pub(crate) transport: TransportProperties,
    /// The remainder of this side's numbers by 2.
    parity: u64,
    /// Rings when a flow may have come or the carrier ended. It has nothing of the carrier, which
    /// would keep itself.
    bell: Arc<Mailbox<()>>,
    state: Mutex<State>,
}

struct State {
    /// The number of this side's next clone.
    next: u64,
    /// The connections that are there, with the peer's flow of each once it has come.
    connections: BTreeMap<u64, Option<Arc<ReceiveFlow>>>,
    /// Those that the peer has begun and the program has not taken.
    begun: VecDeque<u64>,
    /// Flows of connections that have ended here: the peer did not know when it began them.
    late: Vec<ReceiveFlow>,
    /// A flow that should not be.
    stray: Option<ReceiveFlow>,
    /// No flow will come any more.
    is_over: bool,
}

impl Group {
    pub(crate) fn new(
        carrier: live::Connection,
        transport: TransportProperties,
        side: Side,
    ) -> Arc<Self> {
        let bell = Arc::new(Mailbox::new(()));
        let ringing = Arc::clone(&bell);
        carrier.on_change(move || ringing.change(|()| ()));
        let (parity, next) = match side {
            Side::Initiates => (0, 2),
            Side::Listens => (1, 1),
        };
        let state = State {
            next,
            connections: BTreeMap::from([(0, None)]),
            begun: VecDeque::new(),
            late: Vec::new(),
            stray: None,
            is_over: false,
        };
        Arc::new(Self { carrier, transport, parity, bell, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins another connection; its number.
    pub(crate) fn add(&self) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 2;
        state.connections.insert(number, None);
        number
    }

    /// Gives each flow that has come to its connection.
    fn sort(&self, state: &mut State) {
        while !state.is_over
            && let Some(next) = self.carrier.accept_flow_within(Wall::ZERO)
        {
            let Ok(flow) = next else {
                state.is_over = true;
                return;
            };
            let number = number(&flow.config().label);
            let is_room = state.connections.len() < MAX_CONNECTIONS;
            let was_ours = number.is_some_and(|number| {
                number == 0 || number % 2 == self.parity && number < state.next
            });
            let known = number.and_then(|number| state.connections.get_mut(&number));
            match (number, known) {
                (Some(_), Some(place @ None)) => *place = Some(Arc::new(flow)),
                (Some(_), None) if was_ours => state.late.push(flow),
                (Some(number), None) if number % 2 != self.parity && is_room => {
                    state.connections.insert(number, Some(Arc::new(flow)));
                    state.begun.push_back(number);
                }
                _ => {
                    state.stray = Some(flow);
                    state.is_over = true;
                }
            }
        }
    }

    /// Waits until `ready` has something; `None` after `limit`.
    fn wait<R>(
        &self,
        limit: Option<Wall>,
        mut ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let (found, stray, late) = self.bell.wait(left, |()| {
                let mut state = self.lock();
                self.sort(&mut state);
                let found = ready(&mut state);
                let (stray, late) = (state.stray.take(), std::mem::take(&mut state.late));
                let is_any = found.is_some() || stray.is_some() || !late.is_empty();
                is_any.then_some((found, stray, late))
            })?;
            // Not under the lock, where the thread that would take the command may wait.
            drop(late);
            if let Some(flow) = &stray {
                let label = printable(&flow.config().label).into_owned();
                let sentence = format!("no flow {label:?} is expected");
                self.close(CloseReason::ProtocolViolation, &sentence);
            }
            if found.is_some() || stray.is_some() {
                return found;
            }
        }
    }

    /// The flow of the peer's messages of a connection; `Some(None)` where none will come.
    pub(crate) fn incoming(
        &self,
        number: u64,
        limit: Option<Wall>,
    ) -> Option<Option<Arc<ReceiveFlow>>> {
        self.wait(limit, |state| match state.connections.get(&number) {
            Some(Some(flow)) => Some(Some(Arc::clone(flow))),
            Some(None) if !state.is_over => None,
            _ => Some(None),
        })
    }

    /// The next connection that the peer has begun; `Some(None)` at the group's end.
    pub(crate) fn begun(&self, limit: Option<Wall>) -> Option<Option<u64>> {
        self.wait(limit, |state| match state.begun.pop_front() {
            Some(number) => Some(Some(number)),
            None => state.is_over.then_some(None),
        })
    }

    /// Closes the carrier, and waits until this side knows it.
    pub(crate) fn close(&self, reason: CloseReason, sentence: &str) {
        self.carrier.close_with(reason, sentence);
        self.carrier.closed(CLOSING);
    }

    /// Notes that a connection has ended; whether it was the last.
    pub(crate) fn ended(&self, number: u64) -> bool {
        let mut state = self.lock();
        // Those that the peer has begun are there, too, though nobody has waited for them.
        self.sort(&mut state);
        let flow = state.connections.remove(&number);
        let late = std::mem::take(&mut state.late);
        let is_last = state.connections.is_empty();
        drop(state);
        // Not under the lock, as above.
        drop((flow, late));
        is_last
    }
}

/// The number of a flow's connection; `None` where the label is not one of ours.
fn number(label: &str) -> Option<u64> {
    let digits = label.strip_prefix(LABEL)?.strip_prefix(' ')?;
    let is_ours = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_label_is_the_word_and_a_number() {
        assert_eq!(number("taps 0"), Some(0));
        assert_eq!(number("taps 17"), Some(17));
        for label in ["", "taps", "taps ", "taps -2", "taps +2", "taps ²", "video 1", "taps  1"] {
            assert_eq!(number(label), None, "{label}");
        }
        assert_eq!(number("taps 99999999999999999999"), None);
    }
}
