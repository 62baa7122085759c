use std::sync::mpsc::channel;

use ontempo_media::{Fill, Kind, MAX_PIECES, Part, Span, Stuffing};

use super::*;
use crate::message::MAX_GAPS;

/// A unit that is all of a datagram, with the datagram's number in it.
fn unit(datagram: u64) -> Unit {
    unit_of(datagram, Time::ZERO, 8)
}

/// A unit with so many first bytes of a datagram of 8, the datagram's number, that came to the sender then.
pub(super) fn unit_of(datagram: u64, arrived: Time, length: u16) -> Unit {
    let data = datagram.to_be_bytes()[..usize::from(length)].to_vec();
    let spans = vec![Span { offset: 0, length }];
    let part = Part { datagram, length: 8, arrived, spans, stuffing: Vec::new() };
    Unit {
        id: datagram,
        kind: Kind::Frame,
        media_time: None,
        slack: None,
        continues: None,
        dependencies: Vec::new(),
        parts: vec![part],
        data,
    }
}

/// A unit of as many datagrams as one may have, the first of them this many times as many, of a null packet each: less
/// than 100 kB of it travel.
pub(super) fn many(number: usize) -> Unit {
    let stuffing =
        || Stuffing { offset: 0, packets: 1, counter: 0, counts: false, fill: Fill::Byte(0xff) };
    let parts = (0..MAX_PIECES).map(|part| Part {
        datagram: (number * MAX_PIECES + part) as u64,
        length: 188,
        arrived: Time::ZERO,
        spans: Vec::new(),
        stuffing: vec![stuffing()],
    });
    Unit { parts: parts.collect(), data: Vec::new(), ..unit(number as u64) }
}

/// Keeps the numbers of the datagrams that it takes.
struct Numbers(Arc<Mutex<Vec<u64>>>);

impl DatagramTaker for Numbers {
    fn take(&mut self, datagram: TakenDatagram<'_>) {
        let number = datagram.data.try_into().map(u64::from_be_bytes).expect("8 bytes");
        self.0.lock().expect("no panic").push(number);
    }
}

/// A sink for a stream that is delivered in time, or whole, and what it gives out.
fn sink(reliability: Reliability, before: u64) -> (Sink, Arc<Mutex<Vec<u64>>>) {
    let taken = Arc::<Mutex<Vec<u64>>>::default();
    let latency = Duration::from_secs(60);
    let label = Label { before, ..Label::of(1, latency, Duration::ZERO) };
    let config = FlowConfig { reliability, ..FlowConfig::default() };
    let target = Target::Taker(Box::new(Numbers(Arc::clone(&taken))));
    let sink = Sink::open(target, &config, &label, latency, &Arc::default()).expect("opened");
    (sink, taken)
}

#[test]
fn a_viewer_that_joins_midway_gets_a_key_frame_that_later_sound_has_overtaken() {
    let (mut sink, taken) = sink(Reliability::Deadline, 1);
    for datagram in [103, 100, 101, 102] {
        sink.push(unit(datagram)).expect("taken");
    }
    sink.finish().expect("written");
    assert_eq!(*taken.lock().expect("no panic"), [100, 101, 102, 103]);
}

#[test]
fn what_is_not_yet_due_of_a_stream_that_another_follows_is_given_out() {
    for reliability in [Reliability::Deadline, Reliability::Full] {
        let (mut sink, taken) = sink(reliability, 0);
        for datagram in [0, 1, 3] {
            sink.push(unit(datagram)).expect("taken");
        }
        let counts = sink.give_way().expect("written");
        assert_eq!(*taken.lock().expect("no panic"), [0, 1, 3], "{reliability:?}");
        assert_eq!((counts.whole, counts.missing()), (3, 1));
    }
}

