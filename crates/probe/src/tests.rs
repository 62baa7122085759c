//! Both ends in virtual time, over a network made of a delay, a bottleneck and mischief.

mod hostile;
mod receiver;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver as Results, channel};

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};
use ontempo_mechanisms::spacing::SpacingParameters;
use proptest::prelude::*;

use super::wire::{Cookie, Data, Message, Reason, Report, WireError};
use super::*;
use ontempo_udp::{
    Clock, Datagram, Driver, DriverOptions, Dscp, Ecn, Next, Protocol, Socket, SocketOptions,
    random,
};

const SENDER: usize = 0;
const RECEIVER: usize = 1;

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, place as u8], 5_000))
}

/// Chances, each of a packet, 0 to 1.
#[derive(Clone, Copy, Default)]
struct Mischief {
    lose: f64,
    repeat: f64,
    corrupt: f64,
    /// Longest additional delay.
    jitter: Duration,
}

/// When it arrives, its number, to whom, what.
type Flying = (Time, u64, usize, Vec<u8>);

/// A network between two ends: each way 10 ms, and a bottleneck of 10 packets towards the receiver.
struct Network {
    now: Time,
    rate: Rate,
    /// When the bottleneck has sent what it has.
    free: Time,
    dropped: u64,
    mischief: Mischief,
    random: RandomStream,
    flying: BinaryHeap<Reverse<Flying>>,
    count: u64,
    /// Sent by each end, and their bytes with headers.
    packets: [usize; 2],
    bytes: [usize; 2],
}

const DELAY: Duration = Duration::from_millis(10);

impl Network {
    fn new(rate: Rate, mischief: Mischief, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            rate,
            free: Time::ZERO,
            dropped: 0,
            mischief,
            random: RandomStream::new(seed, "network"),
            flying: BinaryHeap::new(),
            count: 0,
            packets: [0; 2],
            bytes: [0; 2],
        }
    }

    fn carry(&mut self, from: usize, bytes: &[u8]) {
        let mut leaves = self.now;
        self.packets[from] += 1;
        self.bytes[from] += bytes.len() + 28;
        if from == SENDER {
            let each = self.rate.time_to_send(Bytes::new(bytes.len() as u64 + 28));
            if self.free.since(self.now) > each * 10 {
                self.dropped += 1;
                return;
            }
            self.free = self.free.max(self.now) + each;
            leaves = self.free;
        }
        let mischief = self.mischief;
        if self.random.uniform() < mischief.lose {
            return;
        }
        let copies = 1 + usize::from(self.random.uniform() < mischief.repeat);
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            if self.random.uniform() < mischief.corrupt && !bytes.is_empty() {
                let place = (self.random.uniform() * bytes.len() as f64) as usize;
                bytes[place] ^= 1 << (self.count % 8);
            }
            let jitter = mischief.jitter.mul_f64(self.random.uniform());
            self.count += 1;
            self.flying.push(Reverse((leaves + DELAY + jitter, self.count, 1 - from, bytes)));
        }
    }

    /// Lets one end send what it may; answers when it wants to be asked again.
    fn serve(&mut self, place: usize, end: &mut impl Protocol) -> Time {
        if end.next_timeout() <= self.now {
            end.handle_timeout(self.now);
        }
        let mut buffer = Vec::new();
        let next = match end.poll_transmit(self.now, &mut buffer) {
            Next::Transmit(transmit) => {
                let segment = transmit.segment.map_or(buffer.len(), usize::from).max(1);
                buffer.chunks(segment).for_each(|one| self.carry(place, one));
                // The sender's own interface: 1 Gbit/s.
                self.now + Duration::from_nanos(buffer.len() as u64 * 8)
            }
            Next::WaitUntil(until) => until,
            Next::Idle => Time::NEVER,
        };
        next.min(end.next_timeout())
    }

    /// Runs until the sender is finished, or `limit`.
    fn run(&mut self, sender: &mut impl Protocol, receiver: &mut impl Protocol, limit: Time) {
        while !sender.is_finished() && self.now < limit {
            let next = self.serve(SENDER, sender).min(self.serve(RECEIVER, receiver));
            if sender.is_finished() {
                return;
            }
            let arrival = self.flying.peek().map_or(Time::NEVER, |Reverse(first)| first.0);
            self.now = next.min(arrival).max(self.now);
            while self.flying.peek().is_some_and(|Reverse(first)| first.0 <= self.now) {
                let Some(Reverse((at, _, to, bytes))) = self.flying.pop() else { break };
                let (ecn, dscp) = (Ecn::default(), Dscp::default());
                let source = address(1 - to);
                let datagram =
                    Datagram { source, local: None, received: at, ecn, dscp, data: &bytes };
                match to {
                    SENDER => sender.handle(self.now, datagram),
                    _ => receiver.handle(self.now, datagram),
                }
            }
        }
    }
}

