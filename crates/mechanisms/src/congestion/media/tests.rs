//! The controller over a path in virtual time, and its parts.

use std::collections::VecDeque;

use super::super::tests::ack;
use super::*;
use crate::pacing::{Pacer, interval_at_rate};
use crate::recovery::{Repair, Watch};

const RTT: Duration = Duration::from_millis(100);

/// A packet each 1.5 ms: 8 Mbit/s of 1,500 bytes; 67 fill the path.
const GAP: Duration = Duration::from_micros(1_500);

/// A key picture of 83 kB.
const KEY: u64 = 56;

fn media() -> Media {
    let start = Start {
        initial_window: Window::of_packets(10.0),
        packet_size: Bytes::new(1_500),
        ..Start::default()
    };
    Media::new(start, MediaParameters::default())
}

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// A sender over one link that loses a share of the packets at random, and whose loss is known when the
/// next packet's acknowledgement arrives.
struct Path {
    media: Media,
    random: RandomStream,
    loss: f64,
    now: Time,
    pacer: Pacer,
    sent: u64,
    /// When the acknowledgements of what is in flight arrive, when it was sent, and whether it is lost.
    arrivals: VecDeque<(Time, Time, bool)>,
    first: u64,
    link_free: Time,
    /// Packets that the application has still to send; `None`: endless.
    left: Option<u64>,
    delivered: u64,
    most_queued: Duration,
}

impl Path {
    fn new(loss: f64, left: Option<u64>) -> Self {
        let mut media = media();
        media.on_handshake(Time::ZERO, RTT);
        Self {
            media,
            random: RandomStream::new(5, "path"),
            loss,
            now: Time::ZERO,
            pacer: Pacer::default(),
            sent: 0,
            arrivals: VecDeque::new(),
            first: 0,
            link_free: Time::ZERO,
            left,
            delivered: 0,
            most_queued: Duration::ZERO,
        }
    }

    fn run_until(&mut self, end: Time) {
        while self.now < end {
            let is_open = (self.arrivals.len() as u64) < self.media.window().whole_packets();
            let has_data = self.left.is_none_or(|left| left > 0);
            let leaves = self.pacer.earliest().max(self.now);
            let arrives = self.arrivals.front().map_or(Time::NEVER, |(at, ..)| *at);
            if is_open && has_data && leaves < arrives {
                self.now = leaves;
                self.send();
            } else if arrives == Time::NEVER {
                self.now = end;
            } else {
                self.now = arrives;
                self.acknowledge(!is_open);
            }
        }
    }

    fn send(&mut self) {
        self.link_free = self.link_free.max(self.now) + GAP;
        self.most_queued = self.most_queued.max(self.link_free.since(self.now));
        let is_lost = self.random.chance(self.loss);
        self.arrivals.push_back((self.link_free + RTT, self.now, is_lost));
        let in_flight = self.arrivals.len() as f64;
        self.media.on_sent(&Sent { now: self.now, packet: self.sent, size: 1.0, in_flight });
        self.sent += 1;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        let rate = self.media.pacing_rate().expect("it has a rate");
        let interval = interval_at_rate(rate, Bytes::new(1_500));
        self.pacer.on_sent_in_quantum(self.now, interval, self.media.burst());
    }

    fn acknowledge(&mut self, window_limited: bool) {
        let before = self.arrivals.len() as f64;
        let (_, sent, is_lost) = self.arrivals.pop_front().expect("something is in flight");
        let rates = self.media.delivery_rates().expect("it has them");
        rates.begin(self.now, before);
        if is_lost {
            rates.lost(self.first)
        } else {
            rates.delivered(self.first)
        }
        self.first += 1;
        self.delivered += u64::from(!is_lost);
        rates.advance(self.first, Repair::None);
        if self.left == Some(0) {
            rates.limit_by_application(before - 1.0);
        }
        let rtt = self.now.since(sent);
        let in_flight = before - 1.0;
        self.media.on_ack(&Ack {
            now: self.now,
            rtt: (!is_lost).then_some(rtt),
            srtt: rtt,
            in_flight,
            window_limited,
            ..ack(1.0)
        });
    }
}

