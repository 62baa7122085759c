//! Peers that speak the protocol, and then say whatever a message can say, in virtual time.
//!
//! `ONTEMPO_HOSTILE_SEEDS=100000` runs as many, in place of a few hundred.

use super::*;

use ontempo_testing::hostile::{Dice, seeds};

/// Peers of each test, unless the environment says how many.
const SEEDS: u64 = 300;

fn totals(dice: &mut Dice, known: u64) -> Totals {
    let next = dice.number(known);
    Totals {
        next,
        received: dice.number(next).min(next),
        bytes: dice.number(known),
        late: dice.number(known),
        duplicates: dice.number(known),
        marked: dice.number(known),
        span_ns: dice.number(known),
        gap_deviation_ns: dice.number(known),
        queueing_ns: dice.number(known),
    }
}

/// A message of any kind, with the cookie that the other end last gave.
fn message(dice: &mut Dice, known: u64, cookie: Cookie) -> Vec<u8> {
    let session = if dice.below(20) == 0 { dice.number(known) } else { 77 };
    let stamp = dice.number(known);
    let step = if dice.below(2) == 0 { 1 } else { dice.number(1) as u16 };
    let payload = [7; 64];
    let records = [3; 40];
    let message = match dice.below(14) {
        0 => Message::Hello { stamp },
        1 => Message::Challenge { stamp, cookie },
        2 => Message::Start { stamp, cookie, proof: [0; 16] },
        3 => Message::Accept { stamp },
        // Rarely, because it ends a handshake.
        4 if dice.below(10) == 0 => Message::Refuse(Reason::Busy),
        5 if dice.below(10) == 0 => Message::End,
        6 => Message::RequestReport { step, round: dice.number(1) as u16 },
        7 | 8 => Message::Data(Data {
            step,
            number: dice.number(known),
            base_rtt_us: dice.number(0) as u32,
            stamp,
            payload: &payload[..dice.below(65) as usize],
        }),
        9 | 10 => Message::Load(wire::Load {
            is_urgent: dice.below(2) == 0,
            number: dice.number(known) as u32,
            stamp,
            payload: &payload[..dice.below(65) as usize],
        }),
        11 => Message::Arrivals(wire::Arrivals::new(stamp, dice.number(known), &records)),
        _ => Message::Report(Report {
            step,
            round: dice.number(1) as u16,
            stamp,
            held: dice.number(known),
            totals: totals(dice, known),
        }),
    };
    let mut bytes = written(session, &message);
    dice.damage(&mut bytes);
    bytes
}

/// The clock begins anywhere: an application may have run for years.
fn start(dice: &mut Dice) -> Time {
    Time::from_nanos(dice.below(4) * dice.below(1 << 58))
}

/// One address of a peer: what was sent there, and what has come from there, with headers.
#[derive(Default)]
struct Account {
    cookie: Cookie,
    came: usize,
    answered: usize,
    has_proved: bool,
}