type Outcome = Result<StepResult, Failure>;

fn probe(steps: &[Step], token: Option<Token>) -> (Probe, Results<Outcome>) {
    probe_with(steps, SenderOptions { token, ..SenderOptions::to(address(RECEIVER)) })
}

fn probe_with(steps: &[Step], sender: SenderOptions) -> (Probe, Results<Outcome>) {
    let (on_event, results) = channel();
    let options = ProbeOptions { steps: steps.to_vec(), packet: Bytes::new(1_400), sender };
    let probe = Probe::new(options, 77, move |outcome| drop(on_event.send(outcome)));
    (probe, results)
}

fn receiver(token: Option<Token>) -> (Receiver, Results<Event>) {
    let (on_event, events) = channel();
    let options = ReceiverOptions { token, ..ReceiverOptions::default() };
    (Receiver::new(options, 99, move |event| drop(on_event.send(event))), events)
}

fn constant(micros: u64, millis: u64) -> Step {
    let pace = Pace::Constant(Duration::from_micros(micros));
    Step { pace, duration: Duration::from_millis(millis) }
}

fn measure(network: &mut Network, steps: &[Step]) -> Vec<Outcome> {
    measure_with(network, steps, SenderOptions::to(address(RECEIVER)))
}

fn measure_with(network: &mut Network, steps: &[Step], sender: SenderOptions) -> Vec<Outcome> {
    let (mut probe, results) = probe_with(steps, sender);
    let (mut receiver, _events) = receiver(None);
    network.run(&mut probe, &mut receiver, Time::from_secs_f64(600.0));
    assert!(probe.is_finished());
    drop(probe);
    results.into_iter().collect()
}

const TEN: Rate = Rate::from_bits_per_sec(10_000_000);

#[test]
fn loss_and_throughput_against_spacing_are_those_of_the_bottleneck() {
    let mut network = Network::new(TEN, Mischief::default(), 1);
    let plan =
        [constant(0, 500), constant(560, 1_000), constant(1_120, 1_000), constant(2_240, 1_000)];
    let sender = SenderOptions { beyond_path: true, ..SenderOptions::to(address(RECEIVER)) };
    let all = measure_with(&mut network, &plan, sender);
    let all: Vec<_> = all.into_iter().map(|one| one.expect("measured")).collect();
    assert_eq!(all.len(), 4);
    // 1,400 bytes take 1,120 us: without spacing nearly all is lost, at half of that half.
    assert!(all[0].loss() > 0.95, "{}", all[0].loss());
    assert!((0.45..0.55).contains(&all[1].loss()), "{}", all[1].loss());
    for (one, mbit) in all[2..].iter().zip([10.0, 5.0]) {
        assert_eq!((one.loss(), one.totals.received), (0.0, one.sent));
        assert!((one.received_rate().as_mbit_per_sec() - mbit).abs() < 0.05);
        assert!(one.totals.gap_deviation_ns < 1_000);
    }
    assert!((9.0..10.01).contains(&all[1].received_rate().as_mbit_per_sec()));
    assert_eq!(all[3].sent_gap(), Some(Duration::from_micros(2_240)));
    // Two delays, and the greeting's transmission.
    assert!((20.0..20.3).contains(&(all[3].rtt.0.as_secs_f64() * 1e3)));
    assert!(all[1].totals.queueing_ns > 5_000_000, "the queue is full");
}

