//! Films over emulated networks, with the programs that carry them, beside the simulator's models. Needs
//! the rights of root; skipped tests are reported.

mod common;
mod emulated;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use common::Place;
use emulated::{can_emulate, counts, run_name, table, texts};
use ontempo_testing::require_programs;

/// Frames are counted from when every transport has its connection.
const FILM: &str = r#"
duration = "4 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "10 Mbit/s", delay = "10 ms" }
access = { rate = "100 Mbit/s", delay = "1 ms" }
[flows.film]
application = { kind = "media", generate = { rate = "1 Mbit/s" }, sending = "paced", latency = ["1 s"] }
transport = { TRANSPORT }
stop = "2.9 s"
[measure]
from = "1.5 s"
"#;

/// What each world's latencies may be apart in the median: the programs look at their sockets at intervals.
const APART_S: f64 = 0.015;

/// Runs the film in both worlds and compares their tables; at least `arrived` of the frames arrive.
#[track_caller]
fn carried(name: &str, transport: &str, arrived: f64, options: &[&str]) {
    let place = Place::new(&format!("film-{name}"), &FILM.replace("TRANSPORT", transport));
    let run = run_name(&place);
    let mut arguments = vec!["emulate", "s.toml", "--out", "emulate", "--name", &run];
    arguments.extend(options);
    place.run(&arguments).succeeds();
    place.run(&["simulate", "s.toml", "--out", "simulate"]).succeeds();
    let frames = ["emulate", "simulate"].map(|world| table(&place, world, "frames"));
    assert_eq!(frames[0].schema(), frames[1].schema());
    assert_eq!(counts(&frames[0], "frame"), counts(&frames[1], "frame"));
    let medians = frames.map(|frames| {
        let latencies = frames.column_by_name("latency_s").expect("a column");
        let mut latencies: Vec<f64> =
            latencies.as_primitive::<Float64Type>().iter().flatten().collect();
        let share = latencies.len() as f64 / frames.num_rows() as f64;
        assert!(share >= arrived, "{share} of {} frames arrived", frames.num_rows());
        latencies.sort_by(f64::total_cmp);
        latencies[latencies.len() / 2]
    });
    assert!((medians[0] - medians[1]).abs() < APART_S, "{medians:?}");
    let media = ["emulate", "simulate"].map(|world| table(&place, world, "media"));
    assert_eq!(media[0].schema(), media[1].schema());
    let wire = media.each_ref().map(|media| counts(media, "wire_bytes")[0] as f64);
    assert_eq!(counts(&media[0], "media_bytes"), counts(&media[1], "media_bytes"));
    if options.is_empty() {
        assert!((wire[0] / wire[1] - 1.0).abs() < 0.05, "{wire:?} bytes");
    }
    let flows = ["emulate", "simulate"].map(|world| table(&place, world, "flows"));
    for column in ["transport", "congestion"] {
        assert_eq!(texts(&flows[0], column), texts(&flows[1], column));
    }
}

