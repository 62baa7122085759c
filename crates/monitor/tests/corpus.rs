//! Every input that the fuzzer starts from, and every one that once failed, on the stable
//! compiler. An input that the fuzzer finds goes to `fuzz/regressions/TARGET/`, with a name that
//! says what was wrong.

#[path = "../../foundation/testing/corpus.rs"]
mod corpus;
#[path = "../fuzz/exercise.rs"]
mod exercise;

use std::path::Path;

fn feed(target: &str, exercise: fn(&[u8])) {
    corpus::feed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz"), target, exercise);
}

#[test]
fn the_corpus_of_a_master_agent_is_read() {
    feed("agentx", exercise::agentx);
}

#[test]
fn the_corpus_of_documents_of_delivery_is_read() {
    feed("delivery", exercise::delivery);
}
