//! Runs that succeed, and runs that the user ends.

mod common;

use common::{Killed, Place, Ran, SCENARIO, WHOLE, endless, files, interrupt, wait_until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn check_explains_a_scenario_and_prints_its_canonical_form() {
    let place = Place::new("check", SCENARIO);
    let words = place.run(&["check", "s.toml", "--set", "flows.video.count=7"]);
    assert!(words.succeeds().out.contains("7 video flows"), "{}", words.out);
    assert!(words.out.contains("left ═══ 2 Mbit/s"), "{}", words.out);
    let canonical = place.run(&["check", "s.toml", "--json"]);
    assert_eq!(canonical.succeeds().json()["topology"]["bottleneck"]["rate"], "2 Mbit/s");
}

#[test]
fn a_link_that_stands_still_to_the_end_is_named_with_what_is_stuck() {
    let stops = "rate = \"2 Mbit/s\"\noutages = [{ at = \"1 s\", for = \"1 h\" }]";
    let place = Place::new("still", &SCENARIO.replacen("rate = \"2 Mbit/s\"", stops, 1));
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let checked = squeezed(&place.run(&["check", "s.toml"]).succeeds().out);
    assert!(
        checked.contains(
            "Nothing passes bottleneck from 1 s on, reverse from 1 s on, to the end of the run"
        ),
        "{checked}"
    );
    let run = ["simulate", "s.toml", "--out", "out"];
    let words = squeezed(&place.run(&run).succeeds().out);
    let sentence = "Nothing passes bottleneck from 1 s to the end of the run: ";
    let (_, rest) = words.split_once(sentence).expect("a sentence");
    assert!(
        rest.contains(
            "wait there; not finished: 1 flow of bulk, 2 flows of video, 1 flow of voice."
        )
    );
    let json = place.run(&[&run[..], &["--json"]].concat()).succeeds().json();
    let still = &json["runs"][0]["summary"]["standstills"][0];
    assert_eq!((&still["link"], &still["since_s"]), (&"bottleneck".into(), &1.0.into()));
    assert!(still["waiting_packets"].as_u64().is_some_and(|count| count > 0), "{still}");
    assert_eq!(still["unfinished_flows"]["video"], 2);
    let kept = place.run(&["summary", "out", "--json"]).succeeds().json();
    assert_eq!(&kept["runs"][0]["summary"]["standstills"][0], still);
    assert!(squeezed(&place.run(&["summary", "out"]).succeeds().out).contains(sentence));
    // A link that recovers is not named.
    let text = SCENARIO.replacen("rate = \"2 Mbit/s\"", &stops.replace("1 h", "1 s"), 1);
    fs::write(place.path("s.toml"), text).unwrap();
    assert!(!place.run(&run).succeeds().out.contains("Nothing passes"));
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes_in_every_file() {
    let place = Place::new("bytes", SCENARIO);
    let run = |out: &str, seed: &str| {
        let trace = ["--trace", "bottleneck", "--trace", "bulk.0.source -> left"];
        let arguments = ["simulate", "s.toml", "--out", out, "--seed", seed];
        place.run(&[arguments.as_slice(), &trace].concat()).succeeds();
    };
    run("a", "4");
    run("b", "4");
    run("c", "5");
    let names = files(&place.path("a"));
    assert_eq!(names.len(), WHOLE.len() + 2);
    let read = |out: &str, name: &String| fs::read(place.path(out).join(name)).unwrap();
    for name in &names {
        assert!(read("a", name) == read("b", name), "{name} differs");
    }
    assert!(read("a", &"run.json".to_owned()) != read("c", &"run.json".to_owned()));
}

#[test]
fn a_trace_does_not_change_the_results() {
    let place = Place::new("listens", SCENARIO);
    place.run(&["simulate", "s.toml", "--out", "plain"]).succeeds();
    let links = ["bottleneck", "reverse", "right -> video.0.sink", "bulk.0.sink -> right"];
    let mut arguments = vec!["simulate", "s.toml", "--out", "traced"];
    links.iter().for_each(|link| arguments.extend(["--trace", link]));
    place.run(&arguments).succeeds();
    for name in WHOLE.iter().filter(|name| name.ends_with(".parquet")) {
        let read = |out: &str| fs::read(place.path(out).join(name)).unwrap();
        assert!(read("plain") == read("traced"), "{name} differs");
    }
}

#[test]
fn a_run_overwrites_the_previous_one() {
    let place = Place::new("overwrites", SCENARIO);
    place.run(&["simulate", "s.toml", "--out", "out", "--trace", "bottleneck"]).succeeds();
    assert!(place.path("out/bottleneck.pcapng").exists());
    place.run(&["simulate", "s.toml", "--out", "out", "--seed", "9"]).succeeds();
    assert_eq!(files(&place.path("out")), WHOLE);
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path("out/run.json")).unwrap()).unwrap();
    assert_eq!((&manifest["seed"], &manifest["tables_version"]), (&9.into(), &8.into()));
    assert_eq!(manifest["title"], "Video and bulk");
    assert_eq!(manifest["scenario"]["duration"], "3 s");
}