#[test]
fn no_sender_makes_a_receiver_panic_or_hold_more_than_its_share() {
    for seed in seeds(SEEDS) {
        let mut dice = Dice::new(seed, "hostile senders");
        let (on_event, events) = channel();
        let options =
            ReceiverOptions { payloads: dice.below(2) == 0, ..ReceiverOptions::default() };
        let mut receiver = Receiver::new(options, 99, move |event| drop(on_event.send(event)));
        let mut now = start(&mut dice);
        // Six hosts with three ports each.
        let mut accounts: Vec<_> = (0..18).map(|_| Account::default()).collect();
        let source = |place: usize| {
            SocketAddr::from(([10, 0, 0, place as u8 / 3], 5_000 + place as u16 % 3))
        };
        let mut packets = 0;
        for _ in 0..200 {
            let place = dice.below(18) as usize;
            let account = &mut accounts[place];
            let bytes = match dice.below(3) {
                0 => written(77, &Message::Hello { stamp: now.as_nanos() }),
                1 => {
                    let proof = [0; 16];
                    let stamp = now.as_nanos();
                    written(77, &Message::Start { stamp, cookie: account.cookie, proof })
                }
                _ => message(&mut dice, now.as_nanos(), account.cookie),
            };
            account.came += bytes.len() + 28;
            let received = match dice.below(10) {
                0 => Time::from_nanos(dice.number(now.as_nanos())),
                _ => now,
            };
            receiver.handle(now, Datagram { received, ..datagram(source(place), &bytes) });
            packets += 1;
            if dice.below(4) == 0 {
                now += Duration::from_nanos(dice.below(4) * dice.below(12_000_000_000));
            }
            if receiver.next_timeout() <= now {
                receiver.handle_timeout(now);
                assert!(receiver.next_timeout() > now, "seed {seed}: its timer spins");
            }
            let mut answers = 0;
            let mut buffer = Vec::new();
            while let Next::Transmit(transmit) = receiver.poll_transmit(now, &mut buffer) {
                answers += 1;
                let place = (0..18).find(|place| source(*place) == transmit.destination);
                let account = &mut accounts[place.expect("one of these")];
                match wire::read(&buffer).expect("it speaks the protocol").1 {
                    Message::Challenge { cookie, .. } => account.cookie = cookie,
                    Message::Accept { .. } => account.has_proved = true,
                    _ => {}
                }
                account.answered += buffer.len() + 28;
                let most = if account.has_proved { 3 * account.came } else { account.came };
                assert!(account.answered <= most, "seed {seed}: it amplifies");
                buffer.clear();
            }
            assert!(answers <= 256, "seed {seed}: {answers} answers waited");
            assert!(receiver.sessions() <= 16, "seed {seed}");
        }
        let (mut open, mut most) = ([0_u32; 6], 0);
        let mut count = 0;
        for event in events.try_iter() {
            count += 1;
            match event {
                Event::Began { peer, .. } => {
                    let host = (0..18).find(|place| source(*place) == peer).expect("known") / 3;
                    open[host] += 1;
                    most = most.max(open[host]);
                }
                Event::Ended { peer, totals, .. } => {
                    let host = (0..18).find(|place| source(*place) == peer).expect("known") / 3;
                    open[host] -= 1;
                    assert!(totals.received <= totals.next, "seed {seed}");
                }
                Event::Payload { data, .. } => assert!(data.len() <= 64),
                Event::Refused { .. } => {}
            }
        }
        assert!(most <= 4, "seed {seed}: {most} sessions of a host");
        // A packet may begin a session, whose end is another event.
        assert!(count <= 2 * packets, "seed {seed}: {count} events of {packets} packets");
    }
}

/// A receiver that agrees and then does what it likes.
struct Hostile {
    dice: Dice,
    /// It behaves for so many packets.
    behaves: u64,
    /// Share of packets, in per cent, that get an answer afterwards.
    talks: u64,
    /// When they arrive at the sender, and what.
    answers: BinaryHeap<Reverse<(Time, u64, Vec<u8>)>>,
    sent: u64,
}

impl Hostile {
    fn hear(&mut self, now: Time, bytes: &[u8]) {
        let Ok((77, heard)) = wire::read(bytes) else { panic!("the probe sent {bytes:?}") };
        if let Message::Data(_) = heard {
            self.sent += 1;
        }
        let good = match heard {
            Message::Hello { stamp } => Some(Message::Challenge { stamp, cookie: [5; 16] }),
            Message::Start { stamp, .. } => Some(Message::Accept { stamp }),
            Message::RequestReport { step, round } => {
                let totals = Totals { next: self.sent.min(1), ..Totals::default() };
                Some(Message::Report(Report { step, round, totals, ..Report::default() }))
            }
            _ => None,
        };
        if self.behaves > 0 {
            self.behaves -= 1;
            if let Some(good) = good {
                self.push(now, written(77, &good));
            }
            return;
        }
        while self.dice.below(100) < self.talks && self.answers.len() < 1_000 {
            let known = if self.dice.below(2) == 0 { self.sent } else { now.as_nanos() };
            let bytes = message(&mut self.dice, known, [5; 16]);
            self.push(now, bytes);
        }
        if let Some(good) = good.filter(|_| self.dice.below(3) > 0) {
            self.push(now, written(77, &good));
        }
    }

