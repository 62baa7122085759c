//! Runs the fuzz targets on their corpus and on all inputs that once failed, with the stable
//! compiler. A failing input is stored in `fuzz/regressions/TARGET/`, named after its fault.

#[path = "../../foundation/testing/corpus.rs"]
mod corpus;
#[path = "../fuzz/exercise.rs"]
mod exercise;

use std::path::Path;

fn feed(target: &str, exercise: fn(&[u8])) {
    corpus::feed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz"), target, exercise);
}

#[test]
fn the_corpus_of_messages_is_read_or_refused() {
    feed("session_message", exercise::session_message);
}
