//! One more event of a scenario, and a scenario as the text of a file: what a run that was changed
//! while it ran leaves behind.

use std::fmt;

use ontempo_foundation::Duration;

use crate::check::check;
use crate::document::{Node, Table, Value};
use crate::error::{Origin, Problem};
use crate::model::{Event, LinkChange, Scenario};
use crate::parse::MAX_FILE;
use crate::path::FieldPath;

/// Why a link is not changed: one line for each thing that is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError(String);

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ChangeError {}

/// Why a scenario has no text that [`load`](crate::load) reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(String);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TextError {}

/// The settings `texts`, each as `KEY=VALUE`, of a link: as `set` of an event.
///
/// # Errors
/// A text that sets nothing.
fn settings(texts: &[String]) -> Result<Table, ChangeError> {
    let mut table = Table::new();
    for text in texts {
        let refuse =
            |what: &str| Err(ChangeError(format!("`{text}` {what}; write rate=\"2 Mbit/s\"")));
        let Some((key, value)) = text.split_once('=') else {
            return refuse("sets nothing");
        };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return refuse("sets nothing");
        }
        let origin = Origin::Override(text.as_str().into());
        let value = Node::parse_value(value, &origin)
            .unwrap_or_else(|| Node { value: Value::Text(value.to_owned()), origin });
        if table.insert(key.to_owned(), value).is_some() {
            return refuse("sets what another setting sets, too");
        }
    }
    Ok(table)
}

/// An error with a line for each problem, which is a field of the event at `own` and what is wrong.
///
/// # Errors
/// If there is a problem.
fn refuse<'a>(
    problems: impl Iterator<Item = (&'a str, &'a str)>,
    own: &str,
) -> Result<(), ChangeError> {
    let line = |(field, what): (&str, &str)| {
        let field = field.strip_prefix(own).unwrap_or(field);
        let field = field.trim_start_matches(".set").trim_start_matches('.');
        let colon = if field.is_empty() { "" } else { ": " };
        format!("{field}{colon}{what}")
    };
    let lines: Vec<String> = problems.map(line).collect();
    if lines.is_empty() { Ok(()) } else { Err(ChangeError(lines.join("\n"))) }
}

impl Scenario {
    /// One more event of this scenario: from `at` on, the link has the values of `texts`, each
    /// written as `rate=2 Mbit/s`, `delay=40 ms` or `loss=0.01`. It is checked as in a file; the rest
    /// of the scenario, which has been checked, is not checked again.
    ///
    /// # Errors
    /// What is wrong with the event, such as a link that does not exist.
    pub fn change(&self, at: Duration, link: &str, texts: &[String]) -> Result<Event, ChangeError> {
        let settings = settings(texts)?;
        let node = |value| Node { value, origin: Origin::Override("".into()) };
        let event = [
            ("at", Value::Text(at.to_string())),
            ("link", Value::Text(link.to_owned())),
            ("set", Value::Table(settings)),
        ];
        let event = event.map(|(name, value)| (name.to_owned(), node(value)));
        let events = node(Value::List(vec![node(Value::Table(event.into()))]));
        let document = node(Value::Table([("events".to_owned(), events)].into()));
        // The document lacks all but the event.
        let own = FieldPath::root("events").index(0).to_string();
        let about = |problem: &Problem| problem.field.starts_with(&own);
        let mut problems: Vec<Problem> =
            check(&document, &self.controllers).into_iter().filter(about).collect();
        problems.sort_by_key(Problem::place);
        refuse(
            problems.iter().map(|problem| (problem.field.as_str(), problem.what.as_str())),
            &own,
        )?;
        let event = &document.to_json()["events"][0];
        let event: Event = serde_path_to_error::deserialize(event)
            .map_err(|error| ChangeError(format!("{}: {}", error.path(), error.inner())))?;
        let own = FieldPath::root("events").index(self.events.len()).to_string();
        let findings = self.findings_about(&event);
        let findings: Vec<_> =
            findings.into_iter().map(|(path, what)| (path.to_string(), what)).collect();
        refuse(findings.iter().map(|(path, what)| (path.as_str(), what.as_str())), &own)?;
        Ok(event)
    }

    /// The text of a file that holds this scenario: all defaults filled in, traces as text.
    ///
    /// # Errors
    /// If it has a number that TOML lacks, or is larger than a scenario file may be.
    pub fn to_toml(&self) -> Result<String, TextError> {
        let text = toml::to_string(self).map_err(|error| TextError(error.to_string()))?;
        if text.len() as u64 > MAX_FILE {
            let what = format!("with its traces it is larger than {} MiB", MAX_FILE >> 20);
            return Err(TextError(what));
        }
        Ok(text)
    }
}

