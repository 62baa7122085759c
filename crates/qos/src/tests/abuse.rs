//! Who else may be at the other end: garbage, floods, absurd lengths, silence, other versions.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use super::super::wire::{self, Header, Kind, Offer, Setup};
use super::*;
use crate::listener::Accepted;

fn options() -> QosOptions {
    QosOptions { patience: Wall::from_millis(600), ..QosOptions::default() }
}

fn hello(session: u64) -> Vec<u8> {
    Setup::Hello { session, cookie: [0; 16], sent: 0, offer: Offer::default() }.to_bytes()
}

#[test]
fn those_who_say_nothing_or_nonsense_do_not_hold_up_a_listener() {
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let began = Instant::now();
    let accepting = thread::spawn(move || listener.accept().unwrap());
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(to).unwrap()).collect();
    let mut nonsense = TcpStream::connect(to).unwrap();
    nonsense.write_all(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n").unwrap();
    let mut half = TcpStream::connect(to).unwrap();
    half.write_all(&hello(1)[..40]).unwrap();
    let mut absurd = TcpStream::connect(to).unwrap();
    absurd.write_all(b"OnQS\x01\x01\xff\xff").unwrap();
    let connecting = thread::spawn(move || QosStream::connect(to, &QosOptions::default()).unwrap());
    let (far, _) = accepting.join().unwrap();
    assert!(began.elapsed() < Wall::from_secs(3), "{:?}", began.elapsed());
    let near = connecting.join().unwrap();
    near.send_message(b"here").unwrap();
    assert_eq!(far.receive_message(&mut [0; 10]).unwrap().unwrap().length, 4);
    for mut dropped in [nonsense, absurd] {
        dropped.set_read_timeout(Some(Wall::from_secs(5))).unwrap();
        let end = dropped.read(&mut [0; 10]);
        assert!(!matches!(end, Ok(1..)), "it was answered");
    }
    drop(silent);
}

#[test]
fn another_version_is_told_and_refused() {
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let mut other = TcpStream::connect(to).unwrap();
    let mut bytes = hello(1);
    bytes[4] = 9;
    other.write_all(&bytes).unwrap();
    let Accepted::Refused(_, why) = listener.accept_or_refuse().unwrap() else { panic!("agreed") };
    let text = "the other end speaks version 9 of QoSockets, this is 1";
    assert_eq!(why.to_string(), text);
    let mut answer = vec![0; wire::MAX_SETUP];
    let got = other.read(&mut answer).unwrap();
    assert!(matches!(
        Setup::read(&answer[..got]),
        Ok(Setup::Refuse { reason: wire::Reason::Version, .. })
    ));
}

/// A server that does with its first client what a test wants.
fn server(act: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || act(listener.accept().unwrap().0));
    at
}

#[test]
fn a_client_learns_that_the_other_end_is_none() {
    let web = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = QosStream::connect(web, &options()).unwrap_err().to_string();
    assert_eq!(error, "the other end does not speak QoSockets");
    let silent = server(|stream| {
        thread::sleep(Wall::from_secs(3));
        drop(stream);
    });
    let began = Instant::now();
    let error = QosStream::connect(silent, &options()).unwrap_err();
    assert_eq!(error.to_string(), "the other end did not answer the set-up in time");
    assert!(began.elapsed() < Wall::from_secs(2));
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::TimedOut);
    let slow = server(|mut stream| {
        for byte in hello(1) {
            let _ = stream.write_all(&[byte]);
            thread::sleep(Wall::from_millis(50));
        }
    });
    let began = Instant::now();
    assert!(QosStream::connect(slow, &options()).is_err());
    assert!(began.elapsed() < Wall::from_secs(2), "a trickle lengthens the set-up");
    let newer = server(|mut stream| {
        let _ = stream.read(&mut [0; 500]);
        let _ = stream.write_all(b"OnQS\x02\x03\x00\x00");
    });
    let error = QosStream::connect(newer, &options()).unwrap_err().to_string();
    assert_eq!(error, "the other end speaks version 2 of QoSockets, this is 1");
}

/// A connection over TCP whose other end is this test.
fn raw(options: QosOptions) -> (QosStream, TcpStream) {
    let listener = QosListener::bind("127.0.0.1:0", options).unwrap();
    let to = listener.local_address().unwrap();
    let mut raw = TcpStream::connect(to).unwrap();
    raw.write_all(&hello(5)).unwrap();
    let (far, _) = listener.accept().unwrap();
    let mut answer = vec![0; wire::MAX_SETUP];
    raw.read_exact(&mut answer).unwrap();
    assert!(matches!(Setup::read(&answer), Ok(Setup::Accept { session: 5, .. })));
    (far, raw)
}

