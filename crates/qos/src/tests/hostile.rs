//! Hostile peers: garbage, floods, absurd lengths, silence, other versions.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use super::super::wire::{self, Header, Kind, Offer, Setup};
use super::*;
use crate::channel::Waiting;
use crate::listener::Accepted;
use crate::maintenance::Maintained;

fn options() -> QosOptions {
    QosOptions { setup_timeout: Wall::from_millis(600), ..QosOptions::default() }
}

fn hello(session: u64) -> Vec<u8> {
    Setup::Hello { session, cookie: [0; 16], sent: 0, offer: Offer::default() }.to_bytes()
}

#[test]
fn silent_and_invalid_clients_do_not_block_a_listener() {
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let started = Instant::now();
    let accepting = thread::spawn(move || listener.accept().unwrap());
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(to).unwrap()).collect();
    let mut http_client = TcpStream::connect(to).unwrap();
    http_client.write_all(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n").unwrap();
    let mut truncated = TcpStream::connect(to).unwrap();
    truncated.write_all(&hello(1)[..40]).unwrap();
    let mut oversized = TcpStream::connect(to).unwrap();
    oversized.write_all(&[&b"OnQS"[..], &[wire::VERSION, 1, 0xff, 0xff]].concat()).unwrap();
    let connecting = thread::spawn(move || QosStream::connect(to, &QosOptions::default()).unwrap());
    let (far, _) = accepting.join().unwrap();
    assert!(started.elapsed() < Wall::from_secs(3), "{:?}", started.elapsed());
    let near = connecting.join().unwrap();
    near.send_message(b"here").unwrap();
    assert_eq!(far.receive_message(&mut [0; 10]).unwrap().unwrap().length, 4);
    for mut dropped in [http_client, oversized] {
        dropped.set_read_timeout(Some(Wall::from_secs(5))).unwrap();
        let end = dropped.read(&mut [0; 10]);
        assert!(!matches!(end, Ok(1..)), "it was answered");
    }
    drop(silent);
}

#[test]
fn another_version_is_refused_and_reported_at_both_ends() {
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let mut other = TcpStream::connect(to).unwrap();
    let mut bytes = hello(1);
    bytes[4] = 9;
    other.write_all(&bytes).unwrap();
    let Accepted::Refused(_, error) = listener.accept_or_refuse().unwrap() else {
        panic!("agreed")
    };
    let text = "the other end speaks version 9 of QoSockets, this is 3";
    assert_eq!(error.to_string(), text);
    let mut answer = vec![0; wire::MAX_SETUP];
    let received = other.read(&mut answer).unwrap();
    assert!(matches!(
        Setup::read(&answer[..received]),
        Ok(Setup::Refuse { reason: wire::Reason::Version, .. })
    ));
}

/// A server that runs `act` on its first connection.
fn server(act: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || act(listener.accept().unwrap().0));
    at
}

#[test]
fn connecting_to_a_peer_that_speaks_no_qosockets_is_an_error() {
    let web = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = QosStream::connect(web, &options()).unwrap_err().to_string();
    assert_eq!(error, "the other end does not speak QoSockets");
    let silent = server(|stream| {
        thread::sleep(Wall::from_secs(3));
        drop(stream);
    });
    let started = Instant::now();
    let error = QosStream::connect(silent, &options()).unwrap_err();
    assert_eq!(error.to_string(), "the other end did not answer the set-up in time");
    assert!(started.elapsed() < Wall::from_secs(2));
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::TimedOut);
    let slow = server(|mut stream| {
        for byte in hello(1) {
            let _ = stream.write_all(&[byte]);
            thread::sleep(Wall::from_millis(50));
        }
    });
    let started = Instant::now();
    assert!(QosStream::connect(slow, &options()).is_err());
    assert!(started.elapsed() < Wall::from_secs(2), "a trickle of bytes extends the set-up");
    let newer = server(|mut stream| {
        let _ = stream.read(&mut [0; 500]);
        let _ = stream.write_all(b"OnQS\x04\x03\x00\x00");
    });
    let error = QosStream::connect(newer, &options()).unwrap_err().to_string();
    assert_eq!(error, "the other end speaks version 4 of QoSockets, this is 3");
}

