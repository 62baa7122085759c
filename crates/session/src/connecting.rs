//! How a sender connects, for the first time and again.

use std::net::SocketAddr;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Duration, Time};
use ontempo_transport::live::{self, Caller, Connection, Pending};
use ontempo_transport::{CloseReason, Configuration};
use ontempo_udp::Clock;

use crate::attempts::{Attempts, PLACES};
use crate::connection::Session;
use crate::error::Error;
use crate::sender::{Sender, SenderEvent, SenderHandler, SenderOptions};

/// Interval at which attempts to connect are looked at.
const ATTEMPT_STEP: Wall = Wall::from_millis(10);

/// Pause before connecting again to a receiver that has refused: it may be about to end.
const REFUSED_PAUSE: Wall = Wall::from_millis(250);

impl Attempts<Pending> {
    /// Gives up those that took too long, and begins one that is due.
    ///
    /// # Errors
    /// It could not be begun; another is due later.
    pub(crate) fn go_on(
        &mut self,
        now: Time,
        caller: &Caller,
        (remote, options): (SocketAddr, &SenderOptions),
    ) -> Result<(), live::Error> {
        drop(self.given_up(now));
        if !self.is_due(now) {
            return Ok(());
        }
        let SenderOptions { name, trust, token, .. } = options;
        let (begun, failed) = match caller.begin(remote, name, trust, token.clone()) {
            Ok(pending) => (Some(pending), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.begun(now, begun);
        failed
    }

    /// What came of the first that is answered: an error if the receiver refused, or nothing came for as
    /// long as a handshake may take.
    pub(crate) fn answered(&mut self) -> Option<Result<Connection, live::Error>> {
        let pending = self.take(|pending| pending.wait(Some(Wall::ZERO)).is_some())?;
        Some(match pending.wait(Some(Wall::ZERO)) {
            Some(Err(error)) => Err(error),
            _ => Ok(pending.connection()),
        })
    }
}

impl<H: SenderHandler> Sender<H> {
    /// Connects for the first time. Over a lossy path a handshake may take seconds, of which a live
    /// stream has none: another is begun beside it every 250 ms. What fails first is the error.
    ///
    /// # Errors
    /// The first that fails; [`Error::Unanswered`] after `stop`: an attempt left alone would take the
    /// receiver's place.
    pub(crate) fn connect_first(&mut self) -> Result<Session, Error> {
        let (caller, clock) = (self.caller()?, Clock::new());
        let mut attempts = Attempts::new(clock.now(), None);
        loop {
            if self.check_stop() {
                return Err(Error::Unanswered(self.options.remote));
            }
            attempts.go_on(clock.now(), &caller, (self.options.remote, &self.options))?;
            if let Some(answered) = attempts.answered() {
                return Ok(self.open_over(answered?, 0)?);
            }
            std::thread::sleep(ATTEMPT_STEP);
        }
    }

    /// A socket for attempts.
    fn caller(&self) -> Result<Caller, live::Error> {
        let mut options = self.options.transport.clone();
        options.configuration = Configuration { connections: PLACES, ..options.configuration };
        Caller::bind(ontempo_udp::any_for(self.options.remote), &options)
    }

    /// Tries to connect until it succeeds or `give_up` has passed; `None` after `stop`.
    pub(crate) fn reconnect(&mut self, lost: CloseReason) -> Result<Option<Session>, Error> {
        let mut pause = if lost == CloseReason::Refused { REFUSED_PAUSE } else { Wall::ZERO };
        let started = Instant::now();
        let SenderOptions { remote, give_up, .. } = self.options;
        let (caller, clock) = (self.caller()?, Clock::new());
        let mut attempts = Attempts::new(clock.now(), self.round_trip);
        loop {
            self.emit_overflow()?;
            if self.check_stop() {
                return Ok(None);
            }
            std::thread::sleep(std::mem::take(&mut pause).max(ATTEMPT_STEP));
            let begun = attempts.go_on(clock.now(), &caller, (remote, &self.options));
            let failed = begun.err().map(|error| error.to_string());
            let mut error = None;
            match attempts.answered() {
                Some(Ok(connection)) => {
                    match self.open_over(connection, self.totals.reconnected + 1) {
                        Ok(session) => return self.returned(session).map(Some),
                        Err(closed) => error = Some(closed),
                    }
                }
                Some(Err(refused)) => error = Some(refused),
                None => {}
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
