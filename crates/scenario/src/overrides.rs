//! Values set on the command line: `--set flows.video.count=30`.

use std::path::Path;
use std::sync::Arc;

use crate::document::{Node, Table, Value};
use crate::error::{Origin, Problem, ScenarioError};
use crate::nearest::listed;
use crate::parse::read_document;
use crate::path::{FieldPath, Step};

/// Values that replace those of a scenario file, in the order in which they were given. A table
/// replaces the whole table of the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    keys: Vec<String>,
    value: Node,
}

impl Overrides {
    /// No override at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads each of `texts` as `KEY.KEY=VALUE`. The keys are TOML's, quoted ones too; a number
    /// picks an item of a list. The value is TOML where it can be, a plain text otherwise.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, ScenarioError> {
        let mut overrides = Self::none();
        for text in texts {
            overrides.add(text.as_ref())?;
        }
        Ok(overrides)
    }

    /// Adds one more, which wins over those before it.
    pub fn add(&mut self, text: &str) -> Result<(), ScenarioError> {
        let origin = Origin::Override(Arc::from(text.trim()));
        let problem = |what: &str| Problem {
            origin: Some(origin.clone()),
            field: String::new(),
            what: what.to_owned(),
        };
        let (key, value) =
            split(text).ok_or_else(|| problem("there is no `=`; write --set KEY.KEY=VALUE"))?;
        let keys = parse_key(key)
            .ok_or_else(|| problem("the key is not one; write --set KEY.KEY=VALUE"))?;
        let value = value.trim();
        let value = Node::parse_value(value, &origin)
            .unwrap_or_else(|| Node { value: Value::Text(value.to_owned()), origin });
        self.entries.push(Entry { keys, value });
        Ok(())
    }

    /// Sets the values in `document`; a sentence for each table of which fields are gone then.
    pub(crate) fn apply(&self, document: &mut Node) -> Result<Vec<String>, ScenarioError> {
        let mut gone = Vec::new();
        for entry in &self.entries {
            gone.extend(entry.apply(document)?);
        }
        Ok(gone)
    }

    /// A sentence for each table of the scenario file at `path` that one of these replaces, if fields
    /// of the file are gone then: whoever meant to change one field loses the others.
    ///
    /// # Errors
    /// As [`load_with`](crate::load_with) until the values are set.
    pub fn fields_lost(&self, path: impl AsRef<Path>) -> Result<Vec<String>, ScenarioError> {
        if !self.entries.iter().any(|entry| matches!(entry.value.value, Value::Table(_))) {
            return Ok(Vec::new());
        }
        self.apply(&mut read_document(path.as_ref())?)
    }

    /// The same for the scenario in `text`, `name` being what errors call it.
    ///
    /// # Errors
    /// As [`parse_with`](crate::parse_with) until the values are set.
    pub fn fields_lost_in(&self, text: &str, name: &str) -> Result<Vec<String>, ScenarioError> {
        self.apply(&mut Node::parse(text, name)?)
    }
}

impl Entry {
    fn apply(&self, document: &mut Node) -> Result<Option<String>, Problem> {
        let mut node = document;
        let mut path = FieldPath::default();
        for key in &self.keys {
            let is_last = path.steps().len() + 1 == self.keys.len();
            node = self.descend(node, &mut path, key, is_last)?;
        }
        let lost = self.lost_in(node, &path);
        *node = self.value.clone();
        Ok(lost)
    }

    /// A sentence about the fields of the table `node` that this value has not.
    fn lost_in(&self, node: &Node, path: &FieldPath) -> Option<String> {
        let (Value::Table(table), Value::Table(own)) = (&node.value, &self.value.value) else {
            return None;
        };
        let lost = table.keys().map(String::as_str).filter(|key| !own.contains_key(*key));
        let lost = lost.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        (!lost.is_empty()).then(|| {
            format!(
                "{}: replaces the whole table, without the file's {lost}; to change single fields, \
                 write --set {path}.FIELD=VALUE",
                self.value.origin
            )
        })
    }

