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
         to 4 Mbit/s, delay 50 ms, loss 0.02), again every 30 s, 1 outage of 2 s",
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

const LIGHT: &str = "0 20 0 1 1 4\n100 40 0 2\n200 20 0\n";
const HEAVY: &str = "3\n4\n10\n";

/// A bottleneck with a pair of traces as texts, and more of its fields.
fn pair(schedule: &str, more: &str) -> String {
    format!(
        "schedule = {{ kind = \"cellreplay\", light-text = '''{LIGHT}''', heavy-text = \
         '''{HEAVY}'''{schedule} }}\n{more}"
    )
}

#[test]
fn a_pair_of_traces_is_read_from_its_files_and_becomes_part_of_the_scenario() {
    let fields = "schedule = { kind = \"cellreplay\", light = \"l.txt\", heavy = \"h.txt\", timer = \
                  \"25 ms\" }";
    let files = [("s.toml", &*text(fields, "")), ("l.txt", LIGHT), ("h.txt", HEAVY)];
    let folder = Folder::new("pair", &files);
    let scenario = load(folder.0.join("s.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario, read(&pair(", timer = \"25 ms\"", ""), ""));
    assert!(!scenario.canonical().contains("l.txt"), "{}", scenario.canonical());
    let layout = scenario.layout(1).expect("it can be laid out");
    let schedule = schedule(&layout, "bottleneck");
    let cell = schedule.cellreplay.as_ref().expect("it has the pair");
    let millis = Duration::from_millis;
    assert_eq!((cell.timer, cell.opportunity.get()), (millis(25), 1400));
    let delay = |at| schedule.delay_at(Time::ZERO + millis(at));
    assert_eq!([0, 50, 100, 250].map(delay), [20, 30, 40, 30].map(|delay| Some(millis(delay))));
    // Three opportunities of 1,400 bytes in 10 ms.
    assert_eq!(schedule.capacity.rate_at(at(1)), mbit(3.36));
    let larger = read(&pair(", opportunity = \"1500 B\"", ""), "").layout(1).expect("it can");
    assert_eq!(self::schedule(&larger, "bottleneck").capacity.rate_at(at(1)), mbit(3.6));
    let words = scenario.explain().split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "a CellReplay pair of traces (light: 3 trains in 200 ms, base delays of 20 ms to \
                    40 ms, 2 opportunities on average; heavy: 3 opportunities in 10 ms (3.36 Mbit/s); of \
                    1400 bytes each, a new train after 25 ms)";
    assert!(words.contains(expected), "{words}");
}

#[test]
fn a_bad_pair_of_traces_is_refused_with_file_and_line() {
    let scenario =
        text("schedule = { kind = \"cellreplay\", light = \"l.txt\", heavy = \"h.txt\" }", "");
    let refused = |light: &str, heavy: &str| {
        let files = [("s.toml", &*scenario), ("l.txt", light), ("h.txt", heavy)];
        Folder::new("bad-pair", &files).refused("s.toml")
    };
    let light = |light: &str| refused(light, HEAVY);
    assert_eq!(
        light("0 20 0\n9 20 0\n8 20 0\n"),
        "l.txt:3: topology.bottleneck.schedule.light: the time 8 ms is before 9 ms, that of the line \
         before; times must not go back"
    );
    let error = light("0 20 0\n9 20 -1\n10 20 0\n");
    let expected =
        "l.txt:2: topology.bottleneck.schedule.light: \"-1\" is no opportunity from 0 to";
    assert!(error.starts_with(expected), "{error}");
    let of_light = "topology.bottleneck.schedule.light: ";
    assert!(light("").starts_with(&format!("l.txt:1: {of_light}the trace is empty")));
    assert!(light("0 1 0\n9 1 0\n").starts_with(&format!("l.txt:2: {of_light}2 lines only")));
    let of_heavy = "topology.bottleneck.schedule.heavy: ";
    assert!(refused(LIGHT, "").starts_with(&format!("h.txt:1: {of_heavy}the trace is empty")));
    assert!(
        refused(LIGHT, "2\n1\n").starts_with(&format!("h.txt:2: {of_heavy}1 ms is before 2 ms"))
    );
    assert!(
        refused(LIGHT, "0\n").starts_with(&format!("h.txt:1: {of_heavy}the last time is 0 ms"))
    );
    let error = refused("0 1 0\n", "x\n");
    assert!(error.contains("l.txt:1: ") && error.contains("h.txt:1: "), "both: {error}");
}

