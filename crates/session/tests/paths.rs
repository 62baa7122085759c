//! A stream over two paths in virtual time: paths that lose packets, that are cut, that are too narrow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ontempo_foundation::{Duration, RandomStream, Rate, Time};
use ontempo_media::{Film, GeneratorParameters, Sending, generate};
use ontempo_session::paths::{CarryReason, PathEvent, PathFigures, PathMode, SILENT};
use ontempo_session::simulated::{End, PathStream, PathStreamOptions};
use ontempo_transport::{Congestion, Reliability};

/// The media's rate, with stuffing.
const RATE: Rate = Rate::from_bits_per_sec(4_000_000);

/// When the film begins, after both paths are there, and how long it is sent.
const START: Time = Time::from_nanos(2_000_000_000);
const LENGTH: Duration = Duration::from_secs(10);

const SEEDS: std::ops::RangeInclusive<u64> = 1..=24;

/// One path: the same in both directions, but that only data waits for the link.
#[derive(Clone, Debug)]
struct Path {
    delay: Duration,
    loss: f64,
    /// Of the direction to the receiver, with a queue of 100 ms.
    rate: Option<Rate>,
    /// From when to when nothing passes, or only nothing to the receiver.
    cuts: Vec<(Time, Time)>,
    cuts_both: bool,
}

impl Path {
    fn of(millis: u64, loss: f64) -> Self {
        let delay = Duration::from_millis(millis);
        Self { delay, loss, rate: None, cuts: Vec::new(), cuts_both: true }
    }

    fn cut(mut self, from: Time, span: Duration) -> Self {
        self.cuts.push((from, from + span));
        self
    }

    fn is_cut(&self, now: Time, to_receiver: bool) -> bool {
        (self.cuts_both || to_receiver)
            && self.cuts.iter().any(|(from, to)| (*from..*to).contains(&now))
    }
}

/// What came of a film.
#[derive(Debug, Default)]
struct Outcome {
    sent: u64,
    whole: u64,
    media: u64,
    bytes: u64,
    copies: u64,
    latency: Option<Duration>,
    figures: Vec<PathFigures>,
    events: Vec<(Time, PathEvent)>,
}

impl Outcome {
    fn missing(&self) -> u64 {
        self.sent - self.whole
    }

    /// From the first cut until another path carries.
    fn takeovers(&self, cut: Time) -> Vec<Duration> {
        let carries = self.events.iter().filter_map(|(at, event)| match event {
            PathEvent::Carries { why: CarryReason::Silent(_), .. } => Some(at.since(cut)),
            _ => None,
        });
        carries.collect()
    }
}

/// A datagram under way: when it arrives, its number, whether to the receiver, its path, its data.
type UnderWay = Reverse<(Time, u64, bool, usize, Vec<u8>)>;

struct World {
    paths: Vec<Path>,
    busy: Vec<Time>,
    random: RandomStream,
    way: BinaryHeap<UnderWay>,
    number: u64,
}

impl World {
    fn send(&mut self, now: Time, to_receiver: bool, path: usize, data: Vec<u8>) {
        let it = &self.paths[path];
        if self.random.chance(it.loss) || it.is_cut(now, to_receiver) {
            return;
        }
        let mut leaves = now;
        if let Some(rate) = it.rate.filter(|_| to_receiver) {
            let begins = self.busy[path].max(now);
            if begins.since(now) > Duration::from_millis(100) {
                return;
            }
            let nanos = (data.len() as u64 + 28) * 8 * 1_000_000_000 / rate.as_bits_per_sec();
            leaves = begins + Duration::from_nanos(nanos);
            self.busy[path] = leaves;
        }
        self.number += 1;
        self.way.push(Reverse((leaves + it.delay, self.number, to_receiver, path, data)));
    }
}

fn film() -> Film {
    let parameters = GeneratorParameters {
        rate: Rate::from_bits_per_sec(3_400_000),
        is_constant: true,
        ..GeneratorParameters::default()
    };
    let sending = Sending::Paced { rate: RATE, stuffing: true };
    Film::new(generate(&parameters).expect("a film"), &sending)
}

fn carry(mode: PathMode, reliability: Reliability, paths: &[Path], seed: u64) -> Outcome {
    carry_within(None, mode, reliability, paths, seed)
}