#[test]
fn the_first_key_picture_is_there_within_four_round_trips_of_a_clean_path() {
    let mut path = Path::new(0.0, Some(KEY));
    // RFC 9002, section 7.2: no more than ten packets before the first acknowledgement.
    path.run_until(at(0.1));
    assert!(path.sent <= 10, "{} packets", path.sent);
    path.run_until(at(0.4));
    // Acknowledged half a round trip after they arrived: 400 ms and half a round trip are far away.
    assert_eq!(path.delivered, KEY);
}

#[test]
fn a_later_key_picture_is_limited_by_the_link_alone() {
    let mut path = Path::new(0.0, Some(KEY));
    path.run_until(at(2.0));
    path.left = Some(KEY);
    path.run_until(at(2.0) + RTT + GAP * (KEY + 1));
    assert_eq!(path.delivered, 2 * KEY);
}

#[test]
fn alone_it_fills_the_link_and_keeps_its_own_queue_short() {
    let mut path = Path::new(0.0, None);
    path.run_until(at(5.0));
    (path.delivered, path.most_queued) = (0, Duration::ZERO);
    path.run_until(at(25.0));
    let share = path.delivered as f64 * GAP.as_secs_f64() / 20.0;
    assert!(share > 0.97, "{share}");
    // `queue` packets are 30 ms; what a span without a look at the queue adds is no more than as much.
    assert!(path.most_queued < Duration::from_millis(90), "{:?}", path.most_queued);
}

#[test]
fn random_losses_of_five_percent_leave_nine_tenths_of_the_link() {
    let mut path = Path::new(0.05, None);
    path.run_until(at(5.0));
    path.delivered = 0;
    path.run_until(at(25.0));
    // 0.95 arrive at most; tests of the losses take 30 % for 4 of 30 spans.
    let share = path.delivered as f64 * GAP.as_secs_f64() / 20.0;
    assert!(share > 0.85, "{share}");
    assert!((path.media.inherent.share() - 0.05).abs() < 0.04, "{:?}", path.media.inherent);
}

#[test]
fn lasting_losses_of_more_than_the_breaker_s_share_leave_next_to_nothing() {
    let mut path = Path::new(0.4, None);
    path.run_until(at(10.0));
    assert!(path.media.window().packets() <= 2.0 * LEAST, "{:?}", path.media.window());
    // The path recovers, and so does the flow.
    path.loss = 0.0;
    path.run_until(at(40.0));
    path.delivered = 0;
    path.run_until(at(50.0));
    assert!(path.delivered as f64 * GAP.as_secs_f64() > 9.0, "{} packets", path.delivered);
}

#[test]
fn what_it_says_the_path_bears_is_the_link_s_rate() {
    let mut path = Path::new(0.0, Some(KEY));
    for picture in 1..100_u32 {
        path.run_until(at(0.04 * f64::from(picture)));
        path.left = Some(if picture % 25 == 0 { KEY } else { 6 });
    }
    let bears = path.media.snapshot().bears.expect("it has an estimate").as_bits_per_sec() as f64;
    assert!((6e6..=9e6).contains(&bears), "{bears} bit/s");
}

/// A span in which the queue stands, and so much was in flight.
fn standing(used: f64, is_loss: bool) -> competition::Seen {
    competition::Seen { stands: true, is_loss, is_broken: false, used }
}

#[test]
fn a_queue_that_stands_tells_of_others_and_one_that_goes_that_they_have_gone() {
    let mut beside = Competition::default();
    let mut now = Time::ZERO;
    let mut span = |beside: &mut Competition, seen| {
        now += RTT;
        beside.on_span(now, &seen, false);
    };
    (0..2).for_each(|_| span(&mut beside, standing(50.0, false)));
    assert_eq!(beside.window(), None);
    span(&mut beside, standing(50.0, false));
    assert_eq!(beside.window(), Some(50.0));
    span(&mut beside, standing(50.0, false));
    let grown = beside.window().expect("others are there");
    assert!(grown > 50.0);
    span(&mut beside, standing(50.0, true));
    assert!(beside.window().expect("others are there") < grown);
    let short = competition::Seen { stands: false, ..standing(50.0, false) };
    (0..7).for_each(|_| span(&mut beside, short));
    assert!(beside.window().is_some());
    span(&mut beside, short);
    assert_eq!(beside.window(), None);
}

