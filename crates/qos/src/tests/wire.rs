//! Encoded messages are decoded unchanged, and no bytes make the parsers panic.

use proptest::prelude::*;

use super::super::wire::*;
use super::*;

fn term(value: Option<u64>, coerced: bool) -> Term<Duration> {
    Term { value: value.map(Duration::from_nanos), coerced }
}

prop_compose! {
    fn specification()(
        rates in any::<[Option<u32>; 2]>(), size in any::<Option<u64>>(),
        spans in any::<[Option<u64>; 3]>(), loss in proptest::option::of(0u32..=100_000),
        permutable in any::<Option<bool>>(), coerced in any::<[bool; 7]>(),
    ) -> Specification {
        let rate = |rate: Option<u32>| rate.map(MessageRate::per_second);
        Specification {
            min_rate: Term { value: rate(rates[0].map(|rate| rate / 2)), coerced: coerced[0] },
            size: Term { value: size.map(Bytes::new), coerced: coerced[1] },
            max_delay: term(spans[0], coerced[2]),
            jitter: term(spans[1], coerced[3]),
            rec_time: term(spans[2], coerced[4]),
            loss: Term { value: loss.map(Percent::from_thousandths), coerced: coerced[5] },
            permutable: Term { value: permutable, coerced: coerced[6] },
            ..Specification::default()
        }
    }
}

prop_compose! {
    fn setup()(
        kind in 0..6, numbers in any::<[u64; 4]>(), cookie in any::<Cookie>(),
        send in specification(), receive in specification(), flags in any::<[bool; 2]>(),
    ) -> Setup {
        let [session, echo, arrived, sent] = numbers;
        let [reserves, must_reserve] = flags;
        let offer = Offer { send, receive, reserves, must_reserve, recovers: kind == 2 };
        match kind {
            0 => Setup::Hello { session, cookie, sent, offer },
            1 => Setup::Challenge { session, cookie },
            2 => Setup::Accept { session, echo, arrived, sent, offer },
            3 => Setup::Refuse { session, reason: Reason::Busy, offer },
            4 => {
                Setup::Return { session, token: cookie, attempt: echo as u32, received: arrived }
            }
            _ => Setup::Returned { session, received: arrived },
        }
    }
}

proptest! {
    #[test]
    fn set_up_messages_are_read_back_and_no_answer_is_longer_than_the_hello(setup in setup()) {
        let bytes = setup.to_bytes();
        prop_assert_eq!(Setup::read(&bytes), Ok(setup));
        prop_assert!(bytes.len() <= MAX_SETUP);
        if matches!(setup, Setup::Hello { .. }) {
            prop_assert_eq!(bytes.len(), MAX_SETUP);
        }
        for length in 0..bytes.len() {
            prop_assert!(Setup::read(&bytes[..length]).is_err());
        }
        prop_assert!(Setup::read(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn headers_are_read_back(sequence: u32, sent: u64, session: u64, length in 0..MAX_MESSAGE_LEN) {
        let header = Header { kind: Kind::Data, length, sequence, sent };
        prop_assert_eq!(Header::of_tcp(&header.to_tcp(), length), Ok(header));
        if length > 0 {
            prop_assert!(Header::of_tcp(&header.to_tcp(), length - 1).is_err());
        }
        prop_assert_eq!(Header::of_udp(&header.to_udp(session), length, session), Ok(header));
        prop_assert!(Header::of_udp(&header.to_udp(session), length, !session).is_err());
    }

    #[test]
    fn control_messages_are_read_back(
        numbers in any::<[u64; 4]>(), offset in any::<(i64, u32)>(), change: u32, violated: u16,
        loss in proptest::option::of(0u32..=100_000), delivered in any::<[Option<u32>; 11]>(),
        send in specification(),
    ) {
        let figures = Figures {
            messages: numbers[0],
            bytes: numbers[1],
            delay: Some((5, 6)),
            loss,
            violated,
            delivered: delivered.map(|value| value.map(u64::from)),
            ..Figures::default()
        };
        let status = Status {
            sent_messages: numbers[2],
            sent_bytes: numbers[3],
            offset: Some((offset.0, offset.1.into())),
            change,
            figures,
        };
        prop_assert_eq!(Status::read(&status.to_bytes()), Ok(status));
        prop_assert_eq!(status.to_bytes().len(), MAX_CONTROL_LEN);
        let sent = Change { number: change, send };
        prop_assert_eq!(Change::read(&sent.to_bytes()), Ok(sent));
        let reason = "é".repeat(violated as usize % 80);
        let refused = Refused { reason };
        prop_assert_eq!(Refused::read(&refused.to_bytes()), Ok(refused));
        let pong = Pong { echo: numbers[0], arrived: numbers[1] };
        prop_assert_eq!(Pong::read(&pong.to_bytes()), Ok(pong));
        let counted = Counted { messages: numbers[2] };
        prop_assert_eq!(Counted::read(&counted.to_bytes()), Ok(counted));
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..8, session: u64,
    ) {
        let _ = (Status::read(&bytes), Pong::read(&bytes), Change::read(&bytes));
        let _ = Header::of_udp(&bytes, bytes.len(), session);
        let length = (bytes.len() as u16).to_be_bytes();
        let whole = [b"OnQS\x01", &[kind][..], &length, &bytes].concat();
        if let Ok(setup) = Setup::read(&whole) {
            prop_assert_eq!(setup.to_bytes(), whole);
        }
    }
}

#[test]
fn a_terminal_obeys_nothing_of_a_refusal() {
    let reason = "no\u{1b}[2J rate\u{202e}".to_owned();
    let read = Refused::read(&Refused { reason }.to_bytes()).unwrap();
    assert_eq!(read.reason, r"no\u001b[2J rate\u202e");
}