    /// The node below `node`; made where it is a field that the file leaves out.
    fn descend<'a>(
        &self,
        node: &'a mut Node,
        path: &mut FieldPath,
        key: &str,
        is_last: bool,
    ) -> Result<&'a mut Node, Problem> {
        let problem = |path: &FieldPath, what| Problem {
            origin: Some(self.value.origin.clone()),
            field: path.to_string(),
            what,
        };
        let at_names = path.steps() == [Step::Key("flows".to_owned())];
        let description = node.describe();
        match &mut node.value {
            Value::Table(table) => {
                if at_names && !is_last && !table.contains_key(key) {
                    let known = listed(table.keys().map(String::as_str));
                    return Err(problem(
                        &path.key(key),
                        format!("there is no such name; known: {known}"),
                    ));
                }
                *path = path.key(key);
                let origin = self.value.origin.clone();
                let empty = || Node { value: Value::Table(Table::new()), origin };
                Ok(table.entry(key.to_owned()).or_insert_with(empty))
            }
            Value::List(items) => {
                let count = items.len();
                let item =
                    key.parse().ok().and_then(|place: usize| Some((place, items.get_mut(place)?)));
                let Some((place, item)) = item else {
                    let what = match count {
                        0 => format!("this list is empty, so that it has no item {key}"),
                        _ => {
                            format!("this list has no item {key}; its items are 0 to {}", count - 1)
                        }
                    };
                    return Err(problem(path, what));
                };
                *path = path.index(place);
                Ok(item)
            }
            _ => Err(problem(path, format!("{description}, so that it has no field `{key}`"))),
        }
    }
}

/// Splits at the first `=` outside of quotes.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (place, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '=') => return Some((&text[..place], &text[place + 1..])),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

