//! TCP connections that break and are made anew, through a proxy that resets them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ontempo_mechanisms::qos::Parameter;
use ontempo_testing::hostile::{Dice, seeds};
use rustix::net::sockopt::set_socket_linger;

use super::*;
use crate::core::lock;
use crate::listener::Accepted;
use crate::wire::{Counted, Header, Kind, MAX_SETUP, Offer, PREFACE, Reason, Setup, setup_length};

/// Runs of the property, unless the environment says how many.
const SEEDS: u64 = 32;

/// Between the ends: resets what goes through it.
struct Proxy {
    at: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes until all is reset the next time; `u64::MAX`: never.
    left: AtomicU64,
    /// Nobody gets through.
    is_closed: AtomicBool,
    /// It ends what it breaks (FIN) in place of resetting it (RST).
    ends: AtomicBool,
    streams: Mutex<Vec<(TcpStream, Arc<AtomicBool>)>>,
    connected: AtomicU64,
}

impl Shared {
    fn reset(&self) {
        for (stream, is_reset) in lock(&self.streams).drain(..) {
            is_reset.store(true, Relaxed);
            if self.ends.load(Relaxed) {
                let _ = stream.shutdown(Shutdown::Both);
                continue;
            }
            // RST in place of FIN, and an end of the threads in its calls.
            let _ = set_socket_linger(&stream, Some(Wall::ZERO));
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Copies until an end, or until it is the turn of a reset.
    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream, is_reset: &AtomicBool) {
        let mut room = [0; 3_000];
        while let Ok(got @ 1..) = from.read(&mut room) {
            let count = |left: u64| (left < u64::MAX).then(|| left.saturating_sub(got as u64));
            let before = self.left.fetch_update(Relaxed, Relaxed, count).unwrap_or(u64::MAX);
            if before <= got as u64 {
                // Part of it arrives.
                let _ = to.write(&room[..before as usize]);
                self.left.store(u64::MAX, Relaxed);
                self.reset();
                return;
            }
            if to.write_all(&room[..got]).is_err() {
                return;
            }
        }
        if !is_reset.load(Relaxed) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

impl Proxy {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { left: AtomicU64::new(u64::MAX), ..Shared::default() });
        let all = Arc::clone(&shared);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if all.is_closed.load(Relaxed) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                all.connected.fetch_add(1, Relaxed);
                let clone = |stream: &TcpStream| stream.try_clone().unwrap();
                let is_reset = Arc::new(AtomicBool::new(false));
                let both = [clone(&near), clone(&far)];
                lock(&all.streams).extend(both.map(|one| (one, Arc::clone(&is_reset))));
                for (from, to) in [(clone(&near), clone(&far)), (far, near)] {
                    let (all, is_reset) = (Arc::clone(&all), Arc::clone(&is_reset));
                    thread::spawn(move || all.copy(&from, &to, &is_reset));
                }
            }
        });
        Self { at, shared }
    }

    fn reset(&self) {
        self.shared.reset();
    }

    fn reset_after(&self, bytes: u64) {
        self.shared.left.store(bytes, Relaxed);
    }

    fn close(&self) {
        self.shared.is_closed.store(true, Relaxed);
        self.reset();
    }
}

/// Only how long it may take to recover.
fn within(rec_time: Duration) -> Specification {
    Specification { rec_time: Term::coerced(rec_time), ..Specification::default() }
}

fn options(seconds: u64) -> QosOptions {
    QosOptions::both(within(Duration::from_secs(seconds)))
}

/// Both ends, and the proxy between them; the listener goes on in a thread, or is dropped.
fn through(rec_time: u64, listens_on: bool) -> (QosStream, QosStream, Proxy) {
    let listener = QosListener::bind("127.0.0.1:0", options(rec_time)).unwrap();
    let proxy = Proxy::to(listener.local_address().unwrap());
    let at = proxy.at;
    let connecting = thread::spawn(move || QosStream::connect(at, &options(rec_time)).unwrap());
    let (there, _) = listener.accept().unwrap();
    if listens_on {
        thread::spawn(move || while listener.accept_or_refuse().is_ok() {});
    }
    (connecting.join().unwrap(), there, proxy)
}

/// What message `number` of a direction has.
fn content(seed: u64, number: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed.wrapping_mul(1_000_003) ^ number, "content");
    let bound = if dice.once_in(40) { 300_000 } else { 3_000 };
    let length = dice.below(bound) as usize;
    let first = dice.any();
    (0..length).map(|place| (first as usize + place) as u8).collect()
}

