//! `ontempo gateway`: relays TCP connections over QoS sockets, as the paper's DIRM does.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_mechanisms::qos::Specification;
use ontempo_qos::{
    ACCEPT_BACK_OFF, Accepted, Activity, Backward, Begun, Direction, Forward, QosListener,
    QosOptions, QosStream, Relayed, is_exhausted, is_of_one_connection,
};
use serde_json::json;

use crate::access::check_admission;
use crate::address::resolve;
use crate::arguments::{FlowDirection, Gateway};
use crate::descriptors::raise_limit;
use crate::event_log::{EventLog, direction_name};
use crate::failure::Failure;
use crate::limited::Sentences;
use crate::quality::{failed, options};
use crate::signals::{stop_flag, unless_stopped};

/// Maximum number of simultaneous connections, if the limit of open files allows it.
const MAX_CONNECTIONS: usize = 512;

/// Files that a connection has open at most: both streams, which may be closing while the next
/// connection has their place.
const FILES_PER_CONNECTION: u64 = 4;

/// How long a connection to the server may take.
const CONNECT_TIMEOUT: Wall = Wall::from_secs(10);

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
    far: QosStream,
}

impl Both {
    /// Ends all reading and writing of the threads that relay it.
    fn hang_up(&self) {
        // They may be closed already.
        let _ = self.tcp.shutdown(Shutdown::Both);
        let _ = self.far.shutdown(Shutdown::Both);
    }
}

/// How many connections fit into this many open files.
fn max_connections(files: u64) -> usize {
    let fitting = files.saturating_sub(OTHER_FILES) / FILES_PER_CONNECTION;
    MAX_CONNECTIONS.min(usize::try_from(fitting).unwrap_or(usize::MAX)).max(1)
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
    let options = options("gateway", &arguments.quality, Specification::default(), &asked)?;
    let at = resolve(listen, "--listen ")?;
    let named = format!("--listen {listen}");
    let environment = |error: io::Error| Failure::Environment(format!("{named}: {error}"));
    check_admission(at, arguments.anyone, "say --anyone")?;
    let relay = Relay {
        as_json: arguments.json,
        all: Arc::new(Mutex::new(Relayed::new(max_connections(raise_limit())))),
        refused: Arc::new(Sentences::about("refusals")),
        exhausted: Arc::new(Sentences::about("missing descriptors")),
    };
    let stopped = stop_flag()?;
    let (local, work): (SocketAddr, Box<dyn FnOnce(Relay) -> io::Error + Send>) =
        match (&arguments.to, &arguments.server) {
            (Some(to), _) => {
                let to = resolve(to, "--to ")?;
                let listener = TcpListener::bind(at).map_err(environment)?;
                let local = listener.local_addr().map_err(environment)?;
                (local, Box::new(move |relay| near_clients(&listener, to, &options, &relay)))
            }
            (None, Some(server)) => {
                let server = resolve(server, "--server ")?;
                let listener = QosListener::bind(at, options).map_err(failed(&named))?;
                let local = listener.local_address().map_err(environment)?;
                (local, Box::new(move |relay| near_server(&listener, server, &relay)))
            }
            // The parser requires one of them.
            (None, None) => return Err(Failure::Input("--to or --server is needed".to_owned())),
        };
    let text = format!("listening at {local}; Ctrl-C ends it");
    relay.log(None).write("listening", json!({ "local": local.to_string() }), &text)?;
    let worker_relay = relay.clone();
    let failed = unless_stopped(&stopped, move || work(worker_relay));
    relay.summaries()?;
    failed.map_or(Ok(()), |error| Err(environment(error)))
}

/// Relays TCP clients to the other gateway. Returns when accepting fails.
fn near_clients(
    listener: &TcpListener,
    to: SocketAddr,
    options: &QosOptions,
    relay: &Relay,
) -> io::Error {
    loop {
        match listener.accept() {
            Ok((tcp, remote)) => {
                let options = options.clone();
                relay.begin(remote, move || {
                    Ok((tcp, QosStream::connect(to, &options).map_err(io::Error::from)?))
                });
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
fn near_server(listener: &QosListener, server: SocketAddr, relay: &Relay) -> io::Error {
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
        connect: impl FnOnce() -> io::Result<(TcpStream, QosStream)> + Send + 'static,
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
        connect: impl FnOnce() -> io::Result<(TcpStream, QosStream)>,
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

/// Writes the delivery statistics of both directions.
fn summary(log: EventLog, far: &QosStream) -> Result<(), Failure> {
    [Direction::Sending, Direction::Receiving].into_iter().try_for_each(|of| {
        log.summary(&far.delivery(of), json!({ "direction": direction_name(of) }))
    })
}

fn forward(Both { tcp, far }: &Both, activity: &Activity) -> io::Result<()> {
    let mut pump = Forward::new(far.max_send_size());
    let result = loop {
        match pump.step(&**tcp, |message| far.send_message(message)) {
            Ok(true) => activity.note(Instant::now()),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // The peer may have closed already.
    let _ = far.shutdown(Shutdown::Write);
    result
}

fn backward(Both { tcp, far }: &Both, activity: &Activity) -> io::Result<()> {
    let mut pump = Backward::default();
    let result = loop {
        match pump.step(far, &**tcp) {
            Ok(true) => activity.note(Instant::now()),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = tcp.shutdown(Shutdown::Write);
    result
}
