//! Profiles of links: what fills them in, what is refused, what they say of themselves.

use std::fs;
use std::path::Path;

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_scenario::model::{AccessDirection, LinkProfile, Scenario, Topology};
use ontempo_scenario::profiles::{Profile, Read, page, shown, trace};
use ontempo_scenario::traces::read_csv;
use ontempo_scenario::{Layout, Overrides, parse, parse_with};

const DUMBBELL: &str = r#"duration = "60 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "1 ms" }
[topology.bottleneck]
BOTTLENECK
[flows.video]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
"#;

fn text(bottleneck: &str) -> String {
    DUMBBELL.replace("BOTTLENECK", bottleneck)
}

fn read(bottleneck: &str) -> Scenario {
    parse(&text(bottleneck), "s.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn refused(bottleneck: &str) -> String {
    parse(&text(bottleneck), "s.toml").expect_err("it is refused").to_string()
}

fn rates(scenario: &Scenario) -> [Rate; 2] {
    let layout = scenario.layout(1).expect("a layout");
    [layout.links[0].rate, layout.links[1].rate]
}

fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_sec(rate * 1_000_000)
}

#[test]
fn a_profile_gives_both_directions() {
    let scenario = read("profile = \"lte-driving\"");
    assert_eq!(rates(&scenario), [mbit(13), mbit(6)]);
    let layout = scenario.layout(7).expect("a layout");
    let [down, up] =
        [0, 1].map(|place: usize| layout.links[place].schedule.clone().expect("it varies"));
    // Handovers and outages are those of both.
    let nothing = Rate::from_bits_per_sec(0);
    let outages = |schedule: &ontempo_network::Schedule| {
        let (mut time, mut found) = (Time::ZERO, Vec::new());
        while time < Time::ZERO + Duration::from_secs(60) {
            if schedule.capacity.rate_at(time) == nothing {
                found.push(time);
            }
            time = schedule.next_change(time);
        }
        found
    };
    let found = outages(&down);
    assert!(!found.is_empty());
    assert_eq!(found, outages(&up));
}

#[test]
fn what_is_given_beside_a_profile_replaces_its_value() {
    let scenario = read(
        "profile = \"lte-driving\"\ndelay = \"40 ms\"\nqueue = { kind = \"codel\" }\n\
         back = { rate = \"2 Mbit/s\" }",
    );
    assert_eq!(rates(&scenario), [mbit(13), mbit(2)]);
    let Topology::Dumbbell { bottleneck, .. } = &scenario.topology else { panic!() };
    for link in [&**bottleneck, bottleneck.way_back()] {
        assert_eq!(link.delay.mean(), Duration::from_millis(40));
        assert!(matches!(link.queue, ontempo_scenario::model::QueueSpec::Codel { .. }));
    }
    // A part of the schedule.
    let scenario = read(
        "profile = \"lte-driving\"\nschedule = { kind = \"random\", episodes = [], delay = [] }",
    );
    let layout = scenario.layout(1).expect("a layout");
    let schedule = layout.links[0].schedule.clone().expect("its rate varies");
    assert_eq!(schedule.delay, None);
    // All of it.
    let scenario = read(
        "profile = \"lte-driving\"\nschedule = { kind = \"csv\", text = \"time_s,rate_mbps\\n0,3\\n\" }",
    );
    let layout = scenario.layout(1).expect("a layout");
    let schedule = layout.links[0].schedule.clone().expect("a table");
    assert_eq!(schedule.capacity.rate_at(Time::ZERO), mbit(3));
}

#[test]
fn a_direction_exchanges_both_and_a_reverse_has_its_own() {
    assert_eq!(
        rates(&read("profile = \"lte-driving\"\ndirection = \"uplink\"")),
        [mbit(6), mbit(13)]
    );
    let reverse =
        "profile = \"lte-driving\"\n[topology.reverse]\nrate = \"9 Mbit/s\"\ndelay = \"1 ms\"";
    assert_eq!(rates(&read(reverse)), [mbit(13), mbit(9)]);
    let reverse =
        "rate = \"9 Mbit/s\"\ndelay = \"1 ms\"\n[topology.reverse]\nprofile = \"lte-driving\"";
    assert_eq!(rates(&read(reverse)), [mbit(9), mbit(6)]);
}

