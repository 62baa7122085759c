//! As `media_corpus.rs`, for QoS sockets.

#[path = "../fuzz/exercise_qos.rs"]
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
fn the_corpus_of_streams_is_read() {
    feed("qos_tcp", exercise::qos_tcp);
}

#[test]
fn the_corpus_of_datagrams_is_read() {
    feed("qos_udp", exercise::qos_udp);
}
