//! The load of `make bench-relay` in small, over real sockets.

#[path = "../benches/relay/load.rs"]
mod load;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration as Wall, Instant};

use load::{Load, Target};
use ontempo_relay::{Relay, RelayDriver, RelayOptions, configuration};
use ontempo_transport::{Endpoint, Identity, Token, Trust};
use ontempo_udp::{Clock, Driver, DriverOptions, Socket, SocketOptions};

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

#[test]
fn every_viewer_of_the_load_is_served_and_every_frame_counted_once() {
    let options = RelayOptions {
        viewers: VIEWERS,
        viewers_of_host: VIEWERS,
        has_viewers_token: true,
        ..RelayOptions::default()
    };
    let identity = Identity::self_signed(&["relay"]).expect("an identity");
    let mut endpoint = Endpoint::new(configuration(&options), [1; 32]);
    endpoint.listen(&identity, token(b"publish")).expect("it listens");
    endpoint.admit(token(b"view"));
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Socket::bind(at, SocketOptions::default()).expect("a socket");
    let address = socket.local_address().expect("an address");
    let protocol = RelayDriver::new(endpoint, Relay::new(options, 1));
    let relay = Driver::spawn(socket, protocol, Clock::new(), DriverOptions::default());
    let relay = relay.expect("a thread");
    let load = Load::start(
        VIEWERS,
        true,
        Target {
            address,
            trust: Trust::Fingerprint(identity.fingerprint()),
            source: token(b"publish"),
            viewer: token(b"view"),
        },
    );
    wait_until("all are connected", || load.figures().open == VIEWERS);
    // Nothing counts before the measurement.
    assert_eq!((load.figures().arrived, load.figures().frames), (0, 0));
    load.begin();
    sleep(Wall::from_secs(3));
    load.end();
    // What is late has come, too.
    sleep(Wall::from_secs(1));
    let figures = load.figures();
    let all = figures.frames * VIEWERS as u64;
    assert_eq!((figures.open, figures.closed, &figures.reason), (VIEWERS, 0, &None));
    assert!(figures.frames > 0 && figures.arrived > 0, "{figures:?}");
    assert!(figures.in_time <= figures.arrived && figures.arrived <= all, "{figures:?}");
    assert_eq!(figures.delays.len() as u64, figures.arrived);
    let least = (figures.frames as f64 * load::SERVED).ceil() as u64;
    assert!(figures.in_time >= least * figures.served as u64, "{figures:?}");
    assert!(load.carried().received >= figures.arrived);
    drop(relay);
}
