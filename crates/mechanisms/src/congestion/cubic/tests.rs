use proptest::prelude::*;

use super::super::tests::{ack, ack_at, loss, start_with, timeout};
use super::*;

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// Feeds acknowledgements of one packet each, a window per `rtt`, from `from` to `to` seconds.
fn run(cubic: &mut Cubic, from: f64, to: f64, rtt: f64) {
    let mut now = from;
    while now < to {
        cubic.on_ack(&ack_at(at(now), Duration::from_secs_f64(rtt)));
        now += rtt / cubic.window().packets();
    }
}

fn packets(cubic: &Cubic) -> f64 {
    cubic.window().packets()
}

#[test]
fn a_loss_takes_three_tenths_once_a_window() {
    let mut cubic = Cubic::new(start_with(100.0), CubicParameters::default());
    cubic.on_loss(&loss(1, 100));
    cubic.on_loss(&loss(50, 100));
    assert_eq!(packets(&cubic), 70.0);
    assert_eq!(cubic.w_max, 100.0);
}

#[test]
fn the_window_is_back_at_its_maximum_after_k_seconds_and_rests_there() {
    let mut cubic = Cubic::new(start_with(1000.0), CubicParameters::default());
    cubic.on_loss(&loss(1, 2));
    // K = cbrt((1000 - 700) / 0.4) = 9.086 s; the curve is evaluated one RTT of 200 ms ahead.
    let k = math::cbrt(300.0 / 0.4);
    run(&mut cubic, 0.0, k / 2.0, 0.2);
    // 1000 - 0.4 (K/2)^3 = 1000 - 300/8 = 962.5, reached within the next RTT.
    assert!((packets(&cubic) - 962.5).abs() < 6.0, "{}", packets(&cubic));
    run(&mut cubic, k / 2.0, k, 0.2);
    assert!((packets(&cubic) - 1000.0).abs() < 0.5, "{}", packets(&cubic));
    run(&mut cubic, k, k + 5.0, 0.2);
    // 0.4 * 5^3 = 50 packets beyond.
    assert!((packets(&cubic) - 1050.0).abs() < 8.0, "{}", packets(&cubic));
}

#[test]
fn over_short_round_trips_the_window_follows_reno() {
    let parameters = CubicParameters::default();
    let mut cubic = Cubic::new(start_with(10.0), parameters);
    cubic.on_loss(&loss(1, 2));
    // 3 * 0.3 / 1.7 packets a round trip of 10 ms from 7 up to 10, then one packet.
    let to_prior = 3.0 / parameters.reno_friendly_increase();
    run(&mut cubic, 0.0, 0.01 * to_prior, 0.01);
    assert!((packets(&cubic) - 10.0).abs() < 0.3, "{}", packets(&cubic));
    run(&mut cubic, 0.01 * to_prior, 0.01 * (to_prior + 10.0), 0.01);
    assert!((packets(&cubic) - 20.0).abs() < 1.0, "{}", packets(&cubic));
}

#[test]
fn under_linux_the_reno_friendly_window_does_not_speed_up_beyond_the_prior_one() {
    let parameters = CubicParameters { hystart: false, ..CubicParameters::linux() };
    let mut cubic = Cubic::new(start_with(10.0), parameters);
    cubic.on_loss(&loss(1, 2));
    // 0.529 packets a round trip of 10 ms from 7 on, for 20 of them.
    run(&mut cubic, 0.0, 0.2, 0.01);
    let expected = 7.0 + 20.0 * parameters.reno_friendly_increase();
    assert!((packets(&cubic) - expected).abs() < 0.6, "{}", packets(&cubic));
}

#[test]
fn under_linux_the_window_grows_by_a_twentieth_a_round_trip_until_the_first_loss() {
    let after = |parameters: CubicParameters, lost: bool| {
        let mut cubic = Cubic::new(start_with(100.0), parameters);
        if lost {
            cubic.on_loss(&loss(1, 2));
            cubic.on_timeout(&timeout(3));
            cubic.on_loss(&loss(4, 5));
            cubic.cwnd = 100.0;
            cubic.ssthresh = 100.0;
        }
        run(&mut cubic, 0.0, 0.1, 0.01);
        packets(&cubic)
    };
    // The curve itself rises by 0.4 * 0.1^3 packets in a tenth of a second, W_est by 5.3.
    let probing = after(CubicParameters::linux(), false);
    assert!((probing - 100.0 * 1.05_f64.powi(10)).abs() < 3.0, "{probing}");
    assert!(after(CubicParameters::linux(), true) < 107.0);
    assert!(after(CubicParameters::default(), false) < 112.0);
}

/// The window 9 s after a loss at 1,000 packets, if all but the first round trip of 40 ms take 500 ms.
fn after_a_loss_with_a_long_queue(parameters: CubicParameters) -> f64 {
    let mut cubic = Cubic::new(start_with(1000.0), parameters);
    run(&mut cubic, 0.0, 0.001, 0.04);
    cubic.on_loss(&loss(1, 2));
    run(&mut cubic, 0.001, 6.0, 0.5);
    packets(&cubic)
}

