//! Input errors and their messages: exit code 2.

mod common;

use common::{Place, Ran, SCENARIO, files};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The scenario with `old` replaced by `new` is refused by `check` and by `simulate`, which
/// leaves nothing behind.
#[track_caller]
fn refused(test: &str, old: &str, new: &str, words: &[&str]) {
    assert!(SCENARIO.contains(old), "{old} is not in the scenario");
    let place = Place::new(test, &SCENARIO.replacen(old, new, 1));
    place.run(&["check", "s.toml"]).fails(2, words);
    place.run(&["simulate", "s.toml", "--out", "out"]).fails(2, words);
    assert_eq!(files(&place.0), ["s.toml"]);
    let problems = place.run(&["check", "s.toml", "--json"]).json();
    let problem = &problems["problems"][0];
    assert_eq!(problem["file"], "s.toml");
    assert!(problem["line"].as_u64().is_some_and(|line| line > 0), "{problem}");
}

#[test]
fn the_error_for_an_unknown_field_suggests_the_right_one() {
    let words = ["s.toml:21: flows.video.cuont", "unknown field", "did you mean `count`?"];
    refused("unknown", "count = 2", "cuont = 2", &words);
}

#[test]
fn the_error_for_a_missing_unit_suggests_one() {
    let words = ["s.toml:8: topology.bottleneck.rate: missing unit", "\"2 Mbit/s\""];
    refused("unitless", "\"2 Mbit/s\"", "2", &words);
}

#[test]
fn the_error_for_a_wrong_unit_names_the_right_kind() {
    let words = ["s.toml:9: topology.bottleneck.delay", "ms"];
    refused("kind", "\"20 ms\"", "\"20 Mbit/s\"", &words);
}

#[test]
fn a_negative_value_is_refused() {
    refused("negative", "\"20 ms\"", "\"-20 ms\"", &["s.toml:9: topology.bottleneck.delay"]);
}

#[test]
fn the_error_for_an_absurd_value_gives_the_range() {
    let words = ["s.toml:21: flows.video.count", "1 to 1000000"];
    refused("absurd", "count = 2", "count = 2000000000", &words);
}

#[test]
fn an_unreachable_node_is_named() {
    let text = r#"duration = "20 s"
[topology]
kind = "graph"
links = [
    { from = "a", to = "b", rate = "10 Mbit/s", delay = "5 ms" },
    { from = "b", to = "c", rate = "10 Mbit/s", delay = "5 ms", duplex = false },
]
[flows.long]
from = "a"
to = "c"
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;
    let place = Place::new("unreachable", text);
    place.run(&["check", "s.toml"]).fails(2, &["s.toml:", "flows.long", "`c`", "`a`"]);
}

#[test]
fn circular_includes_are_shown_as_a_chain() {
    let place = Place::new("loop", "include = [\"other.toml\"]\n");
    fs::write(place.path("other.toml"), "include = [\"s.toml\"]\n").unwrap();
    let words = ["other.toml:1: include: s.toml includes other.toml includes s.toml"];
    place.run(&["check", "s.toml"]).fails(2, &words);
}

/// A scenario of links that each name this trace.
fn many_links(schedule: &str) -> String {
    let mut text =
        "duration = \"9 s\"\n[flows.f]\nfrom = \"a\"\nto = \"n0\"\napplication = { kind = \
                    \"ftp\" }\ntransport = { kind = \"tcp\" }\n[topology]\nkind = \"graph\"\n"
            .to_owned();
    for place in 0..2_000 {
        let ends = format!("from = \"a\"\nto = \"n{place}\"\n");
        text += &format!(
            "[[topology.links]]\n{ends}rate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n{schedule}\n"
        );
    }
    text
}

