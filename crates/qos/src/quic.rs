//! The QUIC transport.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_mechanisms::qos::Specification;

use super::core::{Control, Core, deadline, lock};
use super::maintenance::{self, Maintained};
use super::setup::{self, Established, SetupError};
use super::tcp::{damaged, too_long};
use super::wire::{Header, Kind, Setup, TCP_HEADER, WireError};
use super::{Delivery, Direction, Events, Message, QosCaller, QosOptions, facade};
use ontempo_monitor::Carrier;
use ontempo_transport::live::{self, Connection, NotTaken, ReceiveFlow, SendFlow};
use ontempo_transport::quic::span;
use ontempo_transport::{CloseReason, DeliveryOrder, FlowConfig, Reliability, Token, Trust};
use ontempo_udp::{Dscp, any_for};

/// Labels of the flows: control messages, and
/// the application's messages.
pub(super) const CONTROL: &str = "qos control";
const DATA: &str = "qos data";

/// Flows of the peer: these two.
const MAX_FLOWS: u64 = 2;

/// How long a connection that the application has closed is kept to deliver what was sent.
const LINGER: Wall = Wall::from_secs(30);

/// How often a connection's thread checks whether the application has closed it.
const LOOK: Wall = Wall::from_millis(200);

/// Part of the error, at both ends, of a peer that does not send all in order to one that asked for that.
pub const UNRELIABLE: &str =
    "messages may be lost or reordered, and reliable delivery was asked for";

/// A QoS socket over QUIC.
///
/// The agreed specification of a direction decides about its reliability. If no loss is allowed,
/// messages are retransmitted until they arrive; otherwise until `max_delay`, or not at all if
/// there is none. `permutable` messages are delivered as they arrive, others in order. With
/// [`QosOptions::reliable`] all arrive, in order. [`Read`] and [`Write`] are for code that uses byte
/// streams, and need it: one call of `write` is one message.
///
/// A clone is the same connection. It ends when the last clone is dropped; what was sent is still
/// delivered.
#[derive(Clone, Debug)]
pub struct QosConnection(Arc<Handle>);

/// The application's handle.
#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
    /// The connection's thread; `None` once somebody waits for its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(super) struct Inner {
    core: Core,
    connection: Connection,
    control: SendFlow,
    data: SendFlow,
    sending: Mutex<()>,
    /// Lifetime of a message, if loss is allowed.
    lifetime: Option<Duration>,
    incoming: Mutex<Incoming>,
    /// What the peer sends must all arrive, in order.
    is_reliable: bool,
    /// The peer's application has received everything, or has closed.
    is_taken: AtomicBool,
    /// Timeouts of receiving and sending, ns; 0: none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
}

/// What the peer sends.
#[derive(Default)]
struct Incoming {
    /// Its flow; present once its first message or its end has arrived.
    flow: Option<ReceiveFlow>,
    /// What [`Read`] has left of a message.
    rest: Bytes,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("core", &self.core).finish_non_exhaustive()
    }
}

/// Flow configuration of a direction.
fn flow(agreed: &Specification, is_reliable: bool) -> FlowConfig {
    if is_reliable {
        return FlowConfig { label: DATA.to_owned(), ..FlowConfig::default() };
    }
    let may_lose = agreed.loss.value.is_some_and(|loss| loss.as_thousandths() > 0);
    let reliability = match (may_lose, agreed.max_delay.value) {
        (false, _) => Reliability::Full,
        (true, Some(_)) => Reliability::Deadline,
        (true, None) => Reliability::None,
    };
    let order = match agreed.permutable.value {
        Some(true) => DeliveryOrder::OutOfOrder,
        _ => DeliveryOrder::InOrder,
    };
    FlowConfig { order, reliability, label: DATA.to_owned() }
}

impl From<live::Error> for SetupError {
    fn from(error: live::Error) -> Self {
        Self::Io(system(error))
    }
}

/// As `io::Error`; the cause is inside.
pub(super) fn system(error: live::Error) -> io::Error {
    match error {
        live::Error::System(error) => error,
        live::Error::Bind(error) => error.error,
        live::Error::NotConnected { .. } => io::Error::new(ErrorKind::ConnectionRefused, error),
        live::Error::Closed(_) => io::Error::new(ErrorKind::ConnectionAborted, error),
        other => io::Error::other(other),
    }
}

/// The endpoint's configuration: an interrupted path is tolerated for `rec_time` or longer.
pub(super) fn settings(options: &QosOptions) -> live::Options {
    let mut live = live::Options::default();
    live.configuration.limits.flows = MAX_FLOWS;
    if let Some(congestion) = options.congestion {
        live.configuration.congestion = congestion;
    }
    live.configuration.buffers.clone_from(&options.buffers);
    if let Some(connections) = options.connections {
        live.configuration.connections = connections;
        live.configuration.connections_of_host = connections;
    }
    let asked = [options.send.rec_time.value, options.receive.rec_time.value];
    let idle = &mut live.configuration.idle_timeout;
    *idle = asked.into_iter().flatten().fold(*idle, Ord::max);
    live
}

