//! Recordings in virtual time, over a path that is known.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_udp::{Datagram, Dscp, Ecn, Next, Protocol};
use proptest::prelude::*;

use super::*;
use crate::wire::Reason;
use crate::{Failure, Receiver, ReceiverOptions, SenderOptions, Token};

mod lossy;
mod managed;

/// The path from a time on: bit/s, one-way delay, loss.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: Time,
    rate: f64,
    delay: Duration,
    loss: f64,
}

fn piece(from: f64, mbit: f64, millis: u64, loss: f64) -> Piece {
    let from = Time::from_secs_f64(from);
    Piece { from, rate: mbit * 1e6, delay: Duration::from_millis(millis), loss }
}

/// Losses in bursts (Gilbert's model): the probabilities that one begins and that it ends.
#[derive(Clone, Copy, Debug, Default)]
struct Bursts {
    p: f64,
    q: f64,
    /// When the present one began.
    since: Option<Time>,
    lasted: Duration,
}

impl Bursts {
    fn lose(&mut self, random: &mut RandomStream, now: Time) -> bool {
        let is_other = random.chance(if self.since.is_some() { self.q } else { self.p });
        match self.since {
            Some(since) if is_other => {
                self.lasted += now.since(since);
                self.since = None;
            }
            None if is_other => self.since = Some(now),
            _ => {}
        }
        self.since.is_some()
    }
}

/// What is under way: when it arrives, and its bytes.
type Flying = VecDeque<(Time, Vec<u8>)>;

/// A path whose bottleneck has a queue.
struct World {
    now: Time,
    pieces: Vec<Piece>,
    /// Bytes of the queue.
    limit: f64,
    /// The receiver's clock is so far ahead.
    skew: Duration,
    free: Time,
    /// Departures and bytes of what waits.
    waiting: VecDeque<(Time, f64)>,
    queued: f64,
    there: Flying,
    back: Flying,
    way_back: Duration,
    random: RandomStream,
    bursts: Option<Bursts>,
    /// Share of reports that are lost.
    lose_back: f64,
    /// From then on nothing arrives.
    dead_from: Time,
    bytes: (usize, usize),
    /// The receiver's token.
    token: Option<Token>,
    /// In place of the bottleneck above.
    link: Option<managed::Bottleneck>,
}

fn address(place: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, place], 5_000))
}

impl World {
    fn new(pieces: Vec<Piece>) -> Self {
        Self {
            now: Time::ZERO,
            pieces,
            limit: 100.0 * 1_500.0,
            skew: Duration::from_secs(86_400),
            free: Time::ZERO,
            waiting: VecDeque::new(),
            queued: 0.0,
            there: VecDeque::new(),
            back: VecDeque::new(),
            way_back: Duration::from_millis(20),
            random: RandomStream::new(5, "world"),
            bursts: None,
            lose_back: 0.0,
            dead_from: Time::NEVER,
            bytes: (0, 0),
            token: None,
            link: None,
        }
    }

    fn at(&self, time: Time) -> Piece {
        *self.pieces.iter().rev().find(|piece| piece.from <= time).expect("a piece from 0")
    }

    /// When `bits` that begin at `time` have left.
    fn left(&self, mut time: Time, mut bits: f64) -> Time {
        loop {
            let rate = self.at(time).rate;
            let next = self.pieces.iter().map(|piece| piece.from).find(|from| *from > time);
            let until = next.unwrap_or(Time::NEVER);
            let possible = rate * until.since(time).as_secs_f64();
            if possible >= bits {
                return time + Duration::from_secs_f64(bits / rate);
            }
            bits -= possible;
            time = until;
        }
    }