#[test]
fn files_without_end_are_refused_in_little_memory_however_often_they_are_named() {
    let often = |file: &str| format!("include = [{}]\n", vec![format!("{file:?}"); 200].join(", "));
    let zero = "/dev/zero is larger than 4 MiB";
    let pair = "schedule = { kind = \"cellreplay\", light = \"hole\", heavy = \"hole\" }";
    let device = pair.replace("hole", "/dev/zero");
    let cases = [
        (often("/dev/zero"), zero),
        (often("leaf.toml"), zero),
        // 4 MiB of numbers, each a node of the document: without a bound of all files together this takes
        // minutes.
        (often("list.toml"), "the files of the scenario are larger than 16 MiB"),
        (many_links(pair), "hole is too large; a trace has at most 32 MiB"),
        (many_links(&device), "/dev/zero: it is not a regular file"),
    ];
    for (scenario, word) in cases {
        let place = Place::new("endless", &scenario);
        fs::write(place.path("leaf.toml"), "include = [\"/dev/zero\"]\n").expect("a file");
        let list = format!("title = [{}1]\n", "1,".repeat((2 << 20) - 40));
        fs::write(place.path("list.toml"), list).expect("a file");
        let hole = fs::File::create(place.path("hole")).expect("a file");
        hole.set_len(1 << 40).expect("a file may have holes");
        let program = place.command(&["check", "s.toml"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v 1500000 && exec \"$@\"", "sh"]);
        limited.arg(program.get_program()).args(program.get_args()).current_dir(&place.0);
        let begun = Instant::now();
        Ran::of(limited.output().expect("it starts")).fails(2, &[word]);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(30), "{word}: {took:?}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let place = Place::new("absent", SCENARIO);
    place.run(&["check", "absent.toml"]).fails(2, &["cannot read absent.toml"]);
}

#[test]
fn a_wrong_value_on_the_command_line_is_quoted_as_given() {
    let place = Place::new("set", SCENARIO);
    let arguments = ["check", "s.toml", "--set", "flows.vidio.count=3"];
    place.run(&arguments).fails(2, &["--set flows.vidio.count=3", "known: `bulk`, `video`"]);
}

#[test]
fn invalid_seeds_are_refused() {
    let place = Place::new("seeds", SCENARIO);
    for (seeds, words) in
        [("5..2", "write 2..5"), ("a", "`a` is not a seed"), ("", "is not a seed")]
    {
        place.run(&["simulate", "s.toml", "--out", "out", "--seeds", seeds]).fails(2, &[words]);
    }
    let both = ["simulate", "s.toml", "--out", "out", "--seeds", "1", "--seed", "1"];
    place.run(&both).fails(2, &["--seed"]);
    place.run(&["simulate", "s.toml", "--out", "out", "--jobs", "0"]).fails(2, &["--jobs"]);
    assert_eq!(files(&place.0), ["s.toml"]);
}

#[test]
fn the_error_for_a_trace_of_an_unknown_link_suggests_the_right_one() {
    let place = Place::new("link", SCENARIO);
    let arguments = ["simulate", "s.toml", "--out", "out", "--trace", "botleneck"];
    place.run(&arguments).fails(2, &["--trace: there is no link `botleneck`", "`bottleneck`?"]);
    assert_eq!(files(&place.0), ["s.toml"]);
}

#[test]
fn a_folder_without_a_complete_run_has_no_summary() {
    let place = Place::new("unwhole", SCENARIO);
    place.run(&["summary", "."]).fails(2, &["no complete run", "run.json"]);
    place.run(&["summary", "absent"]).fails(2, &["cannot read absent"]);
}

/// The commands that a help lists, with what is before them.
fn commands(help: &str, before: &[&str]) -> Vec<Vec<String>> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        // What goes on with an explanation stands further in.
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then_some(name)
    });
    names.map(|name| before.iter().copied().chain([name]).map(str::to_owned).collect()).collect()
}

/// Checks the help of a command and of those below it; answers how many there are.
#[track_caller]
fn check_help(place: &Place, words: &[&str]) -> usize {
    let help = place.run(&[words, &["--help"]].concat());
    let example = format!("ontempo {}", words.join(" "));
    let lines = help.succeeds().out.lines().skip_while(|line| !line.starts_with("Example"));
    assert!(lines.skip(1).any(|line| line.contains(&example)), "{example}: {}", help.out);
    let below = commands(&help.out, words);
    let count = |words: &Vec<String>| {
        check_help(place, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    1 + below.iter().map(count).sum::<usize>()
}

#[test]
fn the_help_of_each_command_has_an_example() {
    let place = Place::new("help", SCENARIO);
    let count = check_help(&place, &[]);
    assert!(count > 30, "{count} commands");
    // It is not listed.
    check_help(&place, &["adus"]);
    assert!(place.run(&["--help"]).succeeds().out.contains("130"));
}

#[test]
fn what_routers_of_the_kernel_cannot_do_is_told_by_check_and_refused_with_its_line() {
    let routers = "duration = \"2 s\"\nemulation = { routers = \"kernel\" }\n";
    let network = |bottleneck: &str| {
        format!(
            "{routers}[topology]\nkind = \"dumbbell\"\naccess = {{ rate = \"1 Gbit/s\", delay = \"1 ms\" }}\n\
             [topology.bottleneck]\n{bottleneck}\n[flows.v]\napplication = {{ kind = \"ftp\" }}\n\
             transport = {{ kind = \"tcp\" }}\n"
        )
    };
    let rate = "rate = \"8 Mbit/s\"\ndelay = \"20 ms\"\n";
    let event = "[[events]]\nat = \"1 s\"\nlink = \"bottleneck\"\nset = { rate = \"1 Mbit/s\" }\n";
    let outages = "outages = [{ at = \"1 s\", for = \"100 ms\" }]";
    let cases = [
        ("event", network(rate) + event, "s.toml:13: events[0]: the rate of the link `bottleneck`"),
        (
            "codel",
            network(&format!("{rate}queue = {{ kind = \"codel\" }}")),
            "s.toml:9: topology.bottleneck.queue:",
        ),
        ("outage", network(&format!("{rate}{outages}")), "s.toml:9: topology.bottleneck.outages:"),
        ("profile", network("profile = \"wifi\""), "s.toml:7: topology.bottleneck.schedule:"),
    ];
    for (name, text, words) in cases {
        let place = Place::new(&format!("routers-{name}"), &text);
        let told = place.run(&["check", "s.toml"]);
        told.succeeds();
        // The sentence is broken into lines.
        let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("the kernel's routers") && said.contains(words),
            "{name}: {}",
            told.out
        );
        place
            .run(&["emulate", "s.toml", "--out", "out"])
            .fails(2, &["the kernel's routers", words]);
        place.run(&["shell", "./s.toml", "v.0.source", "--", "true"]).fails(2, &[words]);
    }
    let adus = network(rate)
        .replace(routers, "duration = \"2 s\"\n")
        .replace("kind = \"ftp\"", "kind = \"adus\", count = 10")
        .replace("kind = \"tcp\"", "kind = \"adu\"");
    let place = Place::new("routers-none", &adus);
    let told = place.run(&["check", "s.toml"]);
    let words = "s.toml:10: flows.v.application.kind: no kernel has an ADU transport";
    let said = told.succeeds().out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(words), "{}", told.out);
    place.run(&["emulate", "s.toml", "--out", "out"]).fails(2, &[words]);
}
