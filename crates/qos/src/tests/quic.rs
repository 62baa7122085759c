//! How specifications map to QUIC, and hostile peers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use ontempo_mechanisms::qos::{Parameter, Turn};

use super::relay::{Relay, relay};
use super::transports::token;
use super::*;
use ontempo_transport::{Identity, Trust};

fn listener(options: QosOptions) -> (QosConnectionListener, Trust) {
    let identity = Identity::self_signed(&["localhost"]).unwrap();
    let trust = Trust::Fingerprint(identity.fingerprint());
    let at = "127.0.0.1:0";
    (QosConnection::bind(at, (&identity, &token()), options).unwrap(), trust)
}

/// Both ends, with a relay between them.
fn relayed(asked: Specification) -> (QosConnection, QosConnection, Relay) {
    let (listener, trust) = listener(QosOptions::receiving(asked));
    let relay = relay(listener.local_address());
    let to = relay.at;
    let connecting = thread::spawn(move || {
        let options = QosOptions::sending(asked);
        QosConnection::connect(to, "localhost", (&trust, &token()), &options).unwrap()
    });
    let (far, _) = listener.accept().unwrap();
    (connecting.join().unwrap(), far, relay)
}

fn tolerant(loss: Option<u32>) -> Specification {
    Specification {
        loss: Term { value: loss.map(Percent::new), coerced: true },
        size: Term::coerced(Bytes::new(1_280)),
        ..Specification::default()
    }
}

/// Sends `count` messages; returns the sequence numbers of the received ones.
fn transfer(asked: Specification, lose_one_in: u32, count: u32) -> Vec<u64> {
    let (near, far, relay) = relayed(asked);
    relay.faults.lose_any_in.store(lose_one_in, Relaxed);
    let receiving = thread::spawn(move || {
        let (mut buffer, mut numbers) = ([0; 1_280], Vec::new());
        while let Some(message) = far.receive_message(&mut buffer).unwrap() {
            numbers.push(message.sequence);
        }
        numbers
    });
    for _ in 0..count {
        near.send_message(&[3; 1_000]).unwrap();
        thread::sleep(Wall::from_millis(1));
    }
    near.close(Wall::from_secs(20)).unwrap();
    receiving.join().unwrap()
}

#[test]
fn without_permitted_loss_all_messages_arrive_in_order() {
    let numbers = transfer(tolerant(None), 7, 400);
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
}

#[test]
fn permutable_messages_are_delivered_as_they_arrive() {
    let asked = Specification { permutable: Term::coerced(true), ..tolerant(None) };
    let mut numbers = transfer(asked, 7, 400);
    assert!(numbers.windows(2).any(|pair| pair[0] > pair[1]), "no message overtook a lost one");
    numbers.sort_unstable();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
}

#[test]
fn messages_that_may_be_lost_are_sent_again_only_within_max_delay() {
    let never = transfer(tolerant(Some(5)), 7, 400);
    assert!((300..380).contains(&never.len()), "{} of 400 arrived", never.len());
    assert!(never.windows(2).all(|pair| pair[0] < pair[1]));
    // Long enough for a cwnd that the losses have reduced.
    let max_delay = Term::coerced(Duration::from_secs(3));
    let in_time = transfer(Specification { max_delay, ..tolerant(Some(5)) }, 7, 400);
    assert!(in_time.len() > 395, "{} of 400 arrived", in_time.len());
}

#[test]
fn an_interruption_shorter_than_rec_time_loses_nothing() {
    let rec_time = Term::coerced(Duration::from_secs(15));
    let (near, far, relay) = relayed(Specification { rec_time, ..tolerant(None) });
    let receiving = thread::spawn(move || {
        let (mut buffer, mut numbers) = ([0; 1_280], Vec::new());
        while let Some(message) = far.receive_message(&mut buffer).unwrap() {
            numbers.push(message.sequence);
        }
        numbers
    });
    for number in 0..400 {
        relay.faults.is_cut.store(u32::from((100..300).contains(&number)), Relaxed);
        near.send_message(&[3; 1_000]).unwrap();
        thread::sleep(Wall::from_millis(10));
    }
    near.close(Wall::from_secs(20)).unwrap();
    assert_eq!(receiving.join().unwrap(), (0..400).collect::<Vec<_>>());
}