fn send_all(stream: &QosStream, seed: u64, count: u64) {
    let mut dice = Dice::new(seed, "pauses");
    for number in 0..count {
        stream.send_message(&content(seed, number)).unwrap();
        thread::sleep(Wall::from_micros(dice.below(2_000)));
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// All that comes, in order and once.
fn check_all(stream: &QosStream, seed: u64, count: u64) {
    let mut buffer = vec![0; 300_000];
    for number in 0..count {
        let message = stream.receive_message(&mut buffer).unwrap().expect("a message");
        assert_eq!(message.sequence, number, "seed {seed}");
        assert!(buffer[..message.length] == content(seed, number), "seed {seed}: {number}");
    }
    assert!(stream.receive_message(&mut buffer).unwrap().is_none(), "seed {seed}");
}

/// The same bytes, whatever the boundaries.
fn check_bytes(mut stream: &QosStream, seed: u64, count: u64) {
    let (mut dice, mut all) = (Dice::new(seed, "reads"), Vec::new());
    let mut buffer = vec![0; 5_000];
    loop {
        let most = 1 + dice.below(5_000) as usize;
        match stream.read(&mut buffer[..most]).unwrap() {
            0 => break,
            got => all.extend_from_slice(&buffer[..got]),
        }
    }
    let sent: Vec<u8> = (0..count).flat_map(|number| content(seed, number)).collect();
    assert!(all == sent, "seed {seed}: {} bytes of {}", all.len(), sent.len());
}

/// Both ends close at the same time, and say that all is there.
fn close_both(near: QosStream, far: QosStream, what: &str) {
    let closing = thread::spawn(move || far.close(Wall::from_secs(20)));
    let closed = [near.close(Wall::from_secs(20)), closing.join().unwrap()];
    assert!(closed.iter().all(Result::is_ok), "{what}: {closed:?}");
}

fn play(seed: u64) -> u64 {
    const COUNT: u64 = 300;
    let mut dice = Dice::new(seed, "breaks");
    let (near, far, proxy) = through(20, dice.once_in(2));
    proxy.shared.ends.store(dice.once_in(3), Relaxed);
    let as_bytes = dice.once_in(2);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = [(&near, &far, seed), (&far, &near, seed + 1_000)];
        let threads: Vec<_> = ends
            .into_iter()
            .flat_map(|(from, to, of)| {
                let receives = move || match as_bytes {
                    true => check_bytes(to, of, COUNT),
                    false => check_all(to, of, COUNT),
                };
                [scope.spawn(move || send_all(from, of, COUNT)), scope.spawn(receives)]
            })
            .collect();
        let breaking = scope.spawn(|| {
            // Rarer with time, so that a long message gets through, which begins anew with each channel.
            let mut pause = 60;
            while !is_over.load(Relaxed) {
                match dice.below(3) {
                    // In a set-up, too.
                    0 => proxy.reset_after(dice.below(300)),
                    1 => proxy.reset_after(dice.below(200_000)),
                    _ => proxy.reset(),
                }
                thread::sleep(Wall::from_millis(dice.below(pause)));
                pause += pause / 20;
            }
            proxy.reset_after(u64::MAX);
        });
        let all: Vec<_> = threads.into_iter().map(|one| one.join()).collect();
        is_over.store(true, Relaxed);
        breaking.join().unwrap();
        all.into_iter().for_each(|one| one.unwrap());
    });
    close_both(near, far, &format!("seed {seed}"));
    proxy.shared.connected.load(Relaxed)
}

