//! How a TCP connection that can be made anew ends, with peers that say less, or more, than they should.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use super::recovery::{attacked, come_back_over, control};
use super::*;
use crate::wire::{Header, Kind, Setup};

const LONG: Wall = Wall::from_secs(20);

fn bye() -> Vec<u8> {
    Header { kind: Kind::Bye, length: 0, sequence: 0, sent: 0 }.to_tcp().to_vec()
}

fn data(sequence: u32) -> Vec<u8> {
    Header { kind: Kind::Data, length: 0, sequence, sent: 0 }.to_tcp().to_vec()
}

/// What the peer sends of all that an end needs before it may leave, which has sent one message and its end.
fn all() -> Vec<u8> {
    [data(0), control(Kind::End, 1), control(Kind::Ack, 2)].concat()
}

/// Whether an end by hand hears a message of a kind before the end of the stream.
fn hears(mut stream: &TcpStream, kind: Kind) -> bool {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut header = [0; crate::wire::TCP_HEADER];
    while stream.read_exact(&mut header).is_ok() {
        let header = Header::of_tcp(&header, 100).unwrap();
        stream.read_exact(&mut vec![0; header.length]).unwrap();
        if header.kind == kind {
            return true;
        }
    }
    false
}

#[test]
fn each_end_says_that_both_have_all_and_then_closes_at_once() {
    let (_, _, accepted, mut stream) = attacked();
    accepted.send_message(b"one").unwrap();
    let closing = thread::spawn(move || accepted.close(LONG));
    stream.write_all(&all()).unwrap();
    assert!(hears(&stream, Kind::Bye));
    stream.write_all(&bye()).unwrap();
    let begun = Instant::now();
    closing.join().unwrap().unwrap();
    assert!(begun.elapsed() < LONG / 2, "it waits though both have left");
}

