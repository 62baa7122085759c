//! The senders that come to a receiver: which one is received, which one takes over, which are refused.

use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{self, Accepted, Connection, Listener, ReceiveFlow, SendFlow};
use ontempo_transport::{CloseReason, FlowConfig};
use ontempo_udp::Clock;

use crate::calling::Calling;
use crate::contest::{Contest, Holder, Verdict};
use crate::error::Error;
use crate::file::{self, Offer};
use crate::message::{Label, LabelError, REPORTS};
use crate::paths::{MAX_PATHS, PathLabel, PathLabelError};
use crate::receiver::{Receiver, ReceiverEvent, ReceiverHandler, SENDER_TIMEOUT, STEP};
use crate::reporting::send;
use crate::stream_name::split_name;

/// Clients that are taken from the listener at a time: more than wait there.
pub(crate) const MAX_AT_ONCE: usize = 256;

/// Connections that are closed and whose flows were not looked at: the oldest are forgotten.
const MAX_GONE: usize = 16;

/// Where connections come from.
pub(crate) enum Entrance {
    /// Senders connect.
    Listener(Listener),
    /// A relay is called.
    Calling(Box<Calling>),
}

/// What a label says, without the name of its stream: the stream or the file.
pub(crate) fn labels(text: &str) -> Result<(Label, Option<Offer>), LabelError> {
    let (label, _) = split_name(text).map_err(|_| LabelError::NotMedia)?;
    match label.parse::<PathLabel>() {
        Ok(of_path) => Ok((of_path.label, None)),
        Err(PathLabelError::Invalid(error)) => Err(error),
        Err(PathLabelError::Other) => file::labels(label),
    }
}

/// A sender that has come while another's connection is silent, or seems to be.
pub(crate) struct Contender {
    first: (Connection, ReceiveFlow),
    /// Other connections of the same sender: each path of a stream over several has one.
    more: Vec<(Connection, ReceiveFlow)>,
    clock: Clock,
    contest: Contest,
}

/// The connections of the sender that holds the place, seen as one: that of which something came last counts.
pub(crate) fn holder<'a>(
    held_at: Instant,
    connections: impl Iterator<Item = &'a Connection>,
) -> Option<Holder> {
    let held = Duration::from_nanos(held_at.elapsed().as_nanos() as u64);
    let seen = connections.filter_map(|connection| {
        let over = connection.statistics()?;
        Some((connection.clock().now().since(over.heard), over.round_trip))
    });
    let first = |one: (Duration, Option<Duration>), next: (Duration, Option<Duration>)| {
        (one.0.min(next.0), one.1.max(next.1))
    };
    let (silence, round_trip) = seen.reduce(first)?;
    Some(Holder { silence, held, round_trip })
}

impl Contender {
    pub(crate) fn new(first: (Connection, ReceiveFlow)) -> Self {
        let clock = Clock::new();
        Self { first, more: Vec::new(), clock, contest: Contest::new(clock.now()) }
    }

    /// Its sender is gone again: it takes nobody's place.
    pub(crate) fn is_gone(&self) -> bool {
        let mut all = self.more.iter().chain([&self.first]);
        all.all(|(connection, _)| connection.is_closed().is_some())
    }

    /// What becomes of it.
    pub(crate) fn judge(&mut self, holder: Holder) -> Verdict {
        self.contest.judge(self.clock.now(), holder)
    }

    /// Keeps another connection of its sender; returns one of any other.
    pub(crate) fn keep(
        &mut self,
        next: (Connection, ReceiveFlow),
    ) -> Option<(Connection, ReceiveFlow)> {
        let session =
            |flow: &ReceiveFlow| labels(&flow.config().label).ok().map(|(label, _)| label.session);
        let of_first = session(&self.first.1);
        if of_first.is_none() || session(&next.1) != of_first || self.more.len() + 1 >= MAX_PATHS {
            return Some(next);
        }
        self.more.push(next);
        None
    }
}

