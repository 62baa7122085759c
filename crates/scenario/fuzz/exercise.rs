//! What the fuzz targets do with bytes, and the tests on stable with every file of the corpus.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use ontempo_network::{DelayLaw, Extras, Fate, Link, LinkParameters, LossModel, Queue, Schedule};
use ontempo_scenario::model::Scenario;
use ontempo_scenario::traces::{TraceError, read_csv, read_light, read_mahimahi};
use ontempo_scenario::{Overrides, ScenarioError, parse, parse_with};

/// Above it a layout takes too long to be asked for with every input.
const MAX_FLOWS: u64 = 1_000;

/// Parts the file from the overrides, of which there is one a line.
const OVERRIDES_BEGIN: &str = "\n--set\n";

/// Reads the bytes as a scenario and uses it up.
pub(crate) fn scenario_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    answered(parse(text, "fuzz.toml"));
}

/// Reads the bytes as a scenario, a line `--set` and overrides.
pub(crate) fn scenario_overrides(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, overrides) = text.split_once(OVERRIDES_BEGIN).unwrap_or((text, ""));
    let overrides = overrides.lines().filter(|line| !line.is_empty());
    answered(Overrides::parse(overrides).and_then(|set| parse_with(text, "fuzz.toml", &set)));
}

/// Reads the bytes as a trace of each format, and a scenario with it.
pub(crate) fn trace(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let toml = TomlText(text);
    let plain = |kind| format!("kind = \"{kind}\", text = {toml}");
    let pair = format!("kind = \"cellreplay\", light-text = {toml}, heavy-text = \"1\\n7\"");
    let read = [
        read_as(text, &plain("csv"), read_csv(text).map(|rows| rows.len())),
        read_as(text, &plain("mahimahi"), read_mahimahi(text).map(|times| times.len())),
        read_as(text, &pair, read_light(text).map(|trace| trace.lines().len())),
    ];
    let formats = read.into_iter().filter(|is_read| *is_read).count();
    assert!(formats <= 1, "a text is a trace of one format at most");
}

/// True for a trace; one that is refused names a line of the text.
fn read_as(text: &str, fields: &str, read: Result<usize, TraceError>) -> bool {
    let scenario = TRACED.replace("FIELDS", fields);
    let parsed = parse(&scenario, "fuzz.toml");
    match read {
        Ok(items) => {
            assert!(items > 0);
            let scenario = parsed.unwrap_or_else(|error| panic!("{error}"));
            let layout = scenario.layout(1).expect("a valid scenario can be laid out");
            let schedule = layout.links[0].schedule.as_ref().expect("the link changes");
            used_up(schedule);
            answered(Ok(scenario));
            true
        }
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!((1..=lines).contains(&error.line) && !error.what.is_empty(), "{error:?}");
            assert!(parsed.is_err());
            false
        }
    }
}

/// Packets leave in order, none before it could.
fn used_up(schedule: &Schedule) {
    let (mut time, mut left) = (Time::ZERO, 0);
    for size in [1, 1500, 1, 65_535, 40, 9_000] {
        let sent = schedule.capacity.send(time, left, Bytes::new(size));
        assert!(sent.ends >= time, "{time} {sent:?}");
        (time, left) = (sent.ends, sent.left);
    }
    passed(schedule);
    let mut time = Time::ZERO;
    for _ in 0..100 {
        let next = schedule.next_change(time);
        assert!(next > time || next == Time::NEVER, "{time} {next}");
        time = next;
    }
}

/// Packets pass a link in order, none before the delay that is scheduled, if any.
fn passed(schedule: &Schedule) {
    let parameters = LinkParameters {
        rate: Rate::from_bits_per_sec(1_000_000),
        delay: DelayLaw::Constant(Duration::ZERO),
        mtu: None,
        queue: Queue::drop_tail(Packets::new(4)),
        loss: LossModel::None,
        reordering: false,
        extras: Extras { schedule: Some(Arc::new(schedule.clone())), ..Extras::default() },
    };
    let mut link = Link::new(parameters, 1, "fuzz");
    let (mut now, mut last) = (Time::ZERO, Time::ZERO);
    for place in 0..60u64 {
        let gap = [0, 0, 0, 40_000, 1_100_000, 90_000_000][(place * 7 % 6) as usize];
        now += Duration::from_nanos(gap);
        let size = Bytes::new([40, 1500, 1000, 9_000][(place * 3 % 4) as usize]);
        if let Fate::Arrives { at, starts, .. } = link.offer(now, size, false) {
            assert!(now <= starts && starts <= at && last <= at, "{now} {starts} {at}");
            last = at;
        }
        assert!(link.occupancy(now).packets <= Packets::new(4));
    }
    let statistics = link.statistics(now);
    let counted = statistics.departures + statistics.waiting + statistics.drops.refused();
    assert_eq!((statistics.arrivals, counted), (Packets::new(60), Packets::new(60)));
}

const TRACED: &str = r#"duration = "10 s"
[topology]
kind = "graph"
[[topology.links]]
from = "a"
to = "b"
rate = "1 Mbit/s"
delay = "1 ms"
schedule = { FIELDS }
[flows.f]
from = "a"
to = "b"
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;

/// A text as a basic string of TOML.
struct TomlText<'a>(&'a str);

impl std::fmt::Display for TomlText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("\"")?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                letter if letter.is_control() => write!(f, "\\U{:08x}", u32::from(letter))?,
                letter => write!(f, "{letter}")?,
            }
        }
        f.write_str("\"")
    }
}

/// What was refused says why; what is a scenario can be told, written, read again and laid out.
fn answered(read: Result<Scenario, ScenarioError>) {
    let scenario = match read {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(!scenario.explain().is_empty());
    let written = scenario.canonical();
    let again: Scenario = serde_json::from_str(&written).expect("what is written can be read");
    assert_eq!(again, scenario);
    assert_eq!(again.canonical(), written);
    if scenario.flows.values().map(|group| u64::from(group.count)).sum::<u64>() < MAX_FLOWS {
        scenario.layout(1).expect("a valid scenario can be laid out");
    }
}
