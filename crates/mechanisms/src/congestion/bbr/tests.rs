//! BBR over a path without losses, and its state machine.

use std::collections::VecDeque;

use ontempo_foundation::Bytes;

use super::super::tests::ack;
use super::filter::RoundMaximum;
use super::v1::Mode;
use super::v3::State;
use super::*;
use crate::pacing::{Pacer, interval_at_rate};
use crate::recovery::{Repair, Watch};

const RTT: Duration = Duration::from_millis(40);

/// A packet each millisecond: 40 fill the path.
const GAP: Duration = Duration::from_millis(1);

const VERSIONS: [fn() -> BbrParameters; 2] = [BbrParameters::v1, BbrParameters::v3];

fn bbr(parameters: BbrParameters, seed: u64) -> Bbr {
    let start = Start { initial_window: Window::of_packets(10.0), ..Start::default() };
    Bbr::new(start, parameters, RandomStream::new(seed, "bbr"))
}

impl Bbr {
    /// The estimated bandwidth in packets a second.
    fn bandwidth(&self) -> f64 {
        match &self.model {
            Model::First(model) => model.bandwidth(),
            Model::Third(model) => model.max_bandwidth(),
        }
    }

    /// What it is doing, in a word for both versions.
    fn phase(&self) -> &'static str {
        match &self.model {
            Model::First(model) => match model.mode {
                Mode::Startup => "startup",
                Mode::Drain => "drain",
                Mode::ProbeBw(0, _) => "up",
                Mode::ProbeBw(1, _) => "down",
                Mode::ProbeBw(..) => "cruise",
                Mode::ProbeRtt => "probe-rtt",
            },
            Model::Third(model) => match model.state {
                State::Startup => "startup",
                State::Drain => "drain",
                State::Up => "up",
                State::Down => "down",
                State::Cruise => "cruise",
                State::Refill => "refill",
                State::ProbeRtt => "probe-rtt",
            },
        }
    }
}

/// A sender over one link that loses nothing.
struct Path {
    bbr: Bbr,
    now: Time,
    pacer: Pacer,
    sent: u64,
    acknowledged: u64,
    /// When the acknowledgements of what is in flight arrive, and when it was sent.
    arrivals: VecDeque<(Time, Time)>,
    link_free: Time,
    gap: Duration,
    /// The round trip without this sender's queue.
    rtt: Duration,
    /// The application writes a packet each so often; at once without.
    writes: Option<Duration>,
    written_at: Time,
    phases: Vec<(Time, &'static str)>,
    /// The most packets in flight since the start, or since it was last taken.
    most: u64,
}

impl Path {
    fn new(bbr: Bbr) -> Self {
        Self {
            bbr,
            now: Time::ZERO,
            pacer: Pacer::default(),
            sent: 0,
            acknowledged: 0,
            arrivals: VecDeque::new(),
            link_free: Time::ZERO,
            gap: GAP,
            rtt: RTT,
            writes: None,
            written_at: Time::ZERO,
            phases: vec![(Time::ZERO, "startup")],
            most: 0,
        }
    }

    fn run_until(&mut self, end: Time) {
        while self.now < end {
            let window = self.bbr.window().whole_packets();
            let is_open = (self.arrivals.len() as u64) < window;
            let leaves = self.pacer.earliest().max(self.written_at).max(self.now);
            let arrives = self.arrivals.front().map_or(Time::NEVER, |(at, _)| *at);
            if is_open && leaves < arrives {
                self.now = leaves;
                self.send();
            } else {
                self.now = arrives;
                self.acknowledge();
            }
            self.note_limits();
        }
    }

    fn note_limits(&mut self) {
        let in_flight = self.arrivals.len() as f64;
        let is_full = in_flight >= self.bbr.window().whole_packets() as f64;
        let is_empty = self.written_at > self.now;
        let rates = self.bbr.delivery_rates().expect("BBR has them");
        if is_full {
            rates.limit_by_window(in_flight);
        } else if is_empty {
            rates.limit_by_application(in_flight);
        }
    }

