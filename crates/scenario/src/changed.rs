//! A scenario with one more event, and a scenario as the text of a file: what a run that was changed
//! while it ran leaves behind.

use std::fmt;

use ontempo_foundation::Duration;

use crate::document::{Node, Table, Value};
use crate::error::Origin;
use crate::model::{LinkChange, Scenario};
use crate::path::FieldPath;
use crate::{parse::MAX_FILE, parse::finish};

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

impl Scenario {
    /// This scenario with one more event: from `at` on, the link has the values of `texts`, each
    /// written as `rate=2 Mbit/s`, `delay=40 ms` or `loss=0.01`. It is checked as a file is.
    ///
    /// # Errors
    /// What is wrong with the event, such as a link that does not exist.
    pub fn with_change(
        &self,
        at: Duration,
        link: &str,
        texts: &[String],
    ) -> Result<Self, ChangeError> {
        let settings = settings(texts)?;
        let mut document = Node::of_json(&serde_json::json!(self));
        let origin = document.origin.clone();
        let node = |value| Node { value, origin: origin.clone() };
        let event = [
            ("at", Value::Text(at.to_string())),
            ("link", Value::Text(link.to_owned())),
            ("set", Value::Table(settings)),
        ];
        let event = event.map(|(name, value)| (name.to_owned(), node(value)));
        if let Value::Table(table) = &mut document.value {
            let events =
                table.entry("events".to_owned()).or_insert_with(|| node(Value::List(Vec::new())));
            if let Value::List(events) = &mut events.value {
                events.push(node(Value::Table(event.into())));
            }
        }
        let own = FieldPath::root("events").index(self.events.len());
        finish(document, &crate::Overrides::none(), None).map_err(|error| {
            let line = |problem: &crate::Problem| {
                let field = problem.field.strip_prefix(&own.to_string()).unwrap_or(&problem.field);
                let field = field.trim_start_matches(".set").trim_start_matches('.');
                let colon = if field.is_empty() { "" } else { ": " };
                format!("{field}{colon}{}", problem.what)
            };
            ChangeError(error.problems().iter().map(line).collect::<Vec<_>>().join("\n"))
        })
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
        scenario(text).with_change(at, link, &set).map_err(|error| error.to_string())
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
            let changed = original
                .with_change(Duration::from_nanos(1_234_567_891), link, &["loss=0.3".to_owned()])
                .unwrap();
            for one in [original, changed] {
                let written = one.to_toml().unwrap();
                assert_eq!(crate::parse(&written, "repeat.toml").unwrap(), one, "{written}");
            }
        }
    }
}