impl LinkChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{GRAPH, VIDEO, scenario};

    fn change(text: &str, link: &str, set: &[&str]) -> Result<Scenario, String> {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let at = Duration::from_nanos(1_234_567_891);
        let mut scenario = scenario(text);
        let event = scenario.change(at, link, &set).map_err(|error| error.to_string())?;
        scenario.events.push(event);
        Ok(scenario)
    }

    #[test]
    fn a_change_is_an_event_as_a_file_has_it() {
        let event = "[[events]]\nat = \"1234567891 ns\"\nlink = \"bottleneck\"\n\
                     set = { rate = \"2 Mbit/s\", delay = \"40 ms\", loss = 0.01 }\n";
        let expected = scenario(&format!("{VIDEO}{event}"));
        for rate in ["rate=\"2 Mbit/s\"", "rate = 2 Mbit/s", "rate='2000 kbit/s'"] {
            let changed = change(VIDEO, "bottleneck", &[rate, "delay=40 ms", "loss=0.01"]);
            assert_eq!(changed.unwrap(), expected, "{rate}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_change_is_said_as_of_a_file_without_its_path() {
        let unknown = change(VIDEO, "botleneck", &["rate=2 Mbit/s"]).unwrap_err();
        assert!(unknown.starts_with("link: "), "{unknown}");
        assert!(unknown.contains("`bottleneck`") && unknown.contains("`reverse`"), "{unknown}");
        let cases = [
            ("speed=2 Mbit/s", "speed: unknown field; known fields: `rate`, `delay`, `loss`"),
            ("rate=2", "rate: missing unit: write \"2 Mbit/s\", not 2"),
            ("rate", "`rate` sets nothing; write rate=\"2 Mbit/s\""),
            ("=2", "`=2` sets nothing; write rate=\"2 Mbit/s\""),
        ];
        for (text, expected) in cases {
            assert_eq!(change(VIDEO, "bottleneck", &[text]).unwrap_err(), expected);
        }
        let loss = change(VIDEO, "bottleneck", &["loss=2"]).unwrap_err();
        assert!(loss.starts_with("loss: "), "{loss}");
        let twice = change(VIDEO, "bottleneck", &["loss=0", "loss=1"]).unwrap_err();
        assert!(twice.contains("another setting"), "{twice}");
        assert!(change(VIDEO, "bottleneck", &[]).is_err(), "nothing changes");
    }

    /// The schedule of a link after one more event, laid out alone and with all others.
    fn assert_same_schedule(scenario: &mut Scenario, link: &str, at: u64) {
        let set = [format!("rate={} kbit/s", 100 + at % 900), "loss=0.1".to_owned()];
        let event = scenario.change(Duration::from_millis(at), link, &set).unwrap();
        let alone = scenario.schedule_with(&event, 3).unwrap();
        scenario.events.push(event);
        let layout = scenario.layout(3).unwrap();
        let laid = layout.links.iter().find(|laid| laid.name == link).unwrap();
        assert_eq!(laid.schedule.as_deref(), Some(&*alone), "{link}");
    }

    #[test]
    fn a_link_that_is_laid_out_alone_is_as_among_all_others() {
        let random =
            "schedule = { kind = \"random\", rate = [{ every = \"1 s\", deviation = 0.3 }] }";
        let dumbbell = VIDEO.replace("delay = \"5 ms\"", &format!("delay = \"5 ms\"\n{random}"));
        let dumbbell = dumbbell.replace(
            "delay = \"30 ms\"",
            "delay = \"30 ms\"\noutages = [{ at = \"1.5 s\", for = \"0.1 s\" }]",
        );
        let mut dumbbell = scenario(&dumbbell);
        let hosts = ["video.3.source -> left", "left -> video.3.source"];
        let sinks = ["right -> video.3.sink", "video.3.sink -> right"];
        for (at, link) in ["bottleneck", "reverse"].iter().chain(&hosts).chain(&sinks).enumerate() {
            for at in [700 + at as u64, 300, 1_550] {
                assert_same_schedule(&mut dumbbell, link, at);
            }
        }
        let graph = GRAPH.replacen("delay = \"5 ms\"", &format!("delay = \"5 ms\", {random}"), 1);
        for link in ["a -> b", "b -> a", "d -> e"] {
            assert_same_schedule(&mut scenario(&graph), link, 400);
        }
    }

    #[test]
    fn more_changes_than_a_scenario_may_have_are_refused() {
        let mut many = scenario(VIDEO);
        let set = ["rate=1 Mbit/s".to_owned()];
        for place in 0..9_999 {
            let at = Duration::from_millis(2 * place);
            let event = many.change(at, "bottleneck", &set).unwrap();
            many.events.push(event);
        }
        let last = many.change(Duration::from_secs(1), "bottleneck", &set).unwrap();
        many.events.push(last);
        let more = many.change(Duration::from_secs(1), "bottleneck", &set).unwrap_err();
        let expected = "events: 10001 events are too many; at most 10000 will do";
        assert_eq!(more.to_string(), expected);
    }

    #[test]
    fn the_text_of_a_scenario_is_read_as_that_scenario() {
        let varying = VIDEO.replace(
            "delay = \"30 ms\"",
            "delay = \"30 ms\"\nschedule = { kind = \"csv\", text = \"time_s,loss\\n0,0.1\\n\" }\n\
             outages = [{ at = \"1.5 s\", for = \"0.1 s\" }]\npolicer = { rate = \"9 Mbit/s\", burst = \
             \"3 kB\" }\nloss = { kind = \"gilbert\", p = 0.01, q = 0.333333333333 }",
        );
        let linux = format!("tcp-profile = \"linux\"\n{VIDEO}");
        let adus = GRAPH.replace(
            "[flows.long]",
            "[flows.cubic]\nfrom = \"a\"\nto = \"d\"\napplication = { kind = \"http\", think = \
             \"100 ms\" }\ntransport = { kind = \"tcp\", congestion = { kind = \"cubic\" } }\n\
             [flows.long]",
        );
        for text in [VIDEO, GRAPH, &varying, &linux, &adus] {
            let changed = change(text, "a.0.source -> x", &["rate=1 bit/s"]);
            assert!(changed.is_err());
            let original = scenario(text);
            let link = if text.contains("graph") { "a -> b" } else { "bottleneck" };
            let changed = change(text, link, &["loss=0.3"]).unwrap();
            for one in [original, changed] {
                let written = one.to_toml().unwrap();
                assert_eq!(crate::parse(&written, "repeat.toml").unwrap(), one, "{written}");
            }
        }
    }
}
