//! As `corpus.rs`, for QoS sockets and what is told of them.

#[path = "../../foundation/testing/corpus.rs"]
mod corpus;
#[path = "../fuzz/exercise_qos.rs"]
mod exercise;
#[path = "../fuzz/exercise_agentx.rs"]
mod exercise_agentx;

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

#[test]
fn the_corpus_of_a_master_agent_is_read() {
    feed("agentx", exercise_agentx::agentx);
}