#[test]
fn a_film_over_udp_arrives_as_in_the_simulator() {
    if can_emulate() {
        carried("udp", r#"kind = "udp""#, 1.0, &[]);
    }
}

#[test]
fn a_film_over_tcp_arrives_as_in_the_simulator() {
    if can_emulate() {
        carried("tcp", r#"kind = "tcp", congestion = "cubic""#, 1.0, &[]);
    }
}

#[test]
fn a_film_over_srt_arrives_as_in_the_simulator() {
    if can_emulate() && require_programs(&["srt-live-transmit"]) {
        carried("srt", r#"kind = "srt", latency = "200 ms""#, 0.97, &[]);
        carried("srt6", r#"kind = "srt", latency = "200 ms""#, 0.97, &["--ipv6"]);
    }
}

#[test]
fn a_film_over_rist_arrives_as_in_the_simulator() {
    if can_emulate() && require_programs(&["ristsender", "ristreceiver"]) {
        let transport = r#"kind = "rist", buffer = "200 ms", null-packet-deletion = true"#;
        carried("rist", transport, 0.97, &[]);
    }
}

#[test]
fn a_film_over_ontempo_arrives_as_in_the_simulator() {
    if can_emulate() {
        let transport = r#"kind = "ontempo", latency = "200 ms", order = "partial-order""#;
        carried("ontempo", transport, 0.97, &[]);
    }
}

/// When the frames were sent that arrived, and those that did not, in seconds, in each world; the sender's
/// address changes at 2.2 s.
fn with_another_address(name: &str, transport: &str, options: &[&str]) -> [[Vec<f64>; 2]; 2] {
    let text = FILM.replace("TRANSPORT", transport);
    let text = text.replace("stop =", "address-changes = [\"2.2 s\"]\nstop =");
    let place = Place::new(&format!("address-{name}"), &text);
    let run = run_name(&place);
    let mut arguments = vec!["emulate", "s.toml", "--out", "emulate", "--name", &run];
    arguments.extend(options);
    place.run(&arguments).succeeds();
    place.run(&["simulate", "s.toml", "--out", "simulate"]).succeeds();
    ["emulate", "simulate"].map(|world| {
        let frames = table(&place, world, "frames");
        let column =
            |name| frames.column_by_name(name).expect("a column").as_primitive::<Float64Type>();
        let (sent, latency) = (column("sent_s"), column("latency_s"));
        [true, false].map(|arrived| {
            let rows = (0..frames.num_rows()).filter(|row| latency.is_valid(*row) == arrived);
            rows.map(|row| sent.value(row)).collect()
        })
    })
}

#[test]
fn a_film_over_udp_and_ontempo_goes_on_from_another_address_in_both_worlds() {
    if can_emulate() {
        let ontempo = r#"kind = "ontempo", latency = "200 ms""#;
        for (name, transport, options) in [
            ("udp", r#"kind = "udp""#, &[][..]),
            ("ontempo", ontempo, &[]),
            ("ontempo6", ontempo, &["--ipv6"]),
        ] {
            for [arrived, lost] in with_another_address(name, transport, options) {
                let after = |times: &[f64]| times.iter().filter(|sent| **sent > 2.3).count();
                assert!(after(&arrived) > 25, "{name}: {arrived:?}");
                assert_eq!(after(&lost), 0, "{name}: {lost:?}");
            }
        }
    }
}

#[test]
fn a_film_over_tcp_ends_when_its_senders_address_changes_in_both_worlds() {
    if can_emulate() {
        let transport = r#"kind = "tcp", congestion = "cubic""#;
        for (name, options) in [("tcp", &[][..]), ("tcp6", &["--ipv6"])] {
            for [arrived, lost] in with_another_address(name, transport, options) {
                assert!(arrived.iter().any(|sent| *sent < 2.1), "{name}: {arrived:?}");
                assert!(arrived.iter().all(|sent| *sent < 2.25), "{name}: {arrived:?}");
                assert!(lost.iter().all(|sent| *sent > 2.1) && lost.len() > 25, "{name}: {lost:?}");
            }
        }
    }
}

#[test]
fn a_film_over_rist_goes_on_from_another_address_in_both_worlds() {
    if can_emulate() && require_programs(&["ristsender", "ristreceiver"]) {
        let transport = r#"kind = "rist", buffer = "500 ms""#;
        for [arrived, lost] in with_another_address("rist", transport, &[]) {
            assert!(arrived.iter().any(|sent| *sent > 2.8), "{arrived:?}");
            assert!(lost.iter().all(|sent| *sent < 2.3), "{lost:?}");
        }
    }
}

#[test]
fn a_program_that_is_missing_is_an_error_with_its_package() {
    for (kind, package) in [("srt", "srt-tools"), ("rist", "rist-tools")] {
        let text = FILM.replace("TRANSPORT", &format!("kind = \"{kind}\""));
        let place = Place::new(&format!("film-no-{kind}"), &text);
        let mut command = place.command(&["emulate", "s.toml", "--out", "out"]);
        command.env("PATH", place.path(""));
        let output = command.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success());
        assert!(said.contains("flows.film.transport.kind: there is no program"), "{said}");
        assert!(said.contains(&format!("apt-get install {package}")), "{said}");
    }
}

#[test]
fn a_program_that_ends_early_is_told_with_its_last_words_and_the_film_is_lost() {
    if !can_emulate() || !require_programs(&["srt-live-transmit"]) {
        return;
    }
    let text = FILM.replace("TRANSPORT", r#"kind = "srt""#).replace("4 s", "3 s");
    let place = Place::new("film-ended", &text);
    let path = std::env::var("PATH").unwrap_or_default();
    let fake = place.path("srt-live-transmit");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *caller*) echo no way there; exit 3;; esac\n\
         PATH={path} exec srt-live-transmit \"$@\"\n"
    );
    fs::write(&fake, script).expect("a program");
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).expect("its rights");
    let run = run_name(&place);
    let mut command = place.command(&["emulate", "s.toml", "--out", "out", "--name", &run]);
    command.env("PATH", format!("{}:{path}", place.path("").display()));
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("film.0.source: `srt-live-transmit"), "{said}");
    assert!(said.contains("so that the rest of its film is lost: no way there"), "{said}");
    let frames = table(&place, "out", "frames");
    let latencies = frames.column_by_name("latency_s").expect("a column");
    assert_eq!((latencies.null_count(), latencies.is_empty()), (frames.num_rows(), false));
}
