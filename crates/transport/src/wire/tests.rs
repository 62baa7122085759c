use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::delivery::DeliveryOrder;
use proptest::prelude::*;

use super::*;
use crate::flow::Reliability;

const MAX_VARINT: u64 = (1 << 62) - 1;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, 0..70_000u64, 0..=MAX_VARINT]
}

fn time() -> impl Strategy<Value = Time> {
    (0..u64::MAX / 1000).prop_map(|micros| Time::from_nanos(micros * 1000))
}

fn unit_header() -> impl Strategy<Value = UnitHeader> {
    let lifetime = proptest::option::of((0..1u64 << 40).prop_map(Duration::from_millis));
    let back = proptest::collection::vec(1u64..1000, 0..=MAX_DEPENDENCIES);
    let continues = proptest::option::of((1u64..1000, any::<bool>()));
    let sent = prop_oneof![time().prop_map(Sent::At), any::<u32>().prop_map(Sent::Low)];
    let rest = (any::<u8>(), continues, back);
    (number(), 1000..=MAX_VARINT, number(), sent, lifetime, rest).prop_map(
        |(flow, id, length, sent, lifetime, (priority, continues, back))| UnitHeader {
            flow,
            id,
            length,
            sent,
            lifetime,
            priority,
            continues: continues.map(|(back, _)| id - back),
            depends_on: match continues {
                Some((back, true)) => vec![id - back],
                _ => back.into_iter().map(|back| id - back).collect(),
            },
        },
    )
}

fn hello() -> impl Strategy<Value = (Limits, AckRequest)> {
    let limits = (number(), number(), number(), number())
        .prop_map(|(flows, units, bytes, unit_bytes)| Limits { flows, units, bytes, unit_bytes });
    let request = prop_oneof![
        Just(AckRequest::Immediate),
        Just(AckRequest::Delayed),
        Just(AckRequest::Adaptive)
    ];
    (limits, request)
}

