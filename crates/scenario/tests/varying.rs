//! Schedules, outages and events in scenario files: what is read, laid out, explained and refused.

use std::fs;
use std::path::PathBuf;

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::Schedule;
use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Layout, Overrides, load, load_with, parse};

const DUMBBELL: &str = r#"duration = "60 s"
[topology]
kind = "dumbbell"
[topology.bottleneck]
rate = "8 Mbit/s"
delay = "20 ms"
MORE
[topology.reverse]
rate = "8 Mbit/s"
delay = "20 ms"
[topology.access]
rate = "100 Mbit/s"
delay = "1 ms"
[flows.video]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
EVENTS
"#;

const TABLE: &str = "time_s,rate_mbps,delay_ms,loss\n0,4,,\n10,1,50,\n20,,,0.02\n";

fn text(more: &str, events: &str) -> String {
    DUMBBELL.replace("MORE", more).replace("EVENTS", events)
}

fn read(more: &str, events: &str) -> Scenario {
    parse(&text(more, events), "s.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn refused(more: &str, events: &str) -> String {
    parse(&text(more, events), "s.toml").expect_err("it is refused").to_string()
}

fn schedule<'a>(layout: &'a Layout, name: &str) -> &'a Schedule {
    let link = layout.links.iter().find(|link| link.name == name).expect("the link exists");
    link.schedule.as_ref().expect("it changes")
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec((rate * 1e6) as u64)
}

