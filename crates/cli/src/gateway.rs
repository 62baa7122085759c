//! `ontempo gateway`: relays TCP connections over QoS sockets, as the paper's DIRM does, to another
//! gateway over QUIC or TCP.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Bytes;
use ontempo_mechanisms::qos::Specification;
use ontempo_qos::{
    ACCEPT_BACK_OFF, Accepted, Activity, AnySocket, Backward, Begun, Buffers, Direction, Forward,
    Pace, QosCaller, QosOptions, QosStream, Relayed, Reserve, SetupError, is_exhausted,
    is_of_one_connection,
};
use rustix::net::sockopt::set_socket_linger;
use serde_json::json;

use crate::access::{Destination, check_admission};
use crate::address::{Greeting, connect_in_turn, first_answering, resolve, resolve_all};
use crate::arguments::{Admission, At, BetweenGateways, FlowDirection, Gateway, Transport};
use crate::descriptors::raise_limit;
use crate::event_log::{EventLog, direction_name};
use crate::failure::Failure;
use crate::limited::Sentences;
use crate::quality::{failed, options};
use crate::signals::{stop_flag, unless_stopped};
use crate::transports::{MessageListener, QuicPeer};

/// Maximum number of simultaneous connections, if the limit of open files allows it.
const MAX_CONNECTIONS: usize = 512;

/// The same where each has a UDP socket and thread of its own: with reservations over QUIC, near the
/// client.
const MAX_WITH_SOCKETS: usize = 256;

/// Files that a connection has open at most: both streams, which may be closing while the next
/// connection has their place.
const FILES_PER_CONNECTION: u64 = 4;

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

/// Relays connections, which are numbered from 1.
#[derive(Clone)]
struct Relay {
    as_json: bool,
    all: Arc<Mutex<Relayed<Both>>>,
    /// Messages that strangers can cause.
    refused: Arc<Sentences>,
    exhausted: Arc<Sentences>,
}

/// Both streams of a connection.
#[derive(Clone)]
struct Both {
    tcp: Arc<TcpStream>,
    far: AnySocket,
}

impl Both {
    /// Ends all reading and writing of the threads that relay it.
    fn hang_up(&self) {
        // They may be closed already.
        let _ = self.tcp.shutdown(Shutdown::Both);
        self.far.hang_up();
    }

    /// As `hang_up`, and the program at the TCP connection sees that it was broken off, not its end.
    fn break_off(&self) {
        // It may be closed already.
        let _ = set_socket_linger(&*self.tcp, Some(Wall::ZERO));
        // No FIN: closing sends RST.
        let _ = self.tcp.shutdown(Shutdown::Read);
        self.far.hang_up();
    }
}

/// How many connections fit into this many open files.
fn max_connections(files: u64, have_sockets: bool) -> usize {
    let (most, each) = match have_sockets {
        // A driver's socket, and two files to wake it.
        true => (MAX_WITH_SOCKETS, 2 * FILES_PER_CONNECTION),
        false => (MAX_CONNECTIONS, FILES_PER_CONNECTION),
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
    let quality = options("gateway", &arguments.quality, Specification::default(), &asked)?;
    let have_sockets = arguments.over == BetweenGateways::Quic
        && arguments.to.is_some()
        && quality.reserve != Reserve::None;
    let max = max_connections(raise_limit(), have_sockets);
    let options = QosOptions {
        // TCP streams have no holes, whatever loss the specification permits.
        reliable: true,
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
    let work: Box<dyn FnOnce(Relay) -> io::Error + Send> = match (&arguments.to, &arguments.server)
    {
        (Some(to), _) => {
            let far = Arc::new(Far::read(to, arguments, options)?);
            let listener = listen_for_clients(arguments, &relay)?;
            Box::new(move |relay| near_clients(&listener, &far, &relay))
        }
        (None, Some(server)) => {
            let server = resolve(server, "--server ")?;
            let listener = listen_for_gateway(arguments, options, &relay)?;
            Box::new(move |relay| near_server(&listener, server, &relay))
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

/// Listens for programs of this host, or, with `--anyone`, for all.
fn listen_for_clients(arguments: &Gateway, relay: &Relay) -> Result<TcpListener, Failure> {
    let listen = arguments.listen.as_str();
    let at = resolve(listen, "--listen ")?;
    check_admission(at, arguments.anyone, "say --anyone")?;
    let environment =
        |error: io::Error| Failure::Environment(format!("--listen {listen}: {error}"));
    let listener = TcpListener::bind(at).map_err(environment)?;
    let local = listener.local_addr().map_err(environment)?;
    let text = format!("listening at {local}; Ctrl-C ends it");
    relay.log(None).write("listening", json!({ "local": local.to_string() }), &text)?;
    Ok(listener)
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
    listener.log_address(relay.log(None), "ontempo gateway --listen ... --to", *qr)?;
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
                relay.begin(remote, move || Ok((tcp, far.connect().map_err(io::Error::from)?)));
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

/// Relays connections of the other gateway to the server. Returns when accepting fails.
fn near_server(listener: &MessageListener, server: SocketAddr, relay: &Relay) -> io::Error {
    loop {
        match listener.accept_or_refuse() {
            Ok(Accepted::Connection(far, remote)) => {
                relay.begin(remote, move || {
                    Ok((TcpStream::connect_timeout(&server, CONNECT_TIMEOUT)?, far))
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
        connect: impl FnOnce() -> io::Result<(TcpStream, AnySocket)> + Send + 'static,
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
                relay.refused.say(&format!("{remote}: {error}"));
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
        connect: impl FnOnce() -> io::Result<(TcpStream, AnySocket)>,
    ) -> io::Result<()> {
        let (tcp, far) = connect()?;
        tcp.set_nodelay(true)?;
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
        let both = Both { tcp: Arc::new(tcp), far };
        self.lock().agreed(number, both.clone());
        let (of_back, activity_back) = (both.clone(), activity.clone());
        let back = thread::Builder::new().name("relay back".to_owned());
        let back = back.spawn(move || backward(&of_back, &activity_back))?;
        let there = forward(&both, activity);
        let back =
            back.join().unwrap_or_else(|_| Err(io::Error::other("the relay thread panicked")));
        if there.is_ok() && back.is_ok() {
            await_last_report(&both.far);
        }
        let _ = summary(log, &both.far);
        drop(both);
        self.end(number);
        // The thread ends with the connection.
        let _ = event_thread.join();
        there.and(back)
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

fn forward(both: &Both, activity: &Activity) -> io::Result<()> {
    let Both { tcp, far } = both;
    let most = match far {
        AnySocket::Quic(_) => QUIC_PIECE,
        _ => usize::MAX,
    };
    let mut pump = Forward::new(far.max_send_size().min(most));
    let mut pace = Pace::default();
    loop {
        // What comes meanwhile becomes one message, up to the agreed size.
        thread::sleep(pace.wait(Instant::now()));
        match pump.step(&**tcp, |message| far.send_message(message)) {
            Ok(true) => {
                let (now, agreed) = (Instant::now(), far.agreed(Direction::Sending));
                activity.note(now);
                pace.on_sent(now, agreed.max_rate.value.or(agreed.peak_rate.value));
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

fn backward(both: &Both, activity: &Activity) -> io::Result<()> {
    let Both { tcp, far } = both;
    let mut pump = Backward::default();
    loop {
        match pump.step(far, &**tcp) {
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
