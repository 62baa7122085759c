//! Messages as bytes: what is written is read back, any bytes are read or refused.

#[path = "../../../foundation/testing/corpus.rs"]
mod corpus;
mod dissector;
#[path = "../../fuzz/exercise.rs"]
mod exercise;
mod strategy;

use std::path::Path;

use ontempo_reservation::message::{
    Body, HEADER_LENGTH, Message, ParseError, Unknown, checksum, class,
};
use proptest::prelude::*;

/// A PathTear of 8 + 12 + 12 + 12 bytes.
fn tear() -> Vec<u8> {
    let session = [0, 12, class::SESSION, 1, 10, 0, 0, 2, 17, 0, 0x13, 0x88];
    let hop = [0, 12, class::RSVP_HOP, 1, 10, 0, 0, 1, 0, 0, 0, 7];
    let sender = [0, 12, class::SENDER_TEMPLATE, 1, 10, 0, 0, 1, 0, 0, 0x0f, 0xa0];
    let mut bytes = vec![0x10, 5, 0, 0, 63, 0, 0, 44];
    bytes.extend([session, hop, sender].concat());
    bytes
}

/// The PathTear with an object more.
fn tear_with(class: u8, ctype: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = tear();
    bytes.extend([0, 4 + body.len() as u8, class, ctype]);
    bytes.extend(body);
    bytes[7] = bytes.len() as u8;
    bytes
}

#[test]
fn unknown_objects_are_refused_ignored_or_forwarded_by_their_class() {
    let refused = Message::decode(&tear_with(0x7e, 3, &[1, 2, 3, 4])).unwrap();
    let unknown = Unknown { class: 0x7e, ctype: 3, class_known: false };
    assert_eq!(refused.unknown, Some(unknown));
    let ignored = Message::decode(&tear_with(0x81, 3, &[1, 2, 3, 4])).unwrap();
    assert_eq!(ignored, Message::decode(&tear()).unwrap());
    let forwarded = Message::decode(&tear_with(0xc1, 3, &[1, 2, 3, 4])).unwrap();
    assert_eq!(forwarded.forwarded[0].body, [1, 2, 3, 4]);
    let ctype = Message::decode(&tear_with(class::RESV_CONFIRM, 9, &[])).unwrap();
    assert!(ctype.unknown.is_some_and(|unknown| unknown.class_known));
}

#[test]
fn what_is_wrong_is_said() {
    let decode = |bytes: &[u8]| Message::decode(bytes).unwrap_err();
    assert_eq!(decode(&tear()[..20]), ParseError::Truncated);
    assert_eq!(decode(&[tear(), vec![0]].concat()), ParseError::Trailing);
    let mut other = tear();
    other[0] = 0x20;
    assert_eq!(decode(&other), ParseError::Version(2));
    let mut damaged = Message::decode(&tear()).unwrap().encode().unwrap();
    damaged[12] ^= 1;
    assert_eq!(decode(&damaged), ParseError::Checksum);
    let twice = tear_with(class::RSVP_HOP, 1, &[10, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(decode(&twice), ParseError::Repeated(class::RSVP_HOP));
    let misplaced = tear_with(class::STYLE, 1, &[0, 0, 0, 10]);
    assert_eq!(decode(&misplaced), ParseError::Misplaced(class::STYLE));
    let mixed = tear_with(class::SCOPE, 2, &[0; 16]);
    assert_eq!(decode(&mixed), ParseError::MixedFamilies);
    let odd = tear_with(0xc1, 1, &[1, 2, 3]);
    assert_eq!(decode(&odd), ParseError::ObjectLength(0xc1));
}

#[test]
fn a_rate_that_is_no_number_is_malformed() {
    for bits in [f32::NAN.to_bits(), (-1f32).to_bits(), f32::INFINITY.to_bits()] {
        let mut body = vec![0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5];
        body.extend(bits.to_be_bytes());
        body.extend([0; 16]);
        let error = Message::decode(&tear_with(class::SENDER_TSPEC, 2, &body)).unwrap_err();
        assert_eq!(error, ParseError::Malformed(class::SENDER_TSPEC));
    }
}

#[test]
fn every_file_of_the_corpus_and_of_the_regressions_is_answered() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    corpus::feed(&fuzz, "rsvp_message", exercise::rsvp_message);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_written_is_read_back(message in strategy::message()) {
        let bytes = message.encode().unwrap();
        prop_assert_eq!(checksum(&bytes), 0);
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        exercise::rsvp_message(&bytes);
    }

    #[test]
    fn damaged_messages_are_answered(
        message in strategy::message(), places in proptest::collection::vec(any::<(u16, u8)>(), 1..6),
    ) {
        let mut bytes = message.encode().unwrap();
        for (place, value) in places {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        // Without a checksum, so that the damage is looked at.
        bytes[2..4].fill(0);
        exercise::rsvp_message(&bytes);
    }

    #[test]
    fn a_message_cut_short_is_refused(message in strategy::message(), share in 0f64..1.0) {
        let bytes = message.encode().unwrap();
        let length = (bytes.len() as f64 * share) as usize;
        prop_assert!(Message::decode(&bytes[..length]).is_err());
    }

    #[test]
    fn a_merge_serves_both_and_a_meet_is_served_by_both(
        one in strategy::traffic(), two in strategy::traffic(),
    ) {
        let (merge, meet) = (one.merge(&two), one.meet(&two));
        for each in [one, two] {
            prop_assert!(meet.within(&each));
            // Largest packets apart, of which the smaller one counts.
            let largest = merge.largest.min(each.largest);
            let each = ontempo_reservation::message::TrafficSpec { largest, ..each };
            prop_assert!(each.within(&merge));
        }
        prop_assert_eq!(merge, two.merge(&one));
    }
}

#[test]
fn a_message_longer_than_its_length_field_is_refused() {
    let error = Message::new(Body::Challenge { key: 0, cookie: vec![0; 65_528] }).encode();
    assert_eq!(error.unwrap_err().bytes, HEADER_LENGTH + 4 + 8 + 65_528);
}
