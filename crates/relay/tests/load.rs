//! The load of `make bench-relay` in small, over real sockets, to a relay on one thread and on several.

#[path = "../benches/relay/load.rs"]
mod load;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration as Wall, Instant};

use load::{Figures, Load, Target};
use ontempo_relay::{Access, RelayOptions, RelayThreads, configuration, endpoints};
use ontempo_transport::{Identity, Token, Trust};
use ontempo_udp::{Socket, SocketOptions, random};

const VIEWERS: usize = 8;

fn token(text: &[u8]) -> Token {
    Token::new(text).expect("short")
}

/// Calls `is_so` until it is true, for a minute at most.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Wall::from_secs(60), "{what}: not within a minute");
        sleep(Wall::from_millis(20));
    }
}

fn seed() -> [u8; 32] {
    std::array::from_fn(|_| random() as u8)
}

/// A relay at a free port, and its clients' access.
fn relay(threads: u8, of_socket: SocketOptions) -> (RelayThreads, Target) {
    let options = RelayOptions {
        viewers: VIEWERS,
        viewers_of_host: VIEWERS,
        has_viewers_token: true,
        threads: NonZeroU8::new(threads).expect("some"),
        ..RelayOptions::default()
    };
    let identity = Identity::self_signed(&["relay"]).expect("an identity");
    let (source, viewer) = (token(b"publish"), token(b"view"));
    let access =
        Access { identity: &identity, sources: source.clone(), viewers: Some(viewer.clone()) };
    let endpoints = endpoints(&configuration(&options), &access, &options, seed);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Socket::bind(at, of_socket).expect("a socket");
    let address = socket.local_address().expect("an address");
    let endpoints = endpoints.expect("they listen");
    let relay = RelayThreads::start(socket, of_socket, endpoints, (options, 1));
    let trust = Trust::Fingerprint(identity.fingerprint());
    (relay.expect("threads"), Target { address, trust, source, viewer })
}

/// What comes to all viewers of a relay in a second, then `meanwhile`, and for `rest` after it.
fn measured(target: Target, rest: Wall, meanwhile: impl FnOnce()) -> Figures {
    let load = Load::start(VIEWERS, true, target);
    wait_until("all are connected", || load.figures().open == VIEWERS);
    // Nothing counts before the measurement.
    assert_eq!((load.figures().arrived, load.figures().frames), (0, 0));
    load.begin();
    sleep(Wall::from_secs(1));
    meanwhile();
    sleep(rest);
    load.end();
    // What is late has come, too.
    sleep(Wall::from_secs(1));
    let figures = load.figures();
    assert!(load.carried().received >= figures.arrived);
    figures
}

/// All viewers are connected until the end, and what has come to them has come once.
fn are_whole(figures: &Figures) {
    let all = figures.frames * VIEWERS as u64;
    assert_eq!((figures.open, figures.closed, &figures.reason), (VIEWERS, 0, &None));
    assert!(figures.frames > 0 && figures.arrived > 0, "{figures:?}");
    assert!(figures.in_time <= figures.arrived && figures.arrived <= all, "{figures:?}");
    assert_eq!(figures.delays.len() as u64, figures.arrived);
    let least = (figures.frames as f64 * load::SERVED).ceil() as u64;
    assert!(figures.in_time >= least * figures.served as u64, "{figures:?}");
}

#[test]
fn every_viewer_of_the_load_is_served_and_every_frame_counted_once() {
    for threads in [1, 2, 5] {
        let (relay, target) = relay(threads, SocketOptions::default());
        are_whole(&measured(target, Wall::from_secs(2), || {}));
        let (figures, _) = relay.report().expect("it runs");
        assert_eq!((figures.viewers, figures.streams.len()), (VIEWERS as u64, 1));
        assert_eq!(figures.streams[0].viewers.count, VIEWERS as u64);
        relay.end().expect("it ends");
    }
}

#[test]
fn threads_hand_over_what_the_kernel_gives_to_the_wrong_one() {
    // It spreads by addresses and ports, of which all clients here have the same: one thread receives all.
    let of_socket = SocketOptions { plain: true, ..SocketOptions::default() };
    let (relay, target) = relay(2, of_socket);
    are_whole(&measured(target, Wall::from_secs(2), || {}));
    relay.end().expect("it ends");
}

/// Forwards between clients at one address and the relay, as a NAT.
struct Nat {
    address: SocketAddr,
    inside: Arc<UdpSocket>,
    outside: Arc<Mutex<Arc<UdpSocket>>>,
    client: Arc<Mutex<Option<SocketAddr>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_read_timeout(Some(Wall::from_millis(50))).expect("a timeout");
    socket
}

impl Nat {
    fn start(relay: SocketAddr) -> Self {
        let inside = Arc::new(socket());
        let address = inside.local_addr().expect("an address");
        let mut nat = Self {
            address,
            inside,
            outside: Arc::new(Mutex::new(Arc::new(socket()))),
            client: Arc::default(),
            is_over: Arc::default(),
            threads: Vec::new(),
        };
        let (inside, outside) = (nat.inside.clone(), nat.outside.clone());
        let (client, is_over) = (nat.client.clone(), nat.is_over.clone());
        nat.threads.push(spawn(move || {
            let mut room = [0; 65_535];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((size, from)) = inside.recv_from(&mut room) else { continue };
                *client.lock().expect("no panic") = Some(from);
                let outside = outside.lock().expect("no panic").clone();
                let _ = outside.send_to(&room[..size], relay);
            }
        }));
        nat.answer();
        nat
    }

    /// Forwards what comes to the present socket outside.
    fn answer(&mut self) {
        let outside = self.outside.lock().expect("no panic").clone();
        let (inside, client) = (self.inside.clone(), self.client.clone());
        let is_over = self.is_over.clone();
        self.threads.push(spawn(move || {
            let mut room = [0; 65_535];
            while !is_over.load(Ordering::Relaxed) {
                let Ok(size) = outside.recv(&mut room) else { continue };
                let client = *client.lock().expect("no panic");
                let _ = client.map(|client| inside.send_to(&room[..size], client));
            }
        }));
    }

    /// From now on the clients have another address.
    fn rebind(&mut self) {
        *self.outside.lock().expect("no panic") = Arc::new(socket());
        self.answer();
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[test]
fn clients_whose_address_changes_stay_with_their_threads() {
    for plain in [false, true] {
        let (relay, target) = relay(2, SocketOptions { plain, ..SocketOptions::default() });
        let mut nat = Nat::start(target.address);
        // A client to which nothing comes closes after 4 s.
        let rest = Wall::from_secs(7);
        let figures = measured(Target { address: nat.address, ..target }, rest, || nat.rebind());
        are_whole(&figures);
        assert_eq!(relay.report().expect("it runs").0.viewers, VIEWERS as u64);
        relay.end().expect("it ends");
    }
}