    fn send(&mut self) {
        self.link_free = self.link_free.max(self.now) + self.gap;
        self.arrivals.push_back((self.link_free + self.rtt, self.now));
        let in_flight = self.arrivals.len() as f64;
        self.most = self.most.max(self.arrivals.len() as u64);
        self.bbr.on_sent(&Sent { now: self.now, packet: self.sent, size: 1.0, in_flight });
        self.sent += 1;
        let rate = self.bbr.pacing_rate().expect("BBR has a rate");
        let interval = interval_at_rate(rate, Bytes::new(1_000));
        self.pacer.on_sent_in_quantum(self.now, interval, self.bbr.burst());
        if let Some(interval) = self.writes {
            self.written_at = self.written_at.max(self.now) + interval;
        }
    }

    fn acknowledge(&mut self) {
        let before = self.arrivals.len() as f64;
        let (_, sent) = self.arrivals.pop_front().expect("something is in flight");
        let rates = self.bbr.delivery_rates().expect("BBR has them");
        rates.begin(self.now, before);
        rates.delivered(self.acknowledged);
        self.acknowledged += 1;
        rates.advance(self.acknowledged, Repair::None);
        let rtt = self.now.since(sent);
        let in_flight = before - 1.0;
        self.bbr.on_ack(&Ack { now: self.now, rtt: Some(rtt), srtt: rtt, in_flight, ..ack(1.0) });
        let phase = self.bbr.phase();
        if self.phases.last().is_none_or(|last| last.1 != phase) {
            self.phases.push((self.now, phase));
        }
    }
}

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

#[test]
fn the_maximum_of_the_last_rounds_is_that_of_a_list() {
    let mut random = RandomStream::new(3, "rounds");
    for _ in 0..200 {
        let (mut filter, mut all, mut round) = (RoundMaximum::default(), Vec::new(), 0);
        for _ in 0..100 {
            round += if random.chance(0.02) { 40 } else { random.next_u64() % 4 };
            let value = random.uniform();
            filter.add(round, value);
            all.push((round, value));
            for before in [0, 1, 5, 10] {
                let recent = all.iter().filter(|(at, _)| at + before >= round);
                let largest = recent.map(|(_, value)| *value).fold(0.0, f64::max);
                assert_eq!(filter.largest(before), largest, "{round}, {before}");
            }
        }
    }
}

#[test]
fn startup_finds_the_rate_of_the_link_and_the_queue_that_it_makes_is_drained() {
    for version in VERSIONS {
        let mut path = Path::new(bbr(version(), 1));
        path.run_until(at(3.0));
        let phases: Vec<_> = path.phases.iter().map(|(_, phase)| *phase).take(3).collect();
        assert_eq!(phases[..2], ["startup", "drain"], "{phases:?}");
        // 10 packets to 40 in two doublings, three rounds without growth: less than 20 round trips.
        assert!(path.phases[1].0 < at(0.8), "{:?}", path.phases);
        // Drain takes one or two round trips, three rounds at most in version 3.
        assert!(path.phases[2].0.since(path.phases[1].0) < RTT * 8, "{:?}", path.phases);
        let bandwidth = path.bbr.bandwidth();
        assert!((980.0..=1_020.0).contains(&bandwidth), "{bandwidth} packets/s");
    }
}

#[test]
fn it_fills_the_link_and_what_is_in_flight_stays_below_the_gain_times_the_path() {
    for version in VERSIONS {
        for seed in 1..=5 {
            let mut path = Path::new(bbr(version(), seed));
            path.run_until(at(3.0));
            let before = path.acknowledged;
            path.most = 0;
            path.run_until(at(33.0));
            // ProbeRTT costs at most 2.4 %, pacing 1 %.
            let share = (path.acknowledged - before) as f64 / 30_000.0;
            assert!(share > 0.95, "{share}");
            // 2.25 times 41 packets, three quanta, what an acknowledgement may add, and two packets.
            assert!(path.most <= 110, "{} in flight", path.most);
        }
    }
}

#[test]
fn the_least_round_trip_is_probed_for_after_each_interval() {
    for version in VERSIONS {
        let mut path = Path::new(bbr(version(), 2));
        path.run_until(at(60.0));
        let interval = version().probe_rtt_interval;
        let probes: Vec<_> =
            path.phases.windows(2).filter(|pair| pair[0].1 == "probe-rtt").collect();
        assert!(!probes.is_empty());
        for probe in &probes {
            // 200 ms, the time to get there and the end of a round.
            let lasted = probe[1].0.since(probe[0].0);
            assert!(lasted > Duration::from_millis(200) && lasted < Duration::from_millis(450));
        }
        for pair in probes.windows(2) {
            assert!(pair[1][0].0.since(pair[0][1].0) > interval, "{pair:?}");
        }
    }
}

#[test]
fn for_media_round_trips_without_a_queue_put_probe_rtt_off_and_a_queue_of_others_does_not() {
    let probed = |parameters: BbrParameters, writes, longer: Duration| {
        let mut path = Path::new(bbr(parameters, 2));
        path.writes = writes;
        path.run_until(at(10.0));
        path.rtt += longer;
        path.run_until(at(40.0));
        path.phases.iter().filter(|(_, phase)| *phase == "probe-rtt").count()
    };
    // A film that takes four fifths of the link, and one that is never through.
    for writes in [Some(GAP * 5 / 4), None] {
        assert!(probed(BbrParameters::v3(), writes, Duration::ZERO) >= 4);
        assert_eq!(probed(BbrParameters::media(), writes, Duration::ZERO), 0);
        assert!(probed(BbrParameters::media(), writes, RTT) > 0);
    }
}

#[test]
fn version_3_goes_down_cruises_refills_and_probes_up_again() {
    let mut path = Path::new(bbr(BbrParameters::v3(), 4));
    path.run_until(at(40.0));
    let mut cycles = 0;
    for pair in path.phases.windows(2) {
        let (before, after) = (pair[0].1, pair[1].1);
        let follows = match before {
            "startup" => ["drain"].as_slice(),
            // Down may be over as soon as it begins.
            "drain" => &["down", "cruise"],
            "down" => &["cruise", "refill", "probe-rtt"],
            "cruise" => &["refill", "probe-rtt"],
            "refill" => &["up", "probe-rtt"],
            "up" => &["down", "probe-rtt"],
            _ => &["cruise"],
        };
        assert!(follows.contains(&after), "{before} to {after}");
        cycles += u64::from(after == "up");
    }
    // At most 41 round trips of 41 ms or more between probes: at least one in 3 s.
    assert!((10..=30).contains(&cycles), "{cycles} probes");
}

#[test]
fn a_faster_link_is_found_and_a_slower_one_too() {
    // Twice the rate and back. The buffer is endless: half the window, with which version 3 looks for the
    // least round trip, must drain it.
    for version in VERSIONS {
        let mut path = Path::new(bbr(version(), 5));
        path.run_until(at(10.0));
        path.gap = GAP / 2;
        path.run_until(at(30.0));
        let faster = path.bbr.bandwidth();
        assert!((1_960.0..=2_040.0).contains(&faster), "{faster} packets/s");
        path.gap = GAP;
        path.run_until(at(60.0));
        let slower = path.bbr.bandwidth();
        assert!((980.0..=1_020.0).contains(&slower), "{slower} packets/s");
    }
}

#[test]
fn sending_less_than_the_path_carries_does_not_lower_the_estimate() {
    for version in VERSIONS {
        let mut path = Path::new(bbr(version(), 6));
        path.run_until(at(4.0));
        let before = path.bbr.bandwidth();
        // A packet each 20 ms: 5 % of the link.
        path.writes = Some(Duration::from_millis(20));
        path.run_until(at(40.0));
        let after = path.bbr.bandwidth();
        assert!(after >= 0.99 * before, "{before} before, {after} packets/s after");
        // And the rate is there at once when it is needed.
        path.writes = None;
        path.run_until(at(40.2));
        let sent = path.acknowledged;
        path.run_until(at(43.2));
        // ProbeRTT may come in between, for 0.3 s.
        assert!(path.acknowledged - sent > 2_650, "{} in 3 s", path.acknowledged - sent);
    }
}

#[test]
fn flows_with_other_seeds_probe_at_other_times_and_equal_ones_at_the_same() {
    for version in VERSIONS {
        let phases = |seed| {
            let mut path = Path::new(bbr(version(), seed));
            path.run_until(at(20.0));
            path.phases
        };
        assert_eq!(phases(1), phases(1));
        assert!((2..8).any(|seed| phases(seed) != phases(1)));
    }
}

#[test]
fn a_timeout_leaves_one_packet_beyond_what_is_in_flight_and_its_end_restores_the_window() {
    for version in VERSIONS {
        let mut path = Path::new(bbr(version(), 7));
        path.run_until(at(3.0));
        let before = path.bbr.window();
        let lost = Timeout { now: path.now, next: path.sent, in_flight: 0.0, repeated: false };
        path.bbr.on_timeout(&lost);
        assert_eq!(path.bbr.window().packets(), 1.0);
        // The next acknowledgement covers all: nothing is repaired any more.
        path.acknowledge();
        assert!(path.bbr.window().packets() > 0.6 * before.packets(), "{:?}", path.bbr.window());
    }
}

#[test]
fn losses_beyond_the_threshold_in_a_probe_bound_what_is_in_flight() {
    let mut path = Path::new(bbr(BbrParameters::v3(), 8));
    while path.bbr.phase() != "up" {
        path.run_until(path.now + GAP);
    }
    path.run_until(path.now + RTT * 2);
    let Model::Third(model) = &path.bbr.model else { panic!("version 3") };
    assert!(model.inflight_long.is_infinite());
    let (first, in_flight) = (path.acknowledged, path.arrivals.len() as f64);
    let rates = path.bbr.delivery_rates().expect("BBR has them");
    rates.begin(path.now, in_flight);
    // 5 of fewer than 100 are more than 2 %.
    (first + 1..first + 6).for_each(|packet| rates.lost(packet));
    path.acknowledge();
    let Model::Third(model) = &path.bbr.model else { panic!("version 3") };
    assert!(model.inflight_long.is_finite() && model.state == State::Down);
    // Not below 0.7 of the path.
    assert!(model.inflight_long >= 0.7 * 39.0, "{}", model.inflight_long);
}

#[test]
fn whatever_happens_window_and_rate_are_finite_and_keep_their_floors() {
    for version in VERSIONS {
        for seed in 0..150 {
            let mut random = RandomStream::new(seed, "events");
            let mut bbr = bbr(version(), seed);
            let (mut now, mut first, mut next) = (Time::ZERO, 0_u64, 0_u64);
            for _ in 0..400 {
                now += Duration::from_micros(random.next_u64() % 200_000);
                let in_flight = next - first;
                match random.next_u64() % 12 {
                    0..=4 => {
                        let in_flight = (in_flight + 1) as f64;
                        bbr.on_sent(&Sent { now, packet: next, size: 1.0, in_flight });
                        next += 1;
                    }
                    5 => bbr.on_timeout(&Timeout {
                        now,
                        next,
                        in_flight: 0.0,
                        repeated: random.chance(0.5),
                    }),
                    6 => bbr.on_handshake(now, Duration::from_micros(random.next_u64() % 100_000)),
                    7 => bbr.on_spurious_timeout(&bbr.snapshot()),
                    _ => {
                        let upto = first + random.next_u64() % (in_flight + 1);
                        let repairs = [Repair::None, Repair::Episode, Repair::AfterTimeout];
                        let rates = bbr.delivery_rates().expect("BBR has them");
                        rates.begin(now, in_flight as f64);
                        for packet in first..next {
                            match random.next_u64() % 10 {
                                0 => rates.lost(packet),
                                1 => rates.delivered(packet),
                                _ => {}
                            }
                        }
                        (first..upto).for_each(|packet| rates.delivered(packet));
                        rates.advance(upto, repairs[(random.next_u64() % 3) as usize]);
                        if random.chance(0.2) {
                            rates.limit_by_application((next - upto) as f64);
                        }
                        first = upto;
                        let rtt = Duration::from_micros(random.next_u64() % 300_000);
                        let in_flight = (next - first) as f64;
                        let sample = random.chance(0.8).then_some(rtt);
                        bbr.on_ack(&Ack { now, rtt: sample, srtt: rtt, in_flight, ..ack(1.0) });
                    }
                }
                let window = bbr.window().packets();
                assert!(window.is_finite() && window >= 1.0, "{bbr:?}");
                let rate = bbr.pacing_rate().expect("BBR has a rate");
                assert!(rate.as_bits_per_sec() > 0 && bbr.flow.pacing.is_finite(), "{bbr:?}");
                assert!(bbr.burst().get() >= 1);
            }
        }
    }
}