#[test]
fn a_flow_that_its_window_limits_tries_now_and_then_whether_others_are_there() {
    let mut beside = Competition::default();
    let mut trials = 0;
    for round in 1..600 {
        let before = beside.window();
        beside.on_span(Time::ZERO + RTT * round, &standing(50.0, false), true);
        trials += u32::from(before.is_some() && beside.window().is_none());
    }
    // In 60 s, each 16 s by the wall clock.
    assert_eq!(trials, 3);
}

/// The estimate after blocks sent fast and slowly, of which these shares are lost at random.
fn inherent(slow: f64, fast: f64) -> InherentLoss {
    let mut random = RandomStream::new(9, "inherent");
    let mut inherent = InherentLoss::default();
    for packet in 0..8_000_u32 {
        let is_fast = (packet / 200) % 2 == 0;
        let (share, seconds) = if is_fast { (fast, 0.001) } else { (slow, 0.003) };
        let lost = f64::from(random.chance(share));
        inherent.on_packets(1.0 - lost, lost, seconds, false);
    }
    inherent
}

#[test]
fn losses_at_any_rate_are_the_path_s_own() {
    for share in [0.0, 0.01, 0.05, 0.1] {
        let inherent = inherent(share, share);
        assert!((inherent.share() - share).abs() < 0.04, "{share}: {inherent:?}");
        assert!(!inherent.rises_with_rate(), "{share}: {inherent:?}");
        assert!(!inherent.is_exceeded(share * 100.0, 100.0, 0.02), "{share}: {inherent:?}");
    }
}

#[test]
fn losses_that_rise_with_the_rate_are_not() {
    for (slow, fast) in [(0.0, 0.1), (0.02, 0.2)] {
        let inherent = inherent(slow, fast);
        assert!(inherent.rises_with_rate(), "{slow}, {fast}: {inherent:?}");
        assert!(inherent.is_exceeded(fast * 200.0, 200.0, 0.02), "{slow}, {fast}: {inherent:?}");
    }
}

#[test]
fn losses_while_a_queue_stands_are_not_learnt() {
    let mut inherent = InherentLoss::default();
    let before = inherent.share();
    (0..1_000).for_each(|_| inherent.on_packets(0.5, 0.5, 0.001, true));
    assert_eq!(inherent.share(), before);
}

#[test]
fn whatever_happens_window_and_rate_are_finite_and_keep_their_floors() {
    for seed in 0..150 {
        let mut random = RandomStream::new(seed, "events");
        let mut media = media();
        let (mut now, mut first, mut next) = (Time::ZERO, 0_u64, 0_u64);
        for _ in 0..400 {
            now += Duration::from_micros(random.next_u64() % 200_000);
            let in_flight = next - first;
            match random.next_u64() % 12 {
                0..=4 => {
                    let in_flight = (in_flight + 1) as f64;
                    media.on_sent(&Sent { now, packet: next, size: 1.0, in_flight });
                    next += 1;
                }
                5 => media.on_timeout(&Timeout { now, next, in_flight: 0.0, repeated: false }),
                6 => media.on_handshake(now, Duration::from_micros(random.next_u64() % 100_000)),
                7 => media.on_ecn(&Loss { now, packet: first, next, in_flight: 1.0 }),
                _ => {
                    let upto = first + random.next_u64() % (in_flight + 1);
                    let rates = media.delivery_rates().expect("it has them");
                    rates.begin(now, in_flight as f64);
                    for packet in first..next {
                        match random.next_u64() % 10 {
                            0 => rates.lost(packet),
                            1 => rates.delivered(packet),
                            _ => {}
                        }
                    }
                    (first..upto).for_each(|packet| rates.delivered(packet));
                    rates.advance(upto, Repair::None);
                    first = upto;
                    let rtt = Duration::from_micros(random.next_u64() % 300_000);
                    let sample = random.chance(0.8).then_some(rtt);
                    let window_limited = random.chance(0.5);
                    let in_flight = (next - first) as f64;
                    media.on_ack(&Ack {
                        now,
                        rtt: sample,
                        srtt: rtt,
                        in_flight,
                        window_limited,
                        ..ack(1.0)
                    });
                }
            }
            let window = media.window().packets();
            assert!(window.is_finite() && window >= LEAST, "{media:?}");
            let pacing = media.pacing();
            assert!(pacing.is_finite() && pacing > 0.0, "{media:?}");
            assert!(media.burst().get() >= 2);
        }
    }
}