/// With this latency, or one by the round trip.
fn carry_within(
    latency: Option<Duration>,
    mode: PathMode,
    reliability: Reliability,
    paths: &[Path],
    seed: u64,
) -> Outcome {
    let options = PathStreamOptions {
        grace: ontempo_session::latency::GRACE,
        latency,
        reliability,
        congestion: Congestion::default(),
        mode,
        paths: paths.len(),
    };
    let film = film();
    let mut world = World {
        busy: vec![Time::ZERO; paths.len()],
        paths: paths.to_vec(),
        random: RandomStream::new(seed, "loss"),
        way: BinaryHeap::new(),
        number: 0,
    };
    let mut now = Time::from_nanos(1_000_000);
    let mut stream = PathStream::new(now, options, seed).expect("it can be set up");
    let (mut outcome, mut sent) = (Outcome::default(), Vec::new());
    while now < START + LENGTH + Duration::from_secs(3) {
        while let Some((end, path, datagram)) = stream.poll_transmit() {
            outcome.bytes += datagram.data.len() as u64 * u64::from(end == End::Sender);
            world.send(now, end == End::Sender, path, datagram.data);
        }
        while let Some(restored) = stream.poll_restored(now) {
            let was: &Vec<u8> = &sent[restored.datagram as usize];
            outcome.whole += u64::from(restored.is_whole && restored.data == *was);
        }
        while let Some(event) = stream.poll_event() {
            outcome.events.push((now, event));
        }
        let next = film.datagram(sent.len() as u64).filter(|next| next.at < LENGTH);
        let push_at = next.as_ref().map_or(Time::NEVER, |next| START + next.at);
        let arrival = world.way.peek().map_or(Time::NEVER, |Reverse(packet)| packet.0);
        now = now.max(push_at.min(arrival).min(stream.next_timeout()));
        if let Some(next) = next.filter(|_| push_at <= now) {
            let mut datagram = Vec::new();
            film.write(&next, &mut datagram);
            outcome.media += datagram.len() as u64;
            stream.push(now, &datagram);
            sent.push(datagram);
        } else if arrival <= now {
            let Reverse((_, _, to_receiver, path, data)) = world.way.pop().expect("it was there");
            let end = if to_receiver { End::Receiver } else { End::Sender };
            stream.receive(now, (end, path), data);
        } else {
            stream.handle_timeout(now);
        }
    }
    outcome.sent = sent.len() as u64;
    outcome.copies = stream.report().copies;
    outcome.latency = stream.latency();
    outcome.figures = (0..paths.len()).map(|path| stream.figures(path)).collect();
    outcome
}

/// Some time in mid-stream, another one for each seed.
fn cut_of(seed: u64) -> Time {
    let mut random = RandomStream::new(seed, "cut");
    START + Duration::from_nanos(3_000_000_000 + (random.uniform() * 1e9) as u64)
}

#[test]
fn no_datagram_is_lost_while_each_unit_goes_over_two_paths_and_one_is_there() {
    let (mut missing, mut bytes, mut media, mut copies) = (0, 0, 0, 0);
    for seed in SEEDS {
        let first = Path::of(20, 0.01).cut(cut_of(seed), Duration::from_secs(2));
        let second = Path::of(35, 0.01).cut(START + Duration::from_secs(8), Duration::from_secs(1));
        let done = carry(PathMode::Duplicate, Reliability::Deadline, &[first, second], seed);
        (missing, bytes) = (missing + done.missing(), bytes + done.bytes);
        (media, copies) = (media + done.media, copies + done.copies);
        assert!(done.copies > 0, "both carry");
    }
    println!(
        "duplicate: {missing} datagrams missing of {} films, {:.2} bytes sent for one of the media, \
         {copies} copies dropped",
        SEEDS.count(),
        bytes as f64 / media as f64
    );
    assert_eq!(missing, 0);
}

#[test]
fn another_path_takes_over_within_200_ms_of_a_cut_without_a_datagram_lost() {
    for both in [true, false] {
        let (mut takeovers, mut missing, mut bytes, mut media) = (Vec::new(), 0, 0, 0);
        for seed in SEEDS {
            let cut = cut_of(seed);
            let mut first = Path::of(20, 0.0).cut(cut, Duration::from_secs(2));
            first.cuts_both = both;
            let paths = [first, Path::of(40, 0.0)];
            let done = carry(PathMode::Failover, Reliability::Deadline, &paths, seed);
            let all = done.takeovers(cut);
            assert_eq!(all.len(), 1, "{:?}", done.events);
            takeovers.extend(all);
            (missing, bytes) = (missing + done.missing(), bytes + done.bytes);
            media += done.media;
            assert_eq!(done.missing(), 0, "seed {seed}");
        }
        takeovers.sort_unstable();
        let (median, longest) = (takeovers[takeovers.len() / 2], takeovers[takeovers.len() - 1]);
        println!(
            "failover, cut of 2 s in {}: takeover after {median} (median), {longest} (longest of {}); \
             {missing} datagrams missing; {:.2} bytes sent for one of the media",
            if both { "both directions" } else { "the direction of data" },
            takeovers.len(),
            bytes as f64 / media as f64
        );
        // The direction of data alone: acknowledgements of what was under way still come.
        let round_trip = Duration::from_millis(if both { 0 } else { 40 });
        assert!(longest <= Duration::from_millis(200) + round_trip, "{takeovers:?}");
        assert!(takeovers[0] >= SILENT - Duration::from_millis(50));
    }
}

