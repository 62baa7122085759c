//! The same tests over TCP, UDP and QUIC.

use std::io;

use super::*;
use crate::listener::Accepted;
use ontempo_transport::{Identity, Token, Trust};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
    Quic,
}

pub(super) const ALL: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Quic];

/// An end over any transport.
#[derive(Clone, Debug)]
pub(super) enum Any {
    Tcp(QosStream),
    Udp(QosSocket),
    Quic(QosConnection),
}

macro_rules! each {
    ($any:expr, $end:ident => $what:expr) => {
        match $any {
            Any::Tcp($end) => $what,
            Any::Udp($end) => $what,
            Any::Quic($end) => $what,
        }
    };
}

impl Any {
    pub(super) fn send(&self, data: &[u8]) -> io::Result<()> {
        each!(self, end => end.send_message(data))
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        each!(self, end => end.receive_message(buffer))
    }

    pub(super) fn agreed(&self, direction: Direction) -> Specification {
        each!(self, end => end.agreed(direction))
    }

    pub(super) fn change(
        &self,
        asked: Specification,
    ) -> Result<Specification, ontempo_mechanisms::qos::Refusal> {
        each!(self, end => end.change(asked))
    }

    pub(super) fn delivery(&self, direction: Direction) -> Delivery {
        each!(self, end => end.delivery(direction))
    }

    pub(super) fn events(&self) -> Events {
        each!(self, end => end.events())
    }

    pub(super) fn reports(&self) -> Vec<ontempo_monitor::SocketReport> {
        each!(self, end => end.reports())
    }

    pub(super) fn reservation(&self) -> (ontempo_monitor::Reservation, String) {
        each!(self, end => end.reservation(Direction::Sending))
    }

    pub(super) fn bounds(&self) -> (usize, usize) {
        each!(self, end => (end.max_send_size(), end.max_receive_size()))
    }
}

enum AnyListener {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener, Trust),
}

pub(super) fn token() -> Token {
    Token::new(b"together").unwrap()
}

impl AnyListener {
    fn bind(over: Transport, at: SocketAddr, options: QosOptions) -> Self {
        match over {
            Transport::Tcp => Self::Tcp(QosListener::bind(at, options).unwrap()),
            Transport::Udp => Self::Udp(QosSocket::bind(at, options).unwrap()),
            Transport::Quic => {
                let identity = Identity::self_signed(&["localhost"]).unwrap();
                let trust = Trust::Fingerprint(identity.fingerprint());
                let bound = QosConnection::bind(at, (&identity, &token()), options).unwrap();
                Self::Quic(bound, trust)
            }
        }
    }

    /// Connects from another thread.
    fn connect(&self, options: QosOptions) -> thread::JoinHandle<Result<Any, SetupError>> {
        match self {
            Self::Tcp(listener) => {
                let to = listener.local_address().unwrap();
                thread::spawn(move || QosStream::connect(to, &options).map(Any::Tcp))
            }
            Self::Udp(listener) => {
                let to = listener.local_address();
                thread::spawn(move || QosSocket::connect(to, &options).map(Any::Udp))
            }
            Self::Quic(listener, trust) => {
                let (to, trust) = (listener.local_address(), trust.clone());
                thread::spawn(move || {
                    let known = (&trust, &token());
                    QosConnection::connect(to, "localhost", known, &options).map(Any::Quic)
                })
            }
        }
    }

    fn accept(&self) -> Result<Any, SetupError> {
        fn result<C>(accepted: Accepted<C>, any: fn(C) -> Any) -> Result<Any, SetupError> {
            match accepted {
                Accepted::Connection(connection, _) => Ok(any(connection)),
                Accepted::Refused(_, error) => Err(error),
                Accepted::Exhausted(error) => Err(error.into()),
            }
        }
        match self {
            Self::Tcp(listener) => result(listener.accept_or_refuse().unwrap(), Any::Tcp),
            Self::Udp(listener) => result(listener.accept_or_refuse().unwrap(), Any::Udp),
            Self::Quic(listener, _) => result(listener.accept_or_refuse().unwrap(), Any::Quic),
        }
    }
}

/// The results of a set-up at both ends.
pub(super) fn set_up(
    over: Transport,
    at: SocketAddr,
    near: QosOptions,
    far: QosOptions,
) -> (Result<Any, SetupError>, Result<Any, SetupError>) {
    let listening = AnyListener::bind(over, at, far);
    let connecting = listening.connect(near);
    let there = listening.accept();
    (connecting.join().unwrap(), there)
}

/// Both ends of a connection.
pub(super) fn pair(
    over: Transport,
    at: SocketAddr,
    near: QosOptions,
    far: QosOptions,
) -> (Any, Any) {
    let (here, there) = set_up(over, at, near, far);
    (here.unwrap(), there.unwrap())
}