/// The parts of a dotted key, as TOML reads it.
fn parse_key(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '\r', '#', '[']) && !key.contains(['"', '\'']) {
        return None;
    }
    let document = Node::parse(&format!("{key} = 0"), "").ok()?;
    let mut keys = Vec::new();
    let mut node = &document;
    while let Value::Table(table) = &node.value {
        let mut fields = table.iter();
        let (name, below) = fields.next()?;
        if fields.next().is_some() {
            return None;
        }
        keys.push(name.clone());
        node = below;
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Scenario;
    use crate::testing::{GRAPH, VIDEO};

    fn set_in(text: &str, overrides: &[&str]) -> Result<Scenario, String> {
        let overrides = Overrides::parse(overrides).map_err(|error| error.to_string())?;
        crate::parse_with(text, "s.toml", &overrides).map_err(|error| error.to_string())
    }

    fn set(text: &str) -> Result<Scenario, String> {
        set_in(VIDEO, &[text])
    }

    #[test]
    fn a_value_is_toml_or_else_a_text() {
        let expected = crate::parse(&VIDEO.replace("25 Mbit/s", "30 Mbit/s"), "").unwrap();
        assert_eq!(set("topology.bottleneck.rate=\"30 Mbit/s\"").unwrap(), expected);
        assert_eq!(set("topology.bottleneck.rate=30 Mbit/s").unwrap(), expected);
        assert_eq!(set("topology.bottleneck.rate = '30 Mbit/s'").unwrap(), expected);
        assert_eq!(set("flows.video.count=30").unwrap().flows["video"].count, 30);
    }

    #[test]
    fn a_table_that_replaces_one_with_more_fields_is_told() {
        let lost = |text: &str| {
            let mut document = Node::parse(VIDEO, "s.toml").unwrap();
            Overrides::parse([text]).unwrap().apply(&mut document).unwrap()
        };
        let table = "topology.bottleneck={ rate = \"30 Mbit/s\", queue = { kind = \"codel\" } }";
        let [told] = &lost(table)[..] else { panic!("{:?}", lost(table)) };
        assert!(told.starts_with(&format!("--set {table}: replaces the whole table")), "{told}");
        assert!(told.contains("without the file's `delay`; to"), "{told}");
        assert!(told.ends_with("write --set topology.bottleneck.FIELD=VALUE"), "{told}");
        assert_eq!(lost("topology.bottleneck.rate=30 Mbit/s"), [""; 0]);
        assert_eq!(lost("topology.bottleneck.loss={ kind = \"none\" }"), [""; 0]);
    }

    #[test]
    fn a_value_may_be_a_table() {
        let queue = "topology.bottleneck.queue={ kind = \"red\", limit = \"9 packets\" }";
        assert!(set(queue).is_ok());
    }

    #[test]
    fn keys_may_be_quoted_and_may_hold_what_parts_keys() {
        let text = VIDEO.replace("[flows.video]", "[flows.\"a.b=c\"]");
        let scenario = set_in(&text, &["flows.\"a.b=c\".count=3"]).unwrap();
        assert_eq!(scenario.flows["a.b=c"].count, 3);
    }

    #[test]
    fn a_field_that_the_file_leaves_out_can_be_set() {
        assert!(set("measure.adus=true").unwrap().measure.adus);
    }

    #[test]
    fn the_last_of_several_wins() {
        let scenario = set_in(VIDEO, &["flows.video.count=3", "flows.video.count=4"]).unwrap();
        assert_eq!(scenario.flows["video"].count, 4);
    }

    #[test]
    fn a_number_picks_an_item_of_a_list() {
        assert!(set_in(GRAPH, &["topology.links.1.rate=1 Gbit/s"]).is_ok());
        assert_eq!(
            set_in(GRAPH, &["topology.links.7.rate=1 Gbit/s"]).unwrap_err(),
            "--set topology.links.7.rate=1 Gbit/s: topology.links: this list has no item 7; its \
             items are 0 to 4"
        );
    }

    #[test]
    fn an_error_names_the_override() {
        assert_eq!(
            set("topology.bottleneck.rate=30").unwrap_err(),
            "--set topology.bottleneck.rate=30: topology.bottleneck.rate: missing unit: write \
             \"30 Mbit/s\", not 30"
        );
        assert_eq!(
            set("flows.video.count=0").unwrap_err(),
            "--set flows.video.count=0: flows.video.count: 0 flows will not do; 1 to 1000000 are \
             possible"
        );
    }

    #[test]
    fn an_unknown_path_is_answered_with_what_exists_there() {
        assert_eq!(
            set("flows.vidio.count=30").unwrap_err(),
            "--set flows.vidio.count=30: flows.vidio: there is no such name; known: `video`"
        );
        assert_eq!(
            set("topology.access.speed=30").unwrap_err(),
            "--set topology.access.speed=30: topology.access.speed: unknown field; known fields: \
             `profile`, `direction`, `rate`, `delay`, `mtu`, `queue`, `loss`, `reordering`, `schedule`, \
             `outages`, `policer`, `duplicate`, `corrupt`, `aggregation`, `back`"
        );
        assert_eq!(
            set("duration.long=1").unwrap_err(),
            "--set duration.long=1: duration: \"20 s\" is a text, so that it has no field `long`"
        );
    }

    #[test]
    fn a_text_that_sets_nothing_is_refused() {
        assert_eq!(
            set("duration").unwrap_err(),
            "--set duration: there is no `=`; write --set KEY.KEY=VALUE"
        );
        let what = "the key is not one; write --set KEY.KEY=VALUE";
        for text in ["=1", "a b=1", "a..b=1", "[a]\nb=1", "a\nb=1", "# a=1"] {
            assert_eq!(set(text).unwrap_err(), format!("--set {text}: {what}"));
        }
    }

    #[test]
    fn a_value_cannot_smuggle_in_further_keys() {
        assert_eq!(set("title=1\nseed = 9").unwrap().title, "1\nseed = 9");
    }
}