#[test]
fn loss_is_reported_as_a_violation_at_both_ends_until_it_stops() {
    let (near, far, relay) = relayed(tolerant(Some(5)));
    let (near_events, far_events) = (near.events(), far.events());
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let (over, sender) = (is_over.clone(), near.clone());
    let sending = thread::spawn(move || {
        while !over.load(Relaxed) {
            sender.send_message(&[3; 1_000]).unwrap();
            thread::sleep(Wall::from_millis(3));
        }
    });
    let receiving = thread::spawn(move || {
        let mut buffer = [0; 1_280];
        while far.receive_message(&mut buffer).unwrap().is_some() {}
    });
    let turn = |events: &Events, expected: Turn| {
        let until = Instant::now() + Wall::from_secs(20);
        while Instant::now() < until {
            if let Some(Event::Violation { violation, .. }) = events.next_within(Wall::from_secs(1))
                && (violation.parameter, violation.turn) == (Parameter::Loss, expected)
            {
                return;
            }
        }
        panic!("no event {expected:?}");
    };
    relay.faults.lose_any_in.store(4, Relaxed);
    turn(&far_events, Turn::Begins);
    turn(&near_events, Turn::Begins);
    relay.faults.lose_any_in.store(0, Relaxed);
    turn(&far_events, Turn::Ends);
    turn(&near_events, Turn::Ends);
    is_over.store(true, Relaxed);
    sending.join().unwrap();
    near.close(Wall::from_secs(10)).unwrap();
    receiving.join().unwrap();
}

#[test]
fn sent_messages_arrive_although_the_sender_is_dropped() {
    let (listener, trust) = listener(QosOptions::default());
    let to = listener.local_address();
    let sending = thread::spawn(move || {
        let known = (&trust, &token());
        let near = QosConnection::connect(to, "localhost", known, &QosOptions::default()).unwrap();
        for number in 0..50u8 {
            near.send_message(&vec![number; 20_000]).unwrap();
        }
    });
    let (far, _) = listener.accept().unwrap();
    sending.join().unwrap();
    thread::sleep(Wall::from_millis(300));
    let mut buffer = vec![0; 20_000];
    for number in 0..50u8 {
        assert_eq!(far.receive_message(&mut buffer).unwrap().unwrap().length, 20_000);
        assert_eq!(buffer[0], number);
    }
    assert_eq!(far.receive_message(&mut buffer).unwrap(), None);
}

#[test]
fn a_read_timeout_ends_a_wait_and_later_messages_are_received() {
    let (near, far, _relay) = relayed(tolerant(None));
    far.set_read_timeout(Some(Wall::from_millis(50)));
    let mut buffer = [0; 1_280];
    let error = far.receive_message(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    near.send_message(b"late").unwrap();
    far.set_read_timeout(None);
    assert_eq!(far.receive_message(&mut buffer).unwrap().unwrap().length, 4);
}

#[test]
fn a_wrong_token_is_refused_and_invalid_clients_do_not_block_a_listener() {
    let (listener, trust) = listener(QosOptions::default());
    let to = listener.local_address();
    let stranger = ontempo_transport::Token::new(b"guessed").unwrap();
    let options = ontempo_transport::live::Options::default();
    // A client that sends an invalid hello.
    let invalid = {
        let trust = trust.clone();
        thread::spawn(move || {
            ontempo_transport::live::connect(to, "localhost", &trust, token(), &options)
        })
    };
    let accepting = thread::spawn(move || listener.accept().unwrap().0);
    let invalid = invalid.join().unwrap().unwrap();
    let nonsense = invalid.open_flow(ontempo_transport::FlowConfig::default()).unwrap();
    // Its flow alone may have had it closed already.
    let _ = nonsense.send(bytes::Bytes::from_static(b"nonsense"));
    let known = (&trust, &stranger);
    let error = QosConnection::connect(to, "localhost", known, &QosOptions::default()).unwrap_err();
    let SetupError::Io(error) = &error else { panic!("{error}") };
    let inside = error.get_ref().and_then(|error| error.downcast_ref());
    let reason = inside.and_then(ontempo_transport::live::Error::close_reason);
    assert_eq!(reason, Some(ontempo_transport::CloseReason::WrongToken), "{error}");
    let known = (&trust, &token());
    let near = QosConnection::connect(to, "localhost", known, &QosOptions::default()).unwrap();
    let far = accepting.join().unwrap();
    near.send_message(b"here").unwrap();
    assert_eq!(far.receive_message(&mut [0; 10]).unwrap().unwrap().length, 4);
}
