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
        let limit = if self.waiting.is_empty() { limit } else { Wall::from_millis(1) };
        match listener.accept_within(limit) {
            Some(Accepted::Connection(connection)) => {
                self.waiting.push((connection, Instant::now()));
            }
            // One of several attempts of a sender, of which another was answered first.
            Some(Accepted::Refused { closed, .. }) if closed.reason == CloseReason::Done => {}
            Some(Accepted::Refused { remote, closed }) => {
                self.emit(ReceiverEvent::Refused { remote, reason: closed.sentence })?;
            }
            None => {}
        }
        for place in 0..self.waiting.len() {
            let (connection, since) = &self.waiting[place];
            match connection.accept_flow_within(Wall::ZERO) {
                Some(Ok(flow)) => return Ok(Some((self.waiting.swap_remove(place).0, flow))),
                None if since.elapsed() < SENDER_TIMEOUT => {}
                Some(Err(_)) | None => {
                    self.waiting.swap_remove(place);
                    break;
                }
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
        if let Some((connection, flow)) = self.next_flow(Wall::ZERO)?
            && let Ok((label, offer)) = labels(&flow.config().label)
        {
            let of_stream = self.stream.as_ref().map(|stream| stream.label.session);
            let of_file = self.file.as_ref().map(|file| file.session);
            if of_stream.or(of_file) == Some(label.session) {
                self.contender = None;
                return Ok(Some((connection, flow)));
            }
            let same_file = self.file.as_ref().is_some_and(|file| Some(file.offer()) == offer);
            let next = (connection, flow);
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