#[test]
fn what_is_many_datagrams_and_comes_together_is_written_where_there_is_no_room() {
    for reliability in [Reliability::Deadline, Reliability::Full] {
        let latency = Duration::from_secs(60);
        let label = Label::of(1, latency, Duration::ZERO);
        let config = FlowConfig { reliability, ..FlowConfig::default() };
        let (to, name) = (Box::new(std::io::sink()), "nowhere".to_owned());
        let target = Target::Bytes { to, name };
        let mut sink = Sink::open(target, &config, &label, latency, &Arc::default());
        let sink = sink.as_mut().expect("opened");
        for unit in 1..10 {
            if reliability == Reliability::Full {
                let first = unit * MAX_GAPS as u64;
                sink.abandon((first..first + MAX_GAPS as u64).collect()).expect("taken");
            } else {
                sink.push(many(unit as usize)).expect("taken");
            }
            let Sink::Stream { depacketizer, .. } = &*sink else { panic!("it is a stream") };
            let held = depacketizer.depacketizer.waiting();
            assert!(held <= DepacketizerOptions::default().max_bytes);
        }
    }
}

#[test]
fn what_was_sent_before_a_stream_was_joined_holds_nothing_up_and_is_not_missing() {
    let ms = |ms| Time::ZERO + Duration::from_secs(9) + Duration::from_millis(ms);
    for reliability in [Reliability::Deadline, Reliability::Full] {
        let (mut sink, taken) = sink(reliability, 1);
        // Of 101 a part, of 102 all was sent before.
        for (datagram, arrived, length) in [
            (100, ms(0), 8),
            (101, ms(1), 4),
            (103, ms(2), 8),
            (104, ms(90), 8),
            (105, ms(120), 8),
            (106, ms(250), 8),
        ] {
            sink.push(unit_of(datagram, arrived, length)).expect("taken");
        }
        if reliability == Reliability::Full {
            sink.work(true).expect("written");
            assert_eq!(*taken.lock().expect("no panic"), [100, 103, 104, 105, 106]);
        }
        // Later on it is.
        sink.push(unit_of(107, ms(260), 4)).expect("taken");
        sink.push(unit_of(109, ms(270), 8)).expect("taken");
        let counts = sink.finish().expect("written");
        assert_eq!(*taken.lock().expect("no panic"), [100, 103, 104, 105, 106, 109]);
        let counted = (counts.whole, counts.damaged, counts.missing());
        assert_eq!(counted, (6, 1, 1), "{reliability:?}");
    }
}

/// A sink that sends to this address, and what stops it.
fn to_network(to: SocketAddr, latency: Duration) -> (Sink, Arc<AtomicBool>) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = Socket::bind(any, ontempo_udp::SocketOptions::default()).expect("a socket");
    let target = Target::Datagrams { socket, to, control: None, described: None };
    let (stop, label) = (Arc::default(), Label::of(1, latency, Duration::ZERO));
    let config = FlowConfig { reliability: Reliability::Deadline, ..FlowConfig::default() };
    let sink = Sink::open(target, &config, &label, latency, &stop).expect("opened");
    (sink, stop)
}

#[test]
fn a_stopped_sink_does_not_wait_for_what_is_due_in_an_hour() {
    let player = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = player.local_addr().expect("its address");
    let (mut sink, stop) = to_network(to, Duration::from_secs(3_600));
    sink.push(unit(0)).expect("taken");
    stop.store(true, Ordering::Relaxed);
    let counts = sink.finish_within(Wall::from_millis(50)).expect("ended");
    assert_eq!(counts.whole, 0);
}

#[test]
fn a_stopped_sink_does_not_wait_for_room() {
    let (sink, stop) = to_network(SocketAddr::from(([127, 0, 0, 1], 9)), Duration::ZERO);
    let Sink::Udp { load, .. } = &sink else { panic!("it is to the network") };
    load.queued.store(1 << 40, Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    let (done, finished) = channel();
    std::thread::spawn(move || done.send(sink.finish_within(Wall::ZERO).is_ok()));
    assert_eq!(finished.recv_timeout(Wall::from_secs(60)), Ok(true));
}

#[test]
fn datagrams_that_the_system_refuses_are_told_once() {
    // Without the right to broadcast.
    let (mut sink, _) = to_network(SocketAddr::from(([255; 4], 9)), Duration::ZERO);
    sink.push(unit(0)).expect("taken");
    let told = std::iter::repeat_with(|| {
        sleep(RETRY);
        sink.unsent()
    });
    let told = told.take(100_000).flatten().next().expect("told in time");
    assert_eq!(told, "datagrams not sent to the player: 1 refused by the system");
    assert_eq!(sink.unsent(), None);
}