#[test]
fn psp_finds_the_bottleneck_and_loses_far_less_than_no_spacing() {
    for parameters in [SpacingParameters::psp(), SpacingParameters::damped()] {
        let mut network = Network::new(TEN, Mischief::default(), 1);
        let step = Step { pace: Pace::Adaptive(parameters), duration: Duration::from_secs(60) };
        let measured = measure(&mut network, &[step]).remove(0).expect("measured");
        let mbit = measured.received_rate().as_mbit_per_sec();
        assert!(mbit > 2.5, "{mbit}");
        assert!(measured.loss() < 0.5, "{}", measured.loss());
        assert!(measured.losses > 0);
        assert!((590..=600).contains(&measured.spacings.len()), "{}", measured.spacings.len());
        let last = measured.spacings.last().expect("notes").1;
        // 1,120 us fill the bottleneck; a loss doubles the spacing.
        assert!(last > Duration::from_micros(800) && last < Duration::from_millis(5), "{last}");
    }
}

#[test]
fn whatever_the_spacing_no_more_than_the_path_bears_is_sent_for_long() {
    for rate in [2_000_000, 20_000_000] {
        let pace = Pace::Adaptive(SpacingParameters::psp());
        let psp = Step { pace, duration: Duration::from_secs(20) };
        for step in [constant(0, 20_000), constant(10, 20_000), psp] {
            let mut network = Network::new(Rate::from_bits_per_sec(rate), Mischief::default(), 1);
            let secret = Some(3);
            let sender = SenderOptions { secret, ..SenderOptions::to(address(RECEIVER)) };
            let one = measure_with(&mut network, &[step], sender).remove(0).expect("measured");
            let (sent, takes) = (one.sent_rate().as_mbit_per_sec(), rate as f64 / 1e6);
            assert!(sent < 1.15 * takes, "{sent} Mbit/s on a path of {takes}: {step:?}");
            assert!(one.loss() < 0.12, "{} lost: {step:?}", one.loss());
            if step.pace != psp.pace {
                assert!(one.is_bounded, "{step:?}");
                let arrived = one.received_rate().as_mbit_per_sec();
                assert!(arrived > 0.75 * takes, "{arrived} Mbit/s of {takes}: {step:?}");
            }
        }
    }
}

#[test]
fn payloads_are_handed_on_and_bounded() {
    let (on_event, events) = channel();
    let options = ReceiverOptions { payloads: true, ..ReceiverOptions::default() };
    let mut receiver = Receiver::new(options, 5, move |event| drop(on_event.send(event)));
    let options = SenderOptions { max_queued: 3, ..SenderOptions::to(address(RECEIVER)) };
    let mut sender = Sender::new(options, 4);
    sender.begin(Pace::Adaptive(SpacingParameters::damped()), None);
    for text in ["a", "bb", "ccc"] {
        assert_eq!(sender.offer(text.as_bytes().to_vec()), Ok(()));
    }
    assert_eq!(sender.offer(Vec::new()), Err(Full));
    let mut network = Network::new(TEN, Mischief::default(), 1);
    network.run(&mut Alone(sender), &mut receiver, Time::from_secs_f64(0.5));
    let got: Vec<_> = events
        .try_iter()
        .filter_map(|event| match event {
            Event::Payload { number, data, .. } => Some((number, data)),
            _ => None,
        })
        .collect();
    assert_eq!(got, [(0, b"a".to_vec()), (1, b"bb".to_vec()), (2, b"ccc".to_vec())]);
}

/// A sender as the driver takes it.
struct Alone(Sender);

impl Protocol for Alone {
    type Command = ();

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        self.0.handle(now, datagram);
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn next_timeout(&self) -> Time {
        self.0.next_timeout()
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.0.poll_transmit(now, buffer)
    }
}

