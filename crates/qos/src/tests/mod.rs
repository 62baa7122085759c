//! Both ends over the loopback interface, and whoever else may be at the other end.

mod abuse;
mod agreement;
mod carriers;
mod marked;
mod quic;
mod relay;
mod watching;
mod wire;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration as Wall;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Specification, Term};

use super::*;

/// NetVideo's: 60 to 80 messages a second of at most 1,280 bytes within 100 ms.
fn video() -> Specification {
    Specification {
        min_rate: Term::coerced(MessageRate::per_second(60)),
        max_rate: Term::coerced(MessageRate::per_second(80)),
        peak_rate: Term::coerced(MessageRate::per_second(100)),
        size: Term::coerced(Bytes::new(1_280)),
        max_delay: Term::coerced(Duration::from_millis(100)),
        int_delay: Term::coerced(Duration::from_millis(50)),
        loss: Term::coerced(Percent::new(5)),
        rec_time: Term::coerced(Duration::from_secs(5)),
        permutable: Term::coerced(false),
        ..Specification::default()
    }
}

/// The address of a family, at any port; `None`, and a word why, where the host has it not.
fn loopback(is_ipv6: bool) -> Option<SocketAddr> {
    let address: SocketAddr = if is_ipv6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().unwrap();
    let here = std::net::TcpListener::bind(address);
    if let Err(error) = &here {
        ontempo_testing::record_skip(&format!("no {address} here: {error}"));
    }
    here.ok().map(|_| address)
}

fn streams(at: SocketAddr, near: QosOptions, far: QosOptions) -> (QosStream, QosStream) {
    let listener = QosListener::bind(at, far).unwrap();
    let to = listener.local_address().unwrap();
    let connecting = thread::spawn(move || QosStream::connect(to, &near).unwrap());
    let (there, _) = listener.accept().unwrap();
    (connecting.join().unwrap(), there)
}

fn sockets(at: SocketAddr, near: QosOptions, far: QosOptions) -> (QosSocket, QosSocket) {
    let listener = QosSocket::bind(at, far).unwrap();
    let to = listener.local_address();
    let connecting = thread::spawn(move || QosSocket::connect(to, &near).unwrap());
    let (there, _) = listener.accept().unwrap();
    (connecting.join().unwrap(), there)
}

#[test]
fn several_flows_over_udp_come_to_their_own_sockets() {
    let Some(at) = loopback(false) else { return };
    let listener = QosSocket::bind(at, QosOptions::default()).unwrap();
    let to = listener.local_address();
    let senders: Vec<_> = (0u8..8)
        .map(|number| {
            thread::spawn(move || {
                let socket = QosSocket::connect(to, &QosOptions::default()).unwrap();
                for _ in 0..20 {
                    socket.send_message(&[number]).unwrap();
                }
                socket
            })
        })
        .collect();
    let accepted: Vec<_> = senders.iter().map(|_| listener.accept().unwrap()).collect();
    let senders: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    let mut seen = Vec::new();
    for (socket, remote) in &accepted {
        let sender = senders.iter().find(|one| one.local_address().port() == remote.port());
        assert!(sender.is_some(), "{remote} is nobody's");
        let mut room = [0; 10];
        let mut numbers = Vec::new();
        for _ in 0..20 {
            assert_eq!(socket.receive_message(&mut room).unwrap().unwrap().length, 1);
            numbers.push(room[0]);
        }
        assert!(numbers.iter().all(|number| *number == numbers[0]));
        seen.push(numbers[0]);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn code_for_streams_of_bytes_goes_on_as_it_is() {
    use std::io::{Read, Write};
    let Some(at) = loopback(false) else { return };
    let (mut near, mut far) = streams(at, QosOptions::default(), QosOptions::default());
    let writing = thread::spawn(move || {
        for number in 0..1_000u32 {
            near.write_all(&vec![number as u8; (number * 37 % 3_000) as usize]).unwrap();
        }
        near
    });
    let mut all: Vec<u8> = Vec::new();
    let mut room = [0; 777];
    let expected: usize = (0..1_000u32).map(|number| (number * 37 % 3_000) as usize).sum();
    while all.len() < expected {
        let got = far.read(&mut room).unwrap();
        all.extend(&room[..got]);
    }
    let mut place = 0;
    for number in 0..1_000u32 {
        let length = (number * 37 % 3_000) as usize;
        assert!(all[place..place + length].iter().all(|byte| *byte == number as u8));
        place += length;
    }
    // The maintenance thread reads control messages, so that no RST drops the last bytes.
    drop(writing.join().unwrap());
    assert_eq!(far.read(&mut room).unwrap(), 0);
}

#[test]
fn a_message_interrupted_by_the_clock_is_read_on() {
    let Some(at) = loopback(false) else { return };
    let (near, far) = streams(at, QosOptions::default(), QosOptions::default());
    far.set_read_timeout(Some(Wall::from_millis(1))).unwrap();
    let sending = thread::spawn(move || {
        for number in 0..20u8 {
            near.send_message(&vec![number; 3_000_000]).unwrap();
        }
        near
    });
    let mut room = vec![0; 3_000_000];
    let (mut timeouts, mut number) = (0, 0);
    while number < 20 {
        match far.receive_message(&mut room) {
            Ok(message) => {
                assert_eq!(message.unwrap().length, room.len());
                assert!(room.iter().all(|byte| *byte == number));
                number += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                timeouts += 1;
            }
        }
    }
    println!("{timeouts} times nothing came in time");
    sending.join().unwrap();
}
