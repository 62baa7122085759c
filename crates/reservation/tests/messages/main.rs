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

/// A RESV with these objects behind its style.
fn resv(style: u8, objects: &[&[u8]]) -> Vec<u8> {
    let session = [0, 12, class::SESSION, 1, 10, 0, 0, 2, 17, 0, 0x13, 0x88];
    let hop = [0, 12, class::RSVP_HOP, 1, 10, 0, 0, 2, 0, 0, 0, 7];
    let refresh = [0, 8, class::TIME_VALUES, 1, 0, 0, 0x75, 0x30];
    let style = [0, 8, class::STYLE, 1, 0, 0, 0, style];
    let parts = [&session[..], &hop, &refresh, &style].concat();
    let mut bytes = vec![0x10, 2, 0, 0, 63, 0, 0, 0];
    bytes.extend([parts, objects.concat()].concat());
    bytes[7] = bytes.len() as u8;
    bytes
}

/// Controlled load with rate, burst and peak 1.
const FLOWSPEC: [u8; 36] = {
    let mut object = [0; 36];
    let head = [0, 36, class::FLOWSPEC, 2, 0, 0, 0, 7, 5, 0, 0, 6, 127, 0, 0, 5];
    let mut at = 0;
    while at < head.len() {
        object[at] = head[at];
        at += 1;
    }
    while at < 28 {
        // 1.0 as IEEE 754 has it.
        (object[at], object[at + 1]) = (0x3f, 0x80);
        at += 4;
    }
    (object[31], object[35]) = (1, 1);
    object
};
const ONE: [u8; 12] = [0, 12, class::FILTER_SPEC, 1, 10, 0, 0, 1, 0, 0, 0, 1];
const OTHER: [u8; 12] = [0, 12, class::FILTER_SPEC, 1, 10, 0, 0, 1, 0, 0, 0, 2];
const FF: u8 = 0b01_010;
const SE: u8 = 0b10_010;
const WF: u8 = 0b10_001;

fn dclass(dscp: u8) -> [u8; 8] {
    [0, 8, class::DCLASS, 1, 0, 0, 0, dscp << 2]
}

/// The DSCPs of the flow descriptors of a RESV.
fn dscps(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Body::Resv(resv) = Message::decode(bytes).expect("it is right").body else {
        panic!("it is a RESV")
    };
    resv.flows.iter().map(|flow| flow.dclass.iter().collect()).collect()
}

#[test]
fn a_dclass_belongs_to_the_flow_descriptor_that_it_stands_in() {
    let [af41, ef] = [34, 46].map(dclass);
    // Behind each filter, between flowspec and filters, before all.
    let own = resv(FF, &[&FLOWSPEC, &ONE, &af41, &OTHER, &ef]);
    assert_eq!(dscps(&own), [[34], [46]]);
    let shared = resv(FF, &[&FLOWSPEC, &af41, &ONE, &OTHER, &ef, &FLOWSPEC, &ONE]);
    assert_eq!(dscps(&shared), [vec![34], vec![46], vec![]]);
    let before = resv(FF, &[&af41, &FLOWSPEC, &ONE, &FLOWSPEC, &OTHER, &ef]);
    assert_eq!(dscps(&before), [[34], [46]]);
    for objects in [[&FLOWSPEC[..], &af41, &ONE, &OTHER], [&FLOWSPEC, &ONE, &OTHER, &af41]] {
        assert_eq!(dscps(&resv(SE, &objects)), [[34]]);
    }
    assert_eq!(dscps(&resv(SE, &[&FLOWSPEC, &ONE, &af41, &OTHER, &ef])), [[34, 46]]);
    for objects in [[&FLOWSPEC[..], &af41], [&af41, &FLOWSPEC]] {
        assert_eq!(dscps(&resv(WF, &objects)), [[34]]);
    }
    // Two objects of one descriptor are as one with both.
    assert_eq!(dscps(&resv(WF, &[&FLOWSPEC, &ef, &af41])), [[34, 46]]);
    // It is written behind the filters.
    let written = Message::decode(&own).map(|message| message.encode().expect("short"));
    let objects = [&FLOWSPEC[..], &ONE, &af41, &FLOWSPEC, &OTHER, &ef].concat();
    assert!(written.expect("it is right").ends_with(&objects));
}

#[test]
fn a_dclass_without_a_dscp_is_malformed_and_one_of_another_kind_says_nothing() {
    let empty = [0, 4, class::DCLASS, 1];
    let error = Message::decode(&resv(WF, &[&FLOWSPEC, &empty])).unwrap_err();
    assert_eq!(error, ParseError::Malformed(class::DCLASS));
    let odd = [0, 10, class::DCLASS, 1, 0, 0, 0, 136, 0, 0];
    let error = Message::decode(&resv(WF, &[&FLOWSPEC, &odd])).unwrap_err();
    assert_eq!(error, ParseError::ObjectLength(class::DCLASS));
    let other = [0, 8, class::DCLASS, 2, 0, 0, 0, 136];
    let bytes = resv(WF, &[&FLOWSPEC, &other]);
    assert_eq!((dscps(&bytes), Message::decode(&bytes).unwrap().unknown), (vec![vec![]], None));
    // In other messages it goes on as it came.
    let bytes = tear_with(class::DCLASS, 1, &[1, 2, 3, 136]);
    assert_eq!(Message::decode(&bytes).unwrap().forwarded[0].body, [1, 2, 3, 136]);
    // Unused bits are not looked at.
    let bits = [0, 8, class::DCLASS, 1, 255, 255, 255, 34 << 2 | 3];
    assert_eq!(dscps(&resv(WF, &[&FLOWSPEC, &bits])), [[34]]);
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
