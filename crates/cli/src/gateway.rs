//! `ontempo gateway`: relays TCP connections, or flows of UDP datagrams, over QoS sockets, as the paper's
//! DIRM does, to another gateway over QUIC or TCP.

mod datagrams;

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Bytes;
use ontempo_mechanisms::qos::Specification;
use ontempo_qos::{
    ACCEPT_BACK_OFF, Accepted, Activity, AnySocket, Backward, Begun, Buffers, Direction, Forward,
    Pace, QosCaller, QosOptions, QosStream, Rates, Relayed, Reserve, SetupError, UNRELIABLE,
    is_exhausted, is_of_one_connection,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use serde_json::json;

use self::datagrams::Flow;
use crate::access::{Destination, check_admission};
use crate::address::{Greeting, connect_in_turn, first_answering, resolve, resolve_all};
use crate::arguments::{Admission, At, BetweenGateways, FlowDirection, Gateway, Transport};
use crate::descriptors::raise_limit;
use crate::event_log::{EventLog, direction_name};
use crate::failure::Failure;
use crate::limited::Sentences;
use crate::output::counted;
use crate::quality::{failed, options};
use crate::signals::{stop_flag, unless_stopped};
use crate::transports::{MessageListener, QuicPeer};

/// Maximum number of simultaneous connections, if the limit of open files allows it.
const MAX_CONNECTIONS: usize = 512;

/// The same where each has a UDP socket and thread of its own: with reservations over QUIC, near the
/// client.
const MAX_WITH_SOCKETS: usize = 256;

/// Files that a connection has open: its stream, and over TCP the one to the other gateway. A place is
/// free again when both are closed, except that the last bytes may still be on their way.
const FILES_OVER_QUIC: u64 = 1;
const FILES_OVER_TCP: u64 = 2;

/// The same where each has a UDP socket of its own: that, two files to wake its thread, the stream.
const FILES_WITH_SOCKETS: u64 = 4;

/// Memory of what all connections have received or sent over QUIC, and is on its way.
const BUFFERS: Bytes = Bytes::new(32 << 20);

/// Maximum bytes of a message over QUIC: half of the least that a connection may have on its way.
const QUIC_PIECE: usize = 16 << 10;

/// How long a connection to the server may take.
const CONNECT_TIMEOUT: Wall = Wall::from_secs(10);

/// How long the last report of the other gateway is waited for: two intervals.
const LAST_REPORT: Wall = Wall::from_secs(1);

/// Files that the process has open beside its connections: standard streams, sockets that listen,
/// reports.
const OTHER_FILES: u64 = 24;

/// What keeps a connection's messages between the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    /// All through one socket.
    Quic,
    /// A socket each.
    QuicEach,
}

/// Relays connections, which are numbered from 1.
#[derive(Clone)]
struct Relay {
    as_json: bool,
    all: Arc<Mutex<Relayed<Both>>>,
    /// Messages that strangers can cause.
    refused: Arc<Sentences>,
    exhausted: Arc<Sentences>,
}

/// What a connection is at the program.
#[derive(Clone)]
enum Near {
    Stream(Arc<TcpStream>),
    Flow(Arc<Flow>),
}

/// Both ends of a connection here.
#[derive(Clone)]
struct Both {
    near: Near,
    far: AnySocket,
}

impl Both {
    /// Ends all reading and writing of the threads that relay it.
    fn hang_up(&self) {
        match &self.near {
            // They may be closed already.
            Near::Stream(tcp) => drop(tcp.shutdown(Shutdown::Both)),
            Near::Flow(flow) => flow.end(),
        }
        self.far.hang_up();
    }

    /// As `hang_up`, and the program at the TCP connection sees that it was broken off, not its end.
    fn break_off(&self) {
        match &self.near {
            Near::Stream(tcp) => {
                // It may be closed already.
                let _ = set_socket_linger(&**tcp, Some(Wall::ZERO));
                // No FIN: closing sends RST.
                let _ = tcp.shutdown(Shutdown::Read);
            }
            Near::Flow(flow) => flow.end(),
        }
        self.far.hang_up();
    }
}

/// How many connections fit into this many open files.
fn max_connections(files: u64, way: Way) -> usize {
    let (most, each) = match way {
        Way::Tcp => (MAX_CONNECTIONS, FILES_OVER_TCP),
        Way::Quic => (MAX_CONNECTIONS, FILES_OVER_QUIC),
        Way::QuicEach => (MAX_WITH_SOCKETS, FILES_WITH_SOCKETS),
    };
    let fitting = files.saturating_sub(OTHER_FILES) / each;
    most.min(usize::try_from(fitting).unwrap_or(usize::MAX)).max(1)
}

