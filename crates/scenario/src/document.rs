//! A TOML document as a tree in which every value knows where it was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Origin, Problem};
use crate::path::{FieldPath, Step};

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// A table's fields by name.
pub(crate) type Table = BTreeMap<String, Node>;

/// What TOML can say.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Whole(i128),
    Number(f64),
    Flag(bool),
    Moment(String),
    List(Vec<Node>),
    Table(Table),
}

impl Node {
    /// The table that `text`, called `name` in errors, holds.
    pub(crate) fn parse(text: &str, name: &str) -> Result<Self, Problem> {
        let lines = Lines::new(text, name);
        let table = DeTable::parse(text).map_err(|error| syntax_problem(&error, text, &lines))?;
        let origin = Origin::File { name: lines.name.clone(), line: 1 };
        let value = lower_table(table.get_ref(), &|at| lines.origin(at), &FieldPath::default())?;
        Ok(Self { value, origin })
    }

    /// The value that `text` holds, with `origin` throughout; `None` where that is not TOML.
    pub(crate) fn parse_value(text: &str, origin: &Origin) -> Option<Self> {
        let document = format!("value = {text}");
        let table = DeTable::parse(&document).ok()?;
        let [(_, value)] = table.get_ref().iter().collect::<Vec<_>>()[..] else {
            return None;
        };
        let value = lower(value.get_ref(), &|_| origin.clone(), &FieldPath::default()).ok()?;
        Some(Self { value, origin: origin.clone() })
    }

    pub(crate) fn as_table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Lays `over` over this node: tables are merged field by field, all else is replaced. A
    /// table of another `kind` replaces too, since its fields are others.
    pub(crate) fn merge(&mut self, over: Node) {
        let same_kind =
            self.kind().is_none() || over.kind().is_none() || self.kind() == over.kind();
        match (&mut self.value, over) {
            (Value::Table(base), Node { value: Value::Table(fields), origin }) if same_kind => {
                self.origin = origin;
                for (name, field) in fields {
                    match base.get_mut(&name) {
                        Some(below) => below.merge(field),
                        None => _ = base.insert(name, field),
                    }
                }
            }
            (_, over) => *self = over,
        }
    }

    /// Says of this value and all below it that they were written at `origin`.
    pub(crate) fn set_origin(&mut self, origin: &Origin) {
        self.origin = origin.clone();
        match &mut self.value {
            Value::Table(table) => table.values_mut().for_each(|below| below.set_origin(origin)),
            Value::List(items) => items.iter_mut().for_each(|below| below.set_origin(origin)),
            _ => {}
        }
    }

    /// The text of the field `kind`, where this is a table that has one.
    pub(crate) fn kind(&self) -> Option<&str> {
        let Value::Table(table) = &self.value else { return None };
        match &table.get("kind")?.value {
            Value::Text(kind) => Some(kind),
            _ => None,
        }
    }

    /// Where the value at `path` was written; that of the innermost table around it where it
    /// was not written at all.
    pub(crate) fn locate(&self, path: &FieldPath) -> &Origin {
        let mut node = self;
        for step in path.steps() {
            let below = match (step, &node.value) {
                (Step::Key(key), Value::Table(table)) => table.get(key),
                (Step::Index(place), Value::List(items)) => items.get(*place),
                _ => None,
            };
            let Some(below) = below else { break };
            node = below;
        }
        &node.origin
    }