#[test]
fn a_host_is_the_subscriber_of_its_access_link() {
    let text = text("rate = \"1 Gbit/s\"\ndelay = \"1 ms\"").replace(
        "access = { rate = \"1 Gbit/s\", delay = \"1 ms\" }",
        "access = { profile = \"lte-driving\" }",
    );
    let layout = parse(&text, "s.toml").expect("a scenario").layout(1).expect("a layout");
    let rate =
        |name: &str| layout.links.iter().find(|link| link.name == name).map(|link| link.rate);
    assert_eq!(rate("video.0.source -> left"), Some(mbit(6)));
    assert_eq!(rate("left -> video.0.source"), Some(mbit(13)));
    assert_eq!(rate("right -> video.0.sink"), Some(mbit(13)));
    assert_eq!(rate("video.0.sink -> right"), Some(mbit(6)));
}

#[test]
fn a_link_of_a_graph_is_the_downlink_as_it_is_written() {
    let graph = r#"duration = "9 s"
[topology]
kind = "graph"
links = [
    { from = "a", to = "b", profile = "lte-driving" },
    { from = "b", to = "c", profile = "lte-driving", duplex = false },
    { from = "c", to = "b", rate = "5 Mbit/s", delay = "1 ms", duplex = false },
]
[flows.one]
from = "a"
to = "c"
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;
    let layout = parse(graph, "g.toml").expect("a scenario").layout(1).expect("a layout");
    let rates: Vec<(&str, Rate)> =
        layout.links.iter().map(|link| (link.name.as_str(), link.rate)).collect();
    let expected =
        [("a -> b", mbit(13)), ("b -> a", mbit(6)), ("b -> c", mbit(13)), ("c -> b", mbit(5))];
    assert_eq!(rates, expected);
}

#[test]
fn a_scenario_holds_values_alone_and_its_canonical_form_is_the_same_run() {
    let scenario = read("profile = \"lte-driving\"\ndelay = \"40 ms\"");
    let canonical = scenario.canonical();
    assert!(!canonical.contains("profile"), "{canonical}");
    let again: Scenario = serde_json::from_str(&canonical).expect("a scenario");
    assert_eq!(again, scenario);
    assert_eq!(again.layout(5).expect("a layout"), scenario.layout(5).expect("a layout"));
}