/// The directions for which a gateway requests its specification.
fn directions(which: FlowDirection, is_near_client: bool) -> Vec<Direction> {
    let (there, back) = if is_near_client {
        (Direction::Sending, Direction::Receiving)
    } else {
        (Direction::Receiving, Direction::Sending)
    };
    match which {
        FlowDirection::Send => vec![there],
        FlowDirection::Receive => vec![back],
        FlowDirection::Both => vec![there, back],
    }
}

pub(crate) fn gateway(arguments: &Gateway) -> Result<(), Failure> {
    let listen = arguments.listen.as_str();
    let asked = directions(arguments.direction, arguments.to.is_some());
    let default =
        if arguments.udp { datagrams::default_specification() } else { Specification::default() };
    let quality = options("gateway", &arguments.quality, default, &asked)?;
    let way = match arguments.over {
        BetweenGateways::Tcp => Way::Tcp,
        BetweenGateways::Quic if arguments.to.is_some() && quality.reserve != Reserve::None => {
            Way::QuicEach
        }
        BetweenGateways::Quic => Way::Quic,
    };
    let max = max_connections(raise_limit(), way);
    let options = QosOptions {
        // TCP streams have no holes, whatever loss the specification permits.
        reliable: !arguments.udp,
        buffers: Some(Arc::new(Buffers::new(BUFFERS))),
        // More than there are places, for those that take the place of another or are refused.
        connections: Some(max + max / 4 + 8),
        ..quality
    };
    let relay = Relay {
        as_json: arguments.json,
        all: Arc::new(Mutex::new(Relayed::new(max))),
        refused: Arc::new(Sentences::about("refusals")),
        exhausted: Arc::new(Sentences::about("missing descriptors")),
    };
    let stopped = stop_flag()?;
    let idle = Wall::from_nanos(arguments.idle.as_nanos());
    let work: Box<dyn FnOnce(Relay) -> io::Error + Send> = match (&arguments.to, &arguments.server)
    {
        (Some(to), _) if arguments.udp => {
            let far = Arc::new(Far::read(to, arguments, options)?);
            let socket = listen_near(arguments, &relay, ", UDP", |at| {
                let socket = UdpSocket::bind(at)?;
                let local = socket.local_addr()?;
                Ok((Arc::new(socket), local))
            })?;
            Box::new(move |relay| datagrams::near_clients(&socket, &far, idle, &relay))
        }
        (Some(to), _) => {
            let far = Arc::new(Far::read(to, arguments, options)?);
            let listener = listen_near(arguments, &relay, "", |at| {
                let listener = TcpListener::bind(at)?;
                let local = listener.local_addr()?;
                Ok((listener, local))
            })?;
            Box::new(move |relay| near_clients(&listener, &far, &relay))
        }
        (None, Some(server)) => {
            let server = resolve(server, "--server ")?;
            let listener = listen_for_gateway(arguments, options, &relay)?;
            let is_udp = arguments.udp;
            Box::new(move |relay| near_server(&listener, (server, is_udp.then_some(idle)), &relay))
        }
        // The parser requires one of them.
        (None, None) => return Err(Failure::Input("--to or --server is needed".to_owned())),
    };
    let worker_relay = relay.clone();
    let failed = unless_stopped(&stopped, move || work(worker_relay));
    relay.summaries()?;
    let environment = |error| Failure::Environment(format!("--listen {listen}: {error}"));
    failed.map_or(Ok(()), |error| Err(environment(error)))
}

/// Listens for programs of this host, or, with `--anyone`, for all. `what` names the transport where it is not TCP.
fn listen_near<T>(
    arguments: &Gateway,
    relay: &Relay,
    what: &str,
    bind: impl FnOnce(SocketAddr) -> io::Result<(T, SocketAddr)>,
) -> Result<T, Failure> {
    let listen = arguments.listen.as_str();
    let at = resolve(listen, "--listen ")?;
    check_admission(at, arguments.anyone, "say --anyone")?;
    let (bound, local) =
        bind(at).map_err(|error| Failure::Environment(format!("--listen {listen}: {error}")))?;
    let text = format!("listening at {local}{what}; Ctrl-C ends it");
    relay.log(None).write("listening", json!({ "local": local.to_string() }), &text)?;
    Ok(bound)
}

