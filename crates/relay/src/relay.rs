//! The relay: who is connected, and what goes to whom.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ontempo_foundation::{Duration, RandomStream, Time, host_prefix};
use ontempo_session::file::labels;
use ontempo_session::message::{Label, LabelError, REPORTS, Report};
use ontempo_session::paths::is_of_path;
use ontempo_session::{RelayReport, StreamName, Viewers, split_name, with_name};
use ontempo_transport::{CloseReason, ConnectionId, Delivery, Endpoint, Event, FlowConfig, FlowId};

use crate::held::Account;
use crate::options::RelayOptions;
use crate::source::want_stream;
use crate::stream::{Stage, Stream};
use crate::viewer::{Close, Viewer, Watching};

/// How long a connection may take to say what it wants, and to close after its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval of reports to sources, and of looking for what has timed out.
const INTERVAL: Duration = Duration::from_secs(1);

/// Events kept for a program that does not take them.
const MAX_EVENTS: usize = 256;

/// What happens at a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayEvent {
    /// A source sends a stream, for the first time or again.
    Published {
        /// The stream; `None`: the one without a name.
        stream: Option<StreamName>,
        /// The source's address.
        remote: Option<SocketAddr>,
    },
    /// A stream's source is away; it may come back.
    Away(Option<StreamName>),
    /// A stream has ended.
    Ended(Option<StreamName>),
    /// A client was refused, or a viewer closed, with the reason.
    Closed {
        /// Its address, if known.
        remote: Option<SocketAddr>,
        /// A sentence.
        reason: String,
    },
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Peer {
    /// It has not said yet what it wants.
    New { since: Time, may_publish: bool },
    /// It is the source of a stream.
    Source(Option<StreamName>),
    /// It views, or waits for a stream.
    Viewer(Box<Viewer>),
    /// Nothing more is expected of it than its end.
    Leaving(Time),
}

/// Figures of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamStatistics {
    /// Its name, if it has one.
    pub name: Option<StreamName>,
    /// A source is connected.
    pub is_live: bool,
    /// Units and bytes that its source has sent.
    pub units: u64,
    /// See `units`.
    pub bytes: u64,
    /// Units that came after their deadline, which no viewer gets.
    pub late: u64,
    /// Units for which there was no memory.
    pub refused: u64,
    /// Bytes kept for new viewers.
    pub kept: u64,
    /// Its viewers.
    pub viewers: Viewers,
}

/// Figures of a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayStatistics {
    /// Viewers, also those that wait for a stream.
    pub viewers: u64,
    /// Bytes of units that viewers hold, each counted once.
    pub held: u64,
    /// Units that were not sent to a viewer, because its flow was full or what they need was left
    /// out: of all viewers that are connected.
    pub left_out: u64,
    /// UDP payload received and sent, bytes. The relay's driver counts it.
    pub bytes_received: u64,
    /// See `bytes_received`.
    pub bytes_sent: u64,
    /// Its streams, by name.
    pub streams: Vec<StreamStatistics>,
}

/// Takes streams from sources and gives each to its viewers: the program above an [`Endpoint`].
///
/// A driver calls [`work`](Self::work) after it has given datagrams to the endpoint, or its timeout
/// has come, and polls the endpoint for transmissions after it.
#[derive(Debug)]
pub struct Relay {
    pub(crate) options: RelayOptions,
    pub(crate) streams: BTreeMap<Option<StreamName>, Stream>,
    pub(crate) peers: BTreeMap<ConnectionId, Peer>,
    viewers: usize,
    hosts: BTreeMap<IpAddr, usize>,
    pub(crate) account: Account,
    pub(crate) random: RandomStream,
    due: Time,
    /// The stream whose viewers have the next turn.
    turn: usize,
    events: VecDeque<RelayEvent>,
}