#[test]
fn a_bye_before_each_end_has_all_is_a_connection_broken_off() {
    let part = [
        vec![],
        data(0),
        control(Kind::End, 0),
        // Its end, and nothing acknowledged, or less than all.
        [data(0), control(Kind::End, 1)].concat(),
        [data(0), control(Kind::End, 1), control(Kind::Ack, 1)].concat(),
        // All acknowledged, and not its end.
        [data(0), control(Kind::Ack, 2)].concat(),
    ];
    for (number, part) in part.into_iter().enumerate() {
        let (_, _, accepted, mut stream) = attacked();
        accepted.send_message(b"one").unwrap();
        accepted.shutdown(Shutdown::Write).unwrap();
        stream.write_all(&[part, bye()].concat()).unwrap();
        let error = accepted.close(LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{number}: {error}");
        assert!(error.to_string().contains("broken it off"), "{number}: {error}");
    }
}

#[test]
fn an_end_of_the_stream_without_a_bye_is_a_break_and_who_returns_ends_it_well() {
    let (to, _, accepted, mut stream) = attacked();
    accepted.send_message(b"one").unwrap();
    let closing = thread::spawn(move || accepted.close(LONG));
    stream.write_all(&all()).unwrap();
    // It has all, and says so; whether that has been heard it cannot know.
    assert!(hears(&stream, Kind::Bye));
    stream.shutdown(Shutdown::Both).unwrap();
    let (mut back, answer) = come_back_over(to, [9; 16], 1, 2).unwrap();
    assert!(matches!(answer, Setup::Returned { received: 2, .. }), "{answer:?}");
    assert!(hears(&back, Kind::Bye), "it is said again");
    assert!(!closing.is_finished(), "who returns is not waited for");
    back.write_all(&bye()).unwrap();
    closing.join().unwrap().unwrap();
}

#[test]
fn an_end_of_the_stream_before_all_was_acknowledged_is_never_a_success() {
    let (_, _, accepted, mut stream) = attacked();
    accepted.send_message(b"one").unwrap();
    stream.write_all(&[data(0), control(Kind::End, 1), control(Kind::Ack, 1)].concat()).unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    let error = accepted.close(Wall::from_millis(700)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[test]
fn a_silent_peer_holds_an_end_that_has_all_until_its_time_and_then_all_is_well() {
    let (_, _, accepted, mut stream) = attacked();
    accepted.send_message(b"one").unwrap();
    stream.write_all(&all()).unwrap();
    accepted.close(Wall::from_millis(700)).unwrap();
    // And one that has not is told so.
    let (_, _, accepted, _stream) = attacked();
    accepted.send_message(b"one").unwrap();
    let error = accepted.close(Wall::from_millis(700)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[test]
fn a_bye_on_a_channel_that_was_replaced_ends_nothing() {
    let (to, _, accepted, mut old) = attacked();
    let (mut back, answer) = come_back_over(to, [9; 16], 1, 0).unwrap();
    assert!(matches!(answer, Setup::Returned { received: 0, .. }), "{answer:?}");
    // It may be reset already.
    let _ = old.write_all(&[all(), bye()].concat());
    back.write_all(&data(0)).unwrap();
    assert_eq!(accepted.receive_message(&mut [0; 10]).unwrap().unwrap().length, 0);
    let closing = thread::spawn(move || accepted.close(LONG));
    assert!(hears(&back, Kind::End));
    back.write_all(&[control(Kind::End, 1), control(Kind::Ack, 1), bye()].concat()).unwrap();
    closing.join().unwrap().unwrap();
}

#[test]
fn what_a_peer_sends_behind_its_bye_holds_nobody() {
    let (_, _, accepted, mut stream) = attacked();
    accepted.send_message(b"one").unwrap();
    let closing = thread::spawn(move || accepted.close(LONG));
    stream.write_all(&[all(), bye()].concat()).unwrap();
    let flood = vec![7; 64 << 10];
    let flooding = thread::spawn(move || while stream.write_all(&flood).is_ok() {});
    closing.join().unwrap().unwrap();
    let begun = Instant::now();
    flooding.join().unwrap();
    assert!(begun.elapsed() < LONG, "it is listened to as long as it likes");
}

/// Closes while a clone is in a call, which `hold` makes.
fn closes_in_time(stream: &QosStream, hold: impl FnOnce(&QosStream) + Send + 'static) {
    let held = stream.clone();
    let (begun, begins) = std::sync::mpsc::channel();
    let holding = thread::spawn(move || {
        begun.send(()).unwrap();
        hold(&held);
    });
    begins.recv().unwrap();
    // The call has begun.
    thread::sleep(Wall::from_millis(200));
    let closing = stream.clone();
    let (closed, closes) = std::sync::mpsc::channel();
    thread::spawn(move || closed.send(closing.close(Wall::from_millis(300))));
    let error = closes.recv_timeout(LONG).expect("it waits for the clone").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(!holding.is_finished(), "nothing was in a call");
    // It ends what holds the clone.
    stream.shutdown(Shutdown::Both).unwrap();
    holding.join().unwrap();
}

#[test]
fn a_close_ends_in_time_whatever_its_clones_are_in() {
    let reads = |stream: &QosStream| drop(stream.receive_message(&mut [0; 10]));
    // As in a system call whose peer takes nothing.
    let writes = |stream: &QosStream| {
        let _writer = crate::core::lock(&stream.inner().writer);
        thread::sleep(Wall::from_secs(3));
    };
    let (_, _, recovering, _peer) = attacked();
    closes_in_time(&recovering, reads);
    let (_, _, recovering, _peer) = attacked();
    closes_in_time(&recovering, writes);
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let connecting = thread::spawn(move || QosStream::connect(to, &QosOptions::default()).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    closes_in_time(&accepted, reads);
    drop(connecting.join().unwrap());
}

#[test]
fn a_close_may_wait_for_ever() {
    let (_, _, accepted, mut stream) = attacked();
    let closing = thread::spawn(move || accepted.close(Wall::MAX));
    stream.write_all(&[control(Kind::End, 0), control(Kind::Ack, 1), bye()].concat()).unwrap();
    closing.join().unwrap().unwrap();
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).unwrap();
    let to = listener.local_address().unwrap();
    let connecting = thread::spawn(move || QosStream::connect(to, &QosOptions::default()).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    drop(connecting.join().unwrap());
    accepted.close(Wall::MAX).unwrap();
}

/// Says what it sends more, and hears of no break, for a few turns of the maintenance.
fn goes_on(accepted: &QosStream, stream: &TcpStream) {
    let events = accepted.events();
    for _ in 0..6 {
        accepted.send_message(b"more").unwrap();
        let event = events.next_within(Wall::from_millis(200));
        assert!(!matches!(event, Some(Event::Lost { .. })), "{event:?}");
    }
    assert!(hears(stream, Kind::Data));
}

#[test]
fn an_end_that_reads_no_more_goes_on_sending_over_the_same_connection() {
    let (_, _, accepted, mut stream) = attacked();
    accepted.shutdown(Shutdown::Read).unwrap();
    stream.write_all(&data(0)).unwrap();
    assert!(accepted.receive_message(&mut [0; 10]).unwrap().is_none());
    goes_on(&accepted, &stream);
    // What was dropped has been acknowledged, and what comes behind it is read.
    stream.write_all(&[data(1), control(Kind::End, 2)].concat()).unwrap();
    assert!(hears(&stream, Kind::Ack));
}

#[test]
fn a_thread_that_reads_is_woken_by_the_end_of_reading_and_the_connection_stays() {
    let (_, _, accepted, mut stream) = attacked();
    let reader = accepted.clone();
    let (done, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || done.send(reader.receive_message(&mut [0; 10]).unwrap().is_none()));
    // It is in the call.
    thread::sleep(Wall::from_millis(200));
    accepted.shutdown(Shutdown::Read).unwrap();
    assert!(is_done.recv_timeout(LONG).expect("it is not woken"));
    goes_on(&accepted, &stream);
    stream.write_all(&[data(0), control(Kind::End, 1)].concat()).unwrap();
    assert!(hears(&stream, Kind::Ack));
    // It closes as any other.
    accepted.shutdown(Shutdown::Write).unwrap();
    let closing = thread::spawn(move || accepted.close(LONG));
    stream.write_all(&[control(Kind::Ack, 7), bye()].concat()).unwrap();
    closing.join().unwrap().unwrap();
}

#[test]
fn a_message_that_the_peer_was_told_to_send_again_is_not_taken_from_the_old_channel() {
    let (to, _, accepted, mut stream) = attacked();
    stream.write_all(&data(0)).unwrap();
    // It is there, and the maintenance has opened it.
    assert!(accepted.inner().channel.peek(&mut [0]).is_ok());
    let until = Instant::now() + LONG;
    while !crate::core::lock(&accepted.inner().reader).has_opened() && Instant::now() < until {
        accepted.inner().hear();
    }
    assert_eq!(accepted.inner().freeze(), 0);
    accepted.set_read_timeout(Some(Wall::from_millis(100))).unwrap();
    let error = accepted.receive_message(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    let (mut back, answer) = come_back_over(to, [9; 16], 1, 0).unwrap();
    assert!(matches!(answer, Setup::Returned { received: 0, .. }), "{answer:?}");
    back.write_all(&data(0)).unwrap();
    accepted.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(accepted.receive_message(&mut [0; 10]).unwrap().unwrap().sequence, 0);
}
