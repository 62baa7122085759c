//! Both ends over the loopback interface, and hostile peers.

mod agreement;
mod dscp;
mod gateway;
mod hostile;
mod leaving;
mod link;
mod memory;
mod monitoring;
mod peers;
mod quic;
mod recovery;
mod relay;
mod setups;
mod transports;
mod wire;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration as Wall;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Specification, Term};

use super::*;

/// The specification of NetVideo: 60 to 80 messages/s of at most 1,280 bytes within 100 ms.
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

/// The loopback address of a family, port 0; `None` if the host has none, recorded as a skip.
fn loopback(is_ipv6: bool) -> Option<SocketAddr> {
    let address: SocketAddr = if is_ipv6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().unwrap();
    let bound = std::net::TcpListener::bind(address);
    if let Err(error) = &bound {
        ontempo_testing::record_skip(&format!("cannot bind {address}: {error}"));
    }
    bound.ok().map(|_| address)
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
fn flows_over_udp_are_demultiplexed_to_their_sockets() {
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
        assert!(sender.is_some(), "{remote} is no sender");
        let mut buffer = [0; 10];
        let mut numbers = Vec::new();
        for _ in 0..20 {
            assert_eq!(socket.receive_message(&mut buffer).unwrap().unwrap().length, 1);
            numbers.push(buffer[0]);
        }
        assert!(numbers.iter().all(|number| *number == numbers[0]));
        seen.push(numbers[0]);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn code_that_reads_and_writes_bytes_works_unchanged() {
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
    let mut buffer = [0; 777];
    let expected: usize = (0..1_000u32).map(|number| (number * 37 % 3_000) as usize).sum();
    while all.len() < expected {
        let received = far.read(&mut buffer).unwrap();
        all.extend(&buffer[..received]);
    }
    let mut place = 0;
    for number in 0..1_000u32 {
        let length = (number * 37 % 3_000) as usize;
        assert!(all[place..place + length].iter().all(|byte| *byte == number as u8));
        place += length;
    }
    // The maintenance thread reads control messages, so that no RST drops the last bytes.
    drop(writing.join().unwrap());
    assert_eq!(far.read(&mut buffer).unwrap(), 0);
}

#[test]
fn reading_a_message_continues_after_a_timeout() {
    let Some(at) = loopback(false) else { return };
    let (near, far) = streams(at, QosOptions::default(), QosOptions::default());
    far.set_read_timeout(Some(Wall::from_millis(1))).unwrap();
    let sending = thread::spawn(move || {
        for number in 0..20u8 {
            near.send_message(&vec![number; 3_000_000]).unwrap();
        }
        near
    });
    let mut buffer = vec![0; 3_000_000];
    let (mut timeouts, mut number) = (0, 0);
    while number < 20 {
        match far.receive_message(&mut buffer) {
            Ok(message) => {
                assert_eq!(message.unwrap().length, buffer.len());
                assert!(buffer.iter().all(|byte| *byte == number));
                number += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                timeouts += 1;
            }
        }
    }
    println!("{timeouts} timeouts");
    sending.join().unwrap();
}
