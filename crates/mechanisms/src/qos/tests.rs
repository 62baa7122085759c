use ontempo_foundation::{Bytes, Duration, MessageRate, Percent, Rate, Time};
use proptest::prelude::*;

use super::*;

/// The requirements of NetVideo (qosockets, III.B.1).
fn net_video() -> Specification {
    Specification {
        min_rate: Term::coerced(MessageRate::per_second(60)),
        max_rate: Term::coerced(MessageRate::per_second(80)),
        peak_rate: Term::coerced(MessageRate::per_second(100)),
        size: Term::coerced(Bytes::new(1280)),
        min_delay: Term::coerced(Duration::ZERO),
        max_delay: Term::coerced(Duration::from_millis(100)),
        int_delay: Term::coerced(Duration::from_millis(50)),
        jitter: Term::coerced(Duration::from_millis(50)),
        loss: Term::coerced(Percent::new(5)),
        rec_time: Term::coerced(Duration::from_secs(5)),
        permutable: Term::coerced(false),
    }
}

#[test]
fn rates_times_size_are_those_of_the_paper() {
    let throughput = |rate| MessageRate::per_second(rate).throughput(Bytes::new(1280));
    assert_eq!(throughput(60), Rate::from_bits_per_sec(614_400));
    assert_eq!(throughput(100), Rate::from_bits_per_sec(1_024_000));
}

#[test]
fn sixty_four_and_sixty_are_coerced_to_sixty() {
    let end = |rate| Specification {
        peak_rate: Term::coerced(MessageRate::per_second(rate)),
        ..Specification::default()
    };
    let agreed = agree(&end(64), &end(60)).unwrap();
    assert_eq!(agreed.peak_rate.value, Some(MessageRate::per_second(60)));
}

#[test]
fn an_end_that_is_not_coerced_does_not_give_way() {
    let sender = Specification {
        peak_rate: Term::firm(MessageRate::per_second(64)),
        ..Specification::default()
    };
    let receiver = Specification {
        peak_rate: Term::coerced(MessageRate::per_second(60)),
        ..Specification::default()
    };
    let refusal = agree(&sender, &receiver).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "peak_rate: the sender asks for 64 messages/s, the receiver for 60 messages/s, and the \
         end that would have to give way is not coerced"
    );
    // The one that asks for less need not give way.
    assert!(agree(&receiver, &sender).is_err());
    let coerced = Specification {
        peak_rate: Term::coerced(MessageRate::per_second(64)),
        ..Specification::default()
    };
    let firm = Specification {
        peak_rate: Term::firm(MessageRate::per_second(60)),
        ..Specification::default()
    };
    assert_eq!(agree(&coerced, &firm).unwrap().peak_rate.value, Some(MessageRate::per_second(60)));
}

#[test]
fn a_specification_that_contradicts_itself_says_where() {
    let wrong = Specification { min_rate: Term::firm(MessageRate::per_second(90)), ..net_video() };
    let error = wrong.check().unwrap_err().to_string();
    assert_eq!(error, "min_rate (90 messages/s) is above max_rate (80 messages/s)");
    let path = net_video().check_path(Duration::from_millis(120)).unwrap_err().to_string();
    assert_eq!(
        path,
        "max_delay (100 ms) is shorter than the path takes without any queue (120 ms)"
    );
    let never = Specification { size: Term::firm(Bytes::ZERO), ..net_video() };
    assert_eq!(never.check().unwrap_err().to_string(), "size is 0; more is needed");
    let hurried = Specification { int_delay: Term::firm(Duration::from_millis(12)), ..net_video() };
    assert_eq!(
        hurried.check().unwrap_err().to_string(),
        "int_delay (12 ms) is shorter than the time between two messages at max_rate (12.5 ms)"
    );
}

fn interval(number: u64, received: u64, sent: u64) -> Delivered {
    let span = Duration::from_millis(500);
    let begins = Time::from_nanos(number * span.as_nanos());
    let count = |messages| Count { begins, span, messages, bytes: Bytes::new(messages * 1280) };
    Delivered { received: count(received), sent: Some(count(sent)) }
}

fn turns(watch: &mut Watch, intervals: &[(u64, u64)]) -> Vec<(usize, Parameter, Turn)> {
    let mut found = Vec::new();
    for (number, (received, sent)) in intervals.iter().enumerate() {
        let delivered = interval(number as u64, *received, *sent);
        let now = watch.on_interval(&delivered).collect::<Vec<_>>();
        found
            .extend(now.into_iter().map(|violation| (number, violation.parameter, violation.turn)));
    }
    found
}

#[test]
fn one_bad_interval_is_no_violation_and_two_are() {
    let mut watch = Watch::new(net_video(), Hysteresis::default());
    let found = turns(&mut watch, &[(35, 35), (20, 35), (35, 35), (20, 35), (20, 35), (35, 35)]);
    assert_eq!(found, [(4, Parameter::MinRate, Turn::Begins), (4, Parameter::Loss, Turn::Begins)]);
    assert!(watch.is_violated(Parameter::Loss));
    assert_eq!(turns(&mut watch, &[(35, 35); 2]), []);
    assert_eq!(
        turns(&mut watch, &[(35, 35); 1]),
        [(0, Parameter::MinRate, Turn::Ends), (0, Parameter::Loss, Turn::Ends)]
    );
}

