//! Events shared by the controllers' tests.

use ontempo_foundation::{Duration, RandomStream, Time};
use proptest::prelude::*;

use super::*;

/// A start in congestion avoidance with a window of `packets`.
pub(super) fn start_with(packets: f64) -> Start {
    Start {
        initial_window: Window::of_packets(packets),
        initial_ssthresh: Window::of_packets(1.0),
        ..Start::default()
    }
}

/// An acknowledgement of `packets`, without a sample.
pub(super) fn ack(packets: f64) -> Ack {
    Ack {
        now: Time::ZERO,
        packets,
        rtt: None,
        srtt: Duration::ZERO,
        acked: 0,
        next: 1,
        in_flight: 1.0,
        in_recovery: false,
        repairs: false,
        window_limited: true,
    }
}

/// An acknowledgement of one packet at `now`, with an RTT of `rtt`.
pub(super) fn ack_at(now: Time, rtt: Duration) -> Ack {
    Ack { now, rtt: Some(rtt), srtt: rtt, ..ack(1.0) }
}

pub(super) fn loss(packet: u64, next: u64) -> Loss {
    Loss { now: Time::ZERO, packet, next, in_flight: 1.0 }
}

pub(super) fn timeout(next: u64) -> Timeout {
    Timeout { now: Time::ZERO, next, in_flight: 1.0, repeated: false }
}

fn controllers(start: Start) -> [Controller; 8] {
    let random = |name| RandomStream::new(7, name);
    let beside = PertParameters { as_reno: true, ..PertParameters::default() };
    [
        Reno::new(start, RenoParameters::default()).into(),
        NewReno::new(start, RenoParameters::default()).into(),
        Cubic::new(start, CubicParameters::default()).into(),
        Cubic::new(start, CubicParameters::linux_2_6()).into(),
        Vegas::new(start, VegasParameters::default()).into(),
        Pert::new(start, PertParameters::thesis(), random("thesis")).into(),
        Pert::new(start, PertParameters::reference(), random("reference")).into(),
        Pert::new(start, beside, random("beside")).into(),
    ]
}

