//! Both ends of QoS sockets over loopback, over each protocol that the properties select.

use std::thread::spawn;

use ontempo_foundation::{Bytes, Duration, Percent};
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{Direction, QosOptions};
use ontempo_taps::qos::{Connection, Preconnection, Protocol};
use ontempo_taps::{
    EstablishmentError, LocalEndpoint, MessageProperties, Preference, RemoteEndpoint,
    SecurityParameters, SendError, TransportProperties,
};
use ontempo_transport::Trust;

fn plain() -> MessageProperties {
    MessageProperties::default()
}

/// Both ends, over what `wanted` selects.
fn pair(wanted: &Preconnection) -> (Connection, Connection) {
    let local = Some(LocalEndpoint { address: "127.0.0.1".to_owned(), port: 0 });
    let listener = Preconnection { local, ..wanted.clone() }.listen().expect("it listens");
    assert_eq!(listener.protocol(), wanted.protocol().expect("one"));
    let port = listener.local().expect("bound").port();
    let mut near = Preconnection {
        remote: Some(RemoteEndpoint { host: "127.0.0.1".to_owned(), port }),
        ..wanted.clone()
    };
    if let Some(fingerprint) = listener.fingerprint() {
        near.security.trust = Some(Trust::Fingerprint(fingerprint));
        near.security.token = Some(listener.token().to_vec());
    }
    let accepting = spawn(move || listener.accept().expect("accepted"));
    let near = near.initiate().expect("connected");
    (near, accepting.join().expect("accepted"))
}

fn disabled() -> SecurityParameters {
    SecurityParameters { disabled: true, ..Default::default() }
}

/// Messages in both directions; those of the socket that differ in nothing else.
fn exchange(near: &Connection, far: &Connection) {
    for (from, to) in [(near, far), (far, near)] {
        for n in 0..3_u8 {
            from.send(&[n; 700], &plain()).expect("sent");
        }
        for n in 0..3_u8 {
            let message = to.receive().expect("open").expect("a message");
            assert_eq!((message.data, message.number), (vec![n; 700], u64::from(n)));
        }
    }
}

/// The final message of `near` ends what it sends; then both close in order.
fn ends_in_order(near: Connection, far: Connection) {
    let last = MessageProperties { is_final: true, ..plain() };
    near.send(b"last", &last).expect("sent");
    assert!(!near.can_send() && far.can_send());
    assert!(matches!(near.send(b"more", &plain()), Err(SendError::NotSending)));
    assert_eq!(far.receive().expect("open").expect("a message").data, b"last");
    assert_eq!(far.receive().expect("open"), None);
    let closing = spawn(move || near.close());
    far.close().expect("closed");
    closing.join().expect("it ends").expect("closed");
}