#[test]
fn the_first_path_carries_again_after_five_seconds_without_a_gap_and_not_before() {
    let cut = START + Duration::from_secs(1);
    let first = Path::of(20, 0.0).cut(cut, Duration::from_secs(2));
    let done = carry(PathMode::Failover, Reliability::Deadline, &[first, Path::of(40, 0.0)], 1);
    let back = done.events.iter().find_map(|(at, event)| {
        (*event == PathEvent::Carries { path: 0, why: CarryReason::Preferred }).then_some(*at)
    });
    let back = back.expect("it is there again").since(cut + Duration::from_secs(2));
    println!("failover: returned {back} after the end of the cut; {} missing", done.missing());
    assert!(back >= Duration::from_secs(5) && back < Duration::from_secs(7), "{back}");
    assert_eq!(done.missing(), 0);
}

#[test]
fn a_takeover_costs_nothing_where_the_latency_holds_it() {
    for millis in [150, 200, 300, 400, 500] {
        let mut missing = Vec::new();
        for seed in SEEDS {
            let first = Path::of(20, 0.0).cut(cut_of(seed), Duration::from_secs(2));
            let (latency, mode) = (Some(Duration::from_millis(millis)), PathMode::Failover);
            let paths = [first, Path::of(40, 0.0)];
            let done = carry_within(latency, mode, Reliability::Deadline, &paths, seed);
            missing.push(done.missing());
        }
        let sum: u64 = missing.iter().sum();
        println!("failover, latency {millis} ms: {sum} of 91032 missing, {missing:?}");
        assert!(millis < 500 || sum == 0);
    }
}

#[test]
fn a_standby_path_carries_keep_alives_alone() {
    let paths = [Path::of(20, 0.0), Path::of(40, 0.0)];
    let done = carry(PathMode::Failover, Reliability::Deadline, &paths, 1);
    let [first, second] = [&done.figures[0], &done.figures[1]];
    println!("standby: {} bytes in 14 s beside {}", second.bytes_sent, first.bytes_sent);
    assert_eq!((second.units, done.copies, done.missing()), (0, 0, 0));
    assert!(second.is_up && second.round_trip.is_some_and(|rtt| rtt >= Duration::from_millis(80)));
    assert!(second.bytes_sent < first.bytes_sent / 20);
}

/// What a path takes that carries the film alone: UDP payload, without stuffing.
const SENT: f64 = 3_700_000.0;

/// A path of this share of what is sent.
fn narrow(share: f64, millis: u64, loss: f64) -> Path {
    let rate = Rate::from_bits_per_sec((SENT * share) as u64);
    Path { rate: Some(rate), ..Path::of(millis, loss) }
}

/// Films over two paths with `Balance`: the share on time of all, and of the worst one.
fn balanced(what: &str, paths: impl Fn(u64) -> [Path; 2]) -> f64 {
    let (mut worst, mut all, mut missing, mut shares) = (1.0_f64, 0, 0, Vec::new());
    for seed in SEEDS {
        let done = carry(PathMode::Balance, Reliability::Deadline, &paths(seed), seed);
        worst = worst.min(done.whole as f64 / done.sent as f64);
        (all, missing) = (all + done.sent, missing + done.missing());
        let [first, second] = [done.figures[0].units as f64, done.figures[1].units as f64];
        shares.push(first / (first + second));
    }
    println!(
        "balance, {what}: {:.2} % on time, {:.2} % in the worst film; the first carries {:.0} to {:.0} % of \
         units",
        100.0 - missing as f64 / all as f64 * 100.0,
        worst * 100.0,
        shares.iter().copied().fold(1.0, f64::min) * 100.0,
        shares.iter().copied().fold(0.0, f64::max) * 100.0
    );
    worst
}