    fn send(&mut self, bytes: Vec<u8>) {
        let size = bytes.len() as f64 + 28.0;
        self.bytes.0 += bytes.len();
        if let Some(link) = &mut self.link {
            return link.send(self.now, bytes, &mut self.there);
        }
        while self.waiting.front().is_some_and(|(left, _)| *left <= self.now) {
            self.queued -= self.waiting.pop_front().expect("one").1;
        }
        if self.queued + size > self.limit {
            return;
        }
        let left = self.left(self.free.max(self.now), size * 8.0);
        self.free = left;
        self.waiting.push_back((left, size));
        self.queued += size;
        let piece = self.at(left);
        let bursts = self.bursts.as_mut();
        let is_lost = bursts.is_some_and(|bursts| bursts.lose(&mut self.random, left));
        if is_lost || self.random.chance(piece.loss) || left >= self.dead_from {
            return;
        }
        let before = self.there.back().map_or(Time::ZERO, |(at, _)| *at);
        self.there.push_back(((left + piece.delay).max(before), bytes));
    }

    fn serve(&mut self, end: &mut impl Protocol, is_sender: bool) -> Time {
        let skew = if is_sender { Duration::ZERO } else { self.skew };
        let here = self.now + skew;
        if end.next_timeout() <= here {
            end.handle_timeout(here);
        }
        let mut bytes = Vec::new();
        let next = match end.poll_transmit(here, &mut bytes) {
            Next::Transmit(_) if is_sender => {
                self.send(bytes);
                self.now
            }
            Next::Transmit(_) => {
                self.bytes.1 += bytes.len();
                if !self.random.chance(self.lose_back) {
                    self.back.push_back((self.now + self.way_back, bytes));
                }
                self.now
            }
            Next::WaitUntil(until) => until - skew,
            Next::Idle => Time::NEVER,
        };
        let timeout = end.next_timeout();
        next.min(if timeout == Time::NEVER { timeout } else { timeout - skew })
    }

    fn run(&mut self, recorder: &mut Recorder, until: Time) {
        let options = ReceiverOptions { token: self.token, ..ReceiverOptions::default() };
        let mut receiver = Receiver::new(options, 99, |_| {});
        while !recorder.is_finished() && self.now < until {
            let next = self.serve(recorder, true).min(self.serve(&mut receiver, false));
            let arrival = |flying: &Flying| flying.front().map_or(Time::NEVER, |first| first.0);
            let next = next.min(arrival(&self.there)).min(arrival(&self.back));
            let decision = self.link.as_ref().map_or(Time::NEVER, |link| link.next(self.now));
            self.now = next.min(decision).max(self.now);
            if let Some(link) = &mut self.link {
                link.serve(self.now, &mut self.there);
            }
            while arrival(&self.there) <= self.now && !self.there.is_empty() {
                let (at, bytes) = self.there.pop_front().expect("one");
                let datagram = datagram(1, at + self.skew, &bytes);
                receiver.handle(self.now + self.skew, datagram);
            }
            while arrival(&self.back) <= self.now && !self.back.is_empty() {
                let (at, bytes) = self.back.pop_front().expect("one");
                recorder.handle(self.now, datagram(2, at, &bytes));
            }
        }
    }
}

fn datagram(from: u8, received: Time, data: &[u8]) -> Datagram<'_> {
    let (ecn, dscp) = (Ecn::default(), Dscp::default());
    Datagram { source: address(from), local: None, received, ecn, dscp, data }
}

fn options(seconds: f64) -> RecorderOptions {
    RecorderOptions {
        duration: Duration::from_secs_f64(seconds),
        max_rate: Rate::from_bits_per_sec(50_000_000),
        packet: Bytes::new(1_400),
        sender: SenderOptions::to(address(2)),
        silence: Duration::from_secs(5),
    }
}

fn record(world: &mut World, seconds: f64) -> Recording {
    let mut recorder = Recorder::new(options(seconds), 77, |_| {});
    let recording = recorder.recording();
    world.run(&mut recorder, Time::from_secs_f64(seconds + 20.0));
    assert!(recorder.is_finished());
    let recording = recording.lock().expect("whole");
    recording.clone()
}

const WINDOW: Duration = Duration::from_millis(100);