/// Listens for the other gateway and prints how it connects.
fn listen_for_gateway(
    arguments: &Gateway,
    options: QosOptions,
    relay: &Relay,
) -> Result<MessageListener, Failure> {
    let Gateway { listen, identity, credentials, anyone, qr, .. } = arguments;
    let over = match arguments.over {
        BetweenGateways::Quic => Transport::Quic,
        BetweenGateways::Tcp => {
            let instead = "leave out --over tcp, say --anyone";
            check_admission(resolve(listen, "--listen ")?, *anyone, instead)?;
            Transport::Tcp
        }
    };
    if *anyone && credentials.are_given() {
        let sentence = "--anyone admits any gateway: leave out --token and --token-file";
        return Err(Failure::Input(sentence.to_owned()));
    }
    let admission = Admission {
        credentials: credentials.clone(),
        // Over TCP nobody has a token.
        anyone: *anyone && over == Transport::Quic,
        qr: *qr,
    };
    let at = At { listen: listen.clone(), over, identity: identity.clone(), admission };
    let listener = MessageListener::bind(&at, options)?;
    let udp = if arguments.udp { "--udp " } else { "" };
    let line = format!("ontempo gateway {udp}--listen ... --to");
    listener.log_address(relay.log(None), &line, *qr)?;
    Ok(listener)
}

/// The other gateway.
struct Far {
    /// All addresses of its name.
    addresses: Vec<SocketAddr>,
    over: Over,
}

/// How it is reached.
enum Over {
    Quic(QuicPeer, Box<QosCaller>),
    Tcp(Box<QosOptions>),
}

impl Far {
    fn read(to: &str, arguments: &Gateway, options: QosOptions) -> Result<Self, Failure> {
        let Gateway { over, fingerprint, insecure, credentials, .. } = arguments;
        let destination = Destination::read(to, "--to: ")?;
        let over = match over {
            BetweenGateways::Quic => {
                let verified = (*fingerprint, *insecure);
                let peer = QuicPeer::of(&destination, verified, credentials)?;
                let caller = QosCaller::new(options).map_err(failed(&destination.address))?;
                Over::Quic(peer, Box::new(caller))
            }
            BetweenGateways::Tcp => {
                let is_asked = fingerprint.is_some() || *insecure || credentials.are_given();
                if destination.is_url() || is_asked {
                    let sentence = "--over tcp: a gateway with a URL, a fingerprint or a token is \
                                    reached over quic";
                    return Err(Failure::Input(sentence.to_owned()));
                }
                Over::Tcp(Box::new(options))
            }
        };
        Ok(Self { addresses: resolve_all(&destination.address, "--to ")?, over })
    }

    fn connect(&self) -> Result<AnySocket, SetupError> {
        match &self.over {
            Over::Quic(peer, caller) => {
                let address = first_answering(&self.addresses, &Greeting::quic());
                let address = address.map_err(|why| SetupError::from(io::Error::other(why)))?;
                peer.connect(caller, address).map(AnySocket::Quic)
            }
            Over::Tcp(options) => connect_in_turn(&self.addresses, |address| {
                QosStream::connect(address, options).map(AnySocket::Tcp)
            }),
        }
    }
}

/// Relays TCP clients to the other gateway. Returns when accepting fails.
fn near_clients(listener: &TcpListener, far: &Arc<Far>, relay: &Relay) -> io::Error {
    loop {
        match listener.accept() {
            Ok((tcp, remote)) => {
                let far = Arc::clone(far);
                let connect = move || {
                    tcp.set_nodelay(true)?;
                    let near = Near::Stream(Arc::new(tcp));
                    Ok((near, far.connect().map_err(io::Error::from)?))
                };
                relay.begin(remote, connect);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) if is_exhausted(&error) => {
                relay.say_exhausted(&error);
                thread::sleep(ACCEPT_BACK_OFF);
            }
            Err(error) => return error,
        }
    }
}

