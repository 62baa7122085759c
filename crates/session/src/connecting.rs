//! How a sender connects, for the first time and again.

use std::net::SocketAddr;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Duration, Time};
use ontempo_transport::live::{self, Caller, Connection, Pending};
use ontempo_transport::{CloseReason, Closed, Configuration, Reliability};
use ontempo_udp::Clock;

use crate::attempts::{Attempts, PLACES};
use crate::connection::Session;
use crate::error::Error;
use crate::sender::{STEP, Sender, SenderEvent, SenderHandler, SenderOptions, Turn};

/// Interval at which attempts to connect are looked at.
const ATTEMPT_STEP: Wall = Wall::from_millis(10);

/// Pause before connecting again to a receiver that has refused: it may be about to end.
const REFUSED_PAUSE: Wall = Wall::from_millis(250);

/// How long a sender that comes waits for the place of another: a relay of before this rule knows after 8 s at the
/// latest that one is gone.
pub(crate) const PLACE_TIMEOUT: Wall = Wall::from_secs(10);

/// Pause before it asks for it again.
pub(crate) const PLACE_PAUSE: Wall = Wall::from_millis(250);

/// Time limit of an answer, beyond the most that a receiver may take to see whether the other sender is there.
const PLACE_ANSWER: Wall = Wall::from_secs(6);

/// Whether only a receiver that has taken the connection closes it for this.
fn is_of_stream(reason: CloseReason) -> bool {
    reason.is_final() && !reason.is_misconfigured()
}

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

    /// What came of the first that is answered, or, where units may be sent early, that may send: an error if the
    /// receiver refused, or nothing came for as long as a handshake may take.
    pub(crate) fn answered(&mut self, early: bool) -> Option<Result<Connection, live::Error>> {
        let answer = |pending: &Pending| match early {
            true => pending.wait_early(Some(Wall::ZERO)),
            false => pending.wait(Some(Wall::ZERO)),
        };
        let pending = self.take(|pending| answer(pending).is_some())?;
        Some(match answer(&pending) {
            Some(Err(error)) => Err(error),
            _ => Ok(pending.connection()),
        })
    }
}

