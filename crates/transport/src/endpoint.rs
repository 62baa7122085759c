//! All connections of one UDP socket.

mod memory;
mod places;
mod turns;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EndpointConfig, FourTuple, Incoming,
    NoneTokenLog, ServerConfig, ValidationTokenConfig,
};
use ontempo_foundation::{RandomStream, Time, host_prefix};
use ring::hmac;

use crate::address::Aliases;
use crate::admission::{Admission, Decision, Origin, is_answered};
use crate::buffers::Part;
use crate::config::{Configuration, largest_payload};
use crate::connection::{Connection, ConnectionEvent, Step};
use crate::events::{ConnectFailed, Event, Poll, Source, Transmit, event};
use crate::identity::{Identity, IdentityError, Token, Trust};
use crate::qlog::Trace;
use crate::quic::{Epoch, SharedAccount, WatchedClient, WatchedServer, is_retry, is_undamaged};
use crate::seeded::{GivenTime, SeededIds, folded, random_bytes};
use crate::share::Share;
use memory::CONNECTION_COST;
use ontempo_udp::Dscp;

/// Id of a connection of an endpoint; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    place: usize,
    generation: u64,
}

/// A connection and its next timeout.
struct Kept {
    connection: Box<Connection>,
    generation: u64,
    /// A client's first destination ID; `None`: it was accepted.
    first_id: Option<noq_proto::ConnectionId>,
    /// True if it counts in `places`.
    has_place: bool,
    wake: Time,
    /// True if it is in the queue of connections that may have something to send.
    queued: bool,
    /// Transmissions since others had their turn.
    in_a_row: u8,
    origin: Origin,
    /// Its part of the endpoint's memory, as last counted.
    memory: u64,
    /// Its part of the shared buffers, once it has a place.
    buffers: Option<Part>,
}

impl Kept {
    fn is_accepted(&self) -> bool {
        self.first_id.is_none()
    }

    fn takes_retry(&self, retry: &[u8]) -> bool {
        self.first_id.as_ref().is_none_or(|first_id| is_undamaged(retry, first_id))
    }
}

/// Handshake data of a client that may arrive before what precedes it, bytes: what RFC 9000 asks
/// for (section 7.5). A client's is short, since it has no certificate.
const SERVER_CRYPTO_BUFFER: usize = 4096;

/// Maximum queued answers to packets without a connection.
const MAX_RESPONSES: usize = 64;

/// Configuration of a server.
struct Listening {
    crypto: Arc<WatchedServer>,
    token: Token,
    other: Option<Token>,
}

/// All connections of one UDP socket: connects, listens, demultiplexes.
///
/// A driver calls [`handle`](Self::handle) for each datagram,
/// [`handle_timeout`](Self::handle_timeout)
/// at the time that [`poll_transmit`](Self::poll_transmit) returned, and after each of these,
/// and after any use of a connection, `poll_transmit` until it has nothing to send, and
/// [`poll_event`](Self::poll_event) until it returns `None`. Time must not go back.
pub struct Endpoint {
    stack: noq_proto::Endpoint,
    seed: [u8; 32],
    ids: SeededIds,
    config: Arc<Configuration>,
    epoch: Epoch,
    clock: Arc<AtomicU64>,
    random: RandomStream,
    listening: Option<Listening>,
    connections: Vec<Option<Kept>>,
    count: usize,
    generation: u64,
    /// Connections that may have something to send.
    ready: VecDeque<usize>,
    timers: BTreeSet<(Time, usize)>,
    events: VecDeque<Event>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    scratch: Vec<u8>,
    aliases: Aliases,
    admission: Admission,
    share: Share,
    /// Memory of all connections.
    memory: u64,
    hurries_until: Time,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("connections", &self.count).finish_non_exhaustive()
    }
}

/// A connection's part of the shared buffers, as its configuration has it.
fn part(config: &Configuration) -> Option<Part> {
    config.buffers.as_ref().map(|buffers| Part::take(buffers, config.limits.bytes))
}

/// No tokens in NEW_TOKEN frames: nobody keeps them. Said here, since the default of noq-proto depends on a
/// feature (`bloom`) that another crate of the same program may switch on.
fn without_validation_tokens() -> ValidationTokenConfig {
    let mut tokens = ValidationTokenConfig::default();
    tokens.log(Arc::new(NoneTokenLog)).sent(0);
    tokens
}