#[test]
fn two_paths_of_seven_tenths_of_the_rate_carry_it_on_time() {
    let equal = |_| [narrow(0.7, 20, 0.0), narrow(0.7, 35, 0.0)];
    assert!(balanced("0.7 and 0.7 of the rate", equal) >= 0.95);
    let unequal = |_| [narrow(0.9, 20, 0.0), narrow(0.5, 80, 0.0)];
    assert!(balanced("0.9 and 0.5, 40 and 160 ms", unequal) >= 0.95);
    let lossy = |_| [narrow(0.7, 20, 0.01), narrow(0.7, 35, 0.01)];
    let _ = balanced("0.7 and 0.7, 1 % lost", lossy);
    let cut = |seed| {
        let first = narrow(1.3, 20, 0.0).cut(cut_of(seed), Duration::from_secs(2));
        [first, narrow(1.3, 35, 0.0)]
    };
    assert!(balanced("1.3 and 1.3, one cut for 2 s", cut) >= 0.95);
}

#[test]
fn with_full_reliability_all_arrives_though_paths_are_cut_in_turn() {
    for mode in PathMode::ALL {
        let first = Path::of(20, 0.02).cut(START + Duration::from_secs(2), Duration::from_secs(6));
        let second = Path::of(35, 0.02).cut(START + Duration::from_secs(7), Duration::from_secs(2));
        let done = carry(mode, Reliability::Full, &[first, second], 1);
        println!("full, {mode}: {} missing", done.missing());
        assert_eq!(done.missing(), 0, "{mode}");
    }
}

#[test]
fn a_preferred_path_on_which_all_would_come_too_late_does_not_carry_and_is_not_silent() {
    let (paths, latency) = ([Path::of(400, 0.0), Path::of(10, 0.0)], Duration::from_millis(300));
    let (mode, reliability) = (PathMode::Failover, Reliability::Deadline);
    let done = carry_within(Some(latency), mode, reliability, &paths, 1);
    assert_eq!(done.missing(), 0);
    let wrong = |event: &&PathEvent| {
        matches!(event, PathEvent::Down(_) | PathEvent::Carries { path: 0, .. })
    };
    let wrong: Vec<_> = done.events.iter().map(|(_, event)| event).filter(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(done.figures[0].is_up && !done.figures[0].carries);
    // One whose round trip is longer, but not by as much, does.
    let done =
        carry_within(Some(latency), mode, reliability, &[Path::of(150, 0.0), paths[1].clone()], 1);
    assert!(done.figures[0].carries, "{:?}", done.events);
}

#[test]
fn random_losses_alone_do_not_move_a_stream_to_another_path() {
    // At 0.1 one film in 120 moves (5 of 600 seeds) and misses nothing.
    for (loss, max_moved) in [(0.01, 0), (0.05, 0), (0.1, 1)] {
        let (mut moved, mut missing, mut sent) = (0, 0, 0);
        for seed in SEEDS {
            let paths = [Path::of(20, loss), Path::of(40, loss)];
            let done = carry(PathMode::Failover, Reliability::Deadline, &paths, seed);
            let is_move = |event: &PathEvent| matches!(event, PathEvent::Carries { .. });
            moved += usize::from(done.events.iter().any(|(_, event)| is_move(event)));
            (missing, sent) = (missing + done.missing(), sent + done.sent);
        }
        println!("failover, {loss} lost: {moved} films moved, {missing} of {sent} missing");
        assert!(moved <= max_moved, "{loss}: {moved}");
    }
}

#[test]
fn a_cut_on_paths_that_lose_packets_costs_no_more_than_their_losses() {
    let (mut with_cut, mut without, mut takeovers) = (0, 0, Vec::new());
    for seed in SEEDS {
        let (first, second, cut) = (Path::of(20, 0.02), Path::of(40, 0.02), cut_of(seed));
        let cut_first = first.clone().cut(cut, Duration::from_secs(2));
        let run = |first: Path| {
            carry(PathMode::Failover, Reliability::Deadline, &[first, second.clone()], seed)
        };
        let (done, calm) = (run(cut_first), run(first));
        (with_cut, without) = (with_cut + done.missing(), without + calm.missing());
        takeovers.extend(done.takeovers(cut).first().copied());
    }
    let longest = takeovers.iter().max().copied().unwrap_or_default();
    println!(
        "failover, 0.02 lost: {with_cut} missing with a cut, {without} without; takeover after \
         {longest} at most ({} films)",
        takeovers.len()
    );
    assert_eq!(takeovers.len(), SEEDS.count());
    assert!(longest <= Duration::from_millis(200), "{takeovers:?}");
    assert!(with_cut <= without + 2 * takeovers.len() as u64, "{with_cut} and {without}");
}