/// Hears nothing from some time on.
struct Deaf(Receiver, Time);

impl Protocol for Deaf {
    type Command = ();

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        if now < self.1 {
            self.0.handle(now, datagram);
        }
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn next_timeout(&self) -> Time {
        if self.1 == Time::ZERO { Time::NEVER } else { self.0.next_timeout() }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        if now < self.1 { self.0.poll_transmit(now, buffer) } else { Next::Idle }
    }
}

#[test]
fn a_host_that_does_not_answer_gets_a_few_greetings_and_nothing_else() {
    let (mut probe, results) = probe(&[constant(0, 1_000)], None);
    let mut network = Network::new(TEN, Mischief::default(), 1);
    let mut nobody = Deaf(receiver(None).0, Time::ZERO);
    network.run(&mut probe, &mut nobody, Time::from_secs_f64(60.0));
    assert_eq!(results.try_recv().expect("a result").expect_err("failed"), Failure::NobodyAnswers);
    assert!(results.try_recv().is_err());
    assert!(network.count <= 7, "{} packets", network.count);
}

#[test]
fn a_receiver_that_falls_silent_stops_the_sender_and_what_was_measured_is_told() {
    let (mut probe, results) = probe(&[constant(1_000, 100), constant(2_000, 60_000)], None);
    let mut network = Network::new(TEN, Mischief::default(), 1);
    let mut deaf = Deaf(receiver(None).0, Time::from_secs_f64(2.0));
    network.run(&mut probe, &mut deaf, Time::from_secs_f64(60.0));
    assert!(!results.try_recv().expect("the first").expect("measured").is_partial);
    let second = results.try_recv().expect("the second").expect("measured");
    assert!(second.is_partial && second.totals.received > 100);
    assert_eq!(results.try_recv().expect("a result").expect_err("failed"), Failure::Silent);
    assert!(network.now < Time::from_secs_f64(5.2), "{}", network.now);
}

#[test]
fn the_token_must_be_the_receivers() {
    for (ours, theirs, agrees) in [
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
        (None, Some("b"), false),
        (Some("a"), None, true),
    ] {
        let (mut probe, results) = probe(&[constant(1_000, 50)], ours.map(Token::new));
        let (mut receiver, events) = receiver(theirs.map(Token::new));
        let mut network = Network::new(TEN, Mischief::default(), 1);
        network.run(&mut probe, &mut receiver, Time::from_secs_f64(60.0));
        let outcome = results.try_recv().expect("a result").map(|_| ());
        let expected = if agrees { Ok(()) } else { Err(Failure::Refused(Reason::Token)) };
        assert_eq!(outcome, expected, "{ours:?} {theirs:?}");
        let refused = Event::Refused { peer: address(SENDER), reason: Reason::Token };
        assert_eq!(events.try_iter().any(|event| event == refused), !agrees);
    }
}

fn datagram(source: SocketAddr, data: &[u8]) -> Datagram<'_> {
    let (ecn, dscp) = (Ecn::default(), Dscp::default());
    Datagram { source, local: None, received: Time::ZERO, ecn, dscp, data }
}

fn written(session: u64, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::write(session, message, &mut bytes);
    bytes
}

/// What the receiver says to this.
fn answer(receiver: &mut Receiver, source: SocketAddr, asked: &[u8]) -> Option<Vec<u8>> {
    receiver.handle(Time::ZERO, datagram(source, asked));
    let mut buffer = Vec::new();
    match receiver.poll_transmit(Time::ZERO, &mut buffer) {
        Next::Transmit(transmit) => {
            assert_eq!(transmit.destination, source);
            Some(buffer)
        }
        _ => None,
    }
}

