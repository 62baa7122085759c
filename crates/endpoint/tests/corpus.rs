//! Every input that the fuzzer starts from, and every one that once failed, on the stable
//! compiler. An input that the fuzzer finds goes to `fuzz/regressions/TARGET/`, with a name that
//! says what was wrong.

#[path = "../fuzz/exercise_media.rs"]
mod media;
#[path = "../../foundation/testing/corpus.rs"]
mod shared;
#[path = "../fuzz/exercise_wire.rs"]
mod wire;

use std::path::Path;

fn feed(target: &str, exercise: fn(&[u8])) {
    shared::feed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz"), target, exercise);
}

#[test]
fn the_corpus_of_transport_streams_is_put_back_the_same() {
    feed("ts", media::ts);
}

#[test]
fn the_corpus_of_rtp_is_put_back_the_same() {
    feed("rtp", media::rtp);
}

#[test]
fn the_corpus_of_spaced_packets_is_answered() {
    feed("spaced", media::spaced);
}

#[test]
fn the_corpus_of_messages_is_read_or_refused() {
    feed("message", wire::message);
}

#[test]
fn the_corpus_of_units_headers_is_read_or_refused() {
    feed("unit", wire::unit);
}
