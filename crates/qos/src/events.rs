//! Events of a connection.

use std::sync::mpsc::Receiver;
use std::time::Duration as Wall;

use ontempo_foundation::Duration;
use ontempo_mechanisms::qos::{Parameter, Specification, Step, Value, Violation};

use super::Direction;
use ontempo_monitor::Reservation;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A violation of a parameter begins or ends, with the agreed and the delivered value. A
    /// sender gets it by its receiver's report.
    Violation {
        /// Of what this end sends, or receives.
        direction: Direction,
        /// The violation.
        violation: Violation,
    },
    /// A violation goes on: told every 10 s until it ends.
    Lasting {
        /// Of what this end sends, or receives.
        direction: Direction,
        /// The violated parameter.
        parameter: Parameter,
        /// The agreed value.
        asked: Value,
        /// The value delivered in the last interval with a measurement.
        delivered: Option<Value>,
        /// How long it has lasted.
        lasted: Duration,
    },
    /// The ladder has stepped: this specification is agreed for what is sent from now on. The
    /// application must follow it.
    Step {
        /// Down or up.
        step: Step,
        /// The agreed specification.
        agreed: Specification,
    },
    /// The peer has asked for another specification, which is now agreed.
    Changed {
        /// The direction.
        direction: Direction,
        /// The agreed specification.
        agreed: Specification,
    },
    /// The reservation is established, refused or lost, with the reason; also that only one of the
    /// ends reserves. What was known before comes first.
    Reservation {
        /// The direction.
        direction: Direction,
        /// Its state.
        state: Reservation,
        /// Why it was refused or lost; otherwise empty.
        reason: String,
    },
    /// Over TCP, where `rec_time` is agreed: the connection is broken. What is sent meanwhile waits until
    /// it is made anew, or until `rec_time` has passed: that is a violation, and its end.
    Lost {
        /// What broke it.
        reason: String,
    },
    /// It is made anew, and goes on where it broke.
    Recovered {
        /// How long it was lost.
        after: Duration,
    },
    /// `rec_time` is agreed, and this connection cannot be made anew if it breaks: the other end is of an
    /// older version. Known from its beginning.
    Unrecoverable {
        /// Why not.
        reason: String,
    },
}

/// Events of a connection from the time of the call until its end.
///
/// As an iterator it blocks until the next one.
#[derive(Debug)]
pub struct Events(Receiver<Event>);

impl Events {
    pub(super) fn new(receiver: Receiver<Event>) -> Self {
        Self(receiver)
    }

    /// The next one; `None` if none comes within `timeout`, or the connection has ended.
    pub fn next_within(&self, timeout: Wall) -> Option<Event> {
        self.0.recv_timeout(timeout).ok()
    }

    /// Queued events, without waiting.
    pub fn waiting(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.try_iter()
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.recv().ok()
    }
}