#[test]
fn whatever_the_network_does_a_probe_ends_and_counts_no_packet_twice() {
    for seed in 0..2_000 {
        let mut random = RandomStream::new(seed, "mischief");
        let mut draw = |most: f64| random.uniform() * most;
        let mischief = Mischief {
            lose: draw(0.5),
            repeat: draw(0.3),
            corrupt: draw(0.2),
            jitter: Duration::from_millis(draw(50.0) as u64),
        };
        let rate = Rate::from_bits_per_sec(1_000_000 + (draw(50e6) as u64));
        let mut network = Network::new(rate, mischief, seed);
        let psp = Pace::Adaptive(SpacingParameters::damped());
        let plan = [constant(500, 60), Step { pace: psp, duration: Duration::from_millis(100) }];
        for outcome in measure(&mut network, &plan) {
            // A damaged refusal can pass for one: nothing authenticates packets.
            let Ok(measured) = outcome else { continue };
            assert!(measured.totals.received <= measured.sent, "seed {seed}");
            assert!(measured.totals.next <= measured.sent, "seed {seed}");
        }
    }
}

#[test]
fn a_probe_over_loopback_measures_what_was_sent() {
    let clock = Clock::new();
    let open = || Socket::bind("127.0.0.1:0".parse().expect("address"), SocketOptions::default());
    let (near, far) = (open().expect("a socket"), open().expect("a socket"));
    let (on_event, results) = channel();
    let options = ProbeOptions {
        steps: vec![constant(500, 200), constant(100, 200)],
        packet: Bytes::new(1_000),
        sender: SenderOptions::to(far.local_address().expect("an address")),
    };
    let probe = Probe::new(options, random(), move |outcome| drop(on_event.send(outcome)));
    let receiver = receiver(None).0;
    let listening = Driver::spawn(far, receiver, clock, DriverOptions::default());
    let options = DriverOptions { precise: true, ..DriverOptions::default() };
    let probing = Driver::spawn(near, probe, clock, options).expect("a thread");
    drop(probing.wait().expect("finished"));
    let listening = listening.expect("a thread").end().expect("ended");
    assert_eq!(listening.sessions(), 0, "said goodbye");
    for (measured, spacing) in results.into_iter().zip([500, 100]) {
        let measured = measured.expect("measured");
        assert_eq!((measured.totals.received, measured.loss()), (measured.sent, 0.0));
        let gap = measured.sent_gap().expect("many packets");
        assert!(gap >= Duration::from_micros(spacing), "{gap}");
        assert_eq!(measured.totals.bytes, measured.sent * 972);
        assert_eq!(Packets::new(measured.totals.next), Packets::new(measured.sent));
    }
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(
        session in any::<u64>(), numbers in any::<[u64; 11]>(), cookie in any::<[u8; 16]>(),
        step in any::<u16>(), base_rtt_us in any::<u32>(),
        payload in proptest::collection::vec(any::<u8>(), 0..50)
    ) {
        let [stamp, held, next, received, bytes, late, duplicates, marked, span_ns, gap, queueing] =
            numbers;
        let totals = Totals {
            next, received: received.min(next), bytes, late, duplicates, marked, span_ns,
            gap_deviation_ns: gap, queueing_ns: queueing,
        };
        for message in [
            Message::Hello { stamp },
            Message::Challenge { stamp, cookie },
            Message::Start { stamp, cookie, proof: [7; 16] },
            Message::Accept { stamp },
            Message::Refuse(Reason::Token),
            Message::Refuse(Reason::Busy),
            Message::Refuse(Reason::Version),
            Message::Data(Data { step, number: next, base_rtt_us, stamp, payload: &payload }),
            Message::RequestReport { step, round: 3 },
            Message::Report(Report { step, round: 9, stamp, held, totals }),
            Message::End,
        ] {
            let bytes = written(session, &message);
            prop_assert_eq!(wire::read(&bytes), Ok((session, message)));
            // Cut short it is refused, but for the payload, whose length is that of the datagram.
            let least = bytes.len() - if let Message::Data(data) = message { data.payload.len() } else { 0 };
            prop_assert!(wire::read(&bytes[..least - 1]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = wire::read(&bytes);
        let mut ours = b"OS\x01".to_vec();
        ours.extend(bytes);
        let read = wire::read(&ours);
        prop_assert!(read != Err(WireError::NotOurs));
    }
}