/// Relays connections of the other gateway to the server, over UDP where a time is given that ends an
/// idle flow. Returns when accepting fails.
fn near_server(
    listener: &MessageListener,
    (server, idle): (SocketAddr, Option<Wall>),
    relay: &Relay,
) -> io::Error {
    loop {
        match listener.accept_or_refuse() {
            Ok(Accepted::Connection(far, remote)) => {
                relay.begin(remote, move || match idle {
                    Some(idle) => Ok((Flow::to(server, idle)?, far)),
                    None => {
                        // The other gateway, which is named beside it, has refused nothing.
                        let tcp = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT).map_err(
                            |error| {
                                io::Error::new(error.kind(), format!("--server {server}: {error}"))
                            },
                        )?;
                        tcp.set_nodelay(true)?;
                        Ok((Near::Stream(Arc::new(tcp)), far))
                    }
                });
            }
            Ok(Accepted::Refused(remote, why)) => relay.refused.say(&format!("{remote}: {why}")),
            Ok(Accepted::Exhausted(error)) => relay.say_exhausted(&error),
            Err(error) => return error,
        }
    }
}

impl Relay {
    fn log(&self, connection: Option<u64>) -> EventLog {
        EventLog { as_json: self.as_json, to_stderr: false, connection, is_limited: true }
    }

    fn lock(&self) -> MutexGuard<'_, Relayed<Both>> {
        // No code that holds the lock leaves the map inconsistent.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_exhausted(&self, error: &io::Error) {
        self.exhausted.say(&format!("no connection is accepted for now: {error}"));
    }

    /// Connects and relays in a new thread; an error is written to standard error.
    fn begin(
        &self,
        remote: SocketAddr,
        connect: impl FnOnce() -> io::Result<(Near, AnySocket)> + Send + 'static,
    ) {
        let Some(Begun { number, activity, ended }) = self.place(remote.ip()) else {
            let max = self.lock().max();
            let sentence = format!("{remote}: refused: the limit of {max} connections is reached");
            self.refused.say(&sentence);
            return;
        };
        if let Some(ended) = ended {
            ended.hang_up();
            let sentence =
                format!("{remote}: takes the place of another connection: all are taken");
            self.refused.say(&sentence);
        }
        let relay = self.clone();
        let named = thread::Builder::new().name("relay".to_owned());
        let spawned = named.spawn(move || {
            let place = Place { relay: &relay, number };
            if let Err(error) = relay.relay(number, remote, &activity, connect) {
                relay.refused.say(&format!("{remote}: {}", with_hint(&error.to_string())));
            }
            drop(place);
        });
        if let Err(error) = spawned {
            self.end(number);
            self.refused.say(&format!("{remote}: {error}"));
        }
    }

    /// Relays both directions until both have ended.
    fn relay(
        &self,
        number: u64,
        remote: SocketAddr,
        activity: &Activity,
        connect: impl FnOnce() -> io::Result<(Near, AnySocket)>,
    ) -> io::Result<()> {
        let (near, far) = connect()?;
        let log = self.log(Some(number));
        // A closed output does not end the relay; here and below.
        let _ = log.write(
            "connection",
            json!({ "remote": remote.to_string() }),
            &format!("from {remote}"),
        );
        let event_thread = log.follow(far.events())?;
        for direction in [Direction::Sending, Direction::Receiving] {
            let _ = log.agreed(direction, &far.agreed(direction));
        }
        let both = Both { near, far };
        self.lock().agreed(number, both.clone());
        let (of_back, activity_back) = (both.clone(), activity.clone());
        let back = thread::Builder::new().name("relay back".to_owned());
        let back = back.spawn(move || match &of_back.near {
            Near::Stream(tcp) => backward(tcp, &of_back, &activity_back),
            Near::Flow(flow) => datagrams::backward(flow, &of_back.far, &activity_back),
        })?;
        let there = match &both.near {
            Near::Stream(tcp) => forward(tcp, &both, activity),
            Near::Flow(flow) => datagrams::forward(flow, &both.far, activity),
        };
        let back =
            back.join().unwrap_or_else(|_| Err(io::Error::other("the relay thread panicked")));
        if there.is_ok() && back.is_ok() {
            await_last_report(&both.far);
        }
        let _ = summary(log, &both.far);
        if let Near::Flow(flow) = &both.near
            && flow.dropped() > 0
        {
            let count = flow.dropped();
            let datagrams = counted(count, "datagram");
            let text = format!("{datagrams} dropped: longer than agreed, or too many at once");
            let _ = log.write("dropped", json!({ "datagrams": count }), &text);
        }
        drop(both);
        self.end(number);
        // The thread ends with the connection.
        let _ = event_thread.join();
        match (there, back) {
            // The other direction then failed as this side has closed the connection.
            (Err(_), Err(back)) if back.to_string().contains(UNRELIABLE) => Err(back),
            (there, back) => there.and(back),
        }
    }

    fn place(&self, address: IpAddr) -> Option<Begun<Both>> {
        self.lock().begin(Instant::now(), address)
    }

    fn end(&self, number: u64) {
        // Dropped after the lock is released, as closing may take long.
        let ended = self.lock().end(number);
        drop(ended);
    }

    /// Writes the summaries of all open connections.
    fn summaries(&self) -> Result<(), Failure> {
        let all = self.lock().end_all();
        all.iter().try_for_each(|(number, both)| summary(self.log(Some(*number)), &both.far))
    }
}

