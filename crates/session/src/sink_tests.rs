use ontempo_media::{Kind, Part, Span};

use super::*;

/// A unit that is all of a datagram, with the datagram's number in it.
fn unit(datagram: u64) -> Unit {
    let data = datagram.to_be_bytes().to_vec();
    let spans = vec![Span { offset: 0, length: 8 }];
    let part = Part { datagram, length: 8, arrived: Time::ZERO, spans, stuffing: Vec::new() };
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