#[test]
fn a_window_that_does_not_limit_the_sender_does_not_grow() {
    for start in [Start::default(), Start { initial_ssthresh: Window::FLOOR, ..Start::default() }] {
        for mut controller in controllers(start) {
            let window = controller.window();
            for milli in 1..500 {
                let at = Time::ZERO + Duration::from_millis(milli);
                let (acked, next) = (milli, milli + 10);
                let ack = ack_at(at, Duration::from_millis(40));
                controller.on_ack(&Ack { acked, next, window_limited: false, ..ack });
            }
            assert!(controller.window() <= window, "{controller:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Ack { packets: u8, rtt_micros: u32, limited: bool },
    Lost,
    Timeout { repeated: bool },
    Idle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        40 => (0u8..5, 1u32..400_000, any::<bool>())
            .prop_map(|(packets, rtt_micros, limited)| Event::Ack { packets, rtt_micros, limited }),
        3 => Just(Event::Lost),
        1 => any::<bool>().prop_map(|repeated| Event::Timeout { repeated }),
        1 => Just(Event::Idle),
    ]
}

proptest! {
    #[test]
    fn a_window_is_finite_and_keeps_its_floor_whatever_happens(
        events in proptest::collection::vec((0u64..50_000_000, event()), 1..300),
    ) {
        for mut controller in controllers(Start::default()) {
            let (mut now, mut acked, mut next) = (Time::ZERO, 0u64, 10u64);
            for (wait, event) in &events {
                now += Duration::from_nanos(*wait);
                next += 3;
                let in_flight = next.abs_diff(acked) as f64;
                match *event {
                    Event::Ack { packets, rtt_micros, limited } => {
                        acked = (acked + u64::from(packets)).min(next - 1);
                        let rtt = Duration::from_micros(u64::from(rtt_micros));
                        controller.on_ack(&Ack {
                            packets: f64::from(packets), acked, next, in_flight,
                            window_limited: limited, ..ack_at(now, rtt)
                        });
                        prop_assert!(controller.window().packets() >= 1.0);
                    }
                    Event::Lost => {
                        let before = controller.snapshot().reductions;
                        controller.on_loss(&Loss { now, packet: acked, next, in_flight });
                        if controller.snapshot().reductions > before {
                            prop_assert!(controller.window() >= Window::FLOOR);
                        }
                    }
                    Event::Timeout { repeated } => {
                        controller.on_timeout(&Timeout { now, next, in_flight, repeated });
                        prop_assert_eq!(controller.window().packets(), 1.0);
                        prop_assert!(controller.snapshot().ssthresh >= Window::FLOOR);
                    }
                    Event::Idle => controller.on_idle_restart(),
                }
                let snapshot = controller.snapshot();
                prop_assert!(snapshot.cwnd.packets().is_finite());
                let alpha = snapshot.alpha.unwrap_or(1.0);
                prop_assert!((1.0..=32.0).contains(&alpha), "{}", alpha);
            }
        }
    }
}

#[test]
fn a_controller_is_small_enough_for_ten_thousand_flows() {
    assert!(size_of::<Controller>() <= 256, "{}", size_of::<Controller>());
    assert!(size_of::<Pert>() <= 640, "{}", size_of::<Pert>());
}

#[test]
fn a_recovery_point_lets_one_loss_of_a_window_through() {
    let mut recovery = RecoveryPoint::default();
    assert!(recovery.begins_with(&loss(5, 20)));
    assert!(!recovery.begins_with(&loss(19, 30)));
    assert!(recovery.begins_with(&loss(20, 30)));
}

#[test]
fn a_spurious_timeout_leaves_no_smaller_window_or_threshold_and_the_next_loss_counts() {
    for mut controller in controllers(start_with(20.0)) {
        let before = controller.snapshot();
        controller.on_timeout(&timeout(20));
        controller.on_spurious_timeout(&before);
        let after = controller.snapshot();
        assert!(after.cwnd >= before.cwnd && after.ssthresh >= before.ssthresh, "{controller:?}");
        controller.on_loss(&loss(5, 30));
        assert!(controller.window() < after.cwnd, "{controller:?}");
    }
}

#[test]
fn parameters_and_names_are_well_formed() {
    let is_kebab =
        |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || ".-0123456789".contains(c));
    for name in CongestionName::ALL {
        assert!(is_kebab(name.name()) && !name.title().is_empty() && name.doc().ends_with('.'));
        for info in name.parameters() {
            let what = format!("{} {}", name.name(), info.name);
            assert!(is_kebab(info.name) && info.doc.ends_with('.'), "{what}");
            for default in &info.defaults {
                let fits = match (info.kind, *default) {
                    (ParameterKind::Duration(min, max), Value::Duration(value)) => {
                        (min..=max).contains(&value)
                    }
                    (ParameterKind::Number(_, min, max), Value::Number(value)) => {
                        (min..=max).contains(&value)
                    }
                    (ParameterKind::Flag, Value::Flag(_)) => true,
                    (ParameterKind::Choice(words), Value::Word(word)) => {
                        words.iter().any(|(known, _)| *known == word)
                    }
                    _ => false,
                };
                assert!(fits, "{what}: {default}");
            }
            // Its default, written and parsed, changes nothing.
            let text = info.defaults[0].to_string();
            let set = name.with([(info.name, text.as_str())]).expect(&what);
            assert_eq!(set, name.into(), "{what}");
        }
        assert_eq!(name.name().parse(), Ok(name));
        assert!(Congestion::from(name).changed().is_empty());
    }
}

#[test]
fn each_variant_is_read_whole_and_shown_by_its_name() {
    for name in CongestionName::ALL {
        for variant in name.variants().iter().skip(1) {
            let set = name.with([("variant", variant.name)]).expect("a variant");
            assert_eq!(set.changed(), [("variant", Value::Word(variant.name))]);
            assert_eq!(set.variant(), Some(*variant));
        }
    }
    let thesis = CongestionName::Pert.with([("p-max", "0.1"), ("variant", "thesis")]);
    let expected = PertParameters { p_max: 0.1, ..PertParameters::thesis() };
    assert_eq!(thesis.map(|set| set.governor()), Ok(Governor::Window(Law::Pert(expected))));
}

#[test]
fn an_invalid_parameter_is_named_with_the_valid_values() {
    let of = |name: CongestionName, parameter, text| {
        name.with([(parameter, text)]).expect_err(parameter).to_string()
    };
    let (pert, cubic) = (CongestionName::Pert, CongestionName::Cubic);
    for (error, words) in [
        (of(pert, "t-min", "5"), "t-min: `5` is not a duration with its unit; write a duration"),
        (of(pert, "p-max", "-1"), "p-max: -1 is out of range; write a number (share) from 0 to 1"),
        (of(pert, "p-max", "NaN"), "p-max: NaN is out of range"),
        (of(pert, "t-max", "2 ms"), "t-max: 2 ms is not more than `t-min`, 5 ms"),
        (of(pert, "alpha-max", "16"), "alpha-initial: 32 is not from 1 to 16"),
        (of(pert, "compete-from", "0.7"), "compete-full: 0.65 is less than `compete-from`, 0.7"),
        (of(pert, "alpha", "soon"), "alpha: `soon` is none of steps, immediate"),
        (of(cubic, "fast-convergence", "1"), "`1` is neither true nor false"),
        (of(cubic, "variant", "tahoe"), "variant: `tahoe` is none of rfc9438, linux, linux-2.6"),
        (of(cubic, "t-min", "5 ms"), "t-min: no such parameter; there are beta, c"),
        (of(CongestionName::Bbr, "variant", "v2"), "variant: `v2` is none of v3, media, v1"),
    ] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let unknown = "tahoe".parse::<CongestionName>().expect_err("unknown").to_string();
    assert!(
        unknown.starts_with("`tahoe` is not a congestion control; there are reno"),
        "{unknown}"
    );
    let elsewhere = UnknownCongestion::not_in(World::Simulation, CongestionName::Psp).to_string();
    assert_eq!(
        elsewhere,
        "`psp` is not simulated; there are reno, newreno, cubic, vegas, pert, bbr, media"
    );
    for name in CongestionName::ALL {
        let is_window = matches!(Congestion::from(name).governor(), Governor::Window(_));
        assert_eq!(name.runs_in(World::Simulation), is_window, "{}", name.name());
    }
}

#[test]
fn the_registry_makes_the_controller_that_its_constructor_makes() {
    let random = || RandomStream::new(7, "registry");
    let start = start_with(20.0);
    let (name, parameters) = (CongestionName::Pert, PertParameters::thesis());
    let chosen = name.with([("variant", "thesis")]).expect("a variant");
    let Governor::Window(law) = chosen.governor() else { panic!("a window") };
    let mut by_name = law.start(start, random());
    let mut by_hand = Controller::from(Pert::new(start, parameters, random()));
    for step in 0..2_000_u64 {
        let rtt = Duration::from_micros(20_000 + (step * 7_919) % 60_000);
        let event = Ack { acked: step, next: step + 20, ..ack_at(Time::ZERO, rtt) };
        by_name.on_ack(&event);
        by_hand.on_ack(&event);
        assert_eq!(by_name.snapshot(), by_hand.snapshot());
    }
    assert_eq!(by_name.name(), "pert");
}

#[test]
fn over_udp_bbr_is_that_for_media_unless_a_variant_is_assigned() {
    let bbr = CongestionName::Bbr;
    let media = bbr.with([("variant", "media"), ("beta", "0.8")]);
    assert_eq!(bbr.over_udp(&[("beta", "0.8")]), media);
    assert_eq!(bbr.over_udp(&[("variant", "v3")]), Ok(bbr.into()));
    let names = CongestionName::ALL.into_iter().filter(|name| *name != bbr);
    names.for_each(|name| assert_eq!(name.over_udp(&[]), Ok(name.into())));
    let error = CongestionName::Cubic.over_udp(&[("variant", "media")]);
    assert!(error.is_err());
}

#[test]
fn samples_of_the_simulators_tcp_are_refused_for_the_transport() {
    for samples in ["every-ack", "cumulative"] {
        let pert = CongestionName::Pert.with([("samples", samples)]).expect("PERT has it");
        assert!(pert.samples().needs_simulated_tcp());
        let error = pert.for_transport().expect_err("no such samples over UDP").to_string();
        let expected = format!("samples: `{samples}` is for simulated TCP, not for the transport");
        assert!(
            error.starts_with(&expected) && error.ends_with("write all or confirmed"),
            "{error}"
        );
    }
    for name in CongestionName::ALL {
        assert_eq!(Congestion::from(name).for_transport(), Ok(name.into()));
    }
}

#[test]
fn version_1_of_bbr_has_no_parameters_of_version_3() {
    for (name, value) in [
        ("beta", "0.5"),
        ("headroom", "0.5"),
        ("loss-threshold", "0.5"),
        ("inherent-loss", "true"),
        ("skip-probe-rtt", "true"),
    ] {
        let first = CongestionName::Bbr.with([("variant", "v1"), (name, value)]);
        let error = first.expect_err("version 1 has no such rule").to_string();
        assert!(error.starts_with(&format!("{name}: version 1 has no such rule")), "{error}");
    }
}
