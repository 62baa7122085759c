use super::super::tests::{ack, ack_at, loss, start_with, timeout};
use super::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

fn pert(window: f64, parameters: PertParameters) -> Pert {
    Pert::new(start_with(window), parameters, RandomStream::new(1, "pert"))
}

/// A flow with a constant queueing delay of `queue`, at most 100 ms, and a base RTT of 100 ms.
fn pert_at(queue: Duration, window: f64, parameters: PertParameters) -> Pert {
    let mut pert = pert(window, parameters);
    let smoothed = (millis(100) + queue).as_nanos() as f64;
    pert.path =
        Some(Path { minimum: millis(100), maximum: millis(200), last: millis(200), smoothed });
    pert
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

fn alpha(pert: &Pert) -> f64 {
    pert.snapshot().alpha.expect("PERT has one")
}

#[test]
fn the_smoothed_round_trip_takes_the_first_sample_whole_and_a_hundredth_of_each_later_one() {
    let mut pert = pert(10.0, PertParameters::default());
    pert.on_ack(&ack_at(Time::ZERO, millis(100)));
    assert_eq!(pert.srtt(), Some(millis(100)));
    pert.on_ack(&ack_at(Time::ZERO, millis(200)));
    assert_eq!(pert.srtt(), Some(millis(101)));
    assert_eq!(pert.snapshot().queueing_delay, Some(millis(1)));
    assert_eq!(pert.queueing().expect("measured").maximum, millis(100));
}

#[test]
fn an_ack_of_several_packets_can_count_as_often() {
    let after = |counting: AckCounting, packets: f64| {
        let mut pert = pert(10.0, PertParameters { counting, ..PertParameters::default() });
        pert.on_ack(&ack_at(Time::ZERO, millis(100)));
        pert.on_ack(&Ack { packets, ..ack_at(Time::ZERO, millis(200)) });
        pert.srtt().expect("there were samples").as_secs_f64()
    };
    close(after(AckCounting::Packets, 1.0), 0.101);
    close(after(AckCounting::Acks, 4.0), 0.101);
    // 200 - 100 * 0.99^4
    close(after(AckCounting::Packets, 4.0), 0.103_940_399);
}

#[test]
fn an_ack_of_several_packets_can_draw_as_often_for_a_response() {
    let responses = |counting: AckCounting, packets: f64| {
        let parameters = PertParameters { counting, ..PertParameters::default() };
        let mut all = 0;
        for seed in 0..2000 {
            let mut pert = pert_at(millis(10), 50.0, parameters);
            pert.random = RandomStream::new(seed, "pert");
            pert.ssthresh = 10.0;
            pert.on_ack(&Ack { packets, rtt: None, ..ack_at(Time::ZERO, millis(110)) });
            all += pert.snapshot().early_responses;
        }
        all as f64 / 2000.0
    };
    // The probability at 10 ms is 0.05 (`p-max` at `t-max`); 1 - 0.95^4 = 0.185.
    let (once, four_times) =
        (responses(AckCounting::Acks, 4.0), responses(AckCounting::Packets, 4.0));
    assert!((once - 0.05).abs() < 0.02, "{once}");
    assert!((four_times - 0.185).abs() < 0.035, "{four_times}");
}

#[test]
fn the_maximum_queueing_delay_counts_as_ten_milliseconds_at_least() {
    let mut pert = pert(10.0, PertParameters::default());
    pert.on_ack(&ack_at(Time::ZERO, millis(100)));
    pert.on_ack(&ack_at(Time::ZERO, millis(103)));
    assert_eq!(pert.queueing().expect("measured").maximum, millis(10));
}

#[test]
fn a_loss_can_take_one_half_whatever_the_queueing_delay() {
    let after = |half_at_a_loss: bool| {
        let parameters = PertParameters { half_at_a_loss, ..PertParameters::default() };
        // beta = 25 / 125.
        let mut pert = pert_at(millis(25), 40.0, parameters);
        pert.on_loss(&loss(1, 41));
        pert.window().packets()
    };
    close(after(false), 32.0);
    close(after(true), 20.0);
}

#[test]
fn a_duplicates_round_trip_counts_where_the_transport_gives_one() {
    for (samples, largest) in
        [(PertSamples::All, 400), (PertSamples::EveryAck, 400), (PertSamples::Confirmed, 0)]
    {
        let mut pert = pert(10.0, PertParameters { samples, ..PertParameters::default() });
        pert.on_ack(&ack_at(Time::ZERO, millis(100)));
        let duplicate = Ack { packets: 0.0, in_recovery: true, repairs: true, ..ack(0.0) };
        pert.on_ack(&Ack { rtt: Some(millis(500)), ..duplicate });
        let snapshot = pert.snapshot();
        let expected = millis(largest).max(millis(10));
        assert_eq!(snapshot.largest_queueing_delay, Some(expected), "{samples:?}");
    }
}

#[test]
fn slow_start_adds_a_packet_for_each_ack_and_never_responds_early() {
    let start = Start { initial_window: Window::of_packets(2.0), ..Start::default() };
    let random = RandomStream::new(1, "pert");
    let mut pert = Pert::new(start, PertParameters::default(), random);
    pert.path = pert_at(millis(90), 2.0, PertParameters::default()).path;
    for _ in 0..50 {
        pert.on_ack(&ack(1.0));
    }
    assert_eq!(pert.window().packets(), 52.0);
    assert_eq!(pert.snapshot().early_responses, 0);
}

#[test]
fn congestion_avoidance_adds_alpha_over_the_window_for_each_packet() {
    let mut pert = pert_at(millis(0), 10.0, PertParameters::default());
    pert.alpha = 4.0;
    pert.next_step = Time::NEVER;
    pert.on_ack(&ack(3.0));
    close(pert.window().packets(), 10.0 + 4.0 * 3.0 / 10.0);
}

#[test]
fn a_certain_response_takes_beta_and_ends_in_congestion_avoidance() {
    // T_3 is 65 ms: the probability is 1. beta = 70 / 170.
    let mut pert = pert_at(millis(70), 34.0, PertParameters::default());
    pert.on_ack(&ack(1.0));
    close(pert.window().packets(), 34.0 * 100.0 / 170.0);
    let snapshot = pert.snapshot();
    assert_eq!(snapshot.ssthresh, snapshot.cwnd);
    assert_eq!((snapshot.early_responses, snapshot.reductions), (1, 1));
}

#[test]
fn there_is_one_response_until_a_packet_sent_after_it_is_acknowledged() {
    let mut pert = pert_at(millis(70), 100.0, PertParameters::default());
    pert.on_ack(&Ack { acked: 10, next: 110, ..ack(1.0) });
    for acked in 11..110 {
        pert.on_ack(&Ack { acked, next: 160, ..ack(1.0) });
    }
    assert_eq!(pert.snapshot().early_responses, 1);
    pert.on_ack(&Ack { acked: 110, next: 170, ..ack(1.0) });
    assert_eq!(pert.snapshot().early_responses, 2);
}

#[test]
fn the_smallest_window_grows_again_however_certain_its_responses() {
    let mut pert = pert_at(millis(70), 2.0, PertParameters::default());
    let mut largest = 0.0f64;
    let mut next = 2;
    for acked in 0..1000 {
        pert.on_ack(&Ack { acked, next, ..ack(1.0) });
        next = next.max(acked + 1 + pert.window().whole_packets());
        largest = largest.max(pert.window().packets());
    }
    assert!(pert.snapshot().early_responses <= 500);
    assert!(largest > 2.4, "{largest}");
}

#[test]
fn no_response_takes_the_window_below_two_packets() {
    let mut pert = pert_at(millis(100), 2.5, PertParameters::default());
    pert.on_ack(&ack(1.0));
    assert_eq!(pert.window().packets(), 2.0);
}

#[test]
fn responses_come_as_often_as_their_probability_says() {
    // At 10 ms of queue, one in twenty.
    let mut responses = 0;
    let mut pert = pert_at(millis(10), 50.0, PertParameters::default());
    for _ in 0..20_000 {
        pert.responded_until = 0;
        pert.on_ack(&ack(1.0));
        responses = pert.snapshot().early_responses;
        pert.cwnd = 50.0;
    }
    assert!((900..1100).contains(&responses), "{responses}");
}

#[test]
fn high_speed_mode_adds_a_half_every_five_round_trips_up_to_thirty_two() {
    let mut pert = pert_at(millis(0), 10.0, PertParameters::thesis());
    let mut seen = Vec::new();
    for tenth in 0..11 {
        pert.on_ack(&Ack { now: at(f64::from(tenth) * 0.1), ..ack(1.0) });
        seen.push(alpha(&pert));
    }
    assert_eq!(pert.mode(), Mode::HighSpeed);
    assert_eq!(seen, [1.5, 1.5, 1.5, 1.5, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.5]);
    for second in 2..200 {
        pert.on_ack(&Ack { now: at(f64::from(second)), ..ack(1.0) });
    }
    assert_eq!(alpha(&pert), 32.0);
}

#[test]
fn safe_mode_sets_alpha_to_one_at_once_as_the_thesis_has_it() {
    let mut pert = pert_at(millis(6), 10.0, PertParameters::thesis());
    pert.alpha = 20.0;
    pert.on_ack(&ack(1.0));
    assert_eq!((pert.mode(), alpha(&pert)), (Mode::Safe, 1.0));
}

#[test]
fn safe_mode_takes_a_tenth_of_alpha_every_five_round_trips_as_the_port_has_it() {
    let mut pert = pert_at(millis(6), 10.0, PertParameters::reference());
    pert.alpha = 20.0;
    pert.on_ack(&Ack { now: at(1.0), ..ack(1.0) });
    close(alpha(&pert), 18.0);
    pert.on_ack(&Ack { now: at(1.2), ..ack(1.0) });
    close(alpha(&pert), 18.0);
    pert.on_ack(&Ack { now: at(1.6), ..ack(1.0) });
    close(alpha(&pert), 16.2);
}

#[test]
fn compete_mode_increases_by_one_and_the_ratio_of_responses_to_losses() {
    let mut pert = pert_at(millis(80), 10.0, PertParameters::thesis());
    // A loss every 300 packets, a response every 100.
    pert.losses.on_packets(300.0);
    pert.losses.close();
    pert.responses.on_packets(100.0);
    pert.responses.close();
    pert.responded_until = u64::MAX;
    pert.on_ack(&ack(1.0));
    assert_eq!(pert.mode(), Mode::Compete);
    close(alpha(&pert), 4.0);
}

#[test]
fn compete_mode_without_any_loss_creeps_upward_by_tenths() {
    let mut pert = pert_at(millis(80), 10.0, PertParameters::thesis());
    pert.responded_until = u64::MAX;
    pert.on_ack(&ack(1.0));
    close(alpha(&pert), 1.1);
}

#[test]
fn the_port_waits_for_a_whole_window_in_one_mode() {
    let mut pert = pert_at(millis(0), 4.0, PertParameters::reference());
    pert.alpha = 10.0;
    pert.next_step = Time::NEVER;
    pert.on_ack(&ack(3.0));
    assert_eq!(pert.mode(), Mode::Safe);
    pert.on_ack(&ack(20.0));
    assert_eq!(pert.mode(), Mode::HighSpeed);
    pert.path = pert_at(millis(6), 4.0, PertParameters::reference()).path;
    pert.on_ack(&ack(1.0));
    assert_eq!(pert.mode(), Mode::Safe);
    pert.path = pert_at(millis(0), 4.0, PertParameters::reference()).path;
    pert.on_ack(&ack(1.0));
    assert_eq!(pert.mode(), Mode::Safe);
}

#[test]
fn a_loss_at_the_full_queue_halves_once_a_window_and_closes_the_loss_interval() {
    let mut pert = pert_at(millis(100), 40.0, PertParameters::default());
    pert.losses.on_packets(250.0);
    pert.on_loss(&loss(10, 50));
    pert.on_loss(&loss(20, 50));
    assert_eq!(pert.window().packets(), 20.0);
    assert_eq!(pert.snapshot().ssthresh.packets(), 20.0);
    assert_eq!(pert.loss_rate(), Some(1.0 / 250.0));
    assert_eq!(pert.snapshot().early_responses, 0);
}

#[test]
fn a_timeout_leaves_one_packet_and_the_threshold_that_a_loss_would_leave() {
    let mut pert = pert_at(millis(50), 30.0, PertParameters::default());
    pert.on_timeout(&timeout(40));
    assert_eq!(pert.window().packets(), 1.0);
    close(pert.snapshot().ssthresh.packets(), 20.0);
    pert.on_timeout(&Timeout { repeated: true, ..timeout(40) });
    close(pert.snapshot().ssthresh.packets(), 20.0);
    assert_eq!(pert.snapshot().reductions, 1);
}

#[test]
fn during_recovery_delay_is_measured_but_the_window_does_not_grow() {
    let mut pert = pert_at(millis(90), 30.0, PertParameters::default());
    pert.on_ack(&Ack { in_recovery: true, ..ack_at(Time::ZERO, millis(300)) });
    assert_eq!(pert.window().packets(), 30.0);
    assert_eq!(pert.queueing().expect("measured").maximum, millis(200));
}

#[test]
fn a_flow_that_loses_nothing_sees_its_loss_rate_fall() {
    let mut pert = pert_at(millis(0), 30.0, PertParameters::default());
    pert.losses.on_packets(100.0);
    pert.on_loss(&loss(1, 2));
    assert_eq!(pert.loss_rate(), Some(0.01));
    pert.on_ack(&ack(400.0));
    assert_eq!(pert.loss_rate(), Some(1.0 / 400.0));
}

/// A flow that is Reno beside loss-based flows, and that acknowledges a packet in each round trip.
struct Beside {
    pert: Pert,
    now: Time,
    acked: u64,
    window_limited: bool,
}

impl Beside {
    /// In congestion avoidance with a window of 60, after a loss at a queue of 100 ms.
    fn new(compete: bool) -> Self {
        let parameters = PertParameters { as_reno: compete, ..PertParameters::default() };
        let mut pert = pert(60.0, parameters);
        pert.path = Some(Path {
            minimum: millis(100),
            maximum: millis(200),
            last: millis(200),
            smoothed: 190.0 * 1e6,
        });
        pert.on_any_loss();
        pert.cwnd = 60.0;
        pert.ssthresh = 60.0;
        Self { pert, now: Time::ZERO, acked: 0, window_limited: true }
    }

    /// Round trips with this queueing delay, of which each ends with an ACK; how many early responses.
    fn round_trips(&mut self, count: u64, queue: Duration) -> u64 {
        let before = self.pert.early_responses;
        for _ in 0..count {
            self.now += millis(250);
            self.acked += 100;
            let ack = ack_at(self.now, millis(100) + queue);
            let (acked, next) = (self.acked, self.acked + 100);
            self.pert.on_ack(&Ack { acked, next, window_limited: self.window_limited, ..ack });
        }
        self.pert.early_responses - before
    }
}

#[test]
fn a_flow_whose_responses_do_not_shorten_the_queue_becomes_reno() {
    let mut flow = Beside::new(true);
    assert_eq!(flow.round_trips(8, millis(90)), 7);
    assert!(flow.pert.as_reno());
    let before = flow.pert.window().packets();
    assert!(before < 10.0, "{before}");
    close(flow.pert.ssthresh, 60.0);
    assert_eq!(flow.round_trips(100, millis(90)), 0);
    flow.pert.cwnd = 60.0;
    flow.pert.on_loss(&loss(flow.acked + 1, flow.acked + 60));
    close(flow.pert.window().packets(), 30.0);
}

#[test]
fn a_queue_that_was_short_once_in_eight_round_trips_leaves_early_responses_on() {
    let mut flow = Beside::new(true);
    for _ in 0..20 {
        flow.round_trips(7, millis(90));
        flow.round_trips(1, millis(20));
    }
    assert!(!flow.pert.as_reno());
}

#[test]
fn as_the_thesis_has_it_a_flow_never_becomes_reno() {
    let mut flow = Beside::new(false);
    assert!(flow.round_trips(500, millis(90)) > 400);
    assert!(!flow.pert.as_reno());
}

#[test]
fn before_a_loss_only_a_queue_at_which_responses_are_certain_makes_a_flow_reno() {
    let becomes_reno = |queue| {
        let mut flow = Beside::new(true);
        flow.pert.losses = IntervalHistory::default();
        flow.round_trips(63, queue);
        assert!(!flow.pert.as_reno(), "64 round trips");
        flow.round_trips(1, queue);
        flow.pert.as_reno()
    };
    assert!(!becomes_reno(millis(64)), "certain from 65 % of the largest queueing delay on");
    assert!(becomes_reno(millis(66)));
}

#[test]
fn a_flow_that_is_reno_tries_early_responses_again_and_keeps_them_where_the_queue_is_short() {
    let mut flow = Beside::new(true);
    flow.round_trips(8, millis(90));
    // 256 round trips of 190 ms take 49 s: it tries at the multiples of 64 s.
    flow.round_trips(247, millis(90));
    assert!(flow.pert.as_reno(), "{:?}", flow.now);
    flow.round_trips(1, millis(90));
    assert!(!flow.pert.as_reno(), "{:?}", flow.now);
    flow.round_trips(2_000, millis(4));
    assert!(!flow.pert.as_reno());
}

#[test]
fn a_trial_that_fails_gives_the_window_back_and_the_next_comes_later() {
    let mut flow = Beside::new(true);
    flow.round_trips(8, millis(90));
    flow.round_trips(247, millis(90));
    flow.pert.cwnd = 50.0;
    flow.pert.ssthresh = 40.0;
    flow.round_trips(1, millis(30));
    assert!(!flow.pert.as_reno(), "{:?}", flow.now);
    // The trial takes 100 round trips with a short queue and 8 with a full one.
    flow.round_trips(100, millis(30));
    flow.round_trips(8, millis(90));
    assert!(flow.pert.as_reno());
    assert!(flow.pert.ssthresh >= 50.0, "{}", flow.pert.ssthresh);
    // Four times as many take 66 s or more: now it tries at the multiples of 128 s.
    flow.round_trips(147, millis(30));
    assert!(flow.pert.as_reno(), "{:?}", flow.now);
    flow.round_trips(1, millis(30));
    assert!(!flow.pert.as_reno(), "{:?}", flow.now);
}

#[test]
fn a_flow_that_its_application_limits_waits_until_others_leave_the_queue_short() {
    let mut flow = Beside::new(true);
    flow.round_trips(8, millis(90));
    flow.window_limited = false;
    flow.round_trips(600, millis(90));
    assert!(flow.pert.as_reno(), "others fill the queue");
    // To 192 s, a time of trials.
    while flow.now < Time::from_nanos(191_750_000_000) {
        flow.round_trips(1, millis(30));
    }
    flow.round_trips(7, millis(30));
    assert!(flow.pert.as_reno(), "{:?}", flow.now);
    flow.round_trips(1, millis(30));
    assert!(!flow.pert.as_reno(), "{:?}", flow.now);
}

#[test]
fn flows_try_at_the_same_times_whenever_they_became_reno_and_whatever_their_round_trips() {
    let trial = |now: u64, between: u64| {
        let (now, between) = (Time::from_nanos(now * 1_000_000_000), Duration::from_secs(between));
        Competition::trial_after(now, between).as_nanos() / 1_000_000_000
    };
    assert_eq!([trial(1, 20), trial(31, 20), trial(32, 20)], [32, 32, 64]);
    assert_eq!([trial(1, 32), trial(33, 60), trial(64, 60)], [32, 64, 128]);
    assert_eq!([trial(5, 0), trial(5, 1), trial(700, 300)], [6, 6, 1024]);
}