/// The mean rate, Mbit/s, and the middle delay, ms, of a second of a trace.
fn second(trace: &Trace, second: usize) -> (f64, f64, f64) {
    let rows = &trace.rows[second * 10..(second + 1) * 10];
    let rate = rows.iter().map(|row| row.rate.as_mbit_per_sec()).sum::<f64>() / 10.0;
    let mut delays: Vec<_> = rows.iter().map(|row| row.delay.as_secs_f64() * 1e3).collect();
    delays.sort_by(f64::total_cmp);
    (rate, delays[5], rows.iter().map(|row| row.loss).sum::<f64>() / 10.0)
}

/// The path in one second.
#[derive(Debug)]
struct Truth {
    /// Mean, Mbit/s.
    rate: f64,
    /// Median, ms.
    delay: f64,
    is_constant: bool,
    /// When it became so.
    since: Time,
}

impl World {
    /// The path in the second from then on.
    fn seconds(&self, from: f64) -> Truth {
        let at = |part: u64| self.at(Time::from_secs_f64(from + part as f64 * 1e-3));
        let mut delays: Vec<_> = (0..1000).map(|part| at(part).delay.as_secs_f64() * 1e3).collect();
        delays.sort_by(f64::total_cmp);
        Truth {
            rate: (0..1000).map(|part| at(part).rate / 1e9).sum(),
            delay: delays[500],
            is_constant: at(0).from == at(999).from,
            since: at(0).from,
        }
    }
}

/// Each second of the trace is that of the path; recording began with the end of the handshake.
#[track_caller]
fn assert_given_back(world: &World, trace: &Trace, seconds: usize, begun: f64) {
    let begun = begun + trace.left_out.as_secs_f64();
    for number in 0..seconds {
        let (rate, delay, _) = second(trace, number);
        let truth = world.seconds(begun + number as f64);
        let text = format!("second {number}: {rate}, {delay} and {truth:?}\n{}", trace.csv(""));
        assert!((rate / truth.rate - 1.0).abs() < 0.1, "{text}");
        assert!((delay - truth.delay).abs() < 2.0, "{text}");
    }
}

#[test]
fn a_constant_path_is_given_back() {
    let mut world = World::new(vec![piece(0.0, 5.0, 20, 0.0)]);
    let trace = record(&mut world, 5.0).trace(WINDOW);
    assert!((47..=50).contains(&trace.rows.len()), "{}", trace.rows.len());
    assert_given_back(&world, &trace, 4, 0.08);
    assert!(trace.rows.iter().all(|row| row.loss == 0.0));
    assert!((40.0..41.0).contains(&(trace.round_trip.as_secs_f64() * 1e3)), "{}", trace.round_trip);
    assert!(world.bytes.1 <= world.bytes.0, "no amplifier: {:?}", world.bytes);
}

#[test]
fn steps_of_rate_and_delay_are_given_back() {
    let mut world = World::new(vec![
        piece(0.0, 2.0, 20, 0.0),
        piece(2.0, 8.0, 20, 0.0),
        piece(4.0, 8.0, 60, 0.0),
        piece(6.0, 2.0, 60, 0.0),
        piece(8.0, 2.0, 20, 0.0),
    ]);
    let trace = record(&mut world, 10.0).trace(WINDOW);
    assert_given_back(&world, &trace, 9, 0.08);
}

/// The queue runs empty 9 ms after the step, and the window has to grow for three round trips.
#[test]
fn a_rate_that_grows_much_over_a_long_path_is_given_back() {
    let rates = [(0.0, 15.78), (4.0, 8.28), (10.0, 2.0), (16.0, 13.69)];
    let pieces = rates.map(|(from, mbit)| piece(from, mbit, 95, 0.0)).to_vec();
    recorded_as_it_was(pieces, 0.0).expect("given back");
}