/// What `play` makes of each: all at the same time, as nearly all of it is waiting.
fn at_once<T: Sync + Copy>(all: &[T], most: usize, play: impl Fn(T) -> u64 + Sync) -> Vec<u64> {
    let (next, play) = (AtomicU64::new(0), &play);
    thread::scope(|scope| {
        let turns = || {
            let mut made = Vec::new();
            while let Some(one) = all.get(next.fetch_add(1, Relaxed) as usize) {
                made.push(play(*one));
            }
            made
        };
        let threads: Vec<_> = (0..most.min(all.len())).map(|_| scope.spawn(turns)).collect();
        threads.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn whatever_a_path_resets_all_messages_arrive_once_and_in_order() {
    let runs = at_once(&seeds(SEEDS).collect::<Vec<_>>(), 16, play);
    println!("connections: {runs:?}");
    assert!(runs.iter().sum::<u64>() > 2 * runs.len() as u64, "hardly anything broke");
}

/// A short exchange whose path breaks after so many bytes behind the set-up: both ends say that all is there.
fn break_at(bytes: u64, ends: bool) -> u64 {
    // Where the very last word is lost, its receiver waits so long for its sender to come back.
    let (near, far, proxy) = through(8, bytes % 4 < 2);
    proxy.shared.ends.store(ends, Relaxed);
    proxy.reset_after(bytes);
    near.send_message(b"to").unwrap();
    far.send_message(b"from").unwrap();
    let mut buffer = [0; 10];
    for (end, text) in [(&near, &b"from"[..]), (&far, b"to")] {
        let length = end.receive_message(&mut buffer).unwrap().unwrap().length;
        assert_eq!(&buffer[..length], text);
    }
    close_both(near, far, &format!("broken after {bytes} bytes, by an end: {ends}"));
    proxy.shared.connected.load(Relaxed)
}

#[test]
fn wherever_the_path_breaks_both_ends_know_at_their_close_that_all_has_arrived() {
    let cases: Vec<(u64, bool)> =
        (0..320).step_by(2).flat_map(|bytes| [(bytes, false), (bytes, true)]).collect();
    let runs = at_once(&cases, 16, |(bytes, ends)| break_at(bytes, ends));
    let broken = runs.iter().filter(|connected| **connected > 1).count();
    println!("{broken} of {} exchanges broke", runs.len());
    assert!(broken > runs.len() / 3, "hardly anything broke");
    assert!(broken < runs.len(), "there are breaks behind the last word, too");
}

/// The next event that `want` takes.
fn event<T>(events: &Events, want: impl Fn(Event) -> Option<T>) -> T {
    let until = Instant::now() + Wall::from_secs(30);
    while Instant::now() < until {
        if let Some(found) = events.next_within(Wall::from_secs(1)).and_then(&want) {
            return found;
        }
    }
    panic!("no such event");
}

#[test]
fn both_ends_are_told_when_a_connection_is_lost_and_when_it_is_back() {
    let (near, far, proxy) = through(20, false);
    let all = [near.events(), far.events()];
    near.send_message(b"before").unwrap();
    proxy.reset();
    for events in &all {
        let lost = |event| matches!(event, Event::Lost { .. }).then_some(());
        event(events, lost);
        let back = |event| match event {
            Event::Recovered { after } => Some(after),
            _ => None,
        };
        assert!(event(events, back) < Duration::from_secs(20));
    }
    near.send_message(b"after").unwrap();
    let mut buffer = [0; 100];
    for text in [&b"before"[..], b"after"] {
        let length = far.receive_message(&mut buffer).unwrap().unwrap().length;
        assert_eq!(&buffer[..length], text);
    }
    // The addresses are those of now.
    assert_eq!(near.peer_address(), proxy.at);
}

#[test]
fn a_connection_returns_to_another_listener_of_its_process_at_the_address() {
    let listener = QosListener::bind("127.0.0.1:0", options(20)).unwrap();
    let address = listener.local_address().unwrap();
    let proxy = Proxy::to(address);
    let at = proxy.at;
    let connecting = thread::spawn(move || QosStream::connect(at, &options(20)).unwrap());
    let (far, _) = listener.accept().unwrap();
    let near = connecting.join().unwrap();
    drop(listener);
    let listener = QosListener::bind(address, options(20)).unwrap();
    thread::spawn(move || while listener.accept_or_refuse().is_ok() {});
    let events = near.events();
    proxy.reset();
    near.send_message(b"kept").unwrap();
    let mut buffer = [0; 10];
    let length = far.receive_message(&mut buffer).unwrap().unwrap().length;
    assert_eq!(&buffer[..length], b"kept");
    event(&events, |event| matches!(event, Event::Recovered { .. }).then_some(()));
}

#[test]
fn a_connection_that_is_not_back_in_time_violates_rec_time_and_ends() {
    let (near, far, proxy) = through(1, true);
    let all = [near.events(), far.events()];
    proxy.close();
    for (stream, events) in [(&near, &all[0]), (&far, &all[1])] {
        let error = stream.receive_message(&mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        assert!(error.to_string().contains("not made anew within 1 s"), "{error}");
        let violated = |event| match event {
            Event::Violation { violation, .. } if violation.parameter == Parameter::RecTime => {
                Some(())
            }
            _ => None,
        };
        event(events, violated);
        let error = stream.send_message(b"too late").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

#[test]
fn what_waits_for_a_lost_connection_is_bounded_and_then_holds_the_sender() {
    let (near, _far, proxy) = through(20, true);
    let events = near.events();
    proxy.close();
    event(&events, |event| matches!(event, Event::Lost { .. }).then_some(()));
    near.set_write_timeout(Some(Wall::from_millis(20))).unwrap();
    let mut taken = 0;
    let error = loop {
        match near.send_message(&[7; 60_000]) {
            Ok(()) => taken += 60_000,
            Err(error) => break error,
        }
        assert!(taken < 8 << 20, "{taken} bytes wait");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    assert!(taken >= 60_000);
    // That holds up nobody who reads with a time.
    near.set_read_timeout(Some(Wall::from_millis(20))).unwrap();
    let error = near.receive_message(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
}

/// A whole message of the set-up.
fn answer(mut from: &TcpStream) -> io::Result<Setup> {
    from.set_read_timeout(Some(Wall::from_secs(10)))?;
    let mut room = [0; MAX_SETUP];
    from.read_exact(&mut room[..PREFACE])?;
    let length = setup_length(room.first_chunk().unwrap()).unwrap();
    from.read_exact(&mut room[PREFACE..PREFACE + length])?;
    Ok(Setup::read(&room[..PREFACE + length]).unwrap())
}

/// A client by hand: what it is answered, and its stream.
fn hello(to: SocketAddr, token: [u8; 16]) -> (TcpStream, Setup) {
    let mut stream = TcpStream::connect(to).unwrap();
    let hello = Setup::Hello { session: 7, cookie: token, sent: 1, offer: Offer::default() };
    stream.write_all(&hello.to_bytes()).unwrap();
    let answer = answer(&stream).unwrap();
    (stream, answer)
}

/// What a client by hand is answered that returns, and its stream.
pub(super) fn come_back_over(
    to: SocketAddr,
    token: [u8; 16],
    attempt: u32,
    received: u64,
) -> io::Result<(TcpStream, Setup)> {
    let mut stream = TcpStream::connect(to)?;
    let back = Setup::Return { session: 7, token, attempt, received };
    stream.write_all(&back.to_bytes())?;
    let answer = answer(&stream)?;
    Ok((stream, answer))
}

fn come_back(to: SocketAddr, token: [u8; 16], attempt: u32, received: u64) -> io::Result<Setup> {
    come_back_over(to, token, attempt, received).map(|(_, answer)| answer)
}

/// A message with a count.
pub(super) fn control(kind: Kind, messages: u64) -> Vec<u8> {
    let body = Counted { messages }.to_bytes();
    let header = Header { kind, length: body.len(), sequence: 0, sent: 0 };
    [&header.to_tcp()[..], &body].concat()
}

fn is_unknown(answer: io::Result<Setup>) -> bool {
    matches!(answer, Ok(Setup::Refuse { reason: Reason::Unknown, .. }))
}

/// A listener whose refusals are counted, with a client of it.
pub(super) fn attacked() -> (SocketAddr, Arc<AtomicU64>, QosStream, TcpStream) {
    let listener = QosListener::bind("127.0.0.1:0", options(10)).unwrap();
    let to = listener.local_address().unwrap();
    let connecting = thread::spawn(move || hello(to, [9; 16]));
    let (accepted, _) = listener.accept().unwrap();
    let (stream, answer) = connecting.join().unwrap();
    assert!(matches!(answer, Setup::Accept { offer: Offer { recovers: true, .. }, .. }));
    let refused = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&refused);
    thread::spawn(move || {
        while let Ok(one) = listener.accept_or_refuse() {
            if let Accepted::Refused(_, error) = one {
                assert!(matches!(error, SetupError::Unknown), "{error}");
                counted.fetch_add(1, Relaxed);
            }
        }
    });
    (to, refused, accepted, stream)
}

#[test]
fn a_stranger_without_the_token_takes_no_connection_over() {
    let (to, refused, accepted, stream) = attacked();
    let mut near_miss = [9; 16];
    near_miss[15] = 8;
    for token in [[0; 16], [1; 16], near_miss] {
        assert!(is_unknown(come_back(to, token, 1, 0)));
    }
    let until = Instant::now() + Wall::from_secs(10);
    while refused.load(Relaxed) < 3 && Instant::now() < until {
        thread::sleep(Wall::from_millis(10));
    }
    assert_eq!(refused.load(Relaxed), 3);
    // The connection has not noticed anything.
    let message = Header { kind: Kind::Data, length: 2, sequence: 0, sent: 0 };
    (&stream).write_all(&[&message.to_tcp()[..], b"ok"].concat()).unwrap();
    assert_eq!(accepted.receive_message(&mut [0; 10]).unwrap().unwrap().length, 2);
}

#[test]
fn an_old_attempt_to_return_is_refused_and_what_cannot_have_been_received_ends_it() {
    let (to, _, accepted, stream) = attacked();
    accepted.send_message(b"one").unwrap();
    accepted.send_message(b"two").unwrap();
    drop(stream);
    let Ok(Setup::Returned { received, .. }) = come_back(to, [9; 16], 5, 1) else {
        panic!("the owner does not return");
    };
    assert_eq!(received, 0);
    assert!(is_unknown(come_back(to, [9; 16], 5, 1)), "a copy of the same");
    assert!(is_unknown(come_back(to, [9; 16], 4, 1)), "an older one");
    // The stream that came back was closed: another attempt, which has forgotten what it said.
    assert!(is_unknown(come_back(to, [9; 16], 6, 0)), "fewer than were acknowledged");
    let error = accepted.receive_message(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert!(is_unknown(come_back(to, [9; 16], 7, 2)), "it is over");
}

#[test]
fn a_peer_that_says_more_than_can_be_ends_the_connection() {
    let ack = |messages| control(Kind::Ack, messages);
    let end = |messages| control(Kind::End, messages);
    let data =
        |sequence| Header { kind: Kind::Data, length: 0, sequence, sent: 0 }.to_tcp().to_vec();
    let lies = [
        ack(3),
        [ack(2), ack(1)].concat(),
        data(1),
        [data(0), data(0)].concat(),
        end(1),
        [end(0), data(0)].concat(),
        [data(0), end(2)].concat(),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let (_, _, accepted, mut stream) = attacked();
        accepted.send_message(b"one").unwrap();
        accepted.send_message(b"two").unwrap();
        stream.write_all(&lie).unwrap();
        accepted.set_read_timeout(Some(Wall::from_secs(5))).unwrap();
        let mut buffer = [0; 10];
        // What comes behind the end is found by whoever reads for acknowledgements.
        let until = Instant::now() + Wall::from_secs(5);
        let error = loop {
            match accepted.receive_message(&mut buffer) {
                Ok(Some(_)) => {}
                Ok(None) if Instant::now() < until => match accepted.send_message(b"more") {
                    Ok(()) => thread::sleep(Wall::from_millis(20)),
                    Err(error) => break error,
                },
                Ok(None) => panic!("lie {number} is believed"),
                Err(error) => break error,
            }
        };
        let is_told = [ErrorKind::InvalidData, ErrorKind::ConnectionReset].contains(&error.kind());
        assert!(is_told, "lie {number}: {error}");
    }
}

fn unrecoverable(events: &Events) {
    event(events, |event| matches!(event, Event::Unrecoverable { .. }).then_some(()));
}

#[test]
fn a_client_of_an_older_version_is_served_as_before_and_the_listener_says_so() {
    let listener = QosListener::bind("127.0.0.1:0", options(10)).unwrap();
    let to = listener.local_address().unwrap();
    let connecting = thread::spawn(move || hello(to, [0; 16]));
    let (accepted, _) = listener.accept().unwrap();
    let (mut stream, answer) = connecting.join().unwrap();
    assert!(matches!(answer, Setup::Accept { offer: Offer { recovers: false, .. }, .. }));
    unrecoverable(&accepted.events());
    let message = Header { kind: Kind::Data, length: 2, sequence: 0, sent: 0 };
    stream.write_all(&[&message.to_tcp()[..], b"ok"].concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(accepted.receive_message(&mut buffer).unwrap().unwrap().length, 2);
    assert!(accepted.receive_message(&mut buffer).unwrap().is_none());
}

#[test]
fn a_server_of_an_older_version_is_used_as_before_and_the_client_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let Setup::Hello { session, sent, offer, .. } = answer(&stream).unwrap() else {
            panic!("no hello");
        };
        assert!(!offer.recovers, "an older version refuses the flag");
        let offer = Offer { recovers: false, ..offer };
        let accept = Setup::Accept { session, echo: sent, arrived: 1, sent: 1, offer };
        stream.write_all(&accept.to_bytes()).unwrap();
        stream
    });
    let near = QosStream::connect(to, &options(10)).unwrap();
    unrecoverable(&near.events());
    drop(serving.join().unwrap());
    assert!(near.receive_message(&mut [0; 10]).unwrap_or(None).is_none());
}

#[test]
fn an_end_that_breaks_off_is_not_waited_for() {
    let (near, far, _proxy) = through(60, true);
    near.shutdown(Shutdown::Both).unwrap();
    let begun = Instant::now();
    let error = far.receive_message(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert!(begun.elapsed() < Wall::from_secs(50), "it waited for the peer");
}