/// A connection's place, which is free again however its thread ends.
struct Place<'a> {
    relay: &'a Relay,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.relay.end(self.number);
    }
}

/// An error of the relay. Of two gateways only one with `--udp` sends what may be lost.
fn with_hint(error: &str) -> String {
    if error.contains(UNRELIABLE) {
        return format!(
            "{error}: only one of the two gateways has --udp; both or none must have it"
        );
    }
    error.to_owned()
}

/// Waits until the other gateway has reported what it has got, if it still does.
fn await_last_report(far: &AnySocket) {
    let until = Instant::now() + LAST_REPORT;
    while Instant::now() < until {
        let delivery = far.delivery(Direction::Sending);
        if delivery.messages + delivery.lost_messages >= delivery.sent_messages {
            return;
        }
        thread::sleep(Wall::from_millis(10));
    }
}

/// Writes the delivery statistics of both directions.
fn summary(log: EventLog, far: &AnySocket) -> Result<(), Failure> {
    [Direction::Sending, Direction::Receiving].into_iter().try_for_each(|of| {
        log.summary(&far.delivery(of), json!({ "direction": direction_name(of) }))
    })
}

fn forward(tcp: &TcpStream, both: &Both, activity: &Activity) -> io::Result<()> {
    let far = &both.far;
    let most = match far {
        AnySocket::Quic(_) => QUIC_PIECE,
        _ => usize::MAX,
    };
    let mut pump = Forward::new(far.max_send_size().min(most));
    let mut pace = Pace::default();
    loop {
        let rates = rates(far);
        let (mut since, mut sent_at) = (None, Instant::now());
        // What comes before it may be sent becomes one message, up to the agreed size.
        let more = || {
            let now = Instant::now();
            let rest = pace.gather(now, *since.get_or_insert(now), rates);
            if rest.is_zero() { Ok(false) } else { comes_within(tcp, rest) }
        };
        let send = |message: &[u8]| {
            thread::sleep(pace.wait(Instant::now(), rates));
            sent_at = Instant::now();
            far.send_message(message)
        };
        match pump.step(tcp, more, send) {
            Ok(true) => {
                activity.note(Instant::now());
                pace.on_sent(sent_at, rates);
            }
            Ok(false) => break,
            Err(error) => {
                both.break_off();
                return Err(error);
            }
        }
    }
    far.finish();
    Ok(())
}

/// The rates at which messages are sent.
fn rates(far: &AnySocket) -> Rates {
    let agreed = far.agreed(Direction::Sending);
    Rates { max: agreed.max_rate.value, peak: agreed.peak_rate.value }
}

/// Whether a stream has bytes, or its end, before so much time has passed.
fn comes_within(tcp: &TcpStream, limit: Wall) -> io::Result<bool> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(tcp, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn backward(tcp: &TcpStream, both: &Both, activity: &Activity) -> io::Result<()> {
    let far = &both.far;
    let mut pump = Backward::default();
    loop {
        match pump.step(far, tcp) {
            Ok(true) => activity.note(Instant::now()),
            Ok(false) => break,
            Err(error) => {
                both.break_off();
                return Err(error);
            }
        }
    }
    // The client or server may have closed already.
    let _ = tcp.shutdown(Shutdown::Write);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_limit_of_files_suffices_for_as_many_connections_as_a_gateway_takes() {
        assert_eq!(max_connections(1_024, Way::Quic), MAX_CONNECTIONS);
        assert_eq!(max_connections(1_024, Way::Tcp), 500);
        assert_eq!(max_connections(1_024, Way::QuicEach), 250);
        assert_eq!(max_connections(4_096, Way::Tcp), MAX_CONNECTIONS);
        assert_eq!(max_connections(0, Way::Tcp), 1);
    }
}
