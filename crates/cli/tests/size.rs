//! Scenarios beyond what the machine bears: refused, and run where the user says so.

mod common;
mod emulated;

use std::process::Stdio;

use common::{Killed, Place, SCENARIO, interrupt, wait_until};

/// A sample each microsecond for years: petabytes of rows.
fn huge() -> String {
    let long = SCENARIO.replace("duration = \"3 s\"", "duration = \"100000000 s\"");
    format!("{long}\n[measure]\nsample-every = \"1 us\"\n")
}

/// Little memory, and days of computation.
fn long() -> String {
    SCENARIO.replace("duration = \"3 s\"", "duration = \"5000000000 s\"")
}

#[test]
fn simulate_refuses_what_the_machine_cannot_hold_and_says_how_to_run_it() {
    let place = Place::new("size-simulate", &huge());
    let ran = place.run(&["simulate", "s.toml", "--out", "out"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(
        ran.err.contains("a run takes about ") && ran.err.contains(" TB of memory"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("GB of memory are free"), "{}", ran.err);
    assert!(ran.err.contains("--any-size runs it as it is"), "{}", ran.err);
    assert!(!place.path("out").exists());
}

#[test]
fn check_explains_what_simulate_would_refuse() {
    let place = Place::new("size-check", &huge());
    let ran = place.run(&["check", "s.toml"]);
    let words = ran.succeeds().out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("GB of memory are free") && words.contains("--any-size"), "{words}");
}

#[test]
fn emulate_refuses_results_that_the_machine_cannot_hold_before_it_needs_a_right() {
    let place = Place::new("size-emulate", &huge());
    let ran = place.run(&["emulate", "s.toml", "--out", "out"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("of memory: ") && ran.err.contains("--any-size"), "{}", ran.err);
}

#[test]
fn any_size_runs_it_until_the_user_ends_it() {
    let place = Place::new("size-any", &long());
    let refused = place.run(&["simulate", "s.toml", "--out", "out"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains(" days: "), "{}", refused.err);
    let mut command = place.command(&["simulate", "s.toml", "--out", "out", "--any-size"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut child = Killed(child);
    wait_until("the run begins", || place.path("out/.partial").exists());
    interrupt(&child.0);
    let code = child.0.wait().expect("it ends").code();
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut child.0.stderr.take().expect("errors"), &mut printed)
        .expect("text");
    assert_eq!(code, Some(130), "{printed}");
    assert!(printed.contains("this takes about ") && printed.contains(" days"), "{printed}");
}

#[test]
fn any_size_emulates_it_until_the_user_ends_it() {
    if !emulated::can_emulate() {
        return;
    }
    let place = Place::new(
        "size-emulated",
        &huge().replace("1 us", "1 ms").replace("\"pert\"", "\"cubic\""),
    );
    let words = ["emulate", "s.toml", "--out", "out", "--name", "size_any"];
    let refused = place.run(&words);
    assert!(refused.err.contains("--any-size runs it as it is"), "{}", refused.err);
    let mut command = place.command(&[&words[..], &["--any-size"]].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut child = Killed(child);
    wait_until("the emulation begins", || place.path("out/.partial").exists());
    interrupt(&child.0);
    let code = child.0.wait().expect("it ends").code();
    assert_eq!(code, Some(130));
}

#[test]
fn a_run_of_seconds_says_nothing_of_its_time() {
    let place = Place::new("size-short", SCENARIO);
    assert_eq!(place.run(&["simulate", "s.toml", "--out", "out"]).succeeds().err, "");
}