#[test]
fn message_boundaries_are_preserved_in_both_directions_over_each_transport() {
    for (over, is_ipv6) in ALL.into_iter().flat_map(|over| [(over, false), (over, true)]) {
        let Some(at) = loopback(is_ipv6) else { continue };
        let (near, far) = pair(over, at, QosOptions::default(), QosOptions::default());
        let answering = thread::spawn(move || {
            let mut buffer = vec![0; 200_000];
            while let Some(message) = far.receive(&mut buffer).unwrap() {
                far.send(&buffer[..message.length]).unwrap();
            }
        });
        let max_length = if over == Transport::Udp { near.bounds().0 } else { 200_000 };
        let mut buffer = vec![0; 200_000];
        let lengths = [0, 1, 64, 1_280, 60_000, max_length, 4_096, 4_097, 3];
        for (number, length) in lengths.into_iter().enumerate() {
            let data: Vec<_> = (0..length).map(|place| (place * 7 + number) as u8).collect();
            near.send(&data).unwrap();
            let message = near.receive(&mut buffer).unwrap().unwrap();
            assert_eq!((message.length, message.sequence), (length, number as u64));
            assert!(buffer[..length] == data, "{length} bytes differ over {over:?}");
        }
        if over == Transport::Udp {
            assert!(near.send(&vec![0; max_length + 1]).is_err());
        }
        match near {
            Any::Tcp(near) => near.close(Wall::from_secs(5)).unwrap(),
            Any::Quic(near) => near.close(Wall::from_secs(5)).unwrap(),
            Any::Udp(near) => drop(near),
        }
        answering.join().unwrap();
    }
}

#[test]
fn the_longest_timeouts_are_those_of_ends_that_wait_for_ever() {
    let Some(at) = loopback(false) else { return };
    let patient = QosOptions { setup_timeout: Wall::MAX, ..QosOptions::default() };
    for over in ALL {
        let (near, far) = pair(over, at, patient.clone(), patient.clone());
        let end = far.clone();
        let receiving = thread::spawn(move || {
            let received = end.receive(&mut [0; 10]).unwrap().map(|message| message.length);
            assert_eq!(received, Some(5), "over {over:?}");
            match end {
                Any::Udp(_) => {}
                end => assert!(end.receive(&mut [0; 10]).unwrap().is_none()),
            }
        });
        drop(far);
        near.send(b"hello").unwrap();
        match near {
            Any::Tcp(near) => near.close(Wall::MAX).unwrap(),
            Any::Quic(near) => near.close(Wall::MAX).unwrap(),
            Any::Udp(_) => {}
        }
        receiving.join().unwrap();
    }
}

#[test]
fn a_message_longer_than_the_buffer_is_skipped() {
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let (near, far) = pair(over, at, QosOptions::default(), QosOptions::default());
        let mut buffer = [0; 64];
        for length in [100, 10_000, 60_000] {
            near.send(&vec![1; length]).unwrap();
            let error = far.receive(&mut buffer).unwrap_err().to_string();
            let expected = format!("a message of {length} bytes is longer than the buffer: 64");
            assert_eq!(error, expected, "over {over:?}");
        }
        near.send(&[2; 10]).unwrap();
        assert_eq!(far.receive(&mut buffer).unwrap().unwrap().length, 10);
    }
}

#[test]
fn statistics_agree_at_both_ends_over_each_transport() {
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let lossless = Specification { loss: Term::default(), ..video() };
        let (near, far) =
            pair(over, at, QosOptions::sending(lossless), QosOptions::receiving(lossless));
        let receiver = far.clone();
        let receiving = thread::spawn(move || {
            let mut buffer = [0; 1_280];
            let mut count = 0;
            while count < 300 && receiver.receive(&mut buffer).unwrap().is_some() {
                count += 1;
            }
        });
        for _ in 0..300 {
            near.send(&[1; 1_000]).unwrap();
            thread::sleep(Wall::from_millis(2));
        }
        receiving.join().unwrap();
        thread::sleep(Wall::from_millis(1_700));
        for delivery in [near.delivery(Direction::Sending), far.delivery(Direction::Receiving)] {
            let found = (delivery.messages, delivery.bytes, delivery.lost_messages);
            assert_eq!(found, (300, 300_000, 0), "over {over:?}");
            assert_eq!(delivery.sent_messages, 300);
        }
        for (socket, role) in [
            (&near.reports()[0], ontempo_monitor::Role::Sender),
            (&far.reports()[0], ontempo_monitor::Role::Receiver),
        ] {
            assert_eq!((socket.role, socket.messages), (role, 300), "over {over:?}");
            let dscp = if role == ontempo_monitor::Role::Sender || over == Transport::Tcp {
                34
            } else {
                0
            };
            assert_eq!((socket.dscp, socket.parameters.len()), (dscp, 8), "over {over:?}");
        }
    }
}
