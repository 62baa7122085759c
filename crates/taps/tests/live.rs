//! Both ends of connections over loopback: units over QUIC by the words of RFC 9622.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, spawn};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_taps::{
    Connection, ConnectionState, Direction, EstablishmentError, Event, Listener, LocalEndpoint,
    MessageProperties, Preconnection, Preference, RemoteEndpoint, SecurityParameters, SendError,
    TransportProperties,
};
use ontempo_transport::live::{Options, connect};
use ontempo_transport::{CloseReason, FlowConfig, Token, Trust};

const SOON: Wall = Wall::from_secs(10);
/// How long a connection's end waits for its peer's, at most.
const LINGER: Wall = Wall::from_secs(5);

fn listening(transport: &TransportProperties) -> Listener {
    let local = Some(LocalEndpoint { address: "127.0.0.1".to_owned(), port: 0 });
    let transport = transport.clone();
    Preconnection { local, transport, ..Default::default() }.listen().expect("it listens")
}

fn to(listener: &Listener, at: SocketAddr, transport: &TransportProperties) -> Preconnection {
    Preconnection {
        remote: Some(RemoteEndpoint { host: at.ip().to_string(), port: at.port() }),
        transport: transport.clone(),
        security: SecurityParameters {
            trust: Some(Trust::Fingerprint(listener.fingerprint())),
            token: Some(listener.token().to_vec()),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn pair(transport: &TransportProperties) -> (Connection, Connection) {
    let listener = listening(transport);
    let near = to(&listener, listener.local(), transport).initiate().expect("connected");
    (near, listener.accept().expect("accepted"))
}

fn closed(connections: &[&Connection]) {
    scope(|all| {
        for connection in connections {
            all.spawn(|| connection.close());
        }
    });
}

fn plain() -> MessageProperties {
    MessageProperties::default()
}

fn last() -> MessageProperties {
    MessageProperties { is_final: true, ..plain() }
}

fn received(connection: &Connection) -> Vec<u8> {
    let next = connection.receive_within(SOON).expect("soon");
    next.expect("it is open").expect("a message").data.to_vec()
}

#[test]
fn messages_go_both_ways_whole_and_in_order_until_the_final_one() {
    let (near, far) = pair(&TransportProperties::default());
    for n in 0..3_u8 {
        assert_eq!(near.send(vec![n; 5_000], &plain()).expect("sent"), u64::from(n));
    }
    assert_eq!(near.send(&b"last"[..], &last()).expect("sent"), 3);
    for n in 0..3_u8 {
        assert_eq!(received(&far), vec![n; 5_000]);
    }
    assert_eq!(received(&far), b"last");
    assert_eq!(far.receive_within(SOON).expect("soon"), Ok(None));
    assert!(!near.can_send() && far.can_send());
    let more = near.send(&b"more"[..], &plain());
    assert!(matches!(more, Err(SendError::NotSending)), "{more:?}");
    far.send(&b"answer"[..], &plain()).expect("sent");
    let answer = near.receive().expect("open").expect("a message");
    assert_eq!((&answer.data[..], answer.number), (&b"answer"[..], 0));
    closed(&[&near, &far]);
    assert_eq!(near.state(), ConnectionState::Closed);
}

#[test]
fn clones_of_both_sides_are_connections_of_one_group() {
    let (near, far) = pair(&TransportProperties::default());
    let ours = near.clone_connection().expect("open");
    let theirs = far.clone_connection().expect("open");
    assert_eq!((ours.number(), theirs.number()), (2, 1));
    ours.send(&b"ours"[..], &plain()).expect("sent");
    theirs.send(&b"theirs"[..], &plain()).expect("sent");
    let at_far = far.cloned().expect("it came");
    let at_near = near.cloned_within(SOON).expect("soon").expect("it came");
    assert_eq!((at_far.number(), at_near.number()), (2, 1));
    assert_eq!((received(&at_far), received(&at_near)), (b"ours".to_vec(), b"theirs".to_vec()));
    closed(&[&ours, &theirs, &at_far, &at_near]);
    assert_eq!(near.state(), ConnectionState::Established);
    far.send(&b"still"[..], &plain()).expect("the group goes on");
    assert_eq!(received(&near), b"still");
    closed(&[&near, &far]);
    assert_eq!(far.state(), ConnectionState::Closed);
    let late = near.clone_connection().err().expect("it is closed").to_string();
    assert!(late.contains("cloned"), "{late}");
}

#[test]
fn a_clone_outlives_the_connection_that_was_cloned() {
    let (near, far) = pair(&TransportProperties::default());
    let ours = near.clone_connection().expect("open");
    ours.send(&b"ours"[..], &plain()).expect("sent");
    // It is there when the other one comes.
    near.send(&b"other"[..], &plain()).expect("sent");
    assert_eq!(received(&far), b"other");
    std::thread::sleep(Wall::from_millis(100));
    closed(&[&near, &far]);
    let theirs = far.cloned().expect("it goes on");
    assert_eq!(received(&theirs), b"ours");
    closed(&[&ours, &theirs]);
    assert_eq!(theirs.state(), ConnectionState::Closed);
}

#[test]
fn what_a_peer_sends_late_to_a_clone_that_has_ended_is_dropped() {
    let (near, far) = pair(&TransportProperties::default());
    let ours = near.clone_connection().expect("open");
    ours.send(&b"ours"[..], &last()).expect("sent");
    drop(ours);
    let theirs = far.cloned_within(SOON).expect("soon").expect("it came");
    assert_eq!(received(&theirs), b"ours");
    theirs.send(&b"late"[..], &plain()).expect("sent");
    theirs.close();
    far.send(&b"still"[..], &plain()).expect("the group goes on");
    assert_eq!(received(&near), b"still");
    assert!(near.cloned_within(Wall::ZERO).is_none());
    // So, too, with the first connection, whose number is of neither side.
    let ours = near.clone_connection().expect("open");
    ours.send(&b"more"[..], &plain()).expect("sent");
    let theirs = far.cloned_within(SOON).expect("soon").expect("it came");
    drop(far);
    near.send(&b"late"[..], &last()).expect("sent");
    ours.send(&b"still"[..], &plain()).expect("the group goes on");
    assert_eq!((received(&theirs), received(&theirs)), (b"more".to_vec(), b"still".to_vec()));
    assert!(theirs.cloned_within(Wall::ZERO).is_none());
    closed(&[&near, &ours, &theirs]);
}

#[test]
fn a_message_whose_lifetime_has_passed_is_an_event() {
    let transport = TransportProperties { reliability: Preference::Prefer, ..Default::default() };
    let (near, far) = pair(&transport);
    near.send(&b"first"[..], &plain()).expect("sent");
    assert_eq!(received(&far), b"first");
    // Gone before it leaves: more than a window is sent at once.
    let brief = MessageProperties { msg_lifetime: Some(Duration::from_micros(1)), ..plain() };
    let number = near.send(vec![0; 2_000_000], &brief).expect("sent");
    let event = near.events().next_within(SOON);
    assert_eq!(event, Some(Event::Expired { number }));
}

#[test]
fn the_end_is_closed_and_an_abort_a_connection_error_with_its_reason() {
    let (near, far) = pair(&TransportProperties::default());
    near.abort("enough");
    let events: Vec<Event> = far.events().collect();
    let [Event::ConnectionError { reason }] = &events[..] else { panic!("{events:?}") };
    assert!(reason.contains("enough"), "{reason}");
    let aborted = far.receive().expect_err("it is over");
    assert!(aborted.to_string().contains("enough"), "{aborted}");
    assert_eq!(far.state(), ConnectionState::Closed);
    assert!(far.cloned().is_none());
    let (near, far) = pair(&TransportProperties::default());
    closed(&[&near, &far]);
    assert_eq!(near.events().collect::<Vec<_>>(), [Event::Closed]);
}

#[test]
fn one_that_only_receives_sends_nothing_and_both_ends_close() {
    let one_way = |direction| TransportProperties { direction, ..Default::default() };
    let listener = listening(&one_way(Direction::UnidirectionalReceive));
    let sending = to(&listener, listener.local(), &one_way(Direction::UnidirectionalSend));
    let near = sending.initiate_with_send(&b"hello"[..], &plain()).expect("connected");
    let far = listener.accept().expect("accepted");
    assert!(!near.can_receive() && near.can_send() && !far.can_send() && far.can_receive());
    assert_eq!(received(&far), b"hello");
    let refused = far.send(&b"no"[..], &plain());
    assert!(matches!(refused, Err(SendError::NotSending)), "{refused:?}");
    // The end of a clone waits for nothing that only the end of the group brings.
    let ours = near.clone_connection().expect("open");
    ours.send(&b"ours"[..], &plain()).expect("sent");
    let theirs = far.cloned_within(SOON).expect("soon").expect("it came");
    assert_eq!(received(&theirs), b"ours");
    let begun = Instant::now();
    closed(&[&ours, &theirs]);
    assert!(begun.elapsed() < LINGER);
    assert_eq!(near.state(), ConnectionState::Established);
    let begun = Instant::now();
    closed(&[&near, &far]);
    assert!(begun.elapsed() < SOON);
    assert_eq!(far.state(), ConnectionState::Closed);
    // One whose first message cannot be sent is none.
    let brief = MessageProperties { msg_lifetime: Some(Duration::from_secs(1)), ..plain() };
    let refused = sending.initiate_with_send(&b"?"[..], &brief).err();
    assert!(matches!(refused, Some(EstablishmentError::FirstMessage(_))));
    let far = listener.accept().expect("accepted");
    assert!(matches!(far.events().next(), Some(Event::ConnectionError { .. })));
}

#[test]
fn who_is_not_admitted_or_not_there_is_an_establishment_error() {
    let transport = TransportProperties::default();
    let listener = listening(&transport);
    let mut wrong = to(&listener, listener.local(), &transport);
    wrong.security.token = Some(b"no".to_vec());
    let error = wrong.initiate().err().expect("refused");
    assert!(error.to_string().contains("token"), "{error}");
    let taken = Preconnection {
        local: Some(LocalEndpoint {
            address: "127.0.0.1".to_owned(),
            port: listener.local().port(),
        }),
        ..Default::default()
    };
    assert!(matches!(taken.listen().err(), Some(EstablishmentError::Live(_))));
    let mut nobody = to(&listener, listener.local(), &transport);
    nobody.remote = Some(RemoteEndpoint { host: "no.such.host.invalid".to_owned(), port: 1 });
    assert!(matches!(nobody.initiate().err(), Some(EstablishmentError::Name { .. })));
    let error = Preconnection::default().initiate().err().expect("nobody to reach");
    assert!(error.to_string().starts_with("remote"), "{error}");
    wrong.security.trust = None;
    let error = wrong.initiate().err().expect("nobody to trust");
    assert!(error.to_string().starts_with("security.trust"), "{error}");
}

#[test]
fn a_listener_that_is_stopped_ends_who_waits_and_keeps_its_connections() {
    let transport = TransportProperties::default();
    let listener = Arc::new(listening(&transport));
    let near = to(&listener, listener.local(), &transport).initiate().expect("connected");
    let far = listener.incoming().next().expect("accepted");
    let waiting = Arc::clone(&listener);
    let stopped = spawn(move || waiting.accept().is_none());
    assert!(listener.accept_within(Wall::ZERO).is_none());
    listener.stop();
    assert!(stopped.join().expect("it ends"));
    assert!(listener.incoming().next().is_none());
    near.send(&b"still"[..], &plain()).expect("sent");
    assert_eq!(received(&far), b"still");
}

#[test]
fn a_peer_whose_flows_are_none_of_ours_is_refused() {
    let listener = listening(&TransportProperties::default());
    let trust = Trust::Fingerprint(listener.fingerprint());
    for label in ["video", "taps 1", "taps -2", "taps ²"] {
        let token = Token::new(listener.token()).expect("a token");
        let options = Options::default();
        let carrier = connect(listener.local(), "localhost", &trust, token, &options);
        let carrier = carrier.expect("connected");
        let far = listener.accept().expect("accepted");
        let config = FlowConfig { label: label.to_owned(), ..Default::default() };
        let flow = carrier.open_flow(config).expect("opened");
        flow.send(bytes::Bytes::from_static(b"?")).expect("sent");
        let aborted = far.receive().expect_err("no flow of ours");
        assert!(aborted.to_string().contains("closed by this side"), "{label}: {aborted}");
        let closed = carrier.closed(SOON).expect("closed");
        assert_eq!(closed.reason, CloseReason::ProtocolViolation, "{label}");
    }
}

/// Passes datagrams on, from another socket once `moved` is set: a peer behind a NAT that forgets.
fn forwarder(target: SocketAddr, moved: Arc<AtomicBool>) -> SocketAddr {
    let outside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = outside.local_addr().expect("an address");
    let brief = Some(Wall::from_millis(1));
    outside.set_read_timeout(brief).expect("a limit");
    let bound = move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(brief).expect("a limit");
        socket
    };
    spawn(move || {
        let (mut inside, mut client, mut has_moved) = (bound(), None, false);
        let mut datagram = vec![0; 65_536];
        let end = Instant::now() + 3 * SOON;
        while Instant::now() < end {
            if moved.load(Ordering::Relaxed) && !has_moved {
                (inside, has_moved) = (bound(), true);
            }
            if let Ok((length, from)) = outside.recv_from(&mut datagram) {
                client = Some(from);
                let _ = inside.send_to(&datagram[..length], target);
            }
            if let (Ok(length), Some(client)) = (inside.recv(&mut datagram), client) {
                let _ = outside.send_to(&datagram[..length], client);
            }
        }
    });
    address
}

#[test]
fn a_peer_that_moves_is_a_change_of_path() {
    let transport = TransportProperties::default();
    let listener = listening(&transport);
    let moved = Arc::new(AtomicBool::new(false));
    let through = forwarder(listener.local(), Arc::clone(&moved));
    let near = to(&listener, through, &transport).initiate().expect("connected");
    let far = listener.accept().expect("accepted");
    near.send(&b"before"[..], &plain()).expect("sent");
    assert_eq!(received(&far), b"before");
    let before = far.remote();
    let mut events = far.events();
    moved.store(true, Ordering::Relaxed);
    near.send(&b"after"[..], &plain()).expect("sent");
    assert_eq!(received(&far), b"after");
    match events.next_within(SOON) {
        Some(Event::PathChange { remote }) => assert_ne!(remote, before),
        other => panic!("{other:?}"),
    }
}