/// Another rate, 1 to 9 Mbit/s, each 20 to 400 ms.
fn irregular(seed: u64, seconds: f64) -> Vec<Piece> {
    let mut random = RandomStream::new(seed, "an irregular path");
    let mut draw = |below: u64| random.next_u64() % below;
    let mut pieces = Vec::new();
    let mut from = 0.0;
    while from < seconds {
        pieces.push(piece(from, 1.0 + draw(9) as f64, 20, 0.0));
        from += (20 + draw(381)) as f64 * 1e-3;
    }
    pieces
}

#[test]
fn a_rate_that_changes_several_times_a_second_is_given_back() {
    for seed in 1..=24 {
        let mut world = World::new(irregular(seed, 12.0));
        let trace = record(&mut world, 11.0).trace(WINDOW);
        assert!(trace.left_out < Duration::from_millis(400), "seed {seed}: {}", trace.left_out);
        println!("seed {seed}");
        assert_given_back(&world, &trace, 10, 0.08);
    }
}

/// Pieces of some seconds, between these bounds: so long that what was in flight at the highest rate
/// leaves at the lowest.
fn any_path() -> impl Strategy<Value = Vec<Piece>> {
    proptest::collection::vec((4u32..=6, 2.0f64..16.0, 5u64..100), 1..5).prop_map(|all| {
        let mut from = 0;
        let mut pieces = Vec::new();
        for (seconds, mbit, millis) in all {
            pieces.push(piece(f64::from(from), mbit, millis, 0.0));
            from += seconds;
        }
        pieces
    })
}

