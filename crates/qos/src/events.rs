//! What an application is told of its connection.

use std::sync::mpsc::Receiver;
use std::time::Duration as Wall;

use ontempo_mechanisms::qos::{Specification, Step, Violation};

use super::Direction;
use ontempo_monitor::Reservation;

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A parameter is not kept any more, or is kept again; with what was asked and delivered. A
    /// sender hears of it from its receiver.
    Violation {
        /// Of what this end sends, or receives.
        direction: Direction,
        /// What is violated.
        violation: Violation,
    },
    /// The ladder has stepped: this is agreed for what is sent from now on. To keep it is the
    /// application's part.
    Step {
        /// Down or up.
        step: Step,
        /// What is agreed now.
        agreed: Specification,
    },
    /// The other end has asked for something else, which is agreed now.
    Changed {
        /// The direction.
        direction: Direction,
        /// What is agreed now.
        agreed: Specification,
    },
    /// The reservation stands, is refused or is lost; with the reason.
    Reservation {
        /// The direction.
        direction: Direction,
        /// How it stands.
        state: Reservation,
        /// Why it was refused or lost; else empty.
        reason: String,
    },
}

/// The events of a connection from when this was asked for; ends with the connection.
///
/// As an iterator it waits for the next one.
#[derive(Debug)]
pub struct Events(Receiver<Event>);

impl Events {
    pub(super) fn new(receiver: Receiver<Event>) -> Self {
        Self(receiver)
    }

    /// The next one; `None` where none comes within `patience`, or the connection has ended.
    pub fn next_within(&self, patience: Wall) -> Option<Event> {
        self.0.recv_timeout(patience).ok()
    }

    /// Those that are there, without waiting.
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