#[test]
fn a_summary_is_the_same_from_the_run_and_from_its_files() {
    let place = Place::new("summary", SCENARIO);
    let arguments = ["simulate", "s.toml", "--out", "out", "--seeds", "0..2,7", "--jobs", "2"];
    let json = place.run(&[arguments.as_slice(), &["--json"]].concat());
    let json = json.succeeds().json();
    assert_eq!(files(&place.path("out")), ["seed-0", "seed-1", "seed-2", "seed-7"]);
    assert_eq!(json, place.run(&["summary", "out", "--json"]).succeeds().json());
    assert_eq!(json["complete"], true);
    let runs = json["runs"].as_array().unwrap();
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [0, 1, 2, 7]);
    let flows = runs[0]["summary"]["flows"].as_array().unwrap();
    let goodput: f64 = flows.iter().map(|group| group["goodput_bps"].as_f64().unwrap()).sum();
    assert!((1e6..2e6).contains(&goodput), "{goodput} bit/s through 2 Mbit/s");
    assert_eq!(flows[1]["playout"][0]["startup_delay_s"], 1.0);
    let bottleneck = &runs[0]["summary"]["links"][0];
    assert_eq!(bottleneck["link"], "bottleneck");
    assert!(bottleneck["dropped"].as_u64().unwrap() > 0);
    let text = place.run(&["summary", "out"]);
    let printed = place.run(&arguments).out;
    assert!(printed.starts_with(text.succeeds().out.trim_end()), "{printed}\n{}", text.out);
    assert!(text.out.contains("Means of 4 runs"));
}

#[test]
fn a_schema_and_a_reference_are_printed() {
    let place = Place::new("schema", SCENARIO);
    assert!(place.run(&["schema"]).succeeds().json()["properties"]["topology"].is_object());
    assert!(place.run(&["reference"]).succeeds().out.starts_with("# "));
}

#[test]
fn ctrl_c_ends_many_runs_at_once_and_keeps_those_that_are_finished() {
    let place = Place::new("interrupted", SCENARIO);
    let child =
        place.spawn(&["simulate", "s.toml", "--out", "out", "--seeds", "0..99999", "--json"]);
    wait_until("two finished runs", || {
        (0..2).all(|seed| place.path(&format!("out/seed-{seed}/run.json")).exists())
    });
    interrupt(&child);
    let pressed = Instant::now();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert!(pressed.elapsed() < Duration::from_secs(10), "{:?}", pressed.elapsed());
    ran.fails(130, &["interrupted", "of 100000 runs", "out/seed-0"]);
    let kept = files(&place.path("out"));
    for run in &kept {
        assert_eq!(files(&place.path("out").join(run)), WHOLE, "{run}");
    }
    let json = ran.json();
    assert_eq!(json["complete"], false);
    assert_eq!(json["runs"].as_array().unwrap().len(), kept.len());
}

#[test]
fn ctrl_c_during_a_single_run_writes_nothing_and_keeps_the_previous_run() {
    let place = Place::new("single", &endless());
    let arguments = ["simulate", "s.toml", "--out", "out", "--trace", "bottleneck"];
    let child = place.spawn(&arguments);
    let trace = || fs::metadata(place.path("out/.partial/bottleneck.pcapng"));
    wait_until("a trace", || trace().is_ok_and(|data| data.len() > 100_000));
    interrupt(&child);
    let ran = Ran::of(child.wait_with_output().unwrap());
    ran.fails(130, &["interrupted", "nothing was written"]);
    assert_eq!(files(&place.0), ["s.toml"]);

    place.run(&["simulate", "s.toml", "--out", "out", "--set", "duration=1 s"]).succeeds();
    let child = place.spawn(&arguments);
    wait_until("a trace", || trace().is_ok_and(|data| data.len() > 100_000));
    interrupt(&child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(files(&place.path("out")), WHOLE);
    place.run(&["summary", "out"]).succeeds();
}

/// A background job of a shell without job control is started with SIGINT ignored. Who sends it the
/// signal all the same wants it to end cleanly.
#[test]
fn sigint_ends_a_program_that_was_started_with_it_ignored() {
    let place = Place::new("ignored-interrupt", &endless());
    let start = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' INT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ontempo")]);
        command.args(words).current_dir(&place.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        Killed(command.spawn().expect("the program starts"))
    };
    let mut run = start(&["simulate", "s.toml", "--out", "out", "--trace", "bottleneck"]);
    let trace = || fs::metadata(place.path("out/.partial/bottleneck.pcapng"));
    wait_until("a trace", || trace().is_ok_and(|data| data.len() > 100_000));
    interrupt(&run.0);
    assert_eq!(run.0.wait().expect("it ends").code(), Some(130));
    let mut receiver = start(&["receive", "--listen", "127.0.0.1:0", "--to", "received"]);
    let mut line = String::new();
    let mut err = BufReader::new(receiver.0.stderr.take().expect("its errors"));
    err.read_line(&mut line).expect("a line");
    interrupt(&receiver.0);
    assert_eq!(receiver.0.wait().expect("it ends").code(), Some(0));
}
