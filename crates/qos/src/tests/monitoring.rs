//! Delivery statistics and violations at both ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use ontempo_mechanisms::qos::{Parameter, Step, Turn, Value};

use super::relay::{Relay, relay};
use super::*;

/// Messages per second.
const RATE: u32 = 400;

fn lossy() -> Specification {
    Specification {
        loss: Term::coerced(Percent::new(5)),
        rec_time: Term::coerced(Duration::from_secs(1)),
        size: Term::coerced(Bytes::new(1_280)),
        ..Specification::default()
    }
}

/// A flow through a relay: a thread sends, another receives.
struct Flow {
    near: QosSocket,
    far: QosSocket,
    relay: Relay,
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Vec<u64>>>,
}

fn flow(near: QosOptions, far: QosOptions) -> Flow {
    let listener = QosSocket::bind("127.0.0.1:0", far).unwrap();
    let relay = relay(listener.local_address());
    let to = relay.at;
    let connecting = thread::spawn(move || QosSocket::connect(to, &near).unwrap());
    let (far, _) = listener.accept().unwrap();
    let near = connecting.join().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (sender, over, receiver) = (near.clone(), is_over.clone(), far.clone());
    let sending = thread::spawn(move || {
        let started = Instant::now();
        for number in 1.. {
            if over.load(Relaxed) {
                break;
            }
            sender.send_message(&[7; 100]).unwrap();
            let due = started + Wall::from_secs(1) * number / RATE;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Vec::new()
    });
    let receiving = thread::spawn(move || {
        let mut buffer = [0; 2_000];
        let mut numbers = Vec::new();
        while let Some(message) = receiver.receive_message(&mut buffer).unwrap() {
            numbers.push(message.sequence);
        }
        numbers
    });
    Flow { near, far, relay, is_over, threads: vec![sending, receiving] }
}

/// The next violation of a parameter, in either direction.
fn next(events: &Events, parameter: Parameter) -> (Turn, Value) {
    let until = Instant::now() + Wall::from_secs(20);
    while Instant::now() < until {
        if let Some(Event::Violation { violation, .. }) = events.next_within(Wall::from_secs(1))
            && violation.parameter == parameter
        {
            return (violation.turn, violation.delivered);
        }
    }
    panic!("no violation of {parameter}");
}

impl Flow {
    /// Stops sending, waits until both ends have exchanged reports, calls `check`, and closes;
    /// returns the sequence numbers of the received messages.
    fn end(self, check: impl FnOnce(&QosSocket, &QosSocket, &Relay)) -> Vec<u64> {
        let Self { near, far, relay, is_over, mut threads } = self;
        is_over.store(true, Relaxed);
        threads.remove(0).join().unwrap();
        thread::sleep(Wall::from_millis(1_700));
        check(&near, &far, &relay);
        drop(near);
        drop(far);
        threads.remove(0).join().unwrap()
    }
}

#[test]
fn loss_is_reported_as_a_violation_at_both_ends_until_it_stops() {
    let flow = flow(QosOptions::sending(lossy()), QosOptions::receiving(lossy()));
    let (near, far) = (flow.near.events(), flow.far.events());
    thread::sleep(Wall::from_millis(700));
    flow.relay.faults.lose_one_in.store(4, Relaxed);
    for events in [&far, &near] {
        let (turn, delivered) = next(events, Parameter::Loss);
        let Value::Share(share) = delivered else { panic!("{delivered} is no share") };
        assert_eq!(turn, Turn::Begins);
        assert!((20.0..=30.0).contains(&share.as_f64()), "{share} were lost");
    }
    flow.relay.faults.lose_one_in.store(0, Relaxed);
    for events in [&far, &near] {
        assert_eq!(next(events, Parameter::Loss).0, Turn::Ends);
    }
    let numbers = flow.end(|near, far, relay| {
        let (here, there) = (near.delivery(Direction::Sending), far.delivery(Direction::Receiving));
        println!("{here:?}");
        println!("{there:?}");
        let (forwarded, lost) =
            (relay.faults.forwarded.load(Relaxed), relay.faults.lost.load(Relaxed));
        assert_eq!((there.messages, there.lost_messages), (forwarded, lost));
        assert_eq!((here.messages, here.lost_messages), (forwarded, lost));
        assert_eq!((here.sent_messages, there.sent_messages), (forwarded + lost, forwarded + lost));
    });
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn reordered_messages_are_dropped_unless_permutable_was_agreed() {
    for permutable in [Term::default(), Term::coerced(false), Term::coerced(true)] {
        let may_permute = permutable.value == Some(true);
        let asked = Specification { permutable, ..lossy() };
        let flow = flow(QosOptions::sending(asked), QosOptions::receiving(asked));
        flow.relay.faults.swap_one_in.store(5, Relaxed);
        thread::sleep(Wall::from_millis(700));
        flow.relay.faults.swap_one_in.store(0, Relaxed);
        thread::sleep(Wall::from_millis(100));
        let numbers = flow.end(|_, far, relay| {
            let there = far.delivery(Direction::Receiving);
            let forwarded = relay.faults.forwarded.load(Relaxed);
            assert_eq!(there.messages + there.lost_messages, forwarded);
            assert_eq!(there.lost_messages > 0, !may_permute, "{there:?}");
        });
        let is_in_order = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        assert_eq!(is_in_order, !may_permute);
    }
}

#[test]
fn an_interrupted_flow_violates_rec_time_until_it_resumes() {
    let flow = flow(QosOptions::sending(lossy()), QosOptions::receiving(lossy()));
    let far = flow.far.events();
    thread::sleep(Wall::from_millis(700));
    flow.relay.faults.is_cut.store(1, Relaxed);
    let (turn, delivered) = next(&far, Parameter::RecTime);
    assert_eq!(turn, Turn::Begins);
    let Value::Span(silent) = delivered else { panic!("{delivered} is no time") };
    assert!((1.0..2.5).contains(&silent.as_secs_f64()), "silent for {silent}");
    flow.relay.faults.is_cut.store(0, Relaxed);
    assert_eq!(next(&far, Parameter::RecTime).0, Turn::Ends);
    // A sender that stops is no violation.
    flow.end(|_, _, _| {});
    assert!(!far.waiting().any(|event| {
        matches!(event, Event::Violation { violation, .. }
            if violation.parameter == Parameter::RecTime)
    }));
}

#[test]
fn a_sender_steps_down_the_ladder_on_loss_and_up_again() {
    let less = Specification { loss: Term::coerced(Percent::new(50)), ..lossy() };
    let ladder = LadderOptions {
        below: vec![less],
        step_down_after: Duration::from_secs(1),
        step_up_after: Duration::from_secs(1),
    };
    let near = QosOptions { ladder: Some(ladder), ..QosOptions::sending(lossy()) };
    let flow =
        flow(near, QosOptions { receive: Specification::default(), ..QosOptions::default() });
    let (near, far) = (flow.near.events(), flow.far.events());
    flow.relay.faults.lose_one_in.store(4, Relaxed);
    let steps = || {
        near.next_within(Wall::from_secs(10)).map(|event| match event {
            Event::Step { step, agreed } => Some((step, agreed.loss.value)),
            _ => None,
        })
    };
    let first = std::iter::from_fn(steps).flatten().next();
    assert_eq!(first, Some((Step::Down(1), Some(Percent::new(50)))));
    let changed = |event| matches!(event, Event::Changed { agreed, .. } if agreed.loss.value == less.loss.value);
    let mut events = std::iter::from_fn(|| far.next_within(Wall::from_secs(5)));
    assert!(events.any(changed), "the receiver saw no change");
    flow.relay.faults.lose_one_in.store(0, Relaxed);
    let second = std::iter::from_fn(steps).flatten().next();
    assert_eq!(second, Some((Step::Up(0), Some(Percent::new(5)))));
    flow.end(|_, _, _| {});
}

#[test]
fn a_violation_that_lasts_is_told_again() {
    let flow = flow(QosOptions::sending(lossy()), QosOptions::receiving(lossy()));
    let events = [flow.near.events(), flow.far.events()];
    flow.relay.faults.lose_one_in.store(4, Relaxed);
    for events in &events {
        let of_loss = |event: Event| match event {
            Event::Lasting { parameter: Parameter::Loss, asked, lasted, .. } => {
                Some((asked, lasted))
            }
            _ => None,
        };
        let all = std::iter::from_fn(|| events.next_within(Wall::from_secs(20)));
        let (asked, lasted) = all.filter_map(of_loss).next().expect("told again");
        assert_eq!(asked, Value::Share(Percent::new(5)));
        assert!(lasted >= Duration::from_secs(10), "{lasted}");
    }
    flow.relay.faults.lose_one_in.store(0, Relaxed);
    flow.end(|_, _, _| {});
}

#[test]
fn a_refused_reservation_steps_down_as_a_violation_does() {
    let ladder = LadderOptions {
        below: vec![lossy()],
        step_down_after: Duration::from_secs(1),
        step_up_after: Duration::from_secs(10),
    };
    let (asked, start) = (video(), ontempo_foundation::Time::from_nanos(0));
    let nothing = Specification::default();
    let new = || crate::outgoing::Outgoing::new(start, asked, nothing, asked, Some(&ladder));
    let steps = |is_refused| {
        let mut outgoing = new();
        let ticks = (1..=4).map(|half| start + Duration::from_millis(500) * half);
        ticks.filter_map(|now| outgoing.on_tick(now, 0, is_refused)).collect::<Vec<_>>()
    };
    assert_eq!(steps(true).first().map(|(step, _)| *step), Some(Step::Down(1)));
    assert_eq!(steps(false), []);
}

#[test]
fn a_held_rung_stays_whatever_is_violated_until_it_is_released() {
    let ladder = LadderOptions {
        below: vec![lossy(), lossy()],
        step_down_after: Duration::from_secs(1),
        step_up_after: Duration::from_secs(10),
    };
    let (asked, start) = (video(), ontempo_foundation::Time::from_nanos(0));
    let nothing = Specification::default();
    let mut outgoing = crate::outgoing::Outgoing::new(start, asked, nothing, asked, Some(&ladder));
    let mut now = start;
    let mut tick = |outgoing: &mut crate::outgoing::Outgoing, is_refused| {
        now += Duration::from_millis(500);
        outgoing.on_tick(now, 0, is_refused).map(|(step, _)| step)
    };
    assert_eq!(outgoing.rungs(), (3, 0, None));
    outgoing.hold(Some(2));
    assert_eq!(tick(&mut outgoing, false), Some(Step::Down(2)));
    outgoing.hold(Some(7));
    assert_eq!(outgoing.rungs(), (3, 2, Some(2)), "it has no rung 7");
    assert!((0..10).all(|_| tick(&mut outgoing, true).is_none()), "held");
    outgoing.hold(Some(1));
    assert_eq!(tick(&mut outgoing, true), Some(Step::Up(1)));
    outgoing.hold(None);
    assert_eq!(tick(&mut outgoing, false), Some(Step::Up(0)), "where the ladder was");
    assert_eq!(outgoing.rungs(), (3, 0, None));
    // Without a ladder there is nothing to hold.
    let mut outgoing = crate::outgoing::Outgoing::new(start, asked, nothing, asked, None);
    outgoing.hold(Some(0));
    assert_eq!(outgoing.rungs(), (0, 0, None));
}

#[test]
fn both_ends_report_delay_and_its_uncertainty() {
    let flow = flow(QosOptions::sending(video()), QosOptions::receiving(video()));
    thread::sleep(Wall::from_millis(1_300));
    let near = flow.near.reports();
    let far = flow.far.reports();
    assert_eq!((near.len(), far.len()), (1, 1));
    for (socket, role) in
        [(&near[0], ontempo_monitor::Role::Sender), (&far[0], ontempo_monitor::Role::Receiver)]
    {
        println!("{}", serde_json::to_string(socket).unwrap());
        // The receiver's direction has no specification.
        let dscp = if role == ontempo_monitor::Role::Sender { 34 } else { 0 };
        assert_eq!((socket.role, socket.dscp), (role, dscp));
        let (delay, error) = (socket.delay.unwrap(), socket.delay_error.unwrap());
        assert!(delay < 0.1 && error < 0.1, "{delay} s, off by {error} s");
        assert_eq!(socket.parameters.len(), 9);
        assert!(socket.throughput > 100_000.0 && socket.jitter.unwrap() < 0.1);
    }
    flow.end(|_, _, _| {});
}