impl<H: ReceiverHandler> Receiver<H> {
    /// Accepts a connection; returns one whose sender has opened its flow.
    pub(crate) fn next_flow(
        &mut self,
        limit: Wall,
    ) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        if let Some(found) = self.found.pop_front() {
            return Ok(Some(found));
        }
        let mut refused = Vec::new();
        let listener = match &mut self.entrance {
            Entrance::Listener(listener) => listener,
            Entrance::Calling(calling) => {
                let (found, note) = (calling.next(limit)?, calling.take_note());
                if let Some(note) = note {
                    self.emit(note)?;
                }
                return Ok(found.map(|(connection, flow, reports)| {
                    self.reports = Some(reports);
                    (connection, flow)
                }));
            }
        };
        let mut limit = if self.waiting.is_empty() { limit } else { Wall::from_millis(1) };
        // All that wait: while a stream is received, there is one call in 50 ms.
        for _ in 0..MAX_AT_ONCE {
            match listener.accept_within(std::mem::take(&mut limit)) {
                Some(Accepted::Connection(connection)) => {
                    self.waiting.push((connection, Instant::now()));
                }
                // One of several attempts of a sender, of which another was answered first.
                Some(Accepted::Refused { closed, .. }) if closed.reason == CloseReason::Done => {}
                Some(Accepted::Refused { remote, closed }) => refused.push((remote, closed)),
                None => break,
            }
        }
        for (remote, closed) in refused {
            self.emit(ReceiverEvent::Refused { remote, reason: closed.sentence })?;
        }
        while self.waiting.len() > MAX_GONE {
            let is_gone = |(one, _): &(Connection, _)| one.is_closed().is_some();
            let Some(oldest) = self.waiting.iter().position(is_gone) else { break };
            self.waiting.remove(oldest);
        }
        let mut place = 0;
        while let Some((connection, since)) = self.waiting.get(place) {
            match connection.accept_flow_within(Wall::ZERO) {
                Some(Ok(flow)) => return Ok(Some((self.waiting.remove(place).0, flow))),
                None if since.elapsed() < SENDER_TIMEOUT => place += 1,
                Some(Err(_)) | None => drop(self.waiting.remove(place)),
            }
        }
        Ok(None)
    }

    /// The sender that waits for the end of another's connection, or the next one.
    pub(crate) fn next_sender(&mut self) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        match self.contender.take() {
            Some(contender) => Ok(Some(self.follow(contender))),
            None => self.next_flow(STEP),
        }
    }

    /// Polls the listener: returns a new connection of the same sender, or of one that takes its
    /// place; refuses other senders.
    pub(crate) fn poll_listener(
        &mut self,
        old: &Connection,
        reports: &SendFlow,
    ) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        if self.polled_at.elapsed() < STEP || matches!(self.entrance, Entrance::Calling(_)) {
            return Ok(None);
        }
        self.polled_at = Instant::now();
        for _ in 0..MAX_AT_ONCE {
            let Some((connection, flow)) = self.next_flow(Wall::ZERO)? else { break };
            let Ok((label, offer)) = labels(&flow.config().label) else { continue };
            let of_stream = self.stream.as_ref().map(|stream| stream.label.session);
            let of_file = self.file.as_ref().map(|file| file.session);
            if of_stream.or(of_file) == Some(label.session) {
                self.contender = None;
                return Ok(Some((connection, flow)));
            }
            // It is gone again.
            if connection.is_closed().is_some() {
                continue;
            }
            let same_file = self.file.as_ref().is_some_and(|file| Some(file.offer()) == offer);
            let next = (connection, flow);
            self.contender.take_if(|contender| contender.is_gone());
            let other = match &mut self.contender {
                Some(contender) => contender.keep(next),
                None if !self.options.once || same_file => {
                    self.contender = Some(Contender::new(next));
                    None
                }
                None => Some(next),
            };
            if let Some((connection, _)) = other {
                self.refuse(&connection, "another is sending")?;
            }
        }
        self.judge(old, reports)
    }

    /// Sends a report, which a sender that is there acknowledges.
    fn ask(&self, reports: &SendFlow) {
        if let Some(stream) = &self.stream {
            send(reports, &stream.last_report);
        } else if let Some(file) = &self.file {
            send(reports, &file.report());
        }
    }

    /// Returns the connection of the sender that waits, if nothing comes of the other any more; refuses it if the
    /// other is there.
    fn judge(
        &mut self,
        old: &Connection,
        reports: &SendFlow,
    ) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        // Once the old connection is closed, its flow ends, and the contender is the next.
        let Some(holder) = holder(self.held_at, std::iter::once(old)) else { return Ok(None) };
        self.contender.take_if(|contender| contender.is_gone());
        let Some(contender) = &mut self.contender else { return Ok(None) };
        match contender.judge(holder) {
            Verdict::Open { ask } => {
                if ask {
                    self.ask(reports);
                }
            }
            Verdict::Stays => {
                if let Some(contender) = self.contender.take() {
                    self.refuse_contender(contender)?;
                }
            }
            Verdict::Follows => {
                old.close_with(CloseReason::Busy, "another sender has taken its place");
                return Ok(self.contender.take().map(|contender| self.follow(contender)));
            }
        }
        Ok(None)
    }

    /// The first connection of a sender that follows another; its others are the next that come.
    pub(crate) fn follow(&mut self, contender: Contender) -> (Connection, ReceiveFlow) {
        self.found.extend(contender.more);
        self.held_at = Instant::now();
        contender.first
    }

    /// Refuses a sender because that of the stream is there.
    pub(crate) fn refuse_contender(&mut self, contender: Contender) -> Result<(), Error> {
        for (connection, _) in std::iter::once(contender.first).chain(contender.more) {
            self.refuse(&connection, "another is sending")?;
        }
        Ok(())
    }

    /// Refuses a sender that is not the stream's.
    pub(crate) fn refuse(&mut self, connection: &Connection, reason: &str) -> Result<(), Error> {
        connection.close_with(CloseReason::Busy, "another sender is connected");
        let (remote, reason) = (Some(connection.remote()), reason.to_owned());
        self.emit(ReceiverEvent::Refused { remote, reason })
    }

    /// Whether the target takes what this sender has; it is refused if not.
    pub(crate) fn takes(&mut self, connection: &Connection, label: Label) -> Result<bool, Error> {
        let Some(codings) = label.elementary else { return Ok(true) };
        let Err(sentence) = self.handler.take_elementary(codings) else { return Ok(true) };
        connection.close_with(CloseReason::Failed, &sentence);
        if matches!(self.entrance, Entrance::Calling(_)) {
            return Err(Error::Target(sentence));
        }
        let (remote, reason) = (Some(connection.remote()), sentence);
        self.emit(ReceiverEvent::Refused { remote, reason })?;
        Ok(false)
    }

    /// The flow of reports: this side has opened it already if it has called.
    pub(crate) fn flow_of_reports(
        &mut self,
        connection: &Connection,
    ) -> Result<SendFlow, live::Error> {
        let config = FlowConfig { label: REPORTS.to_owned(), ..FlowConfig::default() };
        self.reports.take().map_or_else(|| connection.open_flow(config), Ok)
    }

    /// Whether it is no sender of the stream or of the file that is not ended.
    pub(crate) fn is_of_another(&self, label: Label, offer: Option<Offer>, is_known: bool) -> bool {
        match (&self.file, offer) {
            // Of the same name: the file that the user has made anew.
            (Some(file), Some(offer)) => {
                file.session != label.session && file.offer().name != offer.name
            }
            (Some(_), None) => true,
            (None, _) => self.options.once && self.stream.is_some() && !is_known,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;
    use std::ops::ControlFlow;

    use ontempo_transport::live::{Options, connect};
    use ontempo_transport::{Identity, Token, Trust};

    use super::*;
    use crate::receiver::ReceiverOptions;
    use crate::sink::Target;

    /// Takes no stream.
    pub(crate) struct Nobody;

    impl ReceiverHandler for Nobody {
        fn open(&mut self) -> Result<Target, String> {
            Err("it is not opened".to_owned())
        }

        fn on_event(&mut self, _: ReceiverEvent<'_>) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }

    /// A listener, and what connects to it.
    pub(crate) fn listener() -> (Listener, impl Fn() -> Connection) {
        let options = Options::default();
        let identity = Identity::self_signed(&["localhost"]).expect("made");
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let token = Token::new(b"open").expect("short");
        let listener = Listener::bind(at, &identity, token.clone(), &options).expect("a free port");
        let (remote, trust) = (listener.local(), Trust::Fingerprint(identity.fingerprint()));
        let come = move || {
            connect(remote, "localhost", &trust, token.clone(), &options).expect("connected")
        };
        (listener, come)
    }

    /// Opens a flow, and waits until the listener knows it.
    fn open(connection: &Connection) {
        let flow = connection.open_flow(FlowConfig::default()).expect("opened");
        flow.send(bytes::Bytes::from_static(b"unit")).expect("sent");
        while flow.statistics().is_none_or(|all| all.settled < 1) {
            std::thread::sleep(Wall::from_millis(1));
        }
    }

    #[test]
    fn connections_that_ask_for_nothing_are_not_taken_one_at_a_time() {
        let (listener, come) = listener();
        let all: Vec<Connection> = (0..5).map(|_| come()).collect();
        // One of them has gone again.
        all[0].close("enough");
        let sender = come();
        open(&sender);
        let mut receiver = Receiver::new(listener, ReceiverOptions::default(), Nobody);
        let found = receiver.next_flow(Wall::ZERO).expect("nothing fails");
        assert!(found.is_some());
        assert!(receiver.waiting.len() <= 5);
    }

    #[test]
    fn connections_that_have_gone_again_are_not_kept_without_end() {
        let (listener, come) = listener();
        for _ in 0..MAX_GONE + 4 {
            open(&come());
        }
        let mut receiver = Receiver::new(listener, ReceiverOptions::default(), Nobody);
        receiver.next_flow(Wall::ZERO).expect("nothing fails");
        while receiver.waiting.iter().any(|(one, _)| one.is_closed().is_none()) {
            std::thread::sleep(Wall::from_millis(1));
        }
        receiver.next_flow(Wall::ZERO).expect("nothing fails");
        assert!(receiver.waiting.len() <= MAX_GONE);
    }
}