/// The local address of the route to another.
pub(super) fn local_to(remote: SocketAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind(any_for(remote))?;
    socket.connect(remote)?;
    socket.local_addr()
}

impl QosConnection {
    /// Connects to `name`, verified by `trust`, and negotiates with the peer.
    ///
    /// # Errors
    /// As [`QosStream::connect`](super::QosStream::connect); the peer is not trusted,
    /// or rejects the token.
    pub fn connect(
        to: impl ToSocketAddrs,
        name: &str,
        (trust, token): (&Trust, &Token),
        options: &QosOptions,
    ) -> Result<Self, SetupError> {
        let caller = QosCaller::new(options.clone())?;
        facade::first(to, |address| caller.connect(address, name, (trust, token)))
    }

    /// Negotiates with the peer of a connection, until that time.
    pub(super) fn greet(
        connection: Connection,
        options: &QosOptions,
        until: Instant,
    ) -> Result<Self, SetupError> {
        let (clock, session) = (maintenance::clock(), ontempo_udp::random());
        let control = connection.open_flow(control_flow())?;
        let hello = setup::hello(&options.offer(), session, [0; 16], clock.now());
        control.send(Bytes::from(hello.to_bytes()))?;
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let peer_control =
            connection.accept_flow_within(left(until)).ok_or(SetupError::Silent)??;
        let answer = peer_control.receive_within(left(until)).ok_or(SetupError::Silent)??;
        let now = clock.now();
        let Some(ontempo_transport::Delivery::Unit(unit)) = answer else {
            return Err(SetupError::Wire(WireError::Malformed));
        };
        let answer = Setup::read(&unit.data)?;
        let concluded = setup::conclude(&options.offer(), (session, [0; 16]), &answer, now);
        let established = concluded.unwrap_or(Err(SetupError::Wire(WireError::Malformed)))?;
        Self::establish(connection, (control, peer_control), options, &established)
    }

    /// A connection after its handshake.
    pub(super) fn establish(
        connection: Connection,
        (control, peer_control): (SendFlow, ReceiveFlow),
        options: &QosOptions,
        established: &Established,
    ) -> Result<Self, SetupError> {
        let remote = connection.remote();
        let mut local = connection.local();
        if local.ip().is_unspecified() {
            local.set_ip(local_to(remote)?.ip());
        }
        let core = facade::core(Carrier::Quic, (local, remote), options, established);
        connection.mark(core.dscp());
        let config = flow(&established.sending, options.reliable);
        let may_drop = config.reliability == Reliability::Deadline;
        let lifetime = established.sending.max_delay.value.filter(|_| may_drop);
        let data = connection.open_flow(config)?;
        let inner = Arc::new(Inner {
            core,
            connection,
            control,
            data,
            sending: Mutex::new(()),
            lifetime,
            incoming: Mutex::default(),
            is_reliable: options.reliable,
            is_taken: AtomicBool::new(false),
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
        });
        maintenance::register(&inner);
        let control_thread = inner.clone();
        let named = thread::Builder::new().name("ontempo-qos-quic".to_owned());
        let thread = named.spawn(move || control_thread.handle_control(&peer_control))?;
        Ok(Self(Arc::new(Handle { inner, thread: Mutex::new(Some(thread)) })))
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0.inner
    }

    pub(super) fn core(&self) -> &Core {
        &self.inner().core
    }

    /// Sends a message; blocks while the network accepts no more.
    ///
    /// # Errors
    /// If it exceeds the agreed size, the timeout expires, or the connection has ended.
    pub fn send_message(&self, data: &[u8]) -> io::Result<()> {
        let Inner { core, data: flow, sending, lifetime, write_timeout, .. } = &**self.inner();
        if data.len() > core.max_send_size {
            return Err(too_long(data.len(), core.max_send_size, "what was agreed"));
        }
        // Sequence numbers are assigned in the order of sending.
        let _sending = lock(sending);
        let header = core.header(core.counter.next(), data.len()).to_tcp();
        let message =
            live::Message { lifetime: *lifetime, ..Bytes::from([&header, data].concat()).into() };
        let sent = match write_timeout.load(Relaxed) {
            0 => flow.send(message).map_err(NotTaken::Failed),
            nanos => flow.send_within(message, Wall::from_nanos(nanos)),
        };
        match sent {
            Ok(_) => {
                core.counter.count_alone(data.len());
                Ok(())
            }
            Err(NotTaken::Full) => Err(ErrorKind::WouldBlock.into()),
            Err(NotTaken::Failed(error)) => Err(system(error)),
        }
    }

