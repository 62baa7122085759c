//! How a sender connects again.

use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{Caller, Pending};
use ontempo_transport::{CloseReason, Configuration};

use crate::attempts::{Attempts, PLACES};
use crate::connection::Session;
use crate::error::Error;
use crate::sender::{Sender, SenderEvent, SenderHandler, SenderOptions};

/// Interval at which attempts to connect again are looked at.
const ATTEMPT_STEP: Wall = Wall::from_millis(10);

/// Pause before connecting again to a receiver that has refused: it may be about to end.
const REFUSED_PAUSE: Wall = Wall::from_millis(250);

impl<H: SenderHandler> Sender<H> {
    /// Tries to connect until it succeeds or `give_up` has passed; `None` after `stop`.
    pub(crate) fn reconnect(&mut self, lost: CloseReason) -> Result<Option<Session>, Error> {
        let mut pause = if lost == CloseReason::Refused { REFUSED_PAUSE } else { Wall::ZERO };
        let started = Instant::now();
        let mut options = self.options.transport.clone();
        options.configuration = Configuration { connections: PLACES, ..options.configuration };
        let SenderOptions { remote, give_up, .. } = self.options;
        let caller = Caller::bind(ontempo_udp::any_for(remote), &options)?;
        let clock = ontempo_udp::Clock::new();
        let mut attempts = Attempts::new(clock.now(), self.round_trip);
        loop {
            self.emit_overflow()?;
            if self.check_stop() {
                return Ok(None);
            }
            std::thread::sleep(std::mem::take(&mut pause).max(ATTEMPT_STEP));
            let now = clock.now();
            drop(attempts.given_up(now));
            let mut failed = None;
            if attempts.is_due(now) {
                let SenderOptions { name, trust, token, .. } = &self.options;
                let begun = caller.begin(remote, name, trust, token.clone());
                failed = begun.as_ref().err().map(ToString::to_string);
                attempts.begun(now, begun.ok());
            }
            let is_answered = |pending: &Pending| pending.wait(Some(Wall::ZERO)).is_some();
            let mut error = None;
            if let Some(pending) = attempts.take(is_answered) {
                match pending.wait(Some(Wall::ZERO)) {
                    Some(Err(refused)) => error = Some(refused),
                    _ => match self.open_over(pending.connection(), self.totals.reconnected + 1) {
                        Ok(session) => return self.returned(session).map(Some),
                        Err(closed) => error = Some(closed),
                    },
                }
            }
            if let Some(error) = error.take_if(|error| error.is_misconfigured()) {
                return Err(error.into());
            }
            if started.elapsed() >= give_up {
                let why = error.map(|error| error.to_string()).or(failed);
                let why = why.unwrap_or_else(|| format!("{remote} does not answer"));
                return Err(Error::Lost(why + &self.what_is_missing()));
            }
        }
    }

    /// What the receiver is known to lack of a file.
    fn what_is_missing(&self) -> String {
        let Some(file) = &self.file else { return String::new() };
        let (length, has) = (file.offer.length, self.totals.report.bytes);
        let missing = length.saturating_sub(has);
        format!("; it has reported {has} of {length} bytes: {missing} are missing at most")
    }

    /// Counts how long the receiver was away.
    fn returned(&mut self, session: Session) -> Result<Session, Error> {
        let away = Duration::from_nanos(self.heard.elapsed().as_nanos() as u64);
        self.totals.reconnected += 1;
        self.totals.interrupted += away;
        self.totals.longest_interruption = self.totals.longest_interruption.max(away);
        self.heard = Instant::now();
        self.emit(SenderEvent::Connected { again: true })?;
        self.emit(SenderEvent::Returned(away))?;
        Ok(session)
    }
}
