//! `ontempo top`, and the figures of delivery in `ontempo export`, of programs that deliver.

#[path = "../common/mod.rs"]
mod common;
mod dashboard;
mod delivering;
#[path = "../deliver/relay.rs"]
#[allow(dead_code)]
mod lossy;
#[path = "../prometheus/mod.rs"]
mod prometheus;
#[path = "../prometheus/server.rs"]
mod server;

use std::fs;
use std::os::unix::fs::symlink;

use common::{Killed, Place, Terminal, files, interrupt, wait_until};
use delivering::{Delivering, REPORTS};
use ontempo_testing::require_programs;
use serde_json::{Value, json};

/// The flows of a kind whose figures are above 0.
fn flowing<'a>(document: &'a Value, kind: &str, figures: &[&str]) -> Vec<&'a Value> {
    let all = document[kind].as_array().expect("a list").iter();
    all.filter(|one| figures.iter().all(|name| one[name].as_f64().is_some_and(|it| it > 0.0)))
        .collect()
}

/// Whether each sender, receiver and relay, and each stream of one, flows.
fn flows(document: &Value) -> Vec<&Value> {
    let all = ["senders", "receivers", "relays"].map(|kind| &document[kind]);
    all.into_iter().filter_map(Value::as_array).flatten().map(|one| &one["flowing"]).collect()
}

#[test]
fn what_is_delivered_is_shown_and_exported_and_gone_when_it_ends() {
    let mut delivering = Delivering::start("top-all");
    let sent = ["input_bps", "output_bps", "units", "round_trip_s", "latency_s", "target_bps"];
    let received = ["input_bps", "output_bps", "units", "whole_datagrams", "latency_s"];
    wait_until("all that flows", || {
        let document = delivering.top();
        let relays = flowing(&document, "relays", &["input_bps", "input_bytes"]);
        flowing(&document, "senders", &sent).len() == 2
            && flowing(&document, "receivers", &received).len() == 2
            && relays.len() == 2
            && relays.iter().all(|one| one["viewers"]["count"] == 1)
            && flows(&document) == [true; 6]
    });
    let document = delivering.top();
    let find = |kind: &str, place: &dyn Fn(&Value) -> bool| {
        let all = document[kind].as_array().expect("a list");
        all.iter().find(|one| place(one)).unwrap_or_else(|| panic!("{document:#}")).clone()
    };
    let by_paths = find("senders", &|one| one["name"] == "");
    assert_eq!(by_paths["paths"].as_array().map(Vec::len), Some(2), "{by_paths}");
    assert_eq!(by_paths["peers"].as_array().map(Vec::len), Some(2), "{by_paths}");
    let receiver = find("receivers", &|one| one["name"] == "");
    let counted = receiver["delays"]["cumulative"][12].as_u64();
    assert!(counted.is_some_and(|units| units > 0), "{receiver}");
    assert_eq!(find("relays", &|one| one["role"] == "stream")["name"], "news");
    assert!(by_paths["last_minute_bps"].as_array().is_some_and(|rates| rates.len() == 1));

    let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", REPORTS];
    let mut exporting = Killed(delivering.place.spawn(&words));
    let address = prometheus::address_of(&mut exporting);
    for (name, labels) in [
        ("unit_delay_seconds_bucket", "le=\"+Inf\",flow="),
        ("input_bytes_per_second", "role=\"relay\""),
        ("viewers_bad_ratio", "role=\"stream\",name=\"news\""),
        ("lost_packets_total", "role=\"sender\",name=\"\""),
        ("path_round_trip_seconds", "path=\"2\""),
    ] {
        let name = format!("ontempo_delivery_{name}{{");
        // Some are known only when the viewer has reported.
        wait_until(&format!("{name} {labels}"), || {
            let page = prometheus::page(&address, "application/openmetrics-text");
            page.lines().any(|line| line.starts_with(&name) && line.contains(labels))
        });
    }
    let plain = delivering.place.run(&["top", "--folder", REPORTS]);
    let plain = &plain.succeeds().out;
    for word in ["senders (2)", "receivers (2)", "relays (2)", "  stream news", "no process has"] {
        assert!(plain.contains(word), "{word}\nis not in\n{plain}");
    }

    delivering.fall_silent();
    wait_until("silence", || {
        let document = delivering.top();
        flowing(&document, "receivers", &["output_bps"]).is_empty()
            // The connections stand.
            && flows(&document) == [false; 6]
    });
    for program in &mut delivering.programs {
        interrupt(&program.0);
        let _ = program.0.wait().expect("it ends");
    }
    assert_eq!(files(&delivering.place.path(REPORTS)), [""; 0], "nothing is left");
    let document = delivering.top();
    assert_eq!(document["senders"], json!([]));
}

/// The start of this process, as reports have it.
fn started() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("its start is field 22");
    let (_, fields) = stat.rsplit_once(')').expect("a program's name");
    fields.split_whitespace().nth(19).expect("22").parse().expect("ticks")
}

/// A document of this process's with one sender of this name.
fn document(name: &str) -> Value {
    let flow = json!({ "id": 1, "role": "sender", "name": name, "place": "udp://:5000",
        "flowing": true, "input_bps": 4e6, "output_bps": 4.1e6, "peers": ["192.0.2.1:4433"] });
    let process = std::process::id();
    json!({ "version": 1, "process": process, "started": started(), "flows": [flow] })
}