#[test]
fn a_length_above_what_was_agreed_ends_a_stream() {
    let (far, mut raw) = raw(QosOptions::receiving(video()));
    let header = Header { kind: Kind::Data, length: 1_281, sequence: 0, sent: 0 };
    raw.write_all(&header.to_tcp()).unwrap();
    let error = far.receive_message(&mut [0; 2_000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(error.to_string(), "a damaged message of QoSockets");
    assert!(far.receive_message(&mut [0; 2_000]).is_err());
}

#[test]
fn an_unknown_kind_a_wrong_length_and_an_early_end_are_errors() {
    for bytes in [&[9; 16][..], &[1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let (far, mut raw) = raw(QosOptions::default());
        raw.write_all(bytes).unwrap();
        let error = far.receive_message(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
    let (far, mut raw) = raw(QosOptions::default());
    raw.write_all(&[0, 0, 0, 9, 0, 0]).unwrap();
    drop(raw);
    let error = far.receive_message(&mut [0; 10]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
}

#[test]
fn a_flood_of_what_an_end_tells_of_itself_leaves_the_messages() {
    let (far, mut raw) = raw(QosOptions::default());
    let status = wire::Status { sent_messages: u64::MAX, ..wire::Status::default() };
    let body = status.to_bytes();
    let header = Header { kind: Kind::Status, length: body.len(), sequence: 0, sent: u64::MAX };
    let one = [header.to_tcp().to_vec(), body].concat();
    let data = Header { kind: Kind::Data, length: 3, sequence: 0, sent: 0 };
    raw.set_write_timeout(Some(Wall::from_secs(10))).unwrap();
    let reading = thread::spawn(move || far.receive_message(&mut [0; 10]).map(|got| (got, far)));
    for _ in 0..20_000 {
        // Nobody reads the answers: that must not hold up the reader.
        raw.write_all(&one).unwrap();
    }
    raw.write_all(&data.to_tcp()).unwrap();
    raw.write_all(b"end").unwrap();
    let (message, far) = reading.join().unwrap().unwrap();
    assert_eq!(message.unwrap().length, 3);
    assert_eq!(far.delivery(Direction::Receiving).lost_messages, 0);
}

#[test]
fn nobody_is_made_to_send_to_a_victim() {
    let listener = QosSocket::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address();
    let accepting = thread::spawn(move || listener.accept().map(|_| ()));
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim.set_read_timeout(Some(Wall::from_millis(700))).unwrap();
    let forged = hello(3);
    victim.send_to(&forged, to).unwrap();
    let mut room = [0; 1_000];
    let got = victim.recv(&mut room).unwrap();
    assert!(got < forged.len(), "{got} bytes answer {}", forged.len());
    let Ok(Setup::Challenge { session: 3, cookie }) = Setup::read(&room[..got]) else {
        panic!("no challenge");
    };
    // Nothing more comes, and the cookie is good for no other port.
    assert!(victim.recv(&mut room).is_err());
    let thief = UdpSocket::bind("127.0.0.1:0").unwrap();
    thief.set_read_timeout(Some(Wall::from_millis(500))).unwrap();
    let stolen = Setup::Hello { session: 3, cookie, sent: 0, offer: Offer::default() }.to_bytes();
    thief.send_to(&stolen, to).unwrap();
    let got = thief.recv(&mut room).unwrap();
    assert!(matches!(Setup::read(&room[..got]), Ok(Setup::Challenge { .. })));
    assert!(!accepting.is_finished());
    victim.send_to(&stolen, to).unwrap();
    accepting.join().unwrap().unwrap();
}

#[test]
fn garbage_between_the_datagrams_of_a_flow_is_passed_over() {
    let listener = QosSocket::bind("127.0.0.1:0", QosOptions::receiving(video())).unwrap();
    let to = listener.local_address();
    let raw = UdpSocket::bind("127.0.0.1:0").unwrap();
    raw.connect(to).unwrap();
    let accepting = thread::spawn(move || (listener.accept().unwrap().0, listener));
    let mut room = [0; 1_000];
    raw.send(&hello(8)).unwrap();
    let got = raw.recv(&mut room).unwrap();
    let Ok(Setup::Challenge { cookie, .. }) = Setup::read(&room[..got]) else { panic!("none") };
    let asked = Setup::Hello { session: 8, cookie, sent: 0, offer: Offer::default() }.to_bytes();
    raw.send(&asked).unwrap();
    let (far, _listener) = accepting.join().unwrap();
    // The answer was lost: the hello comes again, and is answered again.
    let reader = far.clone();
    let reading = thread::spawn(move || {
        let mut room = [0; 1_280];
        std::iter::from_fn(|| reader.receive_message(&mut room).unwrap()).count()
    });
    raw.send(&asked).unwrap();
    let mut accepted = 0;
    while accepted < 2 {
        let got = raw.recv(&mut room).unwrap();
        accepted += u32::from(matches!(Setup::read(&room[..got]), Ok(Setup::Accept { .. })));
    }
    let data = |sequence, session| {
        Header { kind: Kind::Data, length: 0, sequence, sent: 0 }.to_udp(session).to_vec()
    };
    raw.send(&data(0, 8)).unwrap();
    raw.send(&data(0, 8)).unwrap(); // a copy
    raw.send(&data(1, 9)).unwrap(); // of another session
    raw.send(&[]).unwrap();
    raw.send(&[0xa7]).unwrap();
    raw.send(&[0xff; 1_000]).unwrap();
    let long = [data(1, 8), vec![0; 1_281]].concat();
    raw.send(&long).unwrap(); // longer than was agreed
    let mut wrong = data(1, 8);
    wrong[2] = 1;
    raw.send(&wrong).unwrap(); // a status without a body
    raw.send(&data(1, 8)).unwrap();
    wrong[2] = 4;
    raw.send(&wrong).unwrap(); // the end
    assert_eq!(reading.join().unwrap(), 2);
}

#[test]
fn a_peer_over_udp_that_never_answers_is_given_up() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let began = Instant::now();
    let error = QosSocket::connect(silent.local_addr().unwrap(), &options()).unwrap_err();
    assert_eq!(error.to_string(), "the other end did not answer the set-up in time");
    assert!(began.elapsed() < Wall::from_secs(2));
}
