//! `ontempo adus` over loopback: the logs of both ends.

mod common;

use common::{Place, Ran, SCENARIO, free_port, json_lines};
use serde_json::Value;

#[test]
fn both_ends_log_every_unit_with_times_in_order() {
    let place = Place::new("adus-both", SCENARIO);
    let at = format!("127.0.0.1:{}", free_port());
    let receiver = ["adus", "receive", "--listen", &at, "--processing", "2 ms", "--window", "8 kB"];
    let receiver = place.spawn(&receiver);
    let more = ["--count", "20", "--size", "1000 B", "--interval", "1 ms"];
    let published = ["--delivery", "out-of-order", "--uncontrolled", "--ack-every", "4"];
    let words = [&["adus", "send", at.as_str()], &more[..], &published[..]].concat();
    let sent = place.run(&words);
    let received = Ran::of(receiver.wait_with_output().expect("it ends"));
    let (sent, received) = (json_lines(&sent.succeeds().out), json_lines(&received.succeeds().out));
    for events in [&sent, &received] {
        assert_eq!(events.len(), 21);
        assert_eq!(events[20]["complete"], true);
    }
    for (left, came) in sent.iter().zip(&received).take(20) {
        assert_eq!(left["adu"], came["adu"], "over loopback nothing is overtaken");
        let time = |of: &Value, name: &str| of[name].as_u64().expect("a time");
        let (taken, done) = (time(came, "delivered_ns"), time(came, "processed_ns"));
        assert!(time(left, "emitted_ns") <= time(came, "arrived_ns"));
        assert!(time(came, "arrived_ns") <= taken);
        assert_eq!(done - taken, 2_000_000);
    }
}

#[test]
fn an_address_without_a_port_is_refused() {
    let place = Place::new("adus-port", SCENARIO);
    place.run(&["adus", "send", "localhost"]).fails(2, &["the port is missing"]);
}

#[test]
fn at_an_address_that_others_reach_a_receiver_needs_a_token_or_is_told_to_admit_anyone() {
    let place = Place::new("adus-anyone", SCENARIO);
    let at = format!("0.0.0.0:{}", free_port());
    let receive = ["adus", "receive", "--listen", &at];
    place.run(&receive).fails(2, &["--listen 0.0.0.0:", "without a token", "--anyone"]);
    let receiver = place.spawn(&[&receive[..], &["--token", "open"]].concat());
    let to = at.replace("0.0.0.0", "127.0.0.1");
    let send = ["adus", "send", to.as_str(), "--count", "2"];
    place.run(&send).fails(3, &["the peer refused our token"]);
    place.run(&[&send[..], &["--token", "open"]].concat()).succeeds();
    Ran::of(receiver.wait_with_output().expect("it ends")).succeeds();
}