#[test]
fn hostile_documents_are_skipped_with_a_sentence() {
    let place = Place::new("top-hostile", "");
    fs::create_dir(place.path(REPORTS)).expect("a folder");
    let file = place.path(REPORTS).join(format!("{}.delivery.json", std::process::id()));
    let shown = |name: &str| {
        let ran = place.run(&["top", "--json", "--once", "--folder", REPORTS]);
        let document = ran.succeeds().json();
        let said = ran.err.clone();
        assert!(!said.contains(|one: char| one.is_control() && one != '\n'), "{said:?}");
        assert!(ran.err.lines().count() <= 17, "{}", ran.err);
        (document["senders"].as_array().map_or(0, Vec::len), said, name.to_owned())
    };
    fs::write(&file, document("film").to_string()).expect("written");
    assert_eq!(shown("good"), (1, String::new(), "good".to_owned()));
    let mut wrong = document("film");
    wrong["flows"][0]["input_bps"] = json!("fast");
    let mut endless = document("film");
    endless["flows"] = (0..2_000).map(|id| json!({ "id": id, "role": "sender" })).collect();
    let mut newer = document("film");
    newer["version"] = json!(7);
    let escape = "{\"\u{1b}[2J".to_owned();
    for (name, text, sentence) in [
        ("wrong types", wrong.to_string(), "is no report: invalid type: string \"fast\""),
        ("endless", endless.to_string(), "is no report: 2000 flows; 64 at most"),
        ("long label", document(&"x".repeat(5_000)).to_string(), "name: 5000 bytes; 255 at most"),
        ("huge", " ".repeat(600_000), "is larger than 524288 bytes"),
        ("newer", newer.to_string(), "version: 7; this program knows 1"),
        ("what a terminal obeys", escape, "is no report: "),
        ("nested", "[".repeat(100_000), "is no report: "),
    ] {
        fs::write(&file, text).expect("written");
        let (count, said, _) = shown(name);
        assert_eq!(count, 0, "{name}");
        assert!(said.contains(sentence), "{name}: {said}");
    }
    fs::rename(&file, place.path("elsewhere")).expect("moved");
    fs::write(place.path("elsewhere"), document("film").to_string()).expect("written");
    symlink(place.path("elsewhere"), &file).expect("a link");
    let (count, said, _) = shown("a link");
    assert!(count == 0 && said.contains("is a link, and not followed"), "{said}");
    fs::remove_file(&file).expect("removed");
    if rustix::process::geteuid().is_root() {
        fs::write(&file, document("film").to_string()).expect("written");
        std::os::unix::fs::chown(&file, Some(64_004), None).expect("chown");
        let (count, said, _) = shown("another user's");
        assert!(count == 0 && said.contains("belongs to user 64004"), "{said}");
    }
}

#[test]
fn arguments_are_checked_and_an_empty_host_has_a_table() {
    let place = Place::new("top-empty", "");
    place.run(&["top", "--folder", "nowhere"]).fails(2, &["--folder nowhere: cannot be read"]);
    fs::create_dir(place.path(REPORTS)).expect("a folder");
    let ran = place.run(&["top", "--folder", REPORTS, "--rsvp", "no.sock"]);
    let lines: Vec<_> = ran.succeeds().out.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with("senders: nothing is sent"), "{lines:?}");
}

/// What a terminal of so many columns is shown until `q`, by `script`, with these variables.
fn screen(place: &Place, columns: u32, variables: &str, until: &str) -> String {
    let program = env!("CARGO_BIN_EXE_ontempo");
    let line =
        format!("stty cols {columns} rows 30; {variables} exec {program} top --folder {REPORTS}");
    let mut terminal = Terminal::start(&line, |script| {
        script.env("TERM", "xterm-256color").current_dir(&place.0);
        script.env_remove("NO_COLOR").env_remove("COLUMNS");
    });
    terminal.wait_until(|shown| shown.contains(until));
    String::from_utf8(terminal.end_by(b"q")).expect("text")
}

#[test]
fn a_terminal_shows_the_screen_and_q_ends_it() {
    if !require_programs(&["script", "stty"]) {
        return;
    }
    let place = Place::new("top-terminal", "");
    fs::create_dir(place.path(REPORTS)).expect("a folder");
    let file = place.path(REPORTS).join(format!("{}.delivery.json", std::process::id()));
    fs::write(file, document("film").to_string()).expect("written");
    let shown = screen(&place, 80, "", "q ends");
    for word in ["senders", "film", "4.10", "Mbit/s", "\u{1b}[?1049h", "\u{1b}[?1049l"] {
        assert!(shown.contains(word), "{word:?}\nis not in\n{shown:?}");
    }
    let coloured = |shown: &str| shown.contains("\u{1b}[36m") || shown.contains("38;5;6");
    assert!(coloured(&shown), "{shown:?}");
    let plain = screen(&place, 80, "NO_COLOR=1", "q ends");
    assert!(!coloured(&plain), "{plain:?}");
    let narrow = screen(&place, 32, "", "q ends");
    assert!(narrow.contains("4.10"), "{narrow:?}");
}