fn refused(connection: &Connection, properties: &MessageProperties) -> &'static str {
    match connection.send(b"?", properties) {
        Err(SendError::Property(error)) => error.property(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reliability_without_security_is_tcp() {
    let (near, far) = pair(&Preconnection { security: disabled(), ..Default::default() });
    assert_eq!((near.protocol(), far.protocol()), (Protocol::Tcp, Protocol::Tcp));
    exchange(&near, &far);
    assert_eq!(near.remote(), far.local());
    let brief = MessageProperties { msg_lifetime: Some(Duration::from_secs(1)), ..plain() };
    assert_eq!(refused(&near, &brief), "msg_lifetime");
    let urgent = MessageProperties { msg_priority: 1, ..plain() };
    assert_eq!(refused(&near, &urgent), "msg_priority");
    let behind = MessageProperties { depends_on: vec![0], ..plain() };
    assert_eq!(refused(&near, &behind), "depends_on");
    let loose = MessageProperties { msg_ordered: Some(false), ..plain() };
    assert_eq!(refused(&near, &loose), "msg_ordered");
    assert_eq!(near.clone_connection().err().expect("one connection").property(), "clone");
    ends_in_order(near, far);
}

#[test]
fn neither_reliability_nor_security_is_udp() {
    let transport = TransportProperties {
        reliability: Preference::Avoid,
        congestion_control: Preference::NoPreference,
        ..Default::default()
    };
    let (near, far) =
        pair(&Preconnection { transport, security: disabled(), ..Default::default() });
    assert_eq!((near.protocol(), far.protocol()), (Protocol::Udp, Protocol::Udp));
    exchange(&near, &far);
    let sure = MessageProperties { msg_reliable: Some(true), ..plain() };
    assert_eq!(refused(&near, &sure), "msg_reliable");
    let last = MessageProperties { is_final: true, ..plain() };
    assert_eq!(refused(&near, &last), "is_final");
    near.abort();
    assert_eq!(far.receive().expect("told"), None);
}

#[test]
fn security_is_quic_and_its_reliability_that_of_the_property_or_the_specification() {
    let specification = Specification {
        size: Term::firm(Bytes::new(1_000)),
        loss: Term::firm(Percent::new(5)),
        max_delay: Term::firm(Duration::from_secs(5)),
        ..Default::default()
    };
    let options = QosOptions::both(specification);
    let mut wanted = Preconnection { options, ..Default::default() };
    let sure = MessageProperties { msg_reliable: Some(true), ..plain() };
    let (near, far) = pair(&wanted);
    assert_eq!((near.protocol(), far.protocol()), (Protocol::Quic, Protocol::Quic));
    exchange(&near, &far);
    near.send(b"sure", &sure).expect("all messages are");
    assert_eq!(far.receive().expect("open").expect("a message").data, b"sure");
    // What was agreed binds, and is there to be read.
    assert_eq!(near.socket().agreed(Direction::Sending).size.value, Some(Bytes::new(1_000)));
    assert!(matches!(near.send(&[0; 2_000], &plain()), Err(SendError::Qos(_))));
    ends_in_order(near, far);
    wanted.transport.reliability = Preference::Prefer;
    let (near, far) = pair(&wanted);
    exchange(&near, &far);
    assert_eq!(refused(&near, &sure), "msg_reliable");
    ends_in_order(near, far);
}

#[test]
fn order_that_does_not_matter_is_agreed_as_permutable() {
    let transport =
        TransportProperties { preserve_order: Preference::NoPreference, ..Default::default() };
    let (near, far) = pair(&Preconnection { transport, ..Default::default() });
    for end in [&near, &far] {
        assert_eq!(end.socket().agreed(Direction::Sending).permutable.value, Some(true));
    }
    near.send(b"loose", &MessageProperties { msg_ordered: Some(false), ..plain() }).expect("sent");
    let ordered = MessageProperties { msg_ordered: Some(true), ..plain() };
    assert_eq!(refused(&near, &ordered), "msg_ordered");
    assert_eq!(far.receive().expect("open").expect("a message").data, b"loose");
}

#[test]
fn what_cannot_be_established_is_refused_by_its_name() {
    let name = |one: Preconnection| match one.initiate().err() {
        Some(EstablishmentError::Property(error)) => error.property(),
        other => panic!("{other:?}"),
    };
    let transport =
        TransportProperties { multistreaming: Preference::Require, ..Default::default() };
    assert_eq!(name(Preconnection { transport, ..Default::default() }), "multistreaming");
    let local = Some(LocalEndpoint::default());
    assert_eq!(name(Preconnection { local, ..Default::default() }), "local");
    let one = Preconnection::default();
    match one.rendezvous().err() {
        Some(EstablishmentError::Property(error)) => assert_eq!(error.property(), "rendezvous"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(one.initiate().err(), Some(EstablishmentError::Missing(_))));
    let remote = Some(RemoteEndpoint { host: "127.0.0.1".to_owned(), port: 1 });
    let secure = Preconnection { remote: remote.clone(), ..Default::default() };
    let error = secure.initiate().err().expect("nobody to trust");
    assert!(error.to_string().starts_with("security.trust"), "{error}");
    let plain = Preconnection { remote, security: disabled(), ..Default::default() };
    assert!(matches!(plain.initiate().err(), Some(EstablishmentError::Qos(_))));
}
