//! Coercion in the set-up, and refusals at both ends.

use super::transports::{ALL, pair, set_up};
use super::*;

/// A peak rate of `rate` messages/s of 1,000 bytes.
fn peak(rate: u32, coerced: bool) -> Specification {
    let peak_rate = Term { value: Some(MessageRate::per_second(rate)), coerced };
    Specification { peak_rate, size: Term::coerced(Bytes::new(1_000)), ..Specification::default() }
}

#[test]
fn the_papers_64_and_60_are_coerced_to_60_at_both_ends() {
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let (asked, offered) = (peak(64, true), peak(60, true));
        let (near, far) =
            pair(over, at, QosOptions::sending(asked), QosOptions::receiving(offered));
        let agreed = near.agreed(Direction::Sending);
        assert_eq!(agreed.peak_rate.value, Some(MessageRate::per_second(60)), "over {over:?}");
        assert_eq!(far.agreed(Direction::Receiving), agreed);
        assert_eq!(near.agreed(Direction::Receiving), Specification::default());
        assert_eq!((near.bounds().0, far.bounds().1), (1_000, 1_000));
        let error = near.send(&[0; 1_001]).unwrap_err().to_string();
        assert_eq!(error, "a message of 1001 bytes is longer than what was agreed: 1000");
    }
}

#[test]
fn each_direction_is_negotiated_separately() {
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let both = |send, receive| QosOptions {
            send: peak(send, true),
            receive: peak(receive, true),
            ..QosOptions::default()
        };
        let (near, far) = pair(over, at, both(10, 40), both(30, 20));
        let rate = |agreed: Specification| agreed.peak_rate.value.map(MessageRate::as_thousandths);
        assert_eq!(rate(near.agreed(Direction::Sending)), Some(10_000), "over {over:?}");
        assert_eq!(rate(far.agreed(Direction::Receiving)), Some(10_000));
        assert_eq!(rate(near.agreed(Direction::Receiving)), Some(30_000));
        assert_eq!(rate(far.agreed(Direction::Sending)), Some(30_000));
    }
}

const REASON: &str = "peak_rate: the sender asks for 64 messages/s, the receiver for 60 messages/s, \
     and the end that would have to give way is not coerced";

#[test]
fn a_refusal_and_its_reason_reach_both_ends() {
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let (firm, coerced) = (peak(64, false), peak(60, true));
        let (here, there) =
            set_up(over, at, QosOptions::sending(firm), QosOptions::receiving(coerced));
        let (here, there) = (here.unwrap_err(), there.unwrap_err());
        assert_eq!(here.to_string(), format!("the two ends do not agree: sending: {REASON}"));
        assert_eq!(there.to_string(), format!("the two ends do not agree: receiving: {REASON}"));
        assert_eq!(std::io::Error::from(here).kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_change_is_negotiated_as_the_set_up_is() {
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let (near, far) =
            pair(over, at, QosOptions::sending(video()), QosOptions::receiving(video()));
        let events = far.events();
        let max_rate = Term::coerced(MessageRate::per_second(70));
        let asked = Specification { max_rate, ..video() };
        let agreed = near.change(asked).unwrap();
        assert_eq!(agreed.max_rate.value, Some(MessageRate::per_second(70)));
        let event = events.next_within(Wall::from_secs(5)).unwrap();
        assert_eq!(event, Event::Changed { direction: Direction::Receiving, agreed });
        assert_eq!(far.agreed(Direction::Receiving), agreed, "over {over:?}");
        let wrong = Specification { min_rate: Term::firm(MessageRate::per_second(75)), ..asked };
        assert!(near.change(wrong).is_err());
        assert_eq!(near.agreed(Direction::Sending), agreed);
    }
}

#[test]
fn without_an_rsvp_daemon_the_reservation_is_refused_and_fails_only_if_required() {
    if std::path::Path::new(ontempo_reservation::local::SOCKET).exists() {
        ontempo_testing::skip!("this host has an RSVP daemon");
    }
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let asks = QosOptions { reserve: Reserve::ControlledLoad, ..QosOptions::sending(video()) };
        let takes =
            QosOptions { reserve: Reserve::ControlledLoad, ..QosOptions::receiving(video()) };
        let (near, far) = pair(over, at, asks.clone(), takes.clone());
        let (state, reason) = near.reservation();
        assert_eq!(state, ontempo_monitor::Reservation::Refused, "over {over:?}");
        assert!(reason.starts_with("no RSVP daemon at /"), "{reason}");
        assert_eq!(far.reservation().0, ontempo_monitor::Reservation::None);
        let must = QosOptions { must_reserve: true, ..asks.clone() };
        let (error, _) = set_up(over, at, must, takes.clone());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("nothing is reserved: no RSVP daemon at /"), "{error}");
        // An end that accepts must have it, too: its connection ends, with the reason.
        let must = QosOptions { must_reserve: true, ..takes };
        let (near, far) = pair(over, at, asks.clone(), must);
        let error = far.receive(&mut [0; 2_000]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "over {over:?}");
        let error = error.to_string();
        assert!(error.starts_with("nothing is reserved: no RSVP daemon at /"), "{error}");
        drop(near);
    }
}

