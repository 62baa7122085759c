//! Every input that the fuzzer starts from, and every one that once failed, on the stable
//! compiler. An input that the fuzzer finds goes to `fuzz/regressions/TARGET/`, with a name that
//! says what was wrong.

#[path = "../fuzz/exercise_media.rs"]
mod exercise;

use std::fs;
use std::path::Path;

/// Feeds every file of the target's folders, under the file's name should it fail.
fn feed(target: &str, exercise: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut fed = 0;
    for folder in ["corpus", "regressions"] {
        let folder = fuzz.join(folder).join(target);
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("the folder can be read").path();
            let bytes = fs::read(&path).expect("the file can be read");
            println!("{}", path.display());
            exercise(&bytes);
            fed += 1;
        }
    }
    assert!(fed > 1, "only {fed} files");
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
fn the_corpus_of_spaced_packets_is_answered() {
    feed("spaced", exercise::spaced);
}