#[test]
fn linux_looks_ahead_by_the_least_round_trip_and_the_rfc_by_the_smoothed_one() {
    // Before the plateau at K = 9.086 s the curve is looked up at 6.04 and at 6.5 s; the window
    // follows it a round trip later.
    let linux = CubicParameters { hystart: false, ..CubicParameters::linux() };
    let at = |seconds: f64| 1000.0 + 0.4 * (seconds - 9.086_f64).powi(3);
    let (linux, rfc) = (
        after_a_loss_with_a_long_queue(linux),
        after_a_loss_with_a_long_queue(CubicParameters::default()),
    );
    assert!((linux - at(5.6)).abs() < 4.0, "{linux} is not about {}", at(5.6));
    assert!((rfc - at(6.0)).abs() < 4.0, "{rfc} is not about {}", at(6.0));
}

#[test]
fn a_second_loss_below_the_maximum_aims_lower() {
    let mut cubic = Cubic::new(start_with(100.0), CubicParameters::default());
    cubic.on_loss(&loss(1, 2));
    cubic.on_loss(&loss(2, 3));
    assert_eq!(cubic.w_max, 70.0 * 1.7 / 2.0);
    assert_eq!(packets(&cubic), 49.0);
}

#[test]
fn a_timeout_starts_a_curve_of_its_own_from_where_congestion_avoidance_begins() {
    let mut cubic = Cubic::new(start_with(10.0), CubicParameters::default());
    cubic.on_timeout(&timeout(10));
    assert_eq!(packets(&cubic), 1.0);
    assert_eq!(cubic.snapshot().ssthresh.packets(), 7.0);
    for _ in 0..6 {
        cubic.on_ack(&ack(1.0));
    }
    assert_eq!(packets(&cubic), 7.0);
    cubic.on_ack(&ack(1.0));
    let epoch = cubic.epoch.expect("congestion avoidance has begun");
    assert_eq!((epoch.k, epoch.plateau), (0.0, 7.0));
}

#[test]
fn a_repeated_timeout_leaves_the_threshold() {
    let mut cubic = Cubic::new(start_with(10.0), CubicParameters::default());
    cubic.on_timeout(&timeout(10));
    cubic.on_timeout(&Timeout { repeated: true, ..timeout(10) });
    assert_eq!(cubic.snapshot().ssthresh.packets(), 7.0);
}

#[test]
fn time_in_which_the_application_is_the_limit_does_not_raise_the_curve() {
    let rtt = Duration::from_millis(100);
    let mut cubic = Cubic::new(start_with(100.0), CubicParameters::default());
    cubic.on_loss(&loss(1, 2));
    run(&mut cubic, 0.0, 1.0, 0.1);
    let mut limited = cubic.clone();
    for second in 1..100 {
        limited.on_ack(&Ack { window_limited: false, ..ack_at(at(f64::from(second)), rtt) });
    }
    assert_eq!(packets(&limited), packets(&cubic));
    run(&mut cubic, 1.0, 2.0, 0.1);
    run(&mut limited, 99.0, 100.0, 0.1);
    assert!((packets(&limited) - packets(&cubic)).abs() < 0.5);
}

#[test]
fn the_kernel_gives_up_a_fifth_in_whole_packets() {
    let mut cubic = Cubic::new(start_with(100.0), CubicParameters::linux_2_6());
    cubic.on_loss(&loss(1, 2));
    // 100 * 819 / 1024 = 79.98
    assert_eq!(packets(&cubic), 79.0);
}

#[test]
fn before_its_first_loss_the_kernel_counts_fifty_acks_as_if_each_were_of_two_packets() {
    let mut cubic = Cubic::new(start_with(100.0), CubicParameters::linux_2_6());
    let rtt = Duration::from_millis(100);
    // 50 * 16 / 31 = 25; the count is reached by the 25th and acted on by the 26th ACK.
    for _ in 0..25 {
        cubic.on_ack(&ack_at(at(0.001), rtt));
    }
    assert_eq!(packets(&cubic), 100.0);
    cubic.on_ack(&ack_at(at(0.001), rtt));
    assert_eq!(packets(&cubic), 101.0);
}

#[test]
fn the_kernel_returns_to_its_maximum_after_k_seconds() {
    let mut cubic = Cubic::new(start_with(1000.0), CubicParameters::linux_2_6());
    cubic.on_loss(&loss(1, 2));
    let k = math::cbrt(201.0 / cubic.parameters.c);
    run(&mut cubic, 0.0, k, 0.2);
    assert!((packets(&cubic) - 1000.0).abs() <= 2.0, "{}", packets(&cubic));
}

#[test]
fn beyond_its_plateau_the_kernel_adds_at_most_sixteen_packets_a_tenth_of_a_second() {
    let mut cubic = Cubic::new(start_with(1000.0), CubicParameters::linux_2_6());
    cubic.on_loss(&loss(1, 2));
    run(&mut cubic, 0.0, 30.0, 0.1);
    let before = packets(&cubic);
    run(&mut cubic, 30.0, 31.0, 0.1);
    let grown = packets(&cubic) - before;
    // The count of ACKs is divided by 31/16, which raises the bound of 160 to at most 310;
    // rounding the count down, and the extra ACK, change it slightly.
    assert!((100.0..=400.0).contains(&grown), "{grown}");
}

