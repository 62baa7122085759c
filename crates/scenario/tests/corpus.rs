//! Every input that the fuzzer starts from, and every one that once failed, on the stable
//! compiler. An input that the fuzzer finds goes to `fuzz/regressions/TARGET/`, with a name that
//! says what was wrong.

#[path = "../fuzz/exercise.rs"]
mod exercise;
#[path = "../../foundation/testing/corpus.rs"]
mod shared;

use std::fs;
use std::path::Path;

fn feed(target: &str, exercise: fn(&[u8])) {
    shared::feed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz"), target, exercise);
}

#[test]
fn the_corpus_of_scenario_texts_is_answered() {
    feed("scenario_text", exercise::scenario_text);
}

#[test]
fn the_corpus_of_overrides_is_answered() {
    feed("scenario_overrides", exercise::scenario_overrides);
}

#[test]
fn the_corpus_of_traces_is_answered() {
    feed("trace", exercise::trace);
}

#[test]
fn what_the_fuzzer_starts_from_is_valid() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/scenario_text");
    for entry in fs::read_dir(corpus).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        ontempo_scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
    }
}