/// The stack's endpoint, whose stateless resets are made with `reset_key`.
fn stack(
    config: &Configuration,
    seed: [u8; 32],
    reset_key: hmac::Key,
    ids: &SeededIds,
) -> noq_proto::Endpoint {
    let ids = ids.clone();
    let mut stack = EndpointConfig::new(Arc::new(reset_key));
    stack.rng_seed(Some(seed));
    stack.cid_generator(Arc::new(move || Box::new(ids.clone())));
    noq_proto::Endpoint::new(Arc::new(stack), None, config.discover_packet_size)
}

impl Endpoint {
    /// An endpoint without connections. All its random choices derive from `seed`: outside of
    /// simulations it must come from the system's entropy, since connection ids and token keys
    /// depend on it. (TLS uses the system's randomness.)
    pub fn new(config: Configuration, seed: [u8; 32]) -> Self {
        Self::with_share(config, seed, Share::alone())
    }

    /// As [`new`](Self::new), one of several endpoints at one address, each with another seed.
    pub fn with_share(config: Configuration, seed: [u8; 32], share: Share) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &seed);
        let folded = folded(&key);
        let ids = SeededIds::new(folded, key.clone(), share.clone());
        let clock = Arc::new(AtomicU64::new(0));
        Self {
            stack: stack(&config, seed, key, &ids),
            seed,
            ids,
            config: Arc::new(config),
            epoch: Epoch::new(),
            clock,
            random: RandomStream::new(folded, "endpoint"),
            listening: None,
            connections: Vec::new(),
            count: 0,
            generation: 0,
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            scratch: Vec::new(),
            aliases: Aliases::default(),
            admission: Admission::new(share.clone()),
            share,
            memory: 0,
            hurries_until: Time::ZERO,
        }
    }

    /// Accepts connections from now on, from clients with the token.
    ///
    /// # Errors
    /// If the certificate or key cannot be used.
    pub fn listen(&mut self, identity: &Identity, token: Token) -> Result<(), IdentityError> {
        let tls = identity.server_config()?;
        let quic = QuicServerConfig::try_from(Arc::new(tls))
            .map_err(|error| IdentityError::Unusable(rustls::Error::General(error.to_string())))?;
        let crypto = Arc::new(WatchedServer(Arc::new(quic)));
        if self.count == 0 {
            self.stack = stack(&self.config, self.seed, identity.reset_key(&token), &self.ids);
        }
        self.listening = Some(Listening { crypto, token, other: None });
        let seed = self.random.next_u64();
        let unused = (SharedAccount::default(), &Trace::default());
        let largest = largest_payload(Ipv6Addr::UNSPECIFIED.into());
        let config = self.server_config(&self.config, seed, unused, largest);
        self.stack.set_server_config(config);
        Ok(())
    }

    /// Accepts no connection from now on: clients are refused, also those in their handshake. Open
    /// connections go on.
    pub fn stop_listening(&mut self) {
        self.listening = None;
    }

    /// Admits clients with this token, too, from now on:
    /// [`Connection::has_other_token`] tells which. To be called after [`listen`](Self::listen).
    pub fn admit(&mut self, other: Token) {
        if let Some(listening) = &mut self.listening {
            listening.other = Some(other);
        }
    }

    /// Connects to `remote`, whose certificate must be valid for `name` if trust depends on names.
    ///
    /// # Errors
    /// If address, name or trust cannot be used, or there are too many connections.
    pub fn connect(
        &mut self,
        now: Time,
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
    ) -> Result<ConnectionId, ConnectFailed> {
        self.set_clock(now);
        if !self.share.places().has(None, &self.config) {
            return Err(ConnectFailed::TooMany);
        }
        let tls = trust.client_config().map_err(ConnectFailed::Trust)?;
        let quic = QuicClientConfig::try_from(Arc::new(tls)).map_err(|error| {
            let error = rustls::Error::General(error.to_string());
            ConnectFailed::Trust(IdentityError::Unusable(error))
        })?;
        let account = SharedAccount::default();
        let seed = self.random.next_u64();
        let first_id = noq_proto::ConnectionId::new(&random_bytes::<16>(&mut self.random));
        let mut client = ClientConfig::new(Arc::new(WatchedClient(Arc::new(quic))));
        let trace = self.trace(now, &first_id, None);
        let config = self.config_of_next();
        let largest = largest_payload(remote.ip());
        let transport = config.transport(self.epoch, seed, (account.clone(), &trace), largest);
        client.transport_config(Arc::new(transport));
        client.initial_dst_cid_provider(Arc::new(move || first_id));
        let (handle, stack) = self
            .stack
            .connect(self.epoch.instant(now), client, remote, name)
            .map_err(ConnectFailed::Address)?;
        let kind = (host_prefix(remote.ip()), Some(first_id));
        Ok(self.keep(now, (handle, stack, config), token, (account, trace), kind))
    }

    /// A connection; `None` if it has ended.
    pub fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let kept = self.connections.get_mut(id.place)?.as_mut()?;
        if kept.generation != id.generation {
            return None;
        }
        // The caller may use it: it may have something to send afterwards.
        if !kept.queued {
            kept.queued = true;
            self.ready.push_back(id.place);
        }
        Some(&mut kept.connection)
    }

    /// The peer's address; `None` if the connection has ended.
    pub fn remote(&self, id: ConnectionId) -> Option<SocketAddr> {
        let kept = self.connections.get(id.place)?.as_ref()?;
        let remote = kept.connection.stack_remote().filter(|_| kept.generation == id.generation)?;
        self.aliases.real(remote)
    }

    /// Its place among the endpoints at its address.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Its configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.config
    }

    /// Memory of all connections, in bytes: a fixed amount for each, and
    /// [what they hold](Connection::memory), as last counted.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.count
    }

    /// True if both sides have closed all connections. An endpoint that ends need not stay for the rest of their closing
    /// periods: with its socket it ends all answers to late packets (RFC 9000, section 10.2).
    pub fn is_closed_by_both(&mut self) -> bool {
        self.connections.iter_mut().flatten().all(|kept| kept.connection.is_closed_by_both())
    }

    /// Handles a datagram.
    pub fn handle(&mut self, now: Time, source: Source, datagram: BytesMut) {
        self.set_clock(now);
        let instant = self.epoch.instant(now);
        let Some(remote) = self.aliases.stack_address(source.remote) else { return };
        let path = FourTuple::new(remote, source.local);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let received = datagram.len();
        let start = datagram.first_chunk().copied();
        let retry = is_retry(&datagram).then(|| datagram.clone());
        match self.stack.handle(instant, path, source.ecn, datagram, &mut scratch) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(Some(kept)) = self.connections.get_mut(handle.0)
                    && retry.is_none_or(|retry| kept.takes_retry(&retry))
                {
                    kept.connection.stack().handle_event(event);
                    let is_opened = kept.connection.after_datagram(now);
                    if !is_opened && start.is_some_and(|start| self.ids.is_foreign(&start)) {
                        kept.connection.on_reset(now);
                    }
                    let unproved = kept.connection.unproved(now);
                    if let Some(address) = unproved.and_then(|remote| self.aliases.real(remote)) {
                        let most = self.config.connections / usize::from(self.share.count().get());
                        self.aliases.again(address, most);
                    }
                    // It is processed together with the datagrams received with it.
                    kept.connection.touched = true;
                    self.queue(handle.0);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.accept(now, incoming, &mut scratch)
            }
            Some(DatagramEvent::Response(transmit)) if is_answered(received, &scratch) => {
                self.respond(&transmit, &scratch);
            }
            Some(DatagramEvent::Response(_)) => {}
            None => {}
        }
        self.scratch = scratch;
    }

    /// Handles timeouts due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.set_clock(now);
        while let Some(&(due, place)) = self.timers.first() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            if let Some(Some(kept)) = self.connections.get_mut(place) {
                kept.wake = Time::NEVER;
                kept.connection.handle_timeout(now);
                self.progress(now, place);
            }
        }
    }

    /// The next datagram to send at `now`; its bytes are written to `out`, which is cleared first.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Poll {
        self.set_clock(now);
        out.clear();
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            out.extend_from_slice(&bytes);
            return Poll::Transmit(transmit);
        }
        while let Some(place) = self.ready.pop_front() {
            let Some(Some(kept)) = self.connections.get_mut(place) else { continue };
            kept.queued = false;
            if kept.connection.touched {
                // The stack's endpoint events may produce something to send.
                self.work(now, place);
            }
            let Some(Some(kept)) = self.connections.get_mut(place) else { continue };
            let step = kept.connection.poll_transmit(now, out);
            let dscp = kept.connection.dscp();
            self.settle(place);
            match step {
                Step::Transmit(transmit) => {
                    self.queue_again(place);
                    if let Some(transmit) = self.addressed(&transmit, dscp) {
                        return Poll::Transmit(transmit);
                    }
                    out.clear();
                }
                Step::Wait(until) => self.rest(place, Some(until)),
                Step::Nothing => self.rest(place, None),
            }
        }
        match self.timers.first() {
            Some(&(at, _)) if at < Time::NEVER => Poll::WaitUntil(at.max(now)),
            _ => Poll::Idle,
        }
    }

    /// Until when datagrams are to be handled as soon as they arrive: a connection repairs what was lost.
    pub(crate) fn hurries_until(&self) -> Time {
        self.hurries_until
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn set_clock(&mut self, now: Time) {
        self.clock.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn trace(&self, now: Time, id: &noq_proto::ConnectionId, origin: Option<Origin>) -> Trace {
        let qlog = self.config.qlog.as_ref();
        qlog.map_or_else(Trace::default, |qlog| qlog.trace(now, id, origin))
    }

    /// The configuration of a connection that begins now.
    fn config_of_next(&self) -> Arc<Configuration> {
        match &self.config.buffers {
            None => Arc::clone(&self.config),
            Some(buffers) => {
                Arc::new(Configuration::clone(&self.config).with_buffers(buffers.next()))
            }
        }
    }

    fn server_config(
        &self,
        of: &Configuration,
        seed: u64,
        (account, trace): (SharedAccount, &Trace),
        largest: u16,
    ) -> Option<Arc<ServerConfig>> {
        let listening = self.listening.as_ref()?;
        let mut config = ServerConfig::with_crypto(listening.crypto.clone());
        let mut transport = of.transport(self.epoch, seed, (account, trace), largest);
        transport.crypto_buffer_size(SERVER_CRYPTO_BUFFER);
        config.transport_config(Arc::new(transport));
        config.time_source(Arc::new(GivenTime(self.clock.clone())));
        config.max_incoming(MAX_RESPONSES);
        config.validation_token_config(without_validation_tokens());
        Some(Arc::new(config))
    }

    fn accept(&mut self, now: Time, incoming: Incoming, scratch: &mut Vec<u8>) {
        let Some(listening) = &self.listening else {
            let transmit = self.stack.refuse(incoming, scratch);
            self.respond(&transmit, scratch);
            return;
        };
        let (token, other) = (listening.token.clone(), listening.other.clone());
        if !self.has_memory() {
            // Meanwhile programs may have taken some of it.
            self.relieve(now);
        }
        let remote = incoming.remote_address();
        let origin = host_prefix(self.aliases.real(remote).unwrap_or(remote).ip());
        if !self.share.places().has(Some(origin), &self.config) || !self.has_memory() {
            let transmit = self.stack.refuse(incoming, scratch);
            self.respond(&transmit, scratch);
            return;
        }
        let is_validated = incoming.remote_address_validated();
        let limits = (self.config.half_open, self.config.retry);
        match self.admission.decide(origin, is_validated, limits) {
            Decision::Accept => {}
            Decision::Ignore => {
                self.stack.ignore(incoming);
                return;
            }
            Decision::Validate => {
                if let Ok(transmit) = self.stack.retry(incoming, scratch) {
                    self.respond(&transmit, scratch);
                }
                return;
            }
        }
        let account = SharedAccount::default();
        let trace = self.trace(now, &incoming.orig_dst_cid(), Some(origin));
        let seed = self.random.next_u64();
        let own = self.config_of_next();
        let largest = largest_payload(self.aliases.real(remote).unwrap_or(remote).ip());
        let config = self.server_config(&own, seed, (account.clone(), &trace), largest);
        match self.stack.accept(incoming, self.epoch.instant(now), scratch, config) {
            Ok((handle, stack)) => {
                let kind = (origin, None);
                self.keep(now, (handle, stack, own), token, (account, trace), kind);
                if let Some(Some(kept)) = self.connections.get_mut(handle.0) {
                    kept.connection.admit(other);
                }
                self.admission.insert(handle.0, origin, is_validated);
                self.progress(now, handle.0);
            }
            Err(error) => {
                self.admission.withdraw(origin, is_validated);
                if let Some(transmit) = error.response {
                    self.respond(&transmit, scratch);
                }
            }
        }
    }

    fn keep(
        &mut self,
        now: Time,
        (handle, stack, config): (ConnectionHandle, noq_proto::Connection, Arc<Configuration>),
        token: Token,
        (account, trace): (SharedAccount, Trace),
        (origin, first_id): (Origin, Option<noq_proto::ConnectionId>),
    ) -> ConnectionId {
        let place = handle.0;
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        self.generation += 1;
        self.count += 1;
        self.share.begin();
        let accepted = first_id.is_none();
        let buffers = (!accepted).then(|| part(&config)).flatten();
        let connection = Connection::new(now, stack, config, token, self.epoch, (account, trace));
        self.connections[place] = Some(Kept {
            connection: Box::new(connection),
            generation: self.generation,
            first_id,
            has_place: !accepted,
            wake: Time::NEVER,
            queued: false,
            in_a_row: 0,
            origin,
            memory: CONNECTION_COST,
            buffers,
        });
        self.memory += CONNECTION_COST;
        if !accepted {
            self.share.places().take(None);
        }
        self.queue(place);
        ConnectionId { place, generation: self.generation }
    }

    fn respond(&mut self, transmit: &noq_proto::Transmit, bytes: &[u8]) {
        if self.responses.len() < MAX_RESPONSES
            && let Some(bytes) = bytes.get(..transmit.size)
            && let Some(transmit) = self.addressed(transmit, None)
        {
            self.responses.push_back((transmit, bytes.to_vec()));
        }
    }

    /// A transmission to its real address; `None` if that was forgotten.
    fn addressed(&self, transmit: &noq_proto::Transmit, dscp: Option<Dscp>) -> Option<Transmit> {
        Some(Transmit {
            destination: self.aliases.real(transmit.destination)?,
            local: transmit.src_ip,
            ecn: transmit.ecn,
            size: transmit.size,
            segment: transmit.segment_size,
            dscp,
        })
    }

    /// Processes the datagrams that were [handled](Self::handle), as [`poll_transmit`](Self::poll_transmit) does otherwise:
    /// what is in them came at `arrived`, and lay unread until `now`.
    pub(crate) fn process(&mut self, arrived: Time, now: Time) {
        self.set_clock(arrived);
        for turn in 0..self.ready.len() {
            let Some(&place) = self.ready.get(turn) else { return };
            if let Some(Some(kept)) = self.connections.get_mut(place)
                && kept.connection.touched
            {
                kept.connection.lain = now.since(arrived);
                self.progress(arrived, place);
            }
        }
    }

    /// Processes a connection after an event, and gives it a turn to send.
    fn progress(&mut self, now: Time, place: usize) {
        self.work(now, place);
        self.queue(place);
    }

    fn work(&mut self, now: Time, place: usize) {
        let Some(Some(kept)) = self.connections.get_mut(place) else { return };
        kept.connection.progress(now);
        self.hurries_until = self.hurries_until.max(kept.connection.hurries_until(now));
        self.settle(place);
        self.count_memory(now, place);
    }

    /// Passes on a connection's events to the stack's endpoint and to the application, and
    /// removes it if it has ended.
    fn settle(&mut self, place: usize) {
        self.give_place(place);
        let Some(Some(kept)) = self.connections.get_mut(place) else { return };
        while let Some(event) = kept.connection.stack().poll_endpoint_events() {
            if let Some(answer) = self.stack.handle_event(ConnectionHandle(place), event) {
                kept.connection.stack().handle_event(answer);
            }
        }
        let id = ConnectionId { place, generation: kept.generation };
        let is_gone = kept.connection.is_drained();
        while let Some(event_of) = kept.connection.next_event() {
            if is_gone && matches!(event_of, ConnectionEvent::Closed(_)) {
                let left = kept
                    .connection
                    .take_rest()
                    .into_iter()
                    .map(|(flow, deliveries)| Event::Left { connection: id, flow, deliveries });
                self.events.extend(left);
            }
            self.events.push_back(event(id, kept.is_accepted(), event_of));
        }
        if kept.is_accepted() && kept.connection.is_validated() {
            self.admission.validate(place);
        }
        if is_gone {
            self.admission.remove(place);
            self.memory -= kept.memory;
            self.timers.remove(&(kept.wake, place));
            if kept.has_place {
                self.share.places().free(kept.is_accepted().then_some(kept.origin));
            }
            self.connections[place] = None;
            self.count -= 1;
            self.share.end();
        }
    }
}