    fn push(&mut self, now: Time, bytes: Vec<u8>) {
        let at = now + Duration::from_nanos(self.dice.below(3) * self.dice.below(1 << 27));
        let number = self.dice.any();
        self.answers.push(Reverse((at, number, bytes)));
    }
}

/// Runs a probe against such a receiver until it ends: when it does, after its start.
fn run(seed: u64, probe: &mut Probe, peer: &mut Hostile, limit: Duration) -> Duration {
    let start = start(&mut peer.dice);
    let mut now = start;
    let mut buffer = Vec::new();
    while !probe.is_finished() {
        if probe.next_timeout() <= now {
            probe.handle_timeout(now);
            assert!(probe.next_timeout() > now, "seed {seed}: its timer spins");
        }
        if probe.is_finished() {
            break;
        }
        buffer.clear();
        let next = match probe.poll_transmit(now, &mut buffer) {
            Next::Transmit(transmit) => {
                assert_eq!(transmit.destination, address(RECEIVER));
                assert!(buffer.len() <= usize::from(u16::MAX), "seed {seed}");
                let segment = transmit.segment.map_or(buffer.len(), usize::from).max(1);
                buffer.chunks(segment).for_each(|one| peer.hear(now, one));
                now + Duration::from_micros(10)
            }
            Next::WaitUntil(until) => until,
            Next::Idle => Time::NEVER,
        };
        let arrival = peer.answers.peek().map_or(Time::NEVER, |Reverse(first)| first.0);
        now = next.min(probe.next_timeout()).min(arrival).max(now);
        assert!(now.since(start) <= limit, "seed {seed}: it has not ended after {limit}");
        while peer.answers.peek().is_some_and(|Reverse(first)| first.0 <= now) {
            let Some(Reverse((at, _, bytes))) = peer.answers.pop() else { break };
            let from = Datagram { received: at, ..datagram(address(RECEIVER), &bytes) };
            probe.handle(now, from);
        }
    }
    now.since(start)
}

#[test]
fn no_receiver_makes_a_probe_panic_go_on_for_ever_or_count_what_was_not_sent() {
    let (mut ended, mut failed) = (0_u64, 0_u64);
    for seed in seeds(SEEDS) {
        let mut dice = Dice::new(seed, "hostile receiver");
        let mut steps = Vec::new();
        for _ in 0..=dice.below(2) {
            let duration = Duration::from_millis(1 + dice.below(40));
            let pace = match dice.below(4) {
                0 => Pace::Adaptive(SpacingParameters::psp()),
                1 => Pace::Adaptive(SpacingParameters::damped()),
                2 => Pace::Constant(Duration::ZERO),
                _ => Pace::Constant(Duration::from_micros(50 + dice.below(5_000))),
            };
            steps.push(Step { pace, duration });
        }
        let (mut probe, results) = probe(&steps, None);
        let (behaves, talks) = (dice.below(12), dice.below(90));
        let mut peer = Hostile { dice, behaves, talks, answers: BinaryHeap::new(), sent: 0 };
        // The handshake's timeout, and for each step the last report's, with the round trip that
        // the peer claims, at most as long as the handshake took.
        let limit = Duration::from_secs(3 + 12 * steps.len() as u64);
        run(seed, &mut probe, &mut peer, limit);
        drop(probe);
        for outcome in results.into_iter() {
            let Ok(measured) = outcome else {
                failed += 1;
                continue;
            };
            ended += 1;
            assert!(measured.totals.received <= measured.sent, "seed {seed}");
            assert!(measured.totals.next <= measured.sent, "seed {seed}");
            assert!((0.0..=1.0).contains(&measured.loss()), "seed {seed}");
            assert!(measured.spacings.len() <= 10_000, "seed {seed}");
            // What the command prints of it.
            let shown = (measured.sent_gap(), measured.totals.mean_gap(), measured.sent_rate());
            assert!(!format!("{shown:?} {:?}", measured.received_rate()).is_empty());
        }
    }
    println!("{ended} steps measured, {failed} probes failed");
    assert!(ended > 0 && failed > 0);
}