    /// What the value is and how it looks, for an error: `` `3` is a whole number ``.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{text:?} is a text"),
            Value::Whole(number) => format!("{number} is a number"),
            Value::Number(number) => format!("{number:?} is a number"),
            Value::Flag(flag) => format!("{flag} is true or false"),
            Value::Moment(text) => format!("{text} is a date or a time"),
            Value::List(_) => "this is a list".to_owned(),
            Value::Table(_) => "this is a table".to_owned(),
        }
    }

    /// The tree of a JSON value, written nowhere.
    pub(crate) fn of_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Text(String::new()),
            Json::Bool(flag) => Value::Flag(*flag),
            Json::Number(number) => match number.as_i128() {
                Some(whole) => Value::Whole(whole),
                None => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => Value::List(items.iter().map(Self::of_json).collect()),
            Json::Object(fields) => Value::Table(
                fields.iter().map(|(name, json)| (name.clone(), Self::of_json(json))).collect(),
            ),
        };
        Self { value, origin: Origin::Override(Arc::from("")) }
    }

    /// The tree without its origins. A whole number beyond 64 bits becomes a float; numbers that JSON
    /// lacks become null: the check against the shapes has refused them before.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Text(text) | Value::Moment(text) => Json::from(text.as_str()),
            Value::Whole(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => Json::from(number),
                (_, Ok(number)) => Json::from(number),
                _ => Json::from(*number as f64),
            },
            Value::Number(number) => Json::from(*number),
            Value::Flag(flag) => Json::from(*flag),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Table(table) => {
                let fields = table.iter().map(|(name, node)| (name.clone(), node.to_json()));
                Json::Object(fields.collect())
            }
        }
    }
}

type OriginAt<'a> = &'a dyn Fn(usize) -> Origin;

fn lower_table(table: &DeTable<'_>, at: OriginAt<'_>, path: &FieldPath) -> Result<Value, Problem> {
    let mut fields = Table::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let node = Node {
            value: lower(value.get_ref(), at, &path.key(name)).map_err(|mut problem| {
                problem.origin.get_or_insert_with(|| at(key.span().start));
                problem
            })?,
            origin: at(key.span().start),
        };
        fields.insert(name.to_owned(), node);
    }
    Ok(Value::Table(fields))
}

fn lower(value: &DeValue<'_>, at: OriginAt<'_>, path: &FieldPath) -> Result<Value, Problem> {
    let out_of_range = |number: &dyn std::fmt::Display| Problem {
        origin: None,
        field: path.to_string(),
        what: format!("{number} is out of range"),
    };
    Ok(match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(moment) => Value::Moment(moment.to_string()),
        DeValue::Integer(number) => {
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            Value::Whole(parsed.map_err(|_| out_of_range(number))?)
        }
        DeValue::Float(number) => {
            Value::Number(number.as_str().parse().map_err(|_| out_of_range(number))?)
        }
        DeValue::Table(table) => lower_table(table, at, path)?,
        DeValue::Array(items) => {
            let lower_item = |(place, item): (usize, &Spanned<DeValue<'_>>)| {
                let value = lower(item.get_ref(), at, &path.index(place))?;
                Ok(Node { value, origin: at(item.span().start) })
            };
            Value::List(items.iter().enumerate().map(lower_item).collect::<Result<_, _>>()?)
        }
    })
}

/// Where the lines of a text begin.
struct Lines {
    name: Arc<str>,
    ends: Vec<usize>,
}

impl Lines {
    fn new(text: &str, name: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { name: name.into(), ends: ends.map(|(place, _)| place).collect() }
    }

    fn origin(&self, at: usize) -> Origin {
        let line = 1 + self.ends.partition_point(|end| *end < at);
        Origin::File { name: self.name.clone(), line }
    }
}

fn syntax_problem(error: &toml::de::Error, text: &str, lines: &Lines) -> Problem {
    let at = error.span().map_or(0, |span| span.start);
    let origin = lines.origin(at);
    let mut what = format!("this is not TOML: {}", error.message().replace('\n', ", "));
    let line = match origin {
        Origin::File { line, .. } => text.lines().nth(line - 1).unwrap_or_default(),
        Origin::Override(_) => "",
    };
    if let Some((key, value)) = line.split_once('=') {
        let (key, value) = (key.trim(), value.trim());
        let is_unquoted = value.starts_with(|first: char| first.is_ascii_digit())
            && value.contains(|letter: char| letter.is_ascii_alphabetic())
            && !value.contains(['"', '\'']);
        if is_unquoted {
            what = format!("{what}; a value with a unit stands in quotes: {key} = \"{value}\"");
        }
    }
    Problem { origin: Some(origin), field: String::new(), what }
}