#[test]
fn a_sender_that_sends_less_is_not_the_networks_fault() {
    let mut watch = Watch::new(net_video(), Hysteresis::default());
    assert_eq!(turns(&mut watch, &[(10, 10), (0, 0), (3, 3)]), []);
}

#[test]
fn a_violation_tells_the_worst_of_its_beginning() {
    let mut watch = Watch::new(net_video(), Hysteresis::default());
    let mut begun = Vec::new();
    for (number, delay) in [(0, 140), (1, 320), (2, 150)] {
        let delay = Duration::from_millis(delay);
        let now = Time::from_nanos(number * 500_000_000 + 1);
        watch.on_message(now, Bytes::new(1280), Timing { delay, jitter: None }, true);
        begun.extend(watch.on_interval(&interval(number, 35, 35)));
    }
    let violation = begun.iter().find(|found| found.parameter == Parameter::MaxDelay).unwrap();
    assert_eq!(violation.asked, Value::Span(Duration::from_millis(100)));
    assert_eq!(violation.delivered, Value::Span(Duration::from_millis(320)));
    assert_eq!(violation.at, Time::from_nanos(1_000_000_000));
}

#[test]
fn silence_longer_than_rec_time_is_a_disruption() {
    let mut watch = Watch::new(net_video(), Hysteresis::default());
    let at = |seconds: f64| Time::from_secs_f64(seconds);
    assert_eq!(watch.on_silence(at(9.0)), None, "nothing has begun");
    let timing = Timing { delay: Duration::ZERO, jitter: None };
    watch.on_message(at(1.0), Bytes::new(1), timing, true);
    assert_eq!(watch.on_silence(at(6.0)), None);
    assert_eq!(watch.on_silence(at(6.1)).unwrap().turn, Turn::Begins);
    assert_eq!(watch.on_silence(at(6.2)), None);
    watch.on_message(at(7.0), Bytes::new(1), timing, true);
    assert_eq!(watch.on_silence(at(7.0)).unwrap().turn, Turn::Ends);
}

#[test]
fn a_step_up_that_does_not_hold_is_tried_later_again() {
    let second = Duration::from_secs(1);
    let mut ladder = Ladder::new(3, second, Duration::from_secs(10));
    let mut steps = Vec::new();
    // Only the best rung is too much.
    for tick in 0..200 {
        let violated = ladder.rung() == 0;
        if let Some(step) = ladder.on_interval(Time::from_nanos(tick * 500_000_000), violated) {
            steps.push((tick / 2, step));
        }
    }
    let ups: Vec<_> = steps.iter().filter(|(_, step)| *step == Step::Up(0)).map(|s| s.0).collect();
    assert!(ups.len() >= 2, "{steps:?}");
    let waits: Vec<_> = ups.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{steps:?}");
    assert!(!steps.iter().any(|(_, step)| *step == Step::Down(2)));
}

fn any_term() -> impl Strategy<Value = (Option<u32>, bool)> {
    (proptest::option::of(0u32..1_000), any::<bool>())
}

fn any_specification() -> impl Strategy<Value = Specification> {
    (proptest::collection::vec(any_term(), 10), any::<Option<bool>>(), any::<bool>()).prop_map(
        |(terms, permutable, coerced)| {
            let rate = |place: usize| Term {
                value: terms[place].0.map(MessageRate::per_second),
                coerced: terms[place].1,
            };
            let span = |place: usize| Term {
                value: terms[place].0.map(|millis| Duration::from_millis(millis.into())),
                coerced: terms[place].1,
            };
            Specification {
                min_rate: rate(0),
                max_rate: rate(1),
                peak_rate: rate(2),
                size: Term {
                    value: terms[3].0.map(|bytes| Bytes::new(bytes.into())),
                    coerced: terms[3].1,
                },
                min_delay: span(4),
                max_delay: span(5),
                int_delay: span(6),
                jitter: span(7),
                loss: Term {
                    value: terms[8].0.map(Percent::from_thousandths),
                    coerced: terms[8].1,
                },
                rec_time: span(9),
                permutable: Term { value: permutable, coerced },
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_agreed_is_consistent_and_agreeable_to_both(
        sender in any_specification(), receiver in any_specification(),
    ) {
        let Ok(agreed) = agree(&sender, &receiver) else { return Ok(()) };
        prop_assert!(agreed.check().is_ok());
        for parameter in Parameter::ALL {
            let (sent, received) = (sender.value(parameter), receiver.value(parameter));
            match agreed.value(parameter) {
                None => prop_assert!(sent.is_none() && received.is_none()),
                common => prop_assert!(common == sent || common == received),
            }
        }
        // Agreeing again changes nothing.
        let again = agree(&agreed, &agreed).unwrap();
        for parameter in Parameter::ALL {
            prop_assert_eq!(again.value(parameter), agreed.value(parameter));
        }
    }

    #[test]
    fn violations_begin_and_end_by_turns(
        intervals in proptest::collection::vec((0u64..60, 0u64..60), 0..200),
    ) {
        let mut watch = Watch::new(net_video(), Hysteresis::default());
        let found = turns(&mut watch, &intervals);
        for parameter in Parameter::ALL {
            let of = found.iter().filter(|turn| turn.1 == parameter).map(|turn| turn.2);
            for (place, turn) in of.enumerate() {
                prop_assert_eq!(turn, if place % 2 == 0 { Turn::Begins } else { Turn::Ends });
            }
        }
    }
}
