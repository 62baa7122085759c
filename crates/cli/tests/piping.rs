//! Standard output as a pipe: its width, its end, and what a study that fails has kept.

mod common;

use std::fs;
use std::process::Stdio;

use common::{Place, Ran, SCENARIO, check_ends_with_its_reader, files};

/// Columns of the longest line.
fn columns(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn text_in_a_pipe_has_80_columns_or_as_many_as_columns_says() {
    let place = Place::new("piped-width", SCENARIO);
    let run = |columns: Option<&str>, arguments: &[&str]| {
        let mut command = place.command(arguments);
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        Ran::of(command.output().expect("the program starts")).succeeds().out.clone()
    };
    let commands: [&[&str]; 8] = [
        &["check", "s.toml"],
        &["simulate", "s.toml", "--out", "one"],
        &["simulate", "s.toml", "--out", "many", "--seeds", "0..2"],
        &["summary", "many"],
        &["profiles"],
        &["profiles", "satellite-leo"],
        &["simulate", "--help"],
        &["adus", "send", "--help"],
    ];
    for arguments in commands {
        for unsaid in [None, Some(""), Some("0"), Some("many")] {
            let text = run(unsaid, arguments);
            assert!(columns(&text) <= 80, "{arguments:?}, COLUMNS {unsaid:?}:\n{text}");
        }
    }
    let (narrow, wide) = (run(Some("60"), commands[3]), run(Some("120"), commands[3]));
    assert!(columns(&narrow) <= 60, "{narrow}");
    assert!(columns(&wide) > 80, "{wide}");
    let words = |text: &str| text.split_whitespace().filter(|word| *word == "bulk").count();
    assert!(words(&narrow) > words(&wide), "each part of a table names its rows:\n{narrow}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new("piped-head", SCENARIO);
    let mut child = place.spawn(&["profiles"]);
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    let mut command = place.command(&["simulate", "s.toml", "--out", "out"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    assert!(place.path("out/run.json").is_file());
}

#[test]
fn who_watches_ends_once_nobody_reads() {
    let place = Place::new("piped-watch", "");
    fs::create_dir_all(place.path("reports")).expect("made");
    for command in ["monitor", "top"] {
        let words = [command, "--json", "--every", "100ms", "--folder", "reports"];
        check_ends_with_its_reader(place.command(&words));
    }
}

#[test]
fn a_run_that_cannot_be_kept_ends_the_study_and_the_finished_ones_stay() {
    let place = Place::new("unkept", SCENARIO);
    // No file can be put in its place.
    fs::create_dir_all(place.path("out/seed-2/run.json/x")).expect("made");
    let arguments = ["simulate", "s.toml", "--out", "out", "--seeds", "0..49", "--json"];
    let ran = place.run(&arguments);
    ran.fails(3, &["cannot write out/seed-2/run.json", "kept", "of 50 runs"]);
    assert_eq!(files(&place.path("out/seed-2")), ["run.json"], "nothing of it is left");
    let json = ran.json();
    for run in json["runs"].as_array().expect("runs") {
        let folder = run["folder"].as_str().expect("a folder");
        assert!(place.path(folder).join("run.json").is_file(), "{folder}");
        assert!(!place.path(folder).join(".partial").exists(), "{folder}");
    }
}