fn flow_opened() -> impl Strategy<Value = FlowOpened> {
    let order = prop_oneof![
        Just(DeliveryOrder::InOrder),
        Just(DeliveryOrder::OutOfOrder),
        Just(DeliveryOrder::PartialOrder)
    ];
    let reliability =
        prop_oneof![Just(Reliability::Full), Just(Reliability::Deadline), Just(Reliability::None)];
    (number(), order, reliability, "[a-zé ]{0,100}").prop_map(
        |(flow, order, reliability, label)| FlowOpened { flow, order, reliability, label },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let dropped = (number(), number()).prop_map(|(id, bytes)| DroppedUnit { id, bytes });
    prop_oneof![
        (proptest::collection::vec(any::<u8>(), 0..=MAX_TOKEN), hello()).prop_map(
            |(token, (limits, acknowledge))| Message::Hello { token, limits, acknowledge }
        ),
        hello().prop_map(|(limits, acknowledge)| Message::Welcome { limits, acknowledge }),
        flow_opened().prop_map(Message::FlowOpened),
        (number(), number()).prop_map(|(flow, units)| Message::FlowFinished { flow, units }),
        (number(), proptest::collection::vec(dropped, 0..=MAX_DROPPED))
            .prop_map(|(flow, units)| Message::Dropped { flow, units }),
        (number(), proptest::collection::vec(number(), 0..=MAX_DROPPED))
            .prop_map(|(flow, arrived)| Message::Settled { flow, arrived }),
        (number(), number(), number()).prop_map(|(flow, units, bytes)| Message::Credit {
            flow,
            units,
            bytes
        }),
        time().prop_map(|asked| Message::Clock { asked }),
        number().prop_map(|flows| Message::FlowCredit { flows }),
        (time(), time(), time()).prop_map(|(asked, came, left)| Message::ClockAnswer {
            asked,
            came,
            left
        }),
        (number(), number(), number(), number(), time()).prop_map(
            |(flow, units, bytes, late, delay)| {
                let delay = delay.since(Time::ZERO);
                Message::ReceiverReport {
                    flow,
                    report: ReceiverReport { units, bytes, late, delay },
                }
            }
        ),
    ]
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written_and_no_piece_of_it_is_taken_for_the_whole(
        message in message(), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        let whole = bytes.len();
        prop_assert_eq!(Message::read(&bytes[..cut.index(whole)]), Ok(None));
        bytes.extend_from_slice(b"what follows");
        prop_assert_eq!(Message::read(&bytes), Ok(Some((message, whole))));
    }

    #[test]
    fn a_unit_header_is_read_as_it_was_written(
        header in unit_header(), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        let whole = bytes.len();
        prop_assert!(whole <= MAX_UNIT_HEADER);
        prop_assert_eq!(UnitHeader::read(&bytes[..cut.index(whole)]), Err(WireError::Short));
        bytes.extend_from_slice(b"data");
        prop_assert_eq!(UnitHeader::read(&bytes), Ok((header.clone(), whole)));
        let fragment = DatagramHeader::First(header);
        let mut bytes = Vec::new();
        fragment.write(&mut bytes);
        prop_assert_eq!(DatagramHeader::read(&bytes), Ok((fragment, bytes.len())));
    }

    #[test]
    fn a_later_fragment_is_read_as_it_was_written(
        flow in number(), id in number(), length in 2..=MAX_VARINT, at in any::<prop::sample::Index>(),
    ) {
        let offset = 1 + at.index(usize::try_from(length - 1).unwrap_or(usize::MAX)) as u64;
        let fragment = DatagramHeader::Later { flow, id, length, offset };
        let mut bytes = Vec::new();
        fragment.write(&mut bytes);
        prop_assert_eq!(DatagramHeader::read(&bytes), Ok((fragment, bytes.len())));
    }

    #[test]
    fn a_request_and_a_repair_are_read_as_they_were_written(
        streams in proptest::collection::vec((number(), proptest::collection::vec((1u64..9_000, 1u64..9_000), 1..4), any::<bool>()), 0..=13),
        stream in number(), offset in number(),
    ) {
        let missing = |(stream, gaps, is_rest): (u64, Vec<(u64, u64)>, bool)| {
            let mut end = 0;
            let mut ranges: Vec<_> = gaps.into_iter().map(|(gap, length)| {
                let from = end + gap;
                end = from + length;
                Range { from, to: Some(end) }
            }).collect();
            if is_rest && let Some(last) = ranges.last_mut() {
                last.to = None;
            }
            Missing { stream, ranges }
        };
        let request = DatagramHeader::Request(streams.into_iter().map(missing).collect());
        let limits = Limits { flows: stream, units: offset, bytes: stream, unit_bytes: offset };
        let limits = DatagramHeader::Limits(limits);
        for header in [request, DatagramHeader::Repair { stream, offset }, limits] {
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            prop_assert!(bytes.len() <= 1_000);
            prop_assert_eq!(DatagramHeader::read(&bytes), Ok((header, bytes.len())));
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(Some((message, taken))) = Message::read(&bytes) {
            prop_assert!(taken <= bytes.len());
            let mut again = Vec::new();
            message.write(&mut again);
            prop_assert_eq!(Message::read(&again).map(|read| read.map(|(read, _)| read)), Ok(Some(message)));
        }
        if let Ok((header, taken)) = UnitHeader::read(&bytes) {
            prop_assert!(taken <= bytes.len() && header.depends_on.iter().all(|id| *id < header.id));
        }
        let _ = DatagramHeader::read(&bytes);
    }
}

#[test]
fn a_unit_that_names_itself_or_what_is_not_there_is_refused() {
    // One dependency, `back`; unit 3 of flow 0, 10 bytes, sent at 0. Then the same, continued.
    let named = |bytes: &[u8]| UnitHeader::read(bytes).map(|(h, _)| h.depends_on);
    for back in 0..5 {
        let expected = match back {
            0 | 4 => Err(WireError::OutOfRange("a unit's dependency")),
            _ => Ok(vec![3 - u64::from(back)]),
        };
        assert_eq!(named(&[0x20, 3, 10, 0, 0, 0, 0, 1, back]), expected);
        assert_eq!(named(&[0x08, 3, 10, 0, 0, 0, 0, back]), expected);
    }
}

#[test]
fn a_request_names_few_ranges_in_their_order() {
    let read = |bytes: &[u8]| DatagramHeader::read(bytes).map(|_| ());
    // One stream, number 5, two ranges.
    assert_eq!(read(&[2, 1, 5, 2, 0, 3, 1, 0]), Ok(()));
    assert_eq!(read(&[2, 1, 5, 2, 0, 3, 0, 3]), Err(WireError::OutOfRange("a request's range")));
    assert_eq!(read(&[2, 1, 5, 2, 0, 0, 1, 3]), Err(WireError::OutOfRange("a request's range")));
    let number = Err(WireError::OutOfRange("a request's number of ranges"));
    assert_eq!(read(&[2, 1, 5, 0]), number);
    assert_eq!(read(&[2, 1, 5, MAX_RANGES as u8 + 1]), number);
    assert_eq!(read(&[2, 1, 5, 1, 0, 3, 9]), Err(WireError::Trailing));
    assert_eq!(read(&[2, 1, 5, 1]), Err(WireError::Short));
    assert_eq!(read(&[9]), Err(WireError::OutOfRange("a datagram's kind")));
}

#[test]
fn the_header_of_a_continuation_has_twelve_bytes() {
    let header = UnitHeader {
        flow: 0,
        id: 9_000,
        length: 2_800,
        sent: Sent::of(Time::from_secs_f64(5_000.0), Time::from_secs_f64(5_000.1)),
        lifetime: Some(Duration::from_millis(200)),
        priority: 3,
        continues: Some(8_998),
        depends_on: vec![8_998],
    };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    assert_eq!(bytes.len(), 12);
}

#[test]
fn a_time_is_found_again_from_its_lowest_bits() {
    for seconds in [0.0, 0.5, 4_294.9, 4_295.0, 1e6] {
        for age in [0.0, 1.0, 599.0] {
            let sent = Time::from_secs_f64(seconds);
            let written = sent + Duration::from_secs_f64(age);
            for transit in [0.0, 0.2, 900.0] {
                let now = written + Duration::from_secs_f64(transit);
                assert_eq!(Sent::of(sent, written).by(now), sent, "{seconds} s, {age} s");
            }
        }
    }
    let old = Time::from_secs_f64(3.0);
    assert_eq!(Sent::of(old, Time::from_secs_f64(9_000.0)), Sent::At(old));
}

#[test]
fn versions_are_named() {
    assert_eq!(ALPN, format!("ontempo/{VERSION}").as_bytes());
    let sentence = other_version(EARLIER_ALPN[0]);
    assert!(sentence.contains("version 3") && sentence.contains("version 2"), "{sentence}");
}

#[test]
fn a_message_that_claims_to_be_huge_is_refused_before_it_has_come() {
    let mut bytes = Vec::new();
    number::write(&mut bytes, MAX_MESSAGE as u64 + 1);
    assert_eq!(Message::read(&bytes), Err(WireError::OutOfRange("a message's length")));
}
