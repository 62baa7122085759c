//! A receiver that calls a relay, instead of waiting for a sender.
//!
//! It opens its flow of reports first: by this the relay knows a viewer, and which stream it asks
//! for. Then the relay opens the flow of units, as a sender does.

use std::net::SocketAddr;
use std::time::{Duration as Wall, Instant};

use ontempo_transport::live::{self, Connection, Options, ReceiveFlow, SendFlow, connect};
use ontempo_transport::{FlowConfig, Token, Trust};

use crate::error::Error;
use crate::message::REPORTS;
use crate::receiver::ReceiverEvent;
use crate::stream_name::{StreamName, with_name};

/// Pause before calling again: the first, and the maximum to which it doubles.
const MIN_BACKOFF: Wall = Wall::from_millis(250);
const MAX_BACKOFF: Wall = Wall::from_secs(4);

/// Pause after a connection that was there for at least [`STEADY`]: another source may have the stream already.
const FIRST_PAUSE: Wall = Wall::from_millis(20);
const STEADY: Wall = Wall::from_secs(1);

/// A relay that has the stream opens its flow sooner than that after its answer.
const SOON: Wall = Wall::from_secs(1);

/// The relay that a receiver calls.
#[derive(Clone, Debug)]
pub struct Call {
    /// The relay's address.
    pub remote: SocketAddr,
    /// The name in its certificate, if `trust` checks names.
    pub name: String,
    /// How the relay's certificate is verified.
    pub trust: Trust,
    /// The token of viewers.
    pub token: Token,
    /// Options of the connection; see [`configuration`](crate::configuration).
    pub transport: Options,
    /// The stream asked for; `None`: the one without a name.
    pub stream: Option<StreamName>,
    /// How long to call a relay that does not answer.
    pub give_up: Wall,
}

/// The calls of a receiver.
pub(crate) struct Calling {
    call: Call,
    /// The connection on which the relay has not opened the flow of units yet.
    waiting: Option<(Connection, SendFlow)>,
    next_at: Instant,
    backoff: Wall,
    /// When the last call was answered, until the next pause.
    answered_at: Option<Instant>,
    unanswered_since: Option<Instant>,
    /// That the stream is waited for has been noted since.
    is_noted: bool,
    note: Option<ReceiverEvent<'static>>,
}

impl Calling {
    pub(crate) fn new(call: Call) -> Self {
        let (waiting, next_at, backoff) = (None, Instant::now(), MIN_BACKOFF);
        let (answered_at, unanswered_since, is_noted, note) = (None, None, false, None);
        Self { call, waiting, next_at, backoff, answered_at, unanswered_since, is_noted, note }
    }

    /// What the receiver's handler is to know of the calls.
    pub(crate) fn take_note(&mut self) -> Option<ReceiverEvent<'static>> {
        self.note.take()
    }

    /// A connection, its flow of units and its flow of reports; `None` after `limit`, or after a
    /// call that was not answered.
    ///
    /// # Errors
    /// The relay refuses for a reason for which calling again is of no use, or does not answer for
    /// as long as a call may take.
    pub(crate) fn next(
        &mut self,
        limit: Wall,
    ) -> Result<Option<(Connection, ReceiveFlow, SendFlow)>, Error> {
        if let Some((connection, _)) = &self.waiting {
            let flow = match connection.accept_flow_within(limit) {
                None => {
                    let is_soon = self.answered_at.is_some_and(|at| at.elapsed() < SOON);
                    if !is_soon && !std::mem::replace(&mut self.is_noted, true) {
                        self.note = Some(ReceiverEvent::Waiting(connection.remote()));
                    }
                    return Ok(None);
                }
                Some(Ok(flow)) => flow,
                Some(Err(live::Error::Closed(closed))) if closed.reason.is_final() => {
                    return Err(Error::EndedByRelay(closed));
                }
                Some(Err(_)) => {
                    self.waiting = None;
                    self.call_later();
                    return Ok(None);
                }
            };
            // Checked above.
            return Ok(self
                .waiting
                .take()
                .map(|(connection, reports)| (connection, flow, reports)));
        }
        let now = Instant::now();
        if now < self.next_at {
            std::thread::sleep(limit.min(self.next_at - now));
            return Ok(None);
        }
        match self.open() {
            Ok(opened) => {
                self.waiting = Some(opened);
                (self.backoff, self.unanswered_since) = (MIN_BACKOFF, None);
                (self.answered_at, self.is_noted) = (Some(Instant::now()), false);
            }
            Err(error) => {
                let is_first = self.unanswered_since.is_none();
                let since = *self.unanswered_since.get_or_insert(now);
                let is_final = error.is_misconfigured()
                    || error.close_reason().is_some_and(|reason| reason.is_final());
                if is_final || since.elapsed() >= self.call.give_up {
                    return Err(error.into());
                }
                if is_first {
                    self.note = Some(ReceiverEvent::Unanswered(error.to_string()));
                }
                self.call_later();
            }
        }
        Ok(None)
    }

    /// A connection was lost, or has ended: the next call is after a pause.
    pub(crate) fn call_later(&mut self) {
        let now = Instant::now();
        if self.answered_at.take().is_some_and(|at| now.duration_since(at) >= STEADY) {
            self.next_at = now + FIRST_PAUSE;
            return;
        }
        self.next_at = now + self.backoff;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }

    fn open(&self) -> Result<(Connection, SendFlow), live::Error> {
        let Call { remote, name, trust, token, transport, stream, .. } = &self.call;
        let connection = connect(*remote, name, trust, token.clone(), transport)?;
        let label = with_name(REPORTS, stream.as_ref());
        let reports = connection.open_flow(FlowConfig { label, ..FlowConfig::default() })?;
        Ok((connection, reports))
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;
    use ontempo_transport::live::Listener;
    use ontempo_transport::{Configuration, Identity};

    use super::*;

    fn first_note(calling: &mut Calling) -> ReceiverEvent<'static> {
        let notes = std::iter::repeat_with(|| {
            let found = calling.next(Wall::from_millis(50)).expect("it is called again");
            assert!(found.is_none(), "nobody opens a flow");
            calling.take_note()
        });
        notes.take(2_000).flatten().next().expect("it is noted")
    }

    #[test]
    fn a_relay_without_the_stream_and_one_that_does_not_answer_are_noted_once() {
        let handshake_timeout = Duration::from_millis(500);
        let configuration = Configuration { handshake_timeout, ..crate::configuration() };
        let transport = Options { configuration, ..Options::default() };
        let identity = Identity::self_signed(&["relay"]).expect("made");
        let (at, token) =
            (SocketAddr::from(([127, 0, 0, 1], 0)), Token::new(b"see").expect("short"));
        let listener =
            Listener::bind(at, &identity, token.clone(), &transport).expect("a free port");
        let mut calling = Calling::new(Call {
            remote: listener.local(),
            name: "relay".to_owned(),
            trust: Trust::Fingerprint(identity.fingerprint()),
            token,
            transport,
            stream: None,
            give_up: Wall::from_secs(600),
        });
        let note = first_note(&mut calling);
        assert!(matches!(note, ReceiverEvent::Waiting(at) if at == listener.local()));
        for _ in 0..10 {
            let found = calling.next(Wall::from_millis(10)).expect("it is there");
            assert!(found.is_none() && calling.take_note().is_none());
        }
        drop(listener);
        let note = first_note(&mut calling);
        assert!(matches!(note, ReceiverEvent::Unanswered(why) if why.contains("no connection to")));
    }
}