#[test]
fn that_only_one_end_reserves_is_an_event_at_both_and_an_error_where_one_must() {
    use ontempo_monitor::Reservation;
    let Some(at) = loopback(false) else { return };
    for over in ALL {
        let reserving = |options: QosOptions, must_reserve| QosOptions {
            reserve: Reserve::ControlledLoad,
            must_reserve,
            ..options
        };
        let (sends, takes) = (QosOptions::sending(video()), QosOptions::receiving(video()));
        let (near, far) = pair(over, at, reserving(sends.clone(), false), takes.clone());
        let event =
            |end: &super::transports::Any| match end.events().next_within(Wall::from_secs(5)) {
                Some(Event::Reservation { state, reason, .. }) => (state, reason),
                other => panic!("{other:?} over {over:?}"),
            };
        let (here, there) = (event(&near), event(&far));
        assert_eq!(here, (Reservation::Refused, "the other end does not reserve".to_owned()));
        assert_eq!(there.0, Reservation::None);
        assert_eq!(there.1, "the other end reserves, this end does not");

        let (here, there) = set_up(over, at, sends.clone(), reserving(takes.clone(), true));
        let (here, there) = (here.unwrap_err().to_string(), there.unwrap_err().to_string());
        let reason = "nothing is reserved: the other end must reserve, and this end does not";
        assert_eq!(here, reason);
        let there_says = "nothing is reserved: the other end does not reserve";
        assert_eq!(there, there_says);
        let (here, there) = set_up(over, at, reserving(sends, true), takes);
        assert_eq!(here.unwrap_err().to_string(), there_says);
        assert_eq!(there.unwrap_err().to_string(), reason);
    }
}

#[test]
fn a_contradictory_specification_is_refused_before_connecting() {
    let asked = Specification {
        min_rate: Term::firm(MessageRate::per_second(80)),
        max_rate: Term::firm(MessageRate::per_second(60)),
        ..Specification::default()
    };
    let error = QosStream::connect("192.0.2.1:9", &QosOptions::sending(asked)).unwrap_err();
    assert_eq!(error.to_string(), "min_rate (80 messages/s) is above max_rate (60 messages/s)");
    assert!(QosSocket::bind("127.0.0.1:0", QosOptions::both(asked)).is_err());
}

#[test]
fn packets_carry_the_agreed_dscp() {
    for is_ipv6 in [false, true] {
        let Some(at) = loopback(is_ipv6) else { continue };
        let (near, _far) =
            sockets(at, QosOptions::sending(video()), QosOptions::receiving(video()));
        assert_eq!(near.dscp().get(), 34);
        let socket = socket2::SockRef::from(&near);
        let class = if is_ipv6 { socket.tclass_v6() } else { socket.tos_v4() };
        assert_eq!(class.unwrap(), 34 << 2);
        let (near, _far) =
            streams(at, QosOptions::sending(video()), QosOptions::receiving(video()));
        let socket = socket2::SockRef::from(&near);
        let class = if is_ipv6 { socket.tclass_v6() } else { socket.tos_v4() };
        // TCP controls the two ECN bits itself.
        assert_eq!(class.unwrap() & 0xfc, 34 << 2);
    }
}