#[test]
fn a_seed_decides_what_a_profile_generates() {
    let scenario = read("profile = \"lte-driving\"");
    let layout = |seed| -> Layout { scenario.layout(seed).expect("a layout") };
    assert_eq!(layout(3), layout(3));
    assert_ne!(layout(3).links[0].schedule, layout(4).links[0].schedule);
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_would_be_right() {
    for (wrong, expected) in [
        (
            "profile = \"lte-drivin\"",
            "s.toml:6: topology.bottleneck.profile: unknown name \"lte-drivin\"; did you mean \
             `lte-driving`? Known: ",
        ),
        (
            "profile = \"lte-driving\"\ndirection = \"upling\"",
            "topology.bottleneck.direction: unknown name \"upling\"; did you mean `uplink`?",
        ),
        ("profile = 5", "s.toml:6: topology.bottleneck.profile: 5 is a number; one of "),
        (
            "rate = \"1 Mbit/s\"\ndelay = \"1 ms\"\ndirection = \"uplink\"",
            "s.toml:8: topology.bottleneck.direction: only a link with a profile has a direction",
        ),
        (
            "profile = \"lte-driving\"\ndelay = { kind = \"exponential\", mean = \"9 ms\" }",
            "topology.bottleneck.schedule: a delay that is drawn for each packet cannot vary too",
        ),
        (
            "profile = \"lte-driving\"\nrate = \"unlimited\"",
            "topology.bottleneck.schedule: a rate without a limit cannot vary",
        ),
        ("profile = \"lte-driving\"\ndealy = \"4 ms\"", "did you mean `delay`?"),
        ("profile = \"lte-driving\"\nback = { dealy = \"4 ms\" }", "did you mean `delay`?"),
        (
            "profile = \"lte-driving\"\nback = { back = { rate = \"1 Mbit/s\", delay = \"1 ms\" } }",
            "topology.bottleneck.back.back: a link has two directions",
        ),
        (
            "profile = \"lte-driving\"\nback = { rate = \"1 Mbit/s\", delay = \"1 ms\" }\n\
             [topology.reverse]\nprofile = \"lte-driving\"",
            "topology.bottleneck.back: the way back is given as `reverse` already",
        ),
        ("delay = \"1 ms\"", "missing field `rate`"),
    ] {
        let error = refused(wrong);
        assert!(error.contains(expected), "{wrong}\n{error}");
    }
}

#[test]
fn random_schedules_that_cannot_be_drawn_are_refused() {
    let with = |schedule: &str| {
        refused(&format!(
            "rate = \"9 Mbit/s\"\ndelay = \"1 ms\"\nschedule = {{ kind = \"random\", {schedule} }}"
        ))
    };
    for (wrong, expected) in [
        ("rate = [{ every = \"0 s\", deviation = 1 }]", "rate[0].every: the step takes no time"),
        ("rate = [{ every = \"1 s\", deviation = 4 }]", "rate[0].deviation: 4 will not do"),
        (
            "rate = [{ every = \"10 us\", deviation = 1 }]",
            "about 6000000 changes in a run of 60 s are too many",
        ),
        (
            "delay = [{ every = \"1 s\", median = \"2 h\", deviation = 1 }]",
            "delay[0].median: a delay of 7200 s is absurd",
        ),
        ("episodes = [{ length = \"1 s\", rate = 0 }]", "when it takes place is not said"),
        (
            "episodes = [{ gap = \"1 s\", every = \"1 s\", length = \"1 s\", rate = 0 }]",
            "episodes[0].every: `gap` is given already",
        ),
        ("episodes = [{ gap = \"1 s\", length = \"0 s\", rate = 0 }]", "the episode takes no time"),
        ("episodes = [{ gap = \"1 s\", length = \"1 s\" }]", "nothing changes meanwhile"),
        (
            "episodes = [{ every = \"1 s\", length = \"1 s\", rate = 2 }]",
            "episodes[0].rate: 2 is no factor of a rate",
        ),
        (
            "episodes = [{ every = \"1 s\", length = \"1 s\", loss = 2 }]",
            "episodes[0].loss: 2 is not a probability",
        ),
        (
            "min-rate = \"2 Mbit/s\", max-rate = \"1 Mbit/s\"",
            "max-rate: 1 Mbit/s is less than `min-rate`, 2 Mbit/s",
        ),
    ] {
        let error = with(wrong);
        assert!(error.contains(expected), "{wrong}\n{error}");
    }
}

#[test]
fn every_profile_is_a_valid_link_by_its_name_with_sources_for_what_it_cites() {
    for profile in LinkProfile::ALL {
        let name = profile.name();
        let overrides = Overrides::parse([format!("topology.bottleneck.profile={name}")]);
        let overrides = overrides.expect("an override");
        let scenario = |text: &str| {
            parse_with(text, "s.toml", &overrides).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        // It may last an hour.
        scenario(&text("").replace("60 s", "1 h"));
        let explained = scenario(&text("")).explain();
        assert!(explained.contains(&format!("varying at random as {name}")), "{explained}");
        let values = Profile::of(profile);
        let cited = values.basis.iter().filter_map(|basis| basis.source.as_ref());
        let cited = cited.chain(values.targets.iter().filter_map(|target| target.source.as_ref()));
        let mut cited: Vec<&String> = cited.collect();
        cited.sort();
        cited.dedup();
        let known: Vec<&String> = values.sources.keys().collect();
        assert_eq!(cited, known, "{name}: each source is cited and each citation has its source");
        assert!(!values.targets.is_empty(), "{name}");
        for target in &values.targets {
            assert!(target.low <= target.high, "{name}: {target:?}");
            assert_eq!(target.source.is_some(), target.read.is_some(), "{name}: {target:?}");
            let has_none = target.says.contains("no figure");
            assert_eq!(target.read == Some(Read::NoFigure), has_none, "{name}: {target:?}");
        }
        assert!(shown(profile).contains(&values.summary), "{name}");
        assert_eq!(LinkProfile::of_name(name), Some(profile));
    }
}

#[test]
fn a_trace_of_a_profile_is_what_its_link_does() {
    let minute = Duration::from_secs(60);
    for profile in LinkProfile::ALL {
        let trace = trace(profile, AccessDirection::Downlink, minute, 9).expect("a trace");
        let rows = read_csv(&trace).unwrap_or_else(|error| panic!("{profile:?}: {error:?}"));
        let scenario = read(&format!("profile = \"{}\"", profile.name()));
        let layout = scenario.layout(9).expect("a layout");
        let link = &layout.links[0];
        let schedule = link.schedule.as_ref().expect("it varies");
        for row in rows {
            assert_eq!(row.rate, Some(schedule.capacity.rate_at(row.time)), "{profile:?}");
            let delay = schedule.delay_at(row.time).unwrap_or_else(|| link.delay.mean());
            assert_eq!(row.delay, Some(delay), "{profile:?} at {}", row.time);
        }
    }
}

/// `ONTEMPO_UPDATE_DOCS=1` writes the page.
#[test]
fn the_page_of_the_documentation_is_what_the_files_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profiles.md");
    if std::env::var_os("ONTEMPO_UPDATE_DOCS").is_some() {
        fs::write(&file, page()).expect("the page can be written");
    }
    let written = fs::read_to_string(&file).expect("the page can be read");
    assert!(written == page(), "docs/profiles.md: run `ONTEMPO_UPDATE_DOCS=1 cargo test profiles`");
}
