//! What waits between a source and the network.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as Wall, Instant};

use ontempo_media::Unit;

use crate::message;

/// Kept for a unit beside its bytes; counted in, so that small ones are bounded, too.
const OVERHEAD: usize = 256;

/// A unit that waits.
pub(crate) struct Waiting {
    pub(crate) unit: Unit,
    pub(crate) since: Instant,
}

/// What comes next.
pub(crate) enum Next {
    Unit(Box<Waiting>),
    /// Datagrams of which something was dropped.
    Gap(Vec<u64>),
    /// Nothing within the time.
    Nothing,
    /// The source is at its end.
    End,
    /// The source broke; why, in words.
    Broken(String),
}

/// What was dropped because too much waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Units.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    units: VecDeque<Waiting>,
    bytes: usize,
    gaps: Vec<u64>,
    overflow: Overflow,
    ended: bool,
    broken: Option<String>,
}

/// What waits for the network, bounded.
pub struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
    /// A source that cannot wait: what does not fit is dropped.
    is_live: bool,
}

impl Backlog {
    /// One that holds `most` bytes. Where it is full, a live one drops the oldest of the least
    /// important units; any other makes [`push`](Self::push) wait.
    pub fn new(most: usize, is_live: bool) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most, is_live }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves no change half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A unit of the source. Where there is no room, a live one takes that of the oldest of the
    /// least important; any other waits.
    pub fn push(&self, unit: Unit) {
        let size = unit.data.len() + OVERHEAD;
        let mut state = self.lock();
        while state.bytes + size > self.most && !state.units.is_empty() {
            if self.is_live {
                drop_one(&mut state);
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.bytes += size;
        state.units.push_back(Waiting { unit, since: Instant::now() });
        drop(state);
        self.changed.notify_all();
    }

    /// No more is to come; where the source broke, why.
    pub fn end(&self, broken: Option<String>) {
        let mut state = self.lock();
        state.ended = true;
        state.broken = broken;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for what comes next.
    pub(crate) fn next(&self, limit: Wall) -> Next {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if !state.gaps.is_empty() {
                return Next::Gap(std::mem::take(&mut state.gaps));
            }
            if let Some(waiting) = state.units.pop_front() {
                state.bytes -= waiting.unit.data.len() + OVERHEAD;
                drop(state);
                self.changed.notify_all();
                return Next::Unit(Box::new(waiting));
            }
            if state.ended {
                return state.broken.take().map_or(Next::End, Next::Broken);
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return Next::Nothing;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What was dropped so far.
    pub fn overflow(&self) -> Overflow {
        self.lock().overflow
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.lock().bytes
    }
}

fn drop_one(state: &mut State) {
    let least = state.units.iter().enumerate().min_by_key(|(place, one)| (one.unit.kind, *place));
    let Some(gone) = least.map(|(place, _)| place).and_then(|place| state.units.remove(place))
    else {
        return;
    };
    state.bytes -= gone.unit.data.len() + OVERHEAD;
    state.overflow.units += 1;
    state.overflow.bytes += gone.unit.data.len() as u64;
    state.gaps.extend(gone.unit.parts.iter().map(|part| part.datagram));
    // A message of more numbers than this would itself take room: the rest is found missing.
    state.gaps.truncate(message::MAX_GAPS);
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Time;
    use ontempo_media::{Kind, Part, Span};

    use super::*;

    fn unit(id: u64, kind: Kind) -> Unit {
        let spans = vec![Span { offset: 0, length: 1000 }];
        let parts = vec![Part { datagram: id, length: 1000, arrived: Time::ZERO, spans }];
        let data = vec![0; 1000];
        Unit { id, kind, media_time: None, slack: None, dependencies: vec![], parts, data }
    }

    #[test]
    fn a_live_source_loses_the_oldest_of_the_least_important_and_it_is_told() {
        let backlog = Backlog::new(4 * 1256, true);
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
                Next::Unit(waiting) => left.push(waiting.unit.id),
                Next::End => break,
                _ => panic!("neither a unit nor the end"),
            }
        }
        assert_eq!((left, backlog.waiting()), (vec![0, 3, 4, 5], 0));
    }
}
