//! Connections of paths that have ended.

use std::time::Instant;

use ontempo_foundation::Duration;
use ontempo_transport::{CloseReason, Reliability};

use super::PathSender;
use crate::attempts::Attempts;
use crate::connecting::{PLACE_PAUSE, PLACE_TIMEOUT};
use crate::connection::Session;
use crate::error::Error;
use crate::paths::PathEvent;
use crate::sender::{SenderEvent, SenderHandler};

impl<H: SenderHandler> PathSender<H> {
    /// Notes that a receiver takes the stream. What became of paths while it waited for that was not reported.
    pub(super) fn note_taken(&mut self) -> Result<(), Error> {
        let mut sessions = self.dials.iter().filter_map(|dial| dial.session.as_ref());
        if self.was_taken || !sessions.any(Session::is_taken) {
            return Ok(());
        }
        let has_waited = self.waits();
        self.was_taken = true;
        if has_waited {
            while self.group.poll_event().is_some() {}
            for path in
                (0..self.dials.len()).filter(|path| self.group.is_up(*path)).collect::<Vec<_>>()
            {
                self.emit(SenderEvent::Path(PathEvent::Up(path)))?;
            }
        }
        Ok(())
    }

    /// Whether it waits for the place of another sender.
    pub(super) fn waits(&self) -> bool {
        !self.was_taken && self.occupied_at.is_some()
    }

    /// Dials a path again whose connection has ended.
    ///
    /// # Errors
    /// The receiver has ended the stream.
    pub(super) fn check_closed(&mut self, path: usize) -> Result<(), Error> {
        let dial = &self.dials[path];
        let Some(closed) = dial.session.as_ref().and_then(|session| session.connection.is_closed())
        else {
            return Ok(());
        };
        let is_occupied = closed.reason == CloseReason::Busy && self.may_wait();
        if closed.reason.is_final() && !is_occupied {
            return Err(Error::EndedByReceiver(closed));
        }
        let now = self.clock.now();
        let dial = &mut self.dials[path];
        if let Some(mut session) = dial.session.take() {
            session.close("lost");
        }
        let round_trip = dial.statistics.take().and_then(|over| over.round_trip);
        let mut next = now;
        if is_occupied {
            // It has not begun.
            dial.opened = dial.opened.saturating_sub(1);
            next = now + Duration::from_nanos(PLACE_PAUSE.as_nanos() as u64);
        }
        dial.attempts = Some(Attempts::new(next, round_trip));
        self.group.closed(now, path);
        if is_occupied && self.occupied_at.is_none() {
            self.occupied_at = Some(Instant::now());
            self.emit(SenderEvent::Occupied(&closed, PLACE_TIMEOUT))?;
        }
        Ok(())
    }

    /// Whether another sender that has the receiver's place may be gone. What a receiver acknowledges that then
    /// refuses is not sent again: not where all has to arrive.
    fn may_wait(&self) -> bool {
        !self.was_taken
            && self.options.reliability != Reliability::Full
            && self.occupied_at.is_none_or(|at| at.elapsed() < PLACE_TIMEOUT)
    }
}
