//! Events that the controllers' tests share.

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
        window_limited: true,
    }
}

/// An acknowledgement of one packet at `now`, its round trip being `rtt`.
pub(super) fn ack_at(now: Time, rtt: Duration) -> Ack {
    Ack { now, rtt: Some(rtt), srtt: rtt, ..ack(1.0) }
}

pub(super) fn loss(packet: u64, next: u64) -> Loss {
    Loss { now: Time::ZERO, packet, next, in_flight: 1.0 }
}

pub(super) fn timeout(next: u64) -> Timeout {
    Timeout { now: Time::ZERO, next, in_flight: 1.0, repeated: false }
}

fn controllers(start: Start) -> [Controller; 7] {
    let random = |name| RandomStream::new(7, name);
    [
        Reno::new(start, RenoParameters::default()).into(),
        NewReno::new(start, RenoParameters::default()).into(),
        Cubic::new(start, CubicParameters::default()).into(),
        Cubic::new(start, CubicParameters::linux_2_6(true)).into(),
        Vegas::new(start, VegasParameters::default()).into(),
        Pert::new(start, PertParameters::thesis(), random("thesis")).into(),
        Pert::new(start, PertParameters::reference(), random("reference")).into(),
    ]
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