    /// Waits for a message; `None` if the peer has finished sending. A buffer of
    /// [`max_receive_size`](Self::max_receive_size) bytes always suffices.
    ///
    /// # Errors
    /// If the message is longer than the buffer (it is lost), the peer violates the protocol,
    /// the timeout expires, or the connection has ended.
    pub fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        let inner = self.inner();
        let timeout = inner.read_timeout.load(Relaxed);
        let until = (timeout > 0).then(|| Instant::now() + Wall::from_nanos(timeout));
        let mut incoming = lock(&inner.incoming);
        incoming.rest = Bytes::new();
        loop {
            let next = inner.next_message(&mut incoming, until);
            let next = inner.core.unless_failed(next.is_err(), next)?;
            let Some((header, body)) = next else {
                return inner.core.unless_failed(true, Ok(None));
            };
            let Some(place) = buffer.get_mut(..body.len()) else {
                return Err(too_long(body.len(), buffer.len(), "the buffer"));
            };
            place.copy_from_slice(&body);
            if let Some(arrival) = inner.core.on_data(&header, body.len()) {
                let (sequence, delay) = (arrival.sequence, arrival.timing.delay);
                return Ok(Some(Message { length: body.len(), sequence, delay }));
            }
        }
    }

    /// Bytes of messages, as of a stream.
    fn read_bytes(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let inner = self.inner();
        let timeout = inner.read_timeout.load(Relaxed);
        let until = (timeout > 0).then(|| Instant::now() + Wall::from_nanos(timeout));
        let mut incoming = lock(&inner.incoming);
        while incoming.rest.is_empty() && !buffer.is_empty() {
            let next = inner.next_message(&mut incoming, until);
            let next = inner.core.unless_failed(next.is_err(), next)?;
            let Some((header, body)) = next else {
                return inner.core.unless_failed(true, Ok(0));
            };
            // The application gets the bytes, whatever is counted.
            let _ = inner.core.on_data(&header, body.len());
            incoming.rest = body;
        }
        let taken = incoming.rest.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&incoming.rest.split_to(taken));
        Ok(taken)
    }

    /// Closes the connection at once, whatever has not arrived: the peer gets an error, not the end
    /// of the flow.
    pub fn hang_up(&self) {
        self.inner().connection.close_with(CloseReason::Failed, "the stream was broken off");
    }

    /// Finishes sending: the peer gets the end of the flow.
    pub fn finish(&self) {
        let inner = self.inner();
        // The last report, which nothing follows at the interval's end where the peer closes soon.
        inner.send_control(&inner.core.status(inner.core.clock.now()));
        self.inner().data.finish();
    }

    /// Finishes sending, and waits until the peer's application has received everything, or
    /// has closed; then, for less than a second more, until the peer has been told that this end has
    /// closed. A process that ends right after sending or receiving needs this: nobody else
    /// transmits for it.
    ///
    /// # Errors
    /// If that does not happen within `timeout`.
    pub fn close(self, timeout: Wall) -> io::Result<()> {
        self.finish();
        let until = deadline(timeout);
        while !self.inner().is_taken.load(Relaxed) {
            if Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            thread::sleep(Wall::from_millis(2));
        }
        self.core().close();
        // It closes the connection and gives it up: if no other has it, dropping it here waits until
        // the endpoint has ended.
        if let Some(thread) = lock(&self.0.thread).take() {
            let _ = thread.join();
        }
        Ok(())
    }

    /// Timeout of receiving; `None`: none.
    pub fn set_read_timeout(&self, timeout: Option<Wall>) {
        set(&self.inner().read_timeout, timeout);
    }

    /// Timeout of sending; `None`: none.
    pub fn set_write_timeout(&self, timeout: Option<Wall>) {
        set(&self.inner().write_timeout, timeout);
    }
}

fn set(timeout: &AtomicU64, to: Option<Wall>) {
    timeout.store(to.map_or(0, |to| span(to).as_nanos().max(1)), Relaxed);
}

facade::methods!(QosConnection);
facade::byte_stream!(QosConnection);

/// The flow of control messages.
pub(super) fn control_flow() -> FlowConfig {
    FlowConfig { label: CONTROL.to_owned(), ..FlowConfig::default() }
}

/// Waits with a limit; `None` if it expires.
fn within<T>(until: Option<Instant>, mut wait: impl FnMut(Wall) -> Option<T>) -> Option<T> {
    loop {
        let left = until.map_or(LINGER, |until| until.saturating_duration_since(Instant::now()));
        let got = wait(left);
        if got.is_some() || until.is_some() {
            return got;
        }
    }
}

