//! The relay: who is connected, and what goes to whom.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ontempo_foundation::{Duration, Time, host_prefix};
use ontempo_session::file::labels;
use ontempo_session::message::{Label, LabelError, REPORTS};
use ontempo_session::paths::is_of_path;
use ontempo_session::{StreamName, split_name, with_name};
use ontempo_transport::{CloseReason, ConnectionId, Delivery, Endpoint, Event, FlowConfig, FlowId};

use crate::contest::Claim;
use crate::hub::Hub;
use crate::inbox::Inbox;
use crate::options::RelayOptions;
use crate::stream::Stream;
use crate::viewer::{Close, Viewer, Watching};

/// How long a connection may take to say what it wants, and to close after its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval of reports to sources, and of looking for what has timed out.
const INTERVAL: Duration = Duration::from_secs(1);

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
    /// It waits for the place of a source that may be gone.
    Waiting(Box<Claim>),
    /// It is the source of a stream.
    Source(Option<StreamName>),
    /// It views, or waits for a stream.
    Viewer(Box<Viewer>),
    /// Nothing more is expected of it than its end.
    Leaving(Time),
}

/// Takes streams from sources and gives each to its viewers: the program above an [`Endpoint`], or the
/// part of it on one of several threads, which has the clients of its own endpoint.
///
/// A driver calls [`work`](Self::work) after it has given datagrams to the endpoint, or its timeout
/// has come, and polls the endpoint for transmissions after it.
///
/// Units of a source go to all threads, which each give them to their viewers. What decides between clients
/// of several threads (who sends a stream, who has a place, who holds too much) is behind a lock, and
/// all threads get what changes in the same order.
#[derive(Debug)]
pub struct Relay {
    pub(crate) options: RelayOptions,
    pub(crate) hub: Arc<Hub>,
    pub(crate) worker: usize,
    pub(crate) streams: BTreeMap<Option<StreamName>, Stream>,
    pub(crate) peers: BTreeMap<ConnectionId, Peer>,
    due: Time,
    /// When sources whose place others wait for are looked at.
    pub(crate) contests_due: Time,
    /// Connections of which the source whose place they waited for is gone.
    pub(crate) following: Vec<ConnectionId>,
    /// The stream whose viewers have the next turn.
    turn: usize,
    pub(crate) is_handling: bool,
}

impl Relay {
    /// A relay without connections, on one thread. The sessions that viewers see derive from `seed`, which
    /// outside of simulations must come from the system's entropy.
    pub fn new(options: RelayOptions, seed: u64) -> Self {
        let options = RelayOptions { threads: std::num::NonZeroU8::MIN, ..options };
        Self::of(options, Arc::new(Hub::new(options, seed)), 0)
    }

    /// A relay on [`threads`](RelayOptions::threads): a part for the endpoint of each
    /// [`Share`](ontempo_transport::Share), by place.
    pub fn parts(options: RelayOptions, seed: u64) -> Vec<Self> {
        let hub = Arc::new(Hub::new(options, seed));
        let workers = 0..usize::from(options.threads.get());
        workers.map(|worker| Self::of(options, Arc::clone(&hub), worker)).collect()
    }

    fn of(options: RelayOptions, hub: Arc<Hub>, worker: usize) -> Self {
        Self {
            options,
            hub,
            worker,
            streams: BTreeMap::new(),
            peers: BTreeMap::new(),
            due: Time::ZERO,
            contests_due: Time::NEVER,
            following: Vec::new(),
            turn: 0,
            is_handling: false,
        }
    }

    /// The next event of all threads, in the order in which they happened. Of those that are not taken only
    /// the first 256 are kept.
    pub fn poll_event(&mut self) -> Option<RelayEvent> {
        self.hub.lock().next_event()
    }

    /// When to call [`work`](Self::work) at the latest: at once if another thread has sent something.
    pub fn next_timeout(&self) -> Time {
        let has_any = self.inbox().has_any() || !self.following.is_empty();
        if has_any { Time::ZERO } else { self.due.min(self.contests_due) }
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        self.hub.inbox(self.worker)
    }

    fn emit(&self, event: RelayEvent) {
        self.hub.lock().tell(event);
    }