/// Records the path and holds each second in which it was constant, and had been for so long (s),
/// against it: the rate within 10 %, the delay within 2 ms.
fn recorded_as_it_was(pieces: Vec<Piece>, settled: f64) -> Result<(), TestCaseError> {
    let first = pieces[0].delay;
    let last = pieces.last().expect("one").from.as_secs_f64();
    let mut world = World::new(pieces);
    // A queue of half a second at the highest rate: nothing is lost on the way.
    world.limit = 1_250_000.0;
    let seconds = last as usize + 4;
    let trace = record(&mut world, seconds as f64).trace(WINDOW);
    let begun = ((first + world.way_back) * 2 + trace.left_out).as_secs_f64();
    // The absolute delay is half of the smallest round trip.
    let least = world.pieces.iter().map(|piece| piece.delay).min().unwrap_or(first);
    let error = (world.way_back.as_secs_f64() - least.as_secs_f64()) / 2.0 * 1e3;
    for number in 0..seconds - 1 {
        let truth = world.seconds(begun + number as f64);
        let (rate, delay, loss) = second(&trace, number);
        let text = format!(
            "second {number} of {:?}: {rate}, {} and {truth:?}\n{}",
            world.pieces,
            delay - error,
            trace.csv("")
        );
        let since = truth.since.as_secs_f64();
        // When packets came to the bottleneck is told from the delay: where it falls, by 95 ms at
        // most, those before it seem to have come earlier.
        let after = Time::from_secs_f64(begun + number as f64 + 1.1);
        let is_left_alone = settled == 0.0 || world.at(after).from == truth.since;
        let is_settled = since == 0.0 || since + settled <= begun + number as f64;
        if truth.is_constant && is_settled && is_left_alone {
            prop_assert!((rate / truth.rate - 1.0).abs() < 0.1, "{}", text);
            prop_assert!((delay - error - truth.delay).abs() < 2.0, "{}", text);
        }
        prop_assert!(loss < 0.001, "{}", text);
    }
    prop_assert!(world.bytes.1 <= world.bytes.0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_piecewise_constant_rate_is_given_back(mut pieces in any_path()) {
        let delay = pieces[0].delay;
        pieces.iter_mut().for_each(|piece| piece.delay = delay);
        recorded_as_it_was(pieces, 0.0)?;
    }

    /// A delay that changes together with the rate shows in the next pause whose queue runs empty.
    #[test]
    fn any_piecewise_constant_path_is_given_back_two_seconds_after_a_change(pieces in any_path()) {
        recorded_as_it_was(pieces, 2.0)?;
    }
}

#[test]
fn losses_of_the_path_are_found_and_those_of_its_queue_are_not() {
    for (loss, limit) in [(0.0, 20.0), (0.05, 200.0), (0.05, 20.0)] {
        let mut world = World::new(vec![piece(0.0, 8.0, 30, loss), piece(10.0, 2.0, 30, loss)]);
        world.limit = limit * 1_500.0;
        let trace = record(&mut world, 20.0).trace(WINDOW);
        let mean = trace.rows.iter().map(|row| row.loss).sum::<f64>() / trace.rows.len() as f64;
        assert!((mean - loss).abs() < 0.015, "{loss} lost, {limit} packets: {mean} found");
        for number in [1, 3, 5, 7, 12, 14, 16, 18] {
            let (rate, ..) = second(&trace, number);
            let truth = world.seconds(number as f64).rate;
            assert!((rate / truth - 1.0).abs() < 0.1, "{loss} {limit}: {rate} and {truth} Mbit/s");
        }
    }
}

#[test]
fn lost_reports_change_little() {
    let mut world = World::new(vec![piece(0.0, 2.0, 20, 0.0), piece(4.0, 8.0, 20, 0.0)]);
    world.lose_back = 0.3;
    let trace = record(&mut world, 8.0).trace(WINDOW);
    for number in [0, 1, 2, 5, 6] {
        let (rate, delay, loss) = second(&trace, number);
        let truth = world.seconds(number as f64 + 0.5);
        assert!((rate / truth.rate - 1.0).abs() < 0.1, "{rate} and {truth:?}");
        assert!((delay - truth.delay).abs() < 2.0, "{delay} and {truth:?}");
        assert!(loss < 0.01, "{loss}");
    }
}

#[test]
fn an_outage_is_recorded_and_a_dead_path_ends_it_with_what_there_was() {
    let mut world = World::new(vec![
        piece(0.0, 4.0, 20, 0.0),
        piece(3.0, 0.001, 20, 0.0),
        piece(5.0, 4.0, 20, 0.0),
    ]);
    let recording = record(&mut world, 8.0);
    assert_eq!(recording.failure, None);
    let trace = recording.trace(WINDOW);
    assert!(second(&trace, 1).0 > 3.9);
    assert!(second(&trace, 3).0 < 0.3, "{}", trace.csv(""));
    assert!(second(&trace, 6).0 > 3.9);

    let mut world = World::new(vec![piece(0.0, 4.0, 20, 0.0)]);
    world.dead_from = Time::from_secs_f64(3.0);
    let recording = record(&mut world, 60.0);
    assert_eq!(recording.failure, Some(Failure::Silent));
    assert!(world.now < Time::from_secs_f64(9.0), "{}", world.now);
    let rows = recording.trace(WINDOW).rows.len();
    assert!((28..=31).contains(&rows), "{rows} rows of 3 s");
}

#[test]
fn a_command_ends_a_recording_soon_though_the_peer_is_dead() {
    // While it records, and while it waits for the last arrivals.
    for (seconds, stopped) in [(60.0, 4.0), (4.0, 4.1)] {
        let mut world = World::new(vec![piece(0.0, 4.0, 20, 0.0)]);
        world.dead_from = Time::from_secs_f64(3.0);
        let mut recorder = Recorder::new(options(seconds), 77, |_| {});
        world.run(&mut recorder, Time::from_secs_f64(stopped));
        assert!(!recorder.is_finished(), "{}", world.now);
        let stopped = world.now;
        recorder.handle_command(stopped, ());
        world.run(&mut recorder, stopped + Duration::from_secs(20));
        assert!(recorder.is_finished());
        let waited = world.now.since(stopped);
        assert!(waited <= Duration::from_millis(600), "{waited}");
    }
}

#[test]
fn no_more_is_sent_than_allowed_and_that_is_said() {
    let mut world = World::new(vec![piece(0.0, 40.0, 20, 0.0)]);
    let mut options = options(4.0);
    options.max_rate = Rate::from_bits_per_sec(5_000_000);
    let mut recorder = Recorder::new(options, 77, |_| {});
    let recording = recorder.recording();
    world.run(&mut recorder, Time::from_secs_f64(20.0));
    assert!(world.bytes.0 as f64 * 8.0 < 5e6 * 4.2, "{:?}", world.bytes);
    let trace = recording.lock().expect("whole").trace(WINDOW);
    assert!(trace.is_limited);
    let (rate, ..) = second(&trace, 2);
    assert!((4.0..5.3).contains(&rate), "{rate}");
}

#[test]
fn nobody_there_is_a_failure_and_nothing_is_recorded() {
    let mut world = World::new(vec![piece(0.0, 4.0, 20, 0.0)]);
    world.dead_from = Time::ZERO;
    let recording = record(&mut world, 4.0);
    assert_eq!(recording.failure, Some(Failure::NobodyAnswers));
    assert!(recording.trace(WINDOW).rows.is_empty());
}

#[test]
fn a_refusal_ends_a_recording() {
    let mut world = World::new(vec![piece(0.0, 4.0, 20, 0.0)]);
    world.token = Some(Token::new("secret"));
    let recording = record(&mut world, 4.0);
    assert_eq!(recording.failure, Some(Failure::Refused(Reason::Token)));
    assert!(world.now < Time::from_secs_f64(1.0), "{}", world.now);
}

#[test]
fn whatever_a_receiver_reports_the_recorder_ends_and_answers() {
    for seed in ontempo_testing::hostile::seeds(200) {
        let mut random = RandomStream::new(seed, "a hostile receiver");
        let mut recorder = Recorder::new(options(2.0), 77, |_| {});
        let mut receiver = Receiver::new(ReceiverOptions::default(), 99, |_| {});
        let recording = recorder.recording();
        let mut now = Time::from_nanos(random.next_u64() >> (2 + random.next_u64() % 40));
        let end = now + Duration::from_secs(30);
        let mut sent = 0;
        while !recorder.is_finished() && now < end {
            let mut bytes = Vec::new();
            if recorder.next_timeout() <= now {
                recorder.handle_timeout(now);
            }
            if let Next::Transmit(_) = recorder.poll_transmit(now, &mut bytes) {
                sent += bytes.len();
                receiver.handle(now, datagram(1, now, &bytes));
            }
            bytes.clear();
            if let Next::Transmit(_) = receiver.poll_transmit(now, &mut bytes) {
                recorder.handle(now, datagram(2, now, &bytes));
            }
            recorder.handle(now, datagram(2, now, &lies(&mut random)));
            now += Duration::from_nanos(random.next_u64() % 3_000_000);
        }
        assert!(recorder.is_finished(), "seed {seed}");
        // At most what is allowed, and scouts.
        assert!(sent as f64 * 8.0 < 50e6 * 2.5, "seed {seed}: {sent} bytes");
        let trace = recording.lock().expect("whole").trace(WINDOW);
        assert!(trace.rows.len() <= 21, "seed {seed}");
        assert!(trace.rows.iter().all(|row| (0.0..=1.0).contains(&row.loss)), "seed {seed}");
    }
}

/// Arrivals that may be of packets never sent, at times that cannot be.
fn lies(random: &mut RandomStream) -> Vec<u8> {
    let mut number = |most: u64| {
        let bits = random.next_u64() % 65;
        let any = random.next_u64().checked_shr(bits as u32).unwrap_or(0);
        if random.chance(0.7) { any % most } else { any }
    };
    let mut records = Vec::new();
    for _ in 0..number(8).min(100) {
        crate::wire::push_record(number(3_000) as u32, number(4_000_000_000), &mut records);
    }
    let arrivals = crate::wire::Arrivals::new(number(3_000), number(4_000_000_000), &records);
    let mut bytes = Vec::new();
    crate::wire::write(77, &crate::wire::Message::Arrivals(arrivals), &mut bytes);
    bytes
}