/// A folder for a test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("ontempo-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        Self(folder)
    }

    fn refused(&self, file: &str) -> String {
        let error = load(self.0.join(file)).expect_err("it is refused").to_string();
        error.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_trace_is_found_beside_the_file_that_names_it_and_becomes_part_of_the_scenario() {
    let base = text("schedule = { kind = \"csv\", file = \"../traces/lte.csv\" }", "");
    let files = [
        ("parts/base.toml", base.as_str()),
        ("main.toml", "include = [\"parts/base.toml\"]\n"),
        ("traces/lte.csv", TABLE),
        ("other.trace", "1\n2\n"),
    ];
    let folder = Folder::new("beside", &files);
    let scenario = load(folder.0.join("main.toml")).unwrap_or_else(|error| panic!("{error}"));
    let inline = text(&format!("schedule = {{ kind = \"csv\", text = '''{TABLE}''' }}"), "");
    assert_eq!(scenario, parse(&inline, "s.toml").unwrap_or_else(|error| panic!("{error}")));
    assert!(!scenario.canonical().contains("lte.csv"), "{}", scenario.canonical());
    // On the command line, names are relative to the scenario's file.
    let set = "topology.bottleneck.schedule={ kind = \"mahimahi\", file = \"other.trace\" }";
    let overrides = Overrides::parse([set]).expect("it is one");
    let scenario = load_with(folder.0.join("main.toml"), &overrides);
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let layout = scenario.layout(1).expect("it can be laid out");
    assert_eq!(schedule(&layout, "bottleneck").capacity.rate_at(at(1)), mbit(12.0));
}

#[test]
fn a_table_changes_what_it_names_and_leaves_the_rest() {
    let layout = read(&format!("schedule = {{ kind = \"csv\", text = '''{TABLE}''' }}"), "")
        .layout(1)
        .expect("it can be laid out");
    let one = schedule(&layout, "bottleneck");
    let rates = [0, 9, 10, 59].map(|time| one.capacity.rate_at(at(time)));
    assert_eq!(rates, [mbit(4.0), mbit(4.0), mbit(1.0), mbit(1.0)]);
    assert_eq!([0, 10, 20].map(|time| one.delay_at(at(time)).is_some()), [false, true, true]);
    assert_eq!([0, 10, 20].map(|time| one.loss_at(at(time))), [None, None, Some(0.02)]);
    let constant = layout.links.iter().filter(|link| link.schedule.is_none()).count();
    assert_eq!(constant, layout.links.len() - 1, "only the bottleneck changes");
}

#[test]
fn outages_interrupt_and_events_replace_a_schedule() {
    let layout = read(
        "schedule = { kind = \"periodic\", steps = [{ for = \"1 s\", rate = \"4 Mbit/s\" }, \
         { for = \"1 s\", delay = \"9 ms\" }] }\n\
         outages = [{ at = \"30 s\", for = \"2 s\" }, { at = \"31 s\", for = \"3 s\" }]",
        "[[events]]\nat = \"33 s\"\nlink = \"bottleneck\"\nset = { rate = \"2 Mbit/s\" }\n\
         [[events]]\nat = \"20 s\"\nlink = \"bottleneck\"\nset = { delay = \"70 ms\" }\n\
         [[events]]\nat = \"5 s\"\nlink = \"video.0.sink -> right\"\nset = { rate = \"0 bit/s\" }",
    )
    .layout(1)
    .expect("it can be laid out");
    let one = schedule(&layout, "bottleneck");
    let rates = [0, 1, 28, 29, 30, 33, 34, 59].map(|time| one.capacity.rate_at(at(time)));
    let expected = [4.0, 8.0, 4.0, 8.0, 0.0, 0.0, 2.0, 2.0].map(mbit);
    assert_eq!(rates, expected);
    let millis = Duration::from_millis;
    let delays = [0, 1, 19, 20, 21].map(|time| one.delay_at(at(time)));
    let [nine, seventy] = [Some(millis(9)), Some(millis(70))];
    assert_eq!(delays, [None, nine, nine, seventy, seventy]);
    let access = schedule(&layout, "video.0.sink -> right");
    assert_eq!(access.capacity.rate_at(at(6)), mbit(0.0));
    let reverse = layout.links.iter().find(|link| link.name == "reverse");
    assert!(reverse.is_some_and(|link| link.schedule.is_none()), "the way back is another link");
}

#[test]
fn a_markov_chain_spends_its_mean_times_in_its_states_and_follows_the_seed() {
    let scenario = read(
        "schedule = { kind = \"markov\", states = [{ mean-time = \"30 ms\", rate = \"6 Mbit/s\" }, \
         { mean-time = \"10 ms\", rate = \"2 Mbit/s\" }] }",
        "",
    );
    let layout = |seed| scenario.layout(seed).expect("it can be laid out");
    let mean = |seed| {
        let layout = layout(seed);
        schedule(&layout, "bottleneck").capacity.mean_rate(at(0), at(60)).as_mbit_per_sec()
    };
    assert_eq!(layout(1), layout(1));
    assert_ne!(mean(1), mean(2));
    // 3/4 of 6 and 1/4 of 2; the 1,500 cycles have a deviation of about 0.03 Mbit/s.
    for seed in 1..6 {
        assert!((mean(seed) - 5.0).abs() < 0.13, "{}", mean(seed));
    }
}

#[test]
fn a_chain_of_several_states_visits_each_as_often_as_the_others() {
    let scenario = read(
        "schedule = { kind = \"markov\", states = [{ mean-time = \"5 ms\", rate = \"1 Mbit/s\" }, \
         { mean-time = \"5 ms\", rate = \"2 Mbit/s\" }, { mean-time = \"5 ms\", rate = \"6 Mbit/s\" \
         }] }",
        "",
    );
    let layout = scenario.layout(3).expect("it can be laid out");
    let mean = schedule(&layout, "bottleneck").capacity.mean_rate(at(0), at(60));
    assert!((mean.as_mbit_per_sec() - 3.0).abs() < 0.1, "{mean}");
}

#[test]
fn the_explanation_names_what_changes() {
    let text = read(
        &format!(
            "schedule = {{ kind = \"csv\", text = '''{TABLE}''', repeat-every = \"30 s\" }}\n\
             outages = [{{ at = \"30 s\", for = \"2 s\" }}]"
        ),
        "[[events]]\nat = \"45 s\"\nlink = \"reverse\"\nset = { rate = \"2 Mbit/s\", loss = 0.1 }",
    )
    .explain();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "8 Mbit/s nominal, 20 ms of delay, an endless queue, changed by a table of 3 rows (1 Mbit/s \
         to 4 Mbit/s), again every 30 s, 1 outage of 2 s",
        "at 45 s, reverse: rate 2 Mbit/s, each packet lost with probability 0.1",
        // 40 + 40 of 60 s at 4 and 1 Mbit/s, less the outage.
        "bottleneck: 1 Mbit/s of 1.867 Mbit/s on average (54 %)",
    ] {
        assert!(words.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn bad_traces_are_refused_with_file_and_line() {
    let scenario = text("schedule = { kind = \"csv\", file = \"t.csv\" }", "");
    let refused = |trace: &str| {
        let folder = Folder::new("bad", &[("s.toml", &scenario), ("t.csv", trace)]);
        folder.refused("s.toml")
    };
    assert_eq!(
        refused("time_s,rate_bps\n0,1\n\n3,1\n2,1\n"),
        "t.csv:5: topology.bottleneck.schedule.file: the time 2 s is not after 3 s, that of the \
         row before; rows must be in the order of time"
    );
    assert_eq!(
        refused(""),
        "t.csv:1: topology.bottleneck.schedule.file: the trace is empty; at least a header and a \
         row is needed"
    );
    let folder = Folder::new("absent-trace", &[("s.toml", &scenario)]);
    let error = folder.refused("s.toml");
    assert!(
        error.starts_with("s.toml:7: topology.bottleneck.schedule.file: cannot read t.csv: "),
        "{error}"
    );
    let device = scenario.replace("t.csv", "/dev/zero");
    let folder = Folder::new("device", &[("s.toml", &device)]);
    assert!(folder.refused("s.toml").ends_with("it is not a regular file"));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_field() {
    let schedule = |text: &str| refused(&format!("schedule = {{ {text} }}"), "");
    let of = |field: &str| format!("s.toml:7: topology.bottleneck.{field}: ");
    let cases = [
        (schedule("kind = \"csv\""), of("schedule"), "there is no trace; write file"),
        (
            schedule("kind = \"csv\", file = \"/etc/passwd\""),
            of("schedule.file"),
            "a text cannot name files",
        ),
        (
            schedule("kind = \"csv\", file = \"a\", text = \"b\""),
            of("schedule.file"),
            "leave one out",
        ),
        (
            schedule("kind = \"csv\", text = \"time_s,loss\\n0,2\""),
            of("schedule.text"),
            "line 2: \"2\" is no loss",
        ),
        (
            schedule("kind = \"csv\", text = \"time_s,loss\\n7,0\", repeat-every = \"7 s\""),
            of("schedule.repeat-every"),
            "is not after the last row",
        ),
        (
            schedule("kind = \"mahimahi\", text = \"5\\n4\""),
            of("schedule.text"),
            "line 2: 4 ms is before 5 ms",
        ),
        (schedule("kind = \"periodic\", steps = []"), of("schedule.steps"), "there is no step"),
        (
            schedule("kind = \"periodic\", steps = [{ for = \"0 s\" }]"),
            of("schedule.steps[0].for"),
            "takes no time",
        ),
        (
            schedule(
                "kind = \"periodic\", steps = [{ for = \"5000000 h\" }, { for = \"200000 h\" }]",
            ),
            of("schedule.steps"),
            "longer than any run",
        ),
        (
            schedule("kind = \"markov\", states = [{ mean-time = \"1 s\" }]"),
            of("schedule.states"),
            "two states",
        ),
        (
            schedule(
                "kind = \"markov\", states = [{ mean-time = \"1 s\" }, { mean-time = \"1 us\" }]",
            ),
            of("schedule.states[1].mean-time"),
            "too short",
        ),
        (
            refused("outages = [{ at = \"60 s\", for = \"1 s\" }]", ""),
            of("outages[0].at"),
            "not before the end of the run, 60 s",
        ),
        (
            refused("outages = [{ at = \"6 s\", for = \"0 s\" }]", ""),
            of("outages[0].for"),
            "takes no time",
        ),
    ];
    for (error, place, what) in cases {
        assert!(error.starts_with(&place) && error.contains(what), "{error}\nnot {place}{what}");
    }
    let event = |text: &str| refused("", &format!("[[events]]\n{}", text.replace(';', "\n")));
    let cases = [
        ("at = \"61 s\"; link = \"bottleneck\"; set = { loss = 1 }", "not before the end"),
        (
            "at = \"1 s\"; link = \"bottelneck\"; set = { loss = 1 }",
            "there is no link `bottelneck`; did you mean `bottleneck`?",
        ),
        ("at = \"1 s\"; link = \"bottleneck\"; set = {}", "nothing changes"),
        ("at = \"1 s\"; link = \"bottleneck\"; set = { loss = 1.5 }", "1.5 is not a probability"),
        ("at = \"1 s\"; link = \"bottleneck\"; set = { delay = \"2 h\" }", "at most 1 h"),
    ];
    for (text, what) in cases {
        let error = event(text);
        assert!(error.starts_with("s.toml:") && error.contains(what), "{error}\nnot {what}");
    }
}
