//! What it says of reservations.

use super::*;

/// A dumbbell whose bottleneck keeps the reservation that is given.
fn reserving(reservation: &str) -> String {
    VIDEO
        .replace("{ kind = \"drop-tail\", limit = \"150 packets\" }", "{ kind = \"wfq\" }")
        .replace("[flows.video]", &format!("[[reservations]]\n{reservation}\n[flows.video]"))
}

fn reservation_refused(reservation: &str) -> String {
    crate::parse(&reserving(reservation), "s.toml").unwrap_err().to_string()
}

const RESERVED: &str = "flows = \"video\"\nrate = \"300 kbit/s\"\nbucket = \"3 kB\"\n\
                        links = [\"bottleneck\"]";

#[test]
fn a_reservation_is_for_flows_that_exist_and_cross_the_link_that_way() {
    scenario(&reserving(RESERVED));
    scenario(&reserving(
        &RESERVED.replace("bottleneck", "reverse").replace("rate", "direction = \"acks\"\nrate"),
    ));
    assert_eq!(
        reservation_refused(&RESERVED.replace("video", "vidio")),
        "s.toml:17: reservations[0].flows: there is no flow group `vidio`; \
         did you mean `video`? Known: `video`"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("rate", "index = 25\nrate")),
        "s.toml:18: reservations[0].index: `video` has no flow 25; it has 25, counted from 0"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("bottleneck", "reverse")),
        "s.toml:20: reservations[0].links[0]: `video` does not cross `reverse` in this direction; \
         it crosses bottleneck"
    );
}

#[test]
fn a_link_that_keeps_no_reservation_is_told_how_it_would() {
    let text =
        VIDEO.replace("[flows.video]", &format!("[[reservations]]\n{RESERVED}\n[flows.video]"));
    assert_eq!(
        crate::parse(&text, "s.toml").unwrap_err().to_string(),
        "s.toml:20: reservations[0].links[0]: `bottleneck` keeps no reservation; give it \
         queue = { kind = \"wfq\" } or { kind = \"cbq\" }"
    );
}

#[test]
fn no_more_is_reserved_than_may_be() {
    assert_eq!(
        reservation_refused(&RESERVED.replace("300 kbit/s", "800 kbit/s")),
        "s.toml:20: reservations[0].links[0]: 20 Mbit/s are reserved on `bottleneck`; \
         of its 25 Mbit/s at most 18.75 Mbit/s can be (`reservable` is 0.75)"
    );
    let twice = format!("{RESERVED}\n[[reservations]]\nindex = 3\n{RESERVED}");
    assert_eq!(
        reservation_refused(&twice),
        "s.toml:26: reservations[1].links[0]: a flow of `video` has a reservation on `bottleneck` \
         already"
    );
}

#[test]
fn a_token_bucket_holds_a_packet_and_its_rates_are_in_order() {
    assert_eq!(
        reservation_refused(&RESERVED.replace("3 kB", "1 kB")),
        "s.toml:19: reservations[0].bucket: 1000 bytes do not hold the largest packet, 1500 bytes"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("bucket", "peak = \"200 kbit/s\"\nbucket")),
        "s.toml:19: reservations[0].peak: 200 kbit/s is less than `rate`, 300 kbit/s"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("bucket", "reserved = \"400 kbit/s\"\nbucket")),
        "s.toml:19: reservations[0].reserved: only service = \"guaranteed\" has a reserved rate \
         beside its token rate"
    );
}

#[test]
fn requests_have_a_group_of_their_own_that_answers() {
    let asking = "{ kind = \"request\", of = \"video\", size = \"300 bytes\", think = \"1 s\" }";
    assert_eq!(
        application(asking),
        "s.toml:18: flows.video.application.of: `video` does not answer; \
         its application must be `respond`"
    );
    assert_eq!(
        application("{ kind = \"respond\", smallest = \"1 kB\", largest = \"2 kB\" }"),
        "s.toml:18: flows.video.application: nobody asks `video`; another group needs \
         application = { kind = \"request\", of = \"video\" }"
    );
}