impl<H: SenderHandler> Sender<H> {
    /// Connects for the first time. Over a lossy path a handshake may take seconds, of which a live
    /// stream has none: another is begun beside it every 250 ms. What fails first is the error. The label says
    /// that so many connections were `before`.
    ///
    /// # Errors
    /// The first that fails; [`Error::Unanswered`] after `stop`: an attempt left alone would take the
    /// receiver's place.
    pub(crate) fn connect_first(&mut self, before: u64) -> Result<Session, Error> {
        let (caller, clock) = (self.caller()?, Clock::new());
        let mut attempts = Attempts::new(clock.now(), None);
        loop {
            if self.check_stop() {
                return Err(Error::Unanswered(self.options.remote));
            }
            attempts.go_on(clock.now(), &caller, (self.options.remote, &self.options))?;
            match self.answered(&mut attempts, before)? {
                Some(Ok(session)) => return Ok(session),
                // All its places are taken: perhaps by connections of a sender that is gone.
                Some(Err(live::Error::NotConnected { closed, .. }))
                    if closed.reason == CloseReason::Refused && self.may_wait(&closed)? =>
                {
                    self.pause(PLACE_PAUSE)?;
                }
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
            std::thread::sleep(ATTEMPT_STEP);
        }
    }

    /// What came of the first attempt that is answered: the flow is opened. The stream begins before the receiver has
    /// said that it takes the connection, if its units have deadlines that a round trip matters to; not where another
    /// sender may have its place. What is lost of it by a refusal is not sent again: it would be late.
    fn answered(
        &mut self,
        attempts: &mut Attempts<Pending>,
        before: u64,
    ) -> Result<Option<Result<Session, live::Error>>, Error> {
        let is_timed = self.options.reliability != Reliability::Full;
        let is_early = is_timed && self.occupied_at.is_none();
        let connection = match attempts.answered(is_early) {
            Some(Ok(connection)) => connection,
            Some(Err(error)) => return Ok(Some(Err(error))),
            None => return Ok(None),
        };
        let remote = connection.remote();
        let before = before.max(u64::from(self.has_sent()));
        match self.open_over(connection, before) {
            Ok(session) => self.send_early(session),
            Err(live::Error::Closed(closed)) if is_early => {
                Ok(Some(Err(live::Error::NotConnected { remote, closed })))
            }
            Err(error) => Ok(Some(Err(error))),
        }
    }

    /// Sends until the receiver has taken the connection; the error if it refuses, `None` after `stop`. What a receiver
    /// says of the stream may overtake that it has taken the connection.
    fn send_early(
        &mut self,
        mut session: Session,
    ) -> Result<Option<Result<Session, live::Error>>, Error> {
        loop {
            match session.connection.opened(Some(Wall::ZERO)) {
                Some(Ok(())) => return Ok(Some(Ok(session))),
                Some(Err(error)) if error.close_reason().is_some_and(is_of_stream) => {
                    return Ok(Some(Ok(session)));
                }
                Some(Err(error)) => {
                    session.close("refused");
                    return Ok(Some(Err(error)));
                }
                None if self.check_stop() => {
                    session.close("stopped");
                    return Ok(None);
                }
                None => {}
            }
            match self.send_next(&mut session, ATTEMPT_STEP)? {
                Turn::GoesOn => {}
                Turn::Ended | Turn::Lost(_) => std::thread::sleep(ATTEMPT_STEP),
            }
        }
    }

    /// Whether something was sent that is not sent again: it is missing at the beginning for a receiver that comes
    /// after that.
    fn has_sent(&self) -> bool {
        let datagrams = self.datagrams.max(self.backlog.taken());
        self.options.reliability != Reliability::Full && datagrams > 0
    }

    /// Whether this sender goes on to wait for a place that it was refused, which it reports once.
    fn may_wait(&mut self, refused: &Closed) -> Result<bool, Error> {
        if let Some(since) = self.occupied_at {
            return Ok(since.elapsed() < PLACE_TIMEOUT);
        }
        self.occupied_at = Some(Instant::now());
        self.emit(SenderEvent::Occupied(refused, PLACE_TIMEOUT))?;
        Ok(true)
    }

    /// The receiver has another sender, which may be gone: asks for its place until it is given, for
    /// [`PLACE_TIMEOUT`]. Nothing is sent before.
    ///
    /// # Errors
    /// The other is still there; as [`connect_first`](Self::connect_first).
    pub(crate) fn await_place(&mut self, refused: Closed) -> Result<Session, Error> {
        let before = self.totals.reconnected;
        let mut refused = refused;
        loop {
            if !self.may_wait(&refused)? {
                return Err(Error::EndedByReceiver(refused));
            }
            self.pause(PLACE_PAUSE)?;
            let session = self.connect_first(before)?;
            match self.await_taken(session)? {
                Ok(session) => {
                    self.emit(SenderEvent::Connected { again: false })?;
                    return Ok(session);
                }
                Err(closed) if closed.reason == CloseReason::Busy => refused = closed,
                Err(closed) if closed.reason.is_final() => {
                    return Err(Error::EndedByReceiver(closed));
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until the receiver takes the stream; the reason if it does not.
    fn await_taken(&mut self, mut session: Session) -> Result<Result<Session, Closed>, Error> {
        let since = Instant::now();
        while !session.is_taken() && since.elapsed() < PLACE_ANSWER {
            if let Some(closed) = session.connection.is_closed() {
                session.close("refused");
                return Ok(Err(closed));
            }
            if let Err(stopped) = self.pause(ATTEMPT_STEP) {
                session.close("stopped");
                return Err(stopped);
            }
        }
        Ok(Ok(session))
    }

    /// # Errors
    /// [`Error::Unanswered`] after `stop`.
    fn pause(&mut self, span: Wall) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            self.emit_overflow()?;
            if self.check_stop() {
                return Err(Error::Unanswered(self.options.remote));
            }
            match span.checked_sub(since.elapsed()) {
                Some(left) if left > Wall::ZERO => std::thread::sleep(left.min(STEP)),
                _ => return Ok(()),
            }
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
            match self.answered(&mut attempts, self.totals.reconnected + 1)? {
                Some(Ok(session)) => return self.returned(session).map(Some),
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
