//! Errors of every command that takes `--json`: standard output says them as JSON, too.

mod common;

use std::collections::BTreeSet;

use common::{Place, Ran, SCENARIO};
use serde_json::Value;

const SOCKET: [&str; 2] = ["--socket", "none.sock"];
const FLOW: [&str; 5] = ["127.0.0.1:9", "--rate", "1 Mbit/s", "--burst", "3 kB"];

/// For each command a line that fails, and the exit code. `kernel list` fails without rights alone.
fn failing() -> Vec<(&'static str, Vec<&'static str>, i32)> {
    vec![
        ("check", vec!["none.toml"], 2),
        ("simulate", vec!["none.toml", "--out", "out"], 2),
        ("emulate", vec!["none.toml", "--out", "out"], 2),
        ("link", vec!["no-such-run", "no-such-link", "rate=1"], 2),
        ("summary", vec!["nodir"], 2),
        ("show", vec!["nodir"], 2),
        ("probe", vec!["127.0.0.1"], 2),
        ("send", vec!["--to", "nowhere", "--from", "none.ts"], 2),
        ("receive", vec!["--listen", "127.0.0.1:0", "--token", "x", "--to", "none/film.ts"], 3),
        ("relay", vec!["--listen", "nowhere"], 2),
        ("kernel status", vec!["no-such-name"], 2),
        ("top", vec!["--every", "soon"], 2),
        ("monitor", vec!["--folder", "nodir"], 2),
        ("rsvp status", SOCKET.to_vec(), 3),
        ("rsvp send", [&FLOW[..], &["--from", "127.0.0.1:0"], &SOCKET].concat(), 3),
        ("rsvp reserve", [&FLOW[..], &SOCKET].concat(), 3),
        ("netvideo send", vec!["127.0.0.1"], 2),
        ("netvideo receive", vec!["--listen", "nowhere"], 2),
        ("tg send", vec!["127.0.0.1"], 2),
        ("tg receive", vec!["--listen", "nowhere"], 2),
        ("gateway", vec!["--listen", "nowhere", "--to", "nowhere"], 2),
        ("impair", vec!["--listen", "0", "--to", "127.0.0.1:9", "--scenario", "none.toml"], 2),
        ("media", vec!["none.ts"], 2),
    ]
}

fn help(place: &Place, path: &[String]) -> String {
    let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    place.run(&words).succeeds().out.clone()
}

/// The commands below `path` that take `--json`.
fn commands(place: &Place, path: &[String], found: &mut BTreeSet<String>) {
    let text = help(place, path);
    if text.lines().any(|line| line.trim_start().starts_with("--json")) {
        found.insert(path.join(" "));
    }
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        if let Some(name) = name.and_then(|rest| rest.split_whitespace().next())
            && name != "help"
        {
            commands(place, &[path, &[name.to_owned()]].concat(), found);
        }
    }
}

/// Standard output is one JSON document, or one on each line, whose last says what went wrong.
#[track_caller]
fn says_what_is_wrong(ran: &Ran, code: i32) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let last = ran.out.lines().last().unwrap_or_default();
    let whole = serde_json::from_str(&ran.out).or_else(|_| serde_json::from_str(last));
    let document: Value = whole.unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let what = match document["event"].as_str() {
        Some(event) => {
            assert_eq!((event, document["exit_code"].as_i64()), ("error", Some(code.into())));
            &document["text"]
        }
        None => &document["problems"][0]["what"],
    };
    let what = what.as_str().unwrap_or_else(|| panic!("{ran:?}"));
    assert!(!what.is_empty() && ran.err.contains(what), "{ran:?}");
}

#[test]
fn every_command_that_takes_json_says_a_wrong_command_line_as_json() {
    let place = Place::new("json-usage", SCENARIO);
    let mut found = BTreeSet::new();
    commands(&place, &[], &mut found);
    assert!(found.len() > 15, "{found:?}");
    for command in found {
        let words: Vec<_> = command.split(' ').chain(["--json", "--no-such-option"]).collect();
        says_what_is_wrong(&place.run(&words), 2);
    }
}

#[test]
fn every_command_that_takes_json_says_an_error_as_json() {
    let place = Place::new("json-errors", SCENARIO);
    let mut left = BTreeSet::new();
    commands(&place, &[], &mut left);
    left.remove("kernel list");
    for (command, more, code) in failing() {
        assert!(left.remove(command), "{command} takes no --json");
        let words: Vec<_> = command.split(' ').chain(["--json"]).chain(more).collect();
        says_what_is_wrong(&place.run(&words), code);
    }
    assert!(left.is_empty(), "these are not tried: {left:?}");
}

#[test]
fn a_document_that_was_printed_is_not_followed_by_another() {
    let place = Place::new("json-once", SCENARIO);
    let ran = place.run(&["check", "s.toml", "--set", "flows.bulk.cuont=1", "--json"]);
    says_what_is_wrong_in_the_scenario(&ran);
    place.run(&["simulate", "s.toml", "--out", "run"]).succeeds();
    let mut show = place.command(&["show", "run", "--open", "--json"]);
    let ran = Ran::of(show.env("PATH", "/nowhere").output().expect("it starts"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    assert!(document["output"].is_string(), "{ran:?}");
}

/// The problem has its place, and stands alone.
#[track_caller]
fn says_what_is_wrong_in_the_scenario(ran: &Ran) {
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!(document["problems"][0]["set"], "flows.bulk.cuont=1", "{ran:?}");
    assert_eq!(ran.code, Some(2));
}
