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
fn the_corpus_of_transport_streams_is_put_back_the_same() {
    feed("ts", exercise::ts);
}

#[test]
fn the_corpus_of_rtp_is_put_back_the_same() {
    feed("rtp", exercise::rtp);
}

#[test]
fn the_corpus_of_tables_of_frames_is_written_the_same() {
    feed("frames", exercise::frames);
}

#[test]
fn the_corpus_of_marks_gives_valid_tables() {
    feed("marks", exercise::marks);
}

#[test]
fn the_corpus_of_elementary_streams_is_put_back_the_same() {
    feed("elementary", exercise::elementary);
}
