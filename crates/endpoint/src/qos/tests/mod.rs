//! Both ends over the loopback interface, and whoever else may be at the other end.

mod abuse;
mod agreement;
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
        println!("skipped: no {address} here: {error}");
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
fn messages_keep_their_bounds_over_tcp_both_ways() {
    for is_ipv6 in [false, true] {
        let Some(at) = loopback(is_ipv6) else { continue };
        let (near, far) = streams(at, QosOptions::default(), QosOptions::default());
        let answering = thread::spawn(move || {
            let mut room = vec![0; 200_000];
            while let Some(message) = far.receive_message(&mut room).unwrap() {
                far.send_message(&room[..message.length]).unwrap();
            }
        });
        let mut room = vec![0; 200_000];
        for (number, length) in
            [0, 1, 64, 1_280, 60_000, 65_536, 200_000, 3].into_iter().enumerate()
        {
            let data: Vec<_> = (0..length).map(|place| (place * 7 + number) as u8).collect();
            near.send_message(&data).unwrap();
            let message = near.receive_message(&mut room).unwrap().unwrap();
            assert_eq!((message.length, message.sequence), (length, number as u64));
            assert!(room[..length] == data, "{length} bytes came otherwise");
        }
        near.close(Wall::from_secs(5)).unwrap();
        answering.join().unwrap();
    }
}

#[test]
fn messages_keep_their_bounds_over_udp_both_ways() {
    for is_ipv6 in [false, true] {
        let Some(at) = loopback(is_ipv6) else { continue };
        let (near, far) = sockets(at, QosOptions::default(), QosOptions::default());
        let answering = thread::spawn(move || {
            let mut room = vec![0; 65_536];
            while let Some(message) = far.receive_message(&mut room).unwrap() {
                far.send_message(&room[..message.length]).unwrap();
            }
        });
        let mut room = vec![0; 65_536];
        for (number, length) in
            [0, 1, 64, 1_280, 60_000, near.most_sent(), 3].into_iter().enumerate()
        {
            let data: Vec<_> = (0..length).map(|place| (place * 7 + number) as u8).collect();
            near.send_message(&data).unwrap();
            let message = near.receive_message(&mut room).unwrap().unwrap();
            assert_eq!((message.length, message.sequence), (length, number as u64));
            assert!(room[..length] == data, "{length} bytes came otherwise");
        }
        assert!(near.send_message(&vec![0; near.most_sent() + 1]).is_err());
        drop(near);
        answering.join().unwrap();
    }
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
    // The process's thread reads what the ends tell each other: no reset drops the last bytes.
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

#[test]
fn a_message_longer_than_the_buffer_is_passed_over() {
    let Some(at) = loopback(false) else { return };
    let (near, far) = streams(at, QosOptions::default(), QosOptions::default());
    near.send_message(&[1; 100_000]).unwrap();
    near.send_message(&[2; 10]).unwrap();
    let mut room = [0; 64];
    let error = far.receive_message(&mut room).unwrap_err().to_string();
    assert_eq!(error, "a message of 100000 bytes is longer than the buffer: 64");
    assert_eq!(far.receive_message(&mut room).unwrap().unwrap().length, 10);
    let (near, far) = sockets(at, QosOptions::default(), QosOptions::default());
    near.send_message(&[1; 100]).unwrap();
    near.send_message(&[1; 10_000]).unwrap();
    near.send_message(&[2; 10]).unwrap();
    assert!(far.receive_message(&mut room).is_err());
    assert!(far.receive_message(&mut room).is_err());
    assert_eq!(far.receive_message(&mut room).unwrap().unwrap().length, 10);
}