#[test]
fn what_a_pair_of_traces_cannot_mean_is_refused() {
    let of = |field: &str| format!("topology.bottleneck.{field}: ");
    for (queue, is_right) in [
        ("drop-tail\", limit = \"20 packets", true),
        ("red\", limit = \"60 packets\", ecn = true, max-p = 0.1, mean-packet = \"500 B", false),
        ("pie", false),
        ("codel", false),
        ("fq-codel", false),
        ("dualpi2", false),
        ("wfq", false),
        ("cbq", false),
    ] {
        let more = text(&pair("", &format!("queue = {{ kind = \"{queue}\" }}")), "");
        let error = parse(&more, "s.toml").err().map(|error| error.to_string());
        let expected = of("queue") + "the queue of a CellReplay pair of traces is a drop-tail one";
        assert_eq!(error.is_none(), is_right, "{queue}: {error:?}");
        assert!(error.is_none_or(|error| error.contains(&expected)), "{queue}");
    }
    let cases = [
        ("", "reordering = true", "reordering", "keep their order"),
        ("", "outages = [{ at = \"1 s\", for = \"1 s\" }]", "outages", "part of the traces"),
        ("", "aggregation = { every = \"5 ms\" }", "aggregation", "says itself when packets leave"),
        (", timer = \"2 h\"", "", "schedule.timer", "at most 1 h"),
        (", opportunity = \"0 B\"", "", "schedule.opportunity", "carries nothing"),
        (", light = \"l.txt\"", "", "schedule.light", "a text cannot name files"),
    ];
    for (schedule, more, field, what) in cases {
        let error = refused(&pair(schedule, more), "");
        let is_named = error.contains(&of(field)) || what.starts_with("a text");
        assert!(is_named && (error.contains(what) || error.contains("leave one out")), "{error}");
    }
    let law = text(&pair("", ""), "").replacen(
        "delay = \"20 ms\"",
        "delay = { kind = \"exponential\", mean = \"20 ms\" }",
        1,
    );
    let error = parse(&law, "s.toml").expect_err("a law").to_string();
    assert!(error.contains("takes the place of the delay"), "{error}");
    let without = "schedule = { kind = \"cellreplay\", heavy-text = \"5\" }";
    assert!(refused(without, "").contains("there is no trace; write light = \"trace.txt\""));
    let both = "schedule = { kind = \"cellreplay\", light-text = \"x\", heavy-text = \"y\" }";
    let error = refused(both, "");
    assert!(error.contains("schedule.light-text: line 1: \"x\" is no time"), "{error}");
    assert!(error.contains("schedule.heavy-text: line 1: \"y\" is no time"), "{error}");
}

#[test]
fn no_event_changes_a_link_that_follows_a_pair_of_traces() {
    let event =
        |link: &str| format!("[[events]]\nat = \"1 s\"\nlink = \"{link}\"\nset = {{ loss = 0.1 }}");
    let error = refused(&pair("", ""), &event("bottleneck"));
    assert!(error.contains("events[0].link: the link follows a CellReplay pair"), "{error}");
    parse(&text(&pair("", ""), &event("reverse")), "s.toml").expect("another link");
    // An access link, as packets leave the host; back, it has no schedule.
    let light = pair("", "");
    let schedule = light.trim();
    let access = text("", "EVENT").replace(
        "[topology.access]\n",
        &format!(
            "[topology.access]\n{schedule}\nback = {{ rate = \"9 Mbit/s\", delay = \"1 ms\" }}\n"
        ),
    );
    for (link, is_refused) in [
        ("video.0.source -> left", true),
        ("left -> video.0.source", false),
        ("video.0.sink -> right", true),
        ("right -> video.0.sink", false),
    ] {
        let read = parse(&access.replace("EVENT", &event(link)), "s.toml");
        assert_eq!(read.is_err(), is_refused, "{link}: {read:?}");
    }
}

/// Bytes that this process has read, also by tests beside this one.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/self/io").expect("Linux counts them");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("a line");
    line.trim().parse().expect("a number")
}