impl Relay {
    /// A relay without connections. The sessions that viewers see derive from `seed`, which outside
    /// of simulations must come from the system's entropy.
    pub fn new(options: RelayOptions, seed: u64) -> Self {
        Self {
            options,
            streams: BTreeMap::new(),
            peers: BTreeMap::new(),
            viewers: 0,
            hosts: BTreeMap::new(),
            account: Account::default(),
            random: RandomStream::new(seed, "sessions of a relay"),
            due: Time::ZERO,
            turn: 0,
            events: VecDeque::new(),
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<RelayEvent> {
        self.events.pop_front()
    }

    /// When to call [`work`](Self::work) at the latest.
    pub fn next_timeout(&self) -> Time {
        self.due
    }

    pub(crate) fn emit(&mut self, event: RelayEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }

    /// Handles the endpoint's events, and what is due, and offers all viewers what has come.
    pub fn work(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.take(now, endpoint);
        self.offer_all(now, endpoint);
    }

    /// Handles the endpoint's events, and what is due. What has come is not yet offered to the viewers:
    /// see [`offer`](Self::offer).
    pub fn take(&mut self, now: Time, endpoint: &mut Endpoint) {
        while let Some(event) = endpoint.poll_event() {
            self.on_event(now, endpoint, event);
        }
        if now >= self.due {
            self.due = now + INTERVAL;
            self.look(now, endpoint);
            self.report(now, endpoint);
        }
    }

    /// Offers one viewer what has come for it, so that a driver sends it before the next viewer has its
    /// turn; false if all have been offered all.
    pub fn offer(&mut self, now: Time, endpoint: &mut Endpoint) -> bool {
        let count = self.streams.len();
        for place in (self.turn..self.turn + count).map(|place| place % count) {
            let Some(stream) = self.streams.values_mut().nth(place) else { continue };
            let Some(id) = stream.round.next(stream.viewers.iter()) else { continue };
            self.turn = place + 1;
            let (Some(Peer::Viewer(viewer)), Some(connection)) =
                (self.peers.get_mut(&id), endpoint.connection(id))
            else {
                return true;
            };
            let stalled = self.options.stalled;
            if let Err(close) = viewer.offer_round(now, connection, &stream.round, stalled) {
                self.close(now, endpoint, id, close);
            }
            return true;
        }
        false
    }

    /// Offers all viewers all that has come.
    pub(crate) fn offer_all(&mut self, now: Time, endpoint: &mut Endpoint) {
        while self.offer(now, endpoint) {}
    }

    fn on_event(&mut self, now: Time, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { connection, accepted: true } => {
                let has_other =
                    endpoint.connection(connection).is_some_and(|c| c.has_other_token());
                let may_publish = !(self.options.has_viewers_token && has_other);
                self.peers.insert(connection, Peer::New { since: now, may_publish });
            }
            Event::FlowOpened { connection, flow, config } => {
                self.on_flow(now, endpoint, (connection, flow), config);
            }
            Event::Readable { connection, flow } => self.read(now, endpoint, connection, flow),
            Event::FlowEnded { connection, flow, .. } => {
                self.on_flow_ended(now, endpoint, connection, flow);
                if let Some(connection) = endpoint.connection(connection) {
                    connection.release_flow(flow);
                }
            }
            Event::Closed { connection, closed } => {
                let remote = endpoint.remote(connection);
                match self.forget(now, connection) {
                    None => self.emit(RelayEvent::Closed { remote, reason: closed.sentence }),
                    Some(Peer::Viewer(_)) if !closed.reason.is_orderly() => {
                        self.emit(RelayEvent::Closed { remote, reason: closed.sentence });
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }

    fn on_flow(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        (connection, flow): (ConnectionId, FlowId),
        config: FlowConfig,
    ) {
        let may_publish = match self.peers.get(&connection) {
            Some(Peer::New { may_publish, .. }) => *may_publish,
            Some(_) => {
                let close = (CloseReason::ProtocolViolation, "one flow is expected");
                self.close(now, endpoint, connection, close);
                return;
            }
            None => return,
        };
        let done = match split_name(&config.label) {
            Ok((REPORTS, name)) => self.admit(now, endpoint, connection, name),
            Ok((label, name)) => match labels(label) {
                Ok(_) if !may_publish => {
                    Err((CloseReason::WrongToken, "this token is for viewing, not for sending"))
                }
                Ok((label, file)) => {
                    let of = (name.clone(), label, &config);
                    let done = self.publish(now, endpoint, (connection, flow), of);
                    if file.is_some()
                        && done.is_ok()
                        && let Some(stream) = self.streams.get(&name)
                    {
                        want_stream(now, endpoint, stream);
                    }
                    done
                }
                Err(LabelError::Version(_) | LabelError::Coding) => {
                    let sentence = "this relay speaks another version of the media messages";
                    Err((CloseReason::Unsupported, sentence))
                }
                Err(LabelError::NotMedia) if is_of_path(label) => {
                    Err((CloseReason::Unsupported, "a relay takes a stream over one path"))
                }
                Err(LabelError::NotMedia) => {
                    Err((CloseReason::Unsupported, "it is neither a source nor a viewer"))
                }
            },
            Err(_) => Err((CloseReason::Unsupported, "the name of the stream cannot be")),
        };
        match done {
            Ok(()) => self.read(now, endpoint, connection, flow),
            Err(close) => self.close(now, endpoint, connection, close),
        }
    }

    /// A viewer gets a place, and the stream that it asks for if there is one.
    fn admit(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        stream: Option<StreamName>,
    ) -> Result<(), Close> {
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let host = endpoint.remote(id).map_or(unknown, |remote| host_prefix(remote.ip()));
        let of_host = self.hosts.get(&host).copied().unwrap_or(0);
        if self.viewers >= self.options.viewers {
            return Err((CloseReason::Refused, "the relay has as many viewers as it may"));
        }
        if of_host >= self.options.viewers_of_host {
            return Err((CloseReason::Refused, "your address has as many viewers as it may"));
        }
        self.viewers += 1;
        self.hosts.insert(host, of_host + 1);
        let name = stream.clone();
        let (watching, report, left_out) = (None, None, 0);
        let viewer = Viewer { host, stream, watching, report, left_out };
        self.peers.insert(id, Peer::Viewer(Box::new(viewer)));
        self.start(now, endpoint, id, &name);
        Ok(())
    }

    /// Opens the flow of units to a viewer, if its stream is there, and sends what it begins with.
    pub(crate) fn start(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        name: &Option<StreamName>,
    ) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        let Some(Peer::Viewer(viewer)) = self.peers.get_mut(&id) else { return };
        let Some(connection) = endpoint.connection(id) else { return };
        if viewer.watching.is_some() || matches!(stream.stage, Stage::Ended(_)) {
            return;
        }
        let start = stream.start(now);
        let begins = start.as_ref().and_then(|units| units.first()).map(|unit| unit.number);
        let is_midway = begins.unwrap_or(stream.next) > 0 || stream.label.before > 0;
        let label = Label { before: u64::from(is_midway), ..stream.label };
        let label = with_name(label, name.as_ref());
        let Ok(flow) = connection.open_flow(FlowConfig { label, ..stream.config.clone() }) else {
            return;
        };
        let how = (stream.is_reliable(), start.is_none());
        let mut watching = Watching::new(flow, stream.round.end(), how);
        for unit in start.unwrap_or_default() {
            if watching.offer(now, connection, &unit, self.options.stalled).is_err() {
                break;
            }
        }
        viewer.watching = Some(watching);
        stream.viewers.insert(id);
    }

    /// Reads what a source or a viewer has sent.
    pub(crate) fn read(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        flow: FlowId,
    ) {
        match self.peers.get_mut(&id) {
            Some(Peer::Source(name)) => {
                let name = name.clone();
                self.relay_all(now, endpoint, (id, flow), &name);
            }
            Some(Peer::Viewer(viewer)) => {
                // Only the last report counts: the others are not even read.
                let (mut last, connection) = (None, endpoint.connection(id));
                if let Some(connection) = connection {
                    while let Some(delivery) = connection.receive(flow) {
                        if let Delivery::Unit(unit) = delivery {
                            last = Some(unit.data);
                        }
                    }
                }
                let read = last.map_or(Ok(()), |data| viewer.on_report(&data));
                let is_done = viewer.is_done();
                match read {
                    Err(close) => self.close(now, endpoint, id, close),
                    Ok(()) if is_done => self.finish_viewer(now, endpoint, id),
                    Ok(()) => {}
                }
            }
            _ => {}
        }
    }

    /// A viewer has reported all of a stream: its connection has served its purpose.
    fn finish_viewer(&mut self, now: Time, endpoint: &mut Endpoint, id: ConnectionId) {
        let Some(Peer::Viewer(viewer)) = self.peers.get(&id) else { return };
        let name = viewer.stream.clone();
        let is_over =
            self.streams.get(&name).is_none_or(|stream| matches!(stream.stage, Stage::Ended(_)));
        if is_over {
            if let Some(connection) = endpoint.connection(id) {
                connection.close(now, "done");
            }
            self.forget(now, id);
            self.settle(now, endpoint, &name);
        }
    }

    /// Closes a connection.
    pub(crate) fn close(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        (reason, sentence): Close,
    ) {
        let remote = endpoint.remote(id);
        if let Some(connection) = endpoint.connection(id) {
            connection.close_with(now, reason, sentence);
        }
        self.emit(RelayEvent::Closed { remote, reason: sentence.to_owned() });
        self.forget(now, id);
    }

    /// Forgets a connection.
    pub(crate) fn forget(&mut self, now: Time, id: ConnectionId) -> Option<Peer> {
        let peer = self.peers.remove(&id)?;
        match &peer {
            Peer::Viewer(viewer) => {
                self.viewers -= 1;
                if let Some(count) = self.hosts.get_mut(&viewer.host) {
                    *count -= 1;
                    if *count == 0 {
                        self.hosts.remove(&viewer.host);
                    }
                }
                if let Some(stream) = self.streams.get_mut(&viewer.stream) {
                    // At most as many as there are places: by then it has no more viewers.
                    let is_over = matches!(stream.stage, Stage::Ended(_));
                    if stream.viewers.remove(&id) && is_over {
                        stream.done.extend(viewer.report);
                    }
                }
            }
            Peer::Source(name) => self.source_lost(now, id, &name.clone()),
            Peer::New { .. } | Peer::Leaving(_) => {}
        }
        Some(peer)
    }

    /// Closes connections that say nothing, and ends streams that have waited long enough.
    fn look(&mut self, now: Time, endpoint: &mut Endpoint) {
        let is_late = |peer: &Peer| match peer {
            Peer::New { since, .. } | Peer::Leaving(since) => now.since(*since) >= PATIENCE,
            Peer::Source(_) | Peer::Viewer(_) => false,
        };
        let late: Vec<ConnectionId> =
            self.peers.iter().filter(|(_, peer)| is_late(peer)).map(|(id, _)| *id).collect();
        for id in late {
            self.close(now, endpoint, id, (CloseReason::NoAnswer, "nothing was asked in time"));
        }
        let names: Vec<Option<StreamName>> = self.streams.keys().cloned().collect();
        for name in names {
            let stage = self.streams.get(&name).map(|stream| stream.stage);
            match stage {
                Some(Stage::Away(since)) if now.since(since) >= self.options.away => {
                    self.end(now, endpoint, &name);
                }
                Some(Stage::Ended(_)) => self.settle(now, endpoint, &name),
                _ => {}
            }
        }
    }

    /// Closes all connections: the relay ends.
    pub fn close_all(&mut self, now: Time, endpoint: &mut Endpoint) {
        let ids: Vec<ConnectionId> = self.peers.keys().copied().collect();
        for id in ids {
            if let Some(connection) = endpoint.connection(id) {
                connection.close_with(now, CloseReason::Refused, "the relay ends");
            }
            self.forget(now, id);
        }
        self.streams.clear();
    }

    /// The report of a stream's viewers.
    fn summary(&self, stream: &Stream) -> RelayReport {
        let reported = |id: &ConnectionId| match self.peers.get(id)? {
            Peer::Viewer(viewer) => viewer.report,
            _ => None,
        };
        let mut reports: Vec<Report> = stream.viewers.iter().filter_map(reported).collect();
        reports.extend(&stream.done);
        RelayReport::of(stream.viewers.len() as u64 + stream.done.len() as u64, &mut reports)
    }

    /// Tells sources how their viewers fare.
    fn report(&mut self, now: Time, endpoint: &mut Endpoint) {
        for stream in self.streams.values() {
            if stream.stage == Stage::Live {
                let report = self.summary(stream);
                crate::source::tell(now, endpoint, stream, &report);
            }
        }
    }

    /// The last report of a stream, which has ended.
    pub(crate) fn last_report(&self, stream: &Stream) -> RelayReport {
        let mut report = self.summary(stream);
        report.report.is_final = true;
        report
    }

    /// Figures.
    pub fn statistics(&self) -> RelayStatistics {
        let of = |(name, stream): (&Option<StreamName>, &Stream)| StreamStatistics {
            name: name.clone(),
            is_live: stream.stage == Stage::Live,
            units: stream.units,
            bytes: stream.bytes,
            late: stream.late,
            refused: stream.refused,
            kept: stream.kept(),
            viewers: self.summary(stream).viewers,
        };
        let left_out = |peer: &Peer| match peer {
            Peer::Viewer(viewer) => viewer.left_out,
            _ => 0,
        };
        RelayStatistics {
            viewers: self.viewers as u64,
            held: self.account.held(),
            left_out: self.peers.values().map(left_out).sum(),
            bytes_received: 0,
            bytes_sent: 0,
            streams: self.streams.iter().map(of).collect(),
        }
    }
}