impl Inner {
    /// The next message; `None` at the end of the flow, which the peer then learns.
    fn next_message(
        &self,
        incoming: &mut Incoming,
        until: Option<Instant>,
    ) -> io::Result<Option<(Header, Bytes)>> {
        let Some(mut data) = self.next(incoming, until)? else {
            self.send_control(&Control { kind: Kind::Bye, body: Vec::new() });
            return Ok(None);
        };
        let Some(head) = data.first_chunk::<TCP_HEADER>() else {
            return Err(damaged(WireError::Malformed));
        };
        let header = Header::of_tcp(head, self.core.max_receive_size).map_err(damaged)?;
        let body = data.split_off(TCP_HEADER);
        if header.kind != Kind::Data || header.length != body.len() {
            return Err(damaged(WireError::Malformed));
        }
        Ok(Some((header, body)))
    }

    /// The next message with its header, as bytes; `None` at the end of the flow.
    fn next(&self, incoming: &mut Incoming, until: Option<Instant>) -> io::Result<Option<Bytes>> {
        if incoming.flow.is_none() {
            let opened = within(until, |left| self.connection.accept_flow_within(left));
            let opened = opened.ok_or(ErrorKind::WouldBlock)?.map_err(system)?;
            let FlowConfig { order, reliability, .. } = opened.config();
            let is_whole = (*order, *reliability) == (DeliveryOrder::InOrder, Reliability::Full);
            if self.is_reliable && !is_whole {
                self.connection.close_with(CloseReason::ProtocolViolation, UNRELIABLE);
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("the peer's {UNRELIABLE}"),
                ));
            }
            incoming.flow = Some(opened);
        }
        let Some(flow) = &incoming.flow else { return Ok(None) };
        loop {
            let got = within(until, |left| flow.receive_within(left));
            match got.ok_or(ErrorKind::WouldBlock)?.map_err(system)? {
                Some(ontempo_transport::Delivery::Unit(unit)) => return Ok(Some(unit.data)),
                // The sender reports how many there were.
                Some(ontempo_transport::Delivery::Dropped(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Handles the peer's control messages until the application has closed the connection and
    /// everything it sent has arrived: the connection's thread.
    fn handle_control(&self, peer_control: &ReceiveFlow) {
        let mut is_open = true;
        while !self.core.is_closed() {
            if is_open {
                is_open = self.handle_next_control(peer_control);
            } else {
                thread::sleep(LOOK);
            }
        }
        let until = Instant::now() + LINGER;
        while is_open && !self.is_taken.load(Relaxed) && Instant::now() < until {
            is_open = self.handle_next_control(peer_control);
        }
        self.connection.close("");
    }

    /// Waits for control messages for a while; `false` once there will be none.
    fn handle_next_control(&self, peer_control: &ReceiveFlow) -> bool {
        match peer_control.receive_within(LOOK) {
            Some(Ok(Some(ontempo_transport::Delivery::Unit(unit)))) => {
                if self.on_control(&unit.data).is_err() {
                    let sentence = "a damaged message of a QoS socket";
                    self.connection.close_with(CloseReason::ProtocolViolation, sentence);
                }
                true
            }
            None | Some(Ok(Some(ontempo_transport::Delivery::Dropped(_)))) => true,
            Some(Ok(None) | Err(_)) => {
                self.is_taken.store(true, Relaxed);
                false
            }
        }
    }

    fn on_control(&self, bytes: &[u8]) -> Result<(), WireError> {
        let (head, body) = bytes.split_first_chunk::<TCP_HEADER>().ok_or(WireError::Malformed)?;
        let header = Header::of_tcp(head, 0)?;
        if header.length != body.len() {
            return Err(WireError::Malformed);
        }
        if header.kind == Kind::Bye {
            // The other direction may continue.
            self.is_taken.store(true, Relaxed);
            return Ok(());
        }
        if let Some(answer) = self.core.on_control(&header, body)? {
            self.send_control(&answer);
        }
        Ok(())
    }
}

impl Maintained for Inner {
    fn core(&self) -> &Core {
        &self.core
    }

    fn mark(&self, dscp: Dscp) -> io::Result<()> {
        self.connection.mark(dscp);
        Ok(())
    }

    fn send_control(&self, control: &Control) {
        let sent = self.core.clock.now().as_nanos();
        let Control { kind, body } = control;
        let header = Header { kind: *kind, length: body.len(), sequence: 0, sent };
        let bytes = Bytes::from([&header.to_tcp(), body.as_slice()].concat());
        // If the buffer is full, the next report has it.
        let _ = self.control.send_within(bytes, Wall::ZERO);
    }

    fn listen(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn hang_up(&self) {
        self.connection.close("");
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Inner { core, data, control, .. } = &*self.inner;
        core.close();
        data.finish();
        control.finish();
    }
}
