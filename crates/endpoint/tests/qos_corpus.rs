//! As `corpus.rs`, for QoS sockets.

#[path = "../../foundation/testing/corpus.rs"]
mod corpus;
#[path = "../fuzz/exercise_qos.rs"]
mod exercise;

use std::path::Path;

fn feed(target: &str, exercise: fn(&[u8])) {
    corpus::feed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz"), target, exercise);
}

#[test]
fn the_corpus_of_streams_is_read() {
    feed("qos_tcp", exercise::qos_tcp);
}

#[test]
fn the_corpus_of_datagrams_is_read() {
    feed("qos_udp", exercise::qos_udp);
}