#[test]
fn a_file_that_many_links_name_is_read_once_and_all_traces_together_are_bounded() {
    use std::fmt::Write as _;
    let graph = |count: usize, schedule: &str| {
        let mut text =
            "duration = \"9 s\"\n[flows.f]\nfrom = \"a\"\nto = \"n0\"\napplication = { kind \
                        = \"ftp\" }\ntransport = { kind = \"tcp\" }\n[topology]\nkind = \"graph\"\n"
                .to_owned();
        for place in 0..count {
            write!(
                text,
                "[[topology.links]]\nfrom = \"a\"\nto = \"n{place}\"\nrate = \"1 Mbit/s\"\ndelay = \"1 \
                 ms\"\nschedule = {{ {schedule} }}\n"
            )
            .expect("a text can be written");
        }
        text
    };
    let before = bytes_read();
    // A device that never ends, under every field that takes a file.
    for schedule in [
        "kind = \"mahimahi\", file = \"/dev/zero\"",
        "kind = \"csv\", file = \"/dev/zero\"",
        "kind = \"cellreplay\", light = \"/dev/zero\", heavy = \"/dev/zero\"",
    ] {
        let folder = Folder::new("endless", &[("s.toml", &graph(2_000, schedule))]);
        let error = folder.refused("s.toml");
        let fields = schedule.matches("/dev/zero").count();
        assert_eq!(error.matches("/dev/zero: it is not a regular file").count(), 2_000 * fields);
    }
    // A file without an end that the system takes for a regular one, named by 2,000 links.
    let schedule = "kind = \"cellreplay\", light = \"hole\", heavy = \"hole\"";
    let folder = Folder::new("hole", &[("s.toml", &graph(2_000, schedule))]);
    let hole = fs::File::create(folder.0.join("hole")).expect("a file");
    hole.set_len(1 << 40).expect("a file may have holes");
    let error = folder.refused("s.toml");
    assert_eq!(error.matches("hole is too large; a trace has at most 32 MiB").count(), 4_000);
    // Set on the command line.
    let folder = Folder::new("set", &[("s.toml", &text("", ""))]);
    let zero = "schedule={ kind = \"mahimahi\", file = \"/dev/zero\" }";
    let links = ["bottleneck", "reverse", "access"].map(|link| format!("topology.{link}.{zero}"));
    let overrides = Overrides::parse(&links).expect("they are overrides");
    let error = load_with(folder.0.join("s.toml"), &overrides).expect_err("refused").to_string();
    assert!(error.contains("/dev/zero: it is not a regular file"), "{error}");
    // 5 traces of 30 MiB have more than 128 MiB; what they take once they are read depends on what is in
    // them, and is known before.
    let schedule = "kind = \"mahimahi\", file = \"long\"";
    let (sparse, dense) = ("1000000000000\n".repeat(30 << 16), "1\n".repeat(15 << 20));
    for (trace, what) in [
        (
            sparse,
            "long the traces and films of the scenario together have more than 128 MiB; shorter",
        ),
        (
            dense,
            "long the traces and films of the scenario together take 360 MiB of memory once they are read, of at most 256",
        ),
    ] {
        let folder = Folder::new("long", &[("s.toml", &graph(2_000, schedule)), ("long", &trace)]);
        let error = folder.refused("s.toml");
        assert_eq!(error.matches(what).count(), 1, "{error}");
    }
    // Read for each link, they would be 60 GB and 30.
    let read = bytes_read() - before;
    assert!(read < 2 << 30, "{read} bytes were read");
}

#[test]
fn the_words_have_all_that_a_table_changes_and_the_round_trips_that_follow() {
    let scenario =
        read(&format!("schedule = {{ kind = \"csv\", text = '''\u{feff}{TABLE}''' }}"), "");
    let text = scenario.explain();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("3 rows (1 Mbit/s to 4 Mbit/s, delay 50 ms, loss 0.02)"), "{text}");
    let round_trip = "base round trip (propagation alone): 44 ms to 74 ms, 69 ms on average";
    assert!(words.contains(round_trip), "{text}");
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
            "there is no link `bottelneck`; did you mean `bottleneck`? Known: `bottleneck`, `reverse`, \
             `video.0.source -> left`",
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