/// A connection over TCP whose peer is a raw socket.
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
fn a_length_above_the_agreed_maximum_ends_a_stream() {
    let (far, mut raw) = raw(QosOptions::receiving(video()));
    let header = Header { kind: Kind::Data, length: 1_281, sequence: 0, sent: 0 };
    raw.write_all(&header.to_tcp()).unwrap();
    let error = far.receive_message(&mut [0; 2_000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(error.to_string(), "a damaged message of a QoS socket");
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
fn a_flood_of_status_messages_does_not_block_data() {
    let (far, mut raw) = raw(QosOptions::default());
    let status = wire::Status { sent_messages: u64::MAX, ..wire::Status::default() };
    let body = status.to_bytes();
    let header = Header { kind: Kind::Status, length: body.len(), sequence: 0, sent: u64::MAX };
    let one = [header.to_tcp().to_vec(), body].concat();
    let data = Header { kind: Kind::Data, length: 3, sequence: 0, sent: 0 };
    raw.set_write_timeout(Some(Wall::from_secs(10))).unwrap();
    let reading =
        thread::spawn(move || far.receive_message(&mut [0; 10]).map(|received| (received, far)));
    for _ in 0..20_000 {
        // The answers are never read, which must not block the peer.
        raw.write_all(&one).unwrap();
    }
    raw.write_all(&data.to_tcp()).unwrap();
    raw.write_all(b"end").unwrap();
    let (message, far) = reading.join().unwrap().unwrap();
    assert_eq!(message.unwrap().length, 3);
    assert_eq!(far.delivery(Direction::Receiving).lost_messages, 0);
}

/// How long a call takes that ends at its read timeout, without a message.
fn time_out(mut receive: impl FnMut() -> std::io::Result<()>) -> Wall {
    let started = Instant::now();
    assert_eq!(receive().unwrap_err().kind(), ErrorKind::WouldBlock);
    started.elapsed()
}

/// Repeats `send` every 50 ms for 3 s; it ends when sending fails.
fn every_50_ms(mut send: impl FnMut() -> std::io::Result<()> + Send + 'static) {
    thread::spawn(move || {
        for _ in 0..60 {
            if send().is_err() {
                return;
            }
            thread::sleep(Wall::from_millis(50));
        }
    });
}

/// At which time a call with a read timeout of 300 ms must have ended: far below the 3 s of what
/// the peer sends, and far enough above for a loaded machine.
const LATE: Wall = Wall::from_millis(1_500);

#[test]
fn statuses_copies_and_parts_of_a_message_do_not_extend_the_timeout_of_a_stream() {
    let body = wire::Status::default().to_bytes();
    let status = Header { kind: Kind::Status, length: body.len(), sequence: 0, sent: 0 };
    let data = |length| Header { kind: Kind::Data, length, sequence: 0, sent: 0 }.to_tcp().to_vec();
    let statuses = [status.to_tcp().to_vec(), body].concat();
    for (first, then, buffer) in [
        (Vec::new(), statuses, 1_000),
        (data(0), data(0), 1_000),
        (data(1_000), vec![0], 1_000),
        // A message that is too long for the buffer, and dropped.
        (data(1_000), vec![0], 10),
    ] {
        let (far, mut raw) = raw(QosOptions::default());
        far.set_read_timeout(Some(Wall::from_millis(300))).unwrap();
        raw.write_all(&first).unwrap();
        let mut buffer = vec![0; buffer];
        if first == then {
            assert_eq!(far.receive_message(&mut buffer).unwrap().unwrap().length, 0);
        }
        every_50_ms(move || raw.write_all(&then));
        let took = time_out(|| far.receive_message(&mut buffer).map(|_| ()));
        assert!(took >= Wall::from_millis(290) && took < LATE, "{took:?}");
    }
}

#[test]
fn a_read_of_bytes_times_out_whatever_statuses_arrive() {
    let (far, mut raw) = raw(QosOptions::default());
    far.set_read_timeout(Some(Wall::from_millis(300))).unwrap();
    let body = wire::Status::default().to_bytes();
    let header = Header { kind: Kind::Status, length: body.len(), sequence: 0, sent: 0 };
    let one = [header.to_tcp().to_vec(), body].concat();
    every_50_ms(move || raw.write_all(&one));
    let took = time_out(|| (&far).read(&mut [0; 10]).map(|_| ()));
    assert!(took < LATE, "{took:?}");
}

#[test]
fn the_rest_of_a_message_that_was_too_long_is_no_message() {
    let (far, mut raw) = raw(QosOptions::default());
    far.set_read_timeout(Some(Wall::from_millis(100))).unwrap();
    let header = Header { kind: Kind::Data, length: 100, sequence: 0, sent: 0 };
    raw.write_all(&header.to_tcp()).unwrap();
    raw.write_all(&[0; 95]).unwrap();
    let mut buffer = [0; 10];
    time_out(|| far.receive_message(&mut buffer).map(|_| ()));
    raw.write_all(&[0; 5]).unwrap();
    far.set_read_timeout(None).unwrap();
    let error = far.receive_message(&mut buffer).unwrap_err();
    assert_eq!(error.to_string(), "a message of 100 bytes is longer than the buffer: 10");
}

/// A connection over UDP of session 8 whose peer is a raw socket, with the hello that it sent.
fn raw_socket(options: QosOptions) -> (QosSocket, UdpSocket, Vec<u8>) {
    let listener = QosSocket::bind("127.0.0.1:0", options).unwrap();
    let raw = UdpSocket::bind("127.0.0.1:0").unwrap();
    raw.connect(listener.local_address()).unwrap();
    let accepting = thread::spawn(move || listener.accept().unwrap().0);
    let mut buffer = [0; 1_000];
    raw.send(&hello(8)).unwrap();
    let received = raw.recv(&mut buffer).unwrap();
    let Ok(Setup::Challenge { cookie, .. }) = Setup::read(&buffer[..received]) else {
        panic!("no challenge")
    };
    let hello = Setup::Hello { session: 8, cookie, sent: 0, offer: Offer::default() }.to_bytes();
    raw.send(&hello).unwrap();
    (accepting.join().unwrap(), raw, hello)
}

#[test]
fn copies_and_garbage_do_not_extend_the_timeout_of_a_socket() {
    let copy = Header { kind: Kind::Data, length: 0, sequence: 0, sent: 0 }.to_udp(8).to_vec();
    for (datagram, messages) in [(copy, 1), (vec![0xff; 100], 0)] {
        let (far, raw, _) = raw_socket(QosOptions::default());
        // Just shorter than two intervals: what comes last before its end does not begin it anew.
        far.set_read_timeout(Some(Wall::from_millis(1_900))).unwrap();
        if messages == 1 {
            raw.send(&datagram).unwrap();
            assert_eq!(far.receive_message(&mut [0; 10]).unwrap().unwrap().length, 0);
        }
        thread::spawn(move || {
            for _ in 0..5 {
                thread::sleep(Wall::from_secs(1));
                if raw.send(&datagram).is_err() {
                    return;
                }
            }
        });
        let took = time_out(|| far.receive_message(&mut [0; 10]).map(|_| ()));
        assert!(took < Wall::from_millis(2_900), "{took:?}");
    }
}

#[test]
fn a_listener_is_no_amplifier_and_accepts_no_forged_address() {
    let listener = QosSocket::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address();
    let accepting = thread::spawn(move || listener.accept().map(|_| ()));
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim.set_read_timeout(Some(Wall::from_millis(700))).unwrap();
    let forged = hello(3);
    victim.send_to(&forged, to).unwrap();
    let mut buffer = [0; 1_000];
    let received = victim.recv(&mut buffer).unwrap();
    assert!(received < forged.len(), "{received} bytes answer {}", forged.len());
    let Ok(Setup::Challenge { session: 3, cookie }) = Setup::read(&buffer[..received]) else {
        panic!("no challenge");
    };
    // No further datagram is sent, and the cookie is invalid for another port.
    assert!(victim.recv(&mut buffer).is_err());
    let thief = UdpSocket::bind("127.0.0.1:0").unwrap();
    thief.set_read_timeout(Some(Wall::from_millis(500))).unwrap();
    let stolen = Setup::Hello { session: 3, cookie, sent: 0, offer: Offer::default() }.to_bytes();
    thief.send_to(&stolen, to).unwrap();
    let received = thief.recv(&mut buffer).unwrap();
    assert!(matches!(Setup::read(&buffer[..received]), Ok(Setup::Challenge { .. })));
    assert!(!accepting.is_finished());
    victim.send_to(&stolen, to).unwrap();
    accepting.join().unwrap().unwrap();
}

#[test]
fn garbage_between_the_datagrams_of_a_flow_is_ignored() {
    let (far, raw, hello) = raw_socket(QosOptions::receiving(video()));
    let mut buffer = [0; 1_000];
    // As if the answer was lost: a repeated hello is answered again.
    let reader = far.clone();
    let reading = thread::spawn(move || {
        let mut buffer = [0; 1_280];
        std::iter::from_fn(|| reader.receive_message(&mut buffer).unwrap()).count()
    });
    raw.send(&hello).unwrap();
    let mut accepted = 0;
    while accepted < 2 {
        let received = raw.recv(&mut buffer).unwrap();
        accepted += u32::from(matches!(Setup::read(&buffer[..received]), Ok(Setup::Accept { .. })));
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
fn connecting_over_udp_to_a_silent_peer_times_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    let error = QosSocket::connect(silent.local_addr().unwrap(), &options()).unwrap_err();
    assert_eq!(error.to_string(), "the other end did not answer the set-up in time");
    assert!(started.elapsed() < Wall::from_secs(2));
}

/// What a peer has sent and nobody has read yet is at least `least` bytes.
fn assert_left(accepted: &QosStream, least: usize) {
    let channel = &accepted.inner().channel;
    channel.set_read_timeout(Some(Wall::from_secs(20))).unwrap();
    let (mut left, mut room) = (0, vec![0; 16 << 10]);
    while left < least {
        let got = std::io::Read::read(&mut &*channel, &mut room).unwrap_or(0);
        assert!(got > 0, "only {left} bytes were left");
        left += got;
    }
}

#[test]
fn what_floods_a_closed_connection_is_dropped_piece_by_piece() {
    const FLOOD: usize = 1 << 20;
    const MOST: usize = 64 << 10;
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let mut peer = TcpStream::connect(listener.local_address().unwrap()).unwrap();
    peer.write_all(&hello(7)).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let (_, _, recovering, other) = super::recovery::attacked();
    for (accepted, mut peer) in [(accepted, peer), (recovering, other)] {
        let header = Header { kind: Kind::Data, length: FLOOD, sequence: 0, sent: 0 };
        let flood = [&header.to_tcp()[..], &vec![0; FLOOD]].concat();
        let flooding = thread::spawn(move || {
            let written = peer.write_all(&flood);
            (peer, written)
        });
        // Enough is there to be dropped.
        let channel = &accepted.inner().channel;
        assert!(channel.peek(&mut [0]).unwrap() > 0);
        for _ in 0..2 {
            assert!(Arc::clone(accepted.inner()).drain(MOST), "it was ended");
        }
        // Each time at most what is allowed and one piece; the maintenance may have read one ahead.
        assert_left(&accepted, FLOOD - 2 * (MOST + (64 << 10)) - (64 << 10));
        drop(accepted);
        flooding.join().unwrap().1.unwrap();
    }
}

#[test]
fn control_messages_without_end_are_heard_piece_by_piece() {
    const FLOOD: usize = 1 << 20;
    let (_, _, accepted, stream) = super::recovery::attacked();
    // The maintenance does not read meanwhile.
    let mut reader = crate::core::lock(&accepted.inner().reader);
    let ack = super::recovery::control(Kind::Ack, 0);
    let flood = ack.repeat(FLOOD / ack.len());
    let flooding = thread::spawn(move || {
        let written = (&stream).write_all(&flood);
        (stream, written)
    });
    assert!(accepted.inner().channel.peek(&mut [0]).unwrap() > 0);
    reader.allow(64 << 10);
    let error = accepted.inner().open(&mut reader, Waiting::Never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_left(&accepted, FLOOD - (128 << 10) - ack.len());
    // What was counted is not there any more.
    accepted.inner().break_off();
    drop(reader);
    drop(flooding.join().unwrap());
}

#[test]
fn peers_that_never_close_hold_a_bounded_number_of_closed_connections() {
    const PEERS: u64 = 600;
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let mut peers = Vec::new();
    for session in 0..PEERS {
        let mut peer = TcpStream::connect(to).unwrap();
        peer.write_all(&hello(session)).unwrap();
        // The program closes it at once, as a gateway does whose server is gone.
        drop(listener.accept().unwrap());
        peers.push(peer);
    }
    let lingering = crate::maintenance::lingering();
    assert!(lingering <= 512, "{lingering} connections wait for peers that do not close");
    // The oldest have ended.
    let ended = peers[..80].iter().filter(|peer| {
        let mut peer: &TcpStream = peer;
        peer.set_read_timeout(Some(Wall::from_secs(5))).unwrap();
        let mut room = vec![0; 4_096];
        loop {
            match peer.read(&mut room) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    });
    assert_eq!(ended.count(), 80);
}