    /// Handles the endpoint's events, and what is due, and offers all viewers what has come.
    pub fn work(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.take(now, endpoint);
        self.offer_all(now, endpoint);
    }

    /// Handles the endpoint's events, and what is due. What has come is not yet offered to the viewers:
    /// see [`offer`](Self::offer).
    pub fn take(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.handle_messages(now, endpoint);
        while let Some(event) = endpoint.poll_event() {
            self.on_event(now, endpoint, event);
        }
        if now >= self.due {
            self.due = now + INTERVAL;
            self.look(now, endpoint);
            self.report(now, endpoint);
        }
        self.judge(now, endpoint);
        self.follow(now, endpoint);
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
                if let Some(Peer::Waiting(claim)) = self.peers.get_mut(&connection) {
                    // What it has is still to be read.
                    claim.has_ended = true;
                    return;
                }
                self.on_flow_ended(now, endpoint, connection, flow);
                if let Some(connection) = endpoint.connection(connection) {
                    connection.release_flow(flow);
                }
            }
            Event::Closed { connection, closed } => {
                let remote = endpoint.remote(connection);
                match self.forget(now, connection) {
                    // One of several attempts of a client, of which another was answered first.
                    None if closed.reason == CloseReason::Done => {}
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
                    let is_file = file.is_some();
                    let claim = Claim { name, label, config, flow, is_file, has_ended: false };
                    self.claim(now, endpoint, connection, claim)
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
        self.hub.admit(host)?;
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
        if viewer.watching.is_some() || stream.has_ended {
            return;
        }
        let start = stream.start(now);
        let begins = start.units.first().map(|unit| unit.number);
        let is_midway = begins.unwrap_or(stream.next) > 0 || stream.label.before > 0;
        let label = Label { before: u64::from(is_midway), ..stream.label };
        let label = with_name(label, name.as_ref());
        let Ok(flow) = connection.open_flow(FlowConfig { label, ..stream.config.clone() }) else {
            return;
        };
        let (place, is_reliable) = (stream.round.end(), stream.is_reliable());
        let mut watching = Watching::new(flow, place, is_reliable, &start);
        let mut failed = None;
        for unit in &start.units {
            match watching.offer(now, connection, unit, self.options.stalled) {
                Ok(is_sent) => viewer.left_out += u64::from(!is_sent),
                Err(close) => {
                    failed = Some(close);
                    break;
                }
            }
        }
        viewer.watching = Some(watching);
        stream.viewers.insert(id);
        if let Some(close) = failed {
            self.close(now, endpoint, id, close);
        }
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
        if self.streams.get(&name).is_none_or(|stream| stream.has_ended) {
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
                self.hub.viewer_gone(viewer.host);
                if let Some(stream) = self.streams.get_mut(&viewer.stream) {
                    // At most as many as there are places: by then it has no more viewers.
                    if stream.viewers.remove(&id) && stream.has_ended {
                        stream.done.extend(viewer.report);
                    }
                }
            }
            Peer::Source(name) => self.source_lost(now, id, &name.clone()),
            Peer::Waiting(claim) => self.hub.stop_waiting(self.worker, id, &claim.name),
            Peer::New { .. } | Peer::Leaving(_) => {}
        }
        Some(peer)
    }

    /// Closes connections that say nothing, and ends streams that have waited long enough.
    fn look(&mut self, now: Time, endpoint: &mut Endpoint) {
        let is_late = |peer: &Peer| match peer {
            Peer::New { since, .. } | Peer::Leaving(since) => now.since(*since) >= PATIENCE,
            Peer::Waiting(_) | Peer::Source(_) | Peer::Viewer(_) => false,
        };
        let late: Vec<ConnectionId> =
            self.peers.iter().filter(|(_, peer)| is_late(peer)).map(|(id, _)| *id).collect();
        for id in late {
            self.close(now, endpoint, id, (CloseReason::NoAnswer, "nothing was asked in time"));
        }
        self.hub.look(now);
        self.handle_messages(now, endpoint);
        let names: Vec<Option<StreamName>> = self.streams.keys().cloned().collect();
        for name in names {
            self.settle(now, endpoint, &name);
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
}