#[test]
fn without_timestamps_the_kernel_grows_beyond_its_plateau_without_that_bound() {
    let mut cubic =
        Cubic::new(Start { timestamps: false, ..start_with(1000.0) }, CubicParameters::linux_2_6());
    cubic.on_loss(&loss(1, 2));
    run(&mut cubic, 0.0, 30.0, 0.1);
    let before = packets(&cubic);
    run(&mut cubic, 30.0, 31.0, 0.1);
    // The curve itself: 0.4 * 3 * 22^2 packets a second.
    let grown = packets(&cubic) - before;
    assert!((500.0..=700.0).contains(&grown), "{grown}");
}

#[test]
fn slow_start_can_count_packets_and_leaves_the_rest_to_congestion_avoidance() {
    let parameters = CubicParameters { counting: AckCounting::Packets, ..Default::default() };
    let start = Start { initial_ssthresh: Window::of_packets(13.0), ..start_with(10.0) };
    let mut cubic = Cubic::new(start, parameters);
    cubic.on_ack(&ack(2.0));
    assert_eq!(packets(&cubic), 12.0);
    cubic.on_ack(&ack(2.0));
    // One packet of slow start; the other by Reno's law, a packet for 13.
    assert!(packets(&cubic) > 13.0 && packets(&cubic) <= 13.1, "{}", packets(&cubic));
}

/// Slow start from 10 packets over a path with an RTT of 100 ms and a link that takes `service` for
/// a packet: the window when it ends, or after a second, and the longest queue in packets.
fn slow_start(hystart: bool, service: Duration) -> (f64, f64) {
    let base = Duration::from_millis(100);
    let parameters =
        CubicParameters { hystart, counting: AckCounting::Packets, ..Default::default() };
    let start = Start { initial_ssthresh: Window::of_packets(1e6), ..start_with(10.0) };
    let mut cubic = Cubic::new(start, parameters);
    let mut arrivals = std::collections::VecDeque::new();
    let (mut free, mut next, mut acked, mut longest) = (Time::ZERO, 0_u64, 0_u64, 0.0_f64);
    let mut now = Time::ZERO;
    loop {
        while next - acked < cubic.window().whole_packets() {
            let queue = free.max(now).since(now).as_secs_f64() / service.as_secs_f64().max(1e-9);
            longest = longest.max(queue);
            free = free.max(now) + service;
            arrivals.push_back((free + base, free + base - now.since(Time::ZERO)));
            next += 1;
        }
        let Some((at, rtt)) = arrivals.pop_front() else { break };
        now = at;
        acked += 1;
        let rtt = rtt.since(Time::ZERO);
        let rest = Ack { srtt: rtt, acked: acked - 1, next, ..ack(1.0) };
        cubic.on_ack(&Ack { now, rtt: Some(rtt), ..rest });
        if cubic.window().packets() >= cubic.snapshot().ssthresh.packets() || now > at_seconds(1) {
            break;
        }
    }
    (cubic.window().packets(), longest)
}

fn at_seconds(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    // Rounds begin with windows of 10, 20, 40 and 80 packets. The ACKs of the last, 1 ms apart, last
    // longer than half of the least RTT of 101 ms, and of 1 ms for bursts, at the 52nd.
    let service = Duration::from_millis(1);
    let (window, queue) = slow_start(true, service);
    assert!((131.0..=133.0).contains(&window), "{window}");
    assert!(queue < 60.0, "{queue}");
    let (window, queue) = slow_start(false, service);
    assert!(window > 400.0 && queue > 200.0, "{window}, {queue}");
}

#[test]
fn hystart_does_not_leave_slow_start_on_an_empty_path() {
    let service = Duration::from_micros(1);
    let (window, _) = slow_start(true, service);
    assert_eq!(window, slow_start(false, service).0);
    assert!(window > 5_000.0, "{window}");
}

proptest! {
    #[test]
    fn between_losses_the_window_never_shrinks(
        window in 2.0f64..2_000.0,
        kernel in any::<bool>(),
        steps in proptest::collection::vec((1u64..500_000_000, 1.0f64..4.0, 1u64..300), 1..200),
    ) {
        let parameters =
            if kernel { CubicParameters::linux_2_6() } else { CubicParameters::default() };
        let mut cubic = Cubic::new(start_with(window.floor()), parameters);
        cubic.on_loss(&loss(1, 2));
        let mut now = Time::ZERO;
        for (wait, packets, rtt) in steps {
            now += Duration::from_nanos(wait);
            let before = cubic.window();
            let sample = ack_at(now, Duration::from_millis(rtt));
            cubic.on_ack(&Ack { packets: packets.floor(), ..sample });
            prop_assert!(cubic.window() >= before);
            let bound = before.packets() * 1.5 + packets;
            prop_assert!(cubic.window().packets() <= bound);
        }
    }
}
