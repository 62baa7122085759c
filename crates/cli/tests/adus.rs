//! `ontempo adus` over loopback: what both ends tell of each unit.

mod common;

use std::net::UdpSocket;
use std::process::Output;

use common::{Place, SCENARIO};
use serde_json::Value;

fn lines(output: &Output) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn both_ends_tell_of_every_unit_in_the_order_of_its_times() {
    let place = Place::new("adus-both", SCENARIO);
    let free = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let at = free.local_addr().expect("an address").to_string();
    drop(free);
    let receiver = ["adus", "receive", "--listen", &at, "--processing", "2 ms", "--window", "8 kB"];
    let receiver = place.spawn(&receiver);
    let more = ["--count", "20", "--size", "1000 B", "--interval", "1 ms"];
    let published = ["--delivery", "out-of-sequence", "--uncontrolled", "--ack-every", "4"];
    let words = [&["adus", "send", at.as_str()], &more[..], &published[..]].concat();
    let sent = place.command(&words).output().expect("it runs");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let received = receiver.wait_with_output().expect("it ends");
    assert!(received.status.success(), "{}", String::from_utf8_lossy(&received.stderr));
    let (sent, received) = (lines(&sent), lines(&received));
    for told in [&sent, &received] {
        assert_eq!(told.len(), 21);
        assert_eq!(told[20]["complete"], true);
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
    let output = place.command(&["adus", "send", "localhost"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the port is missing"));
}
