//! How a congestion controller and its parameters are written: what the registry of `mechanisms`
//! has, read, shown, and described to JSON Schema.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::{
    CongestionName, ParameterError, ParameterInfo, ParameterKind, Value, World,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value as Json};

use crate::custom::CustomParameters;
use crate::model::{Congestion, TcpProfile};
use crate::written::TextOrTable;

/// The name of a choice, by name or table, in the schema.
pub(crate) const CHOICE: &str = "Congestion";

/// The table's name in the schema.
pub(crate) const TABLE: &str = "CongestionTable";

/// The name of a parameter's value in the schema.
pub(crate) const PARAMETER: &str = "CongestionParameter";

/// The table's `kind` for a controller that the Linux kernel alone has.
pub(crate) const KERNEL: &str = "kernel";

/// The controllers that a TCP flow of a scenario may have: each is simulated, or in the kernel.
fn names() -> impl Iterator<Item = CongestionName> + Clone {
    CongestionName::ALL
        .into_iter()
        .filter(|name| name.runs_in(World::Simulation) || name.runs_in(World::Kernel))
}

/// Every name that a TCP flow may give as its controller's, without those of the caller.
pub(crate) fn names_in_files() -> impl Iterator<Item = &'static str> + Clone {
    names().map(CongestionName::name).chain([KERNEL])
}

fn named(text: &str) -> Option<CongestionName> {
    names().find(|name| name.name() == text)
}

/// A value as an option of a command would be written.
pub(crate) fn as_option(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Why the parameters of a table cannot be taken; `None` where its `kind` is not known, or is the
/// kernel's.
pub(crate) fn misfit<'a>(
    kind: &str,
    parameters: impl Iterator<Item = (&'a str, Json)>,
) -> Option<ParameterError> {
    let written: Vec<_> = parameters.map(|(name, value)| (name, as_option(&value))).collect();
    named(kind)?.with(written.iter().map(|(name, text)| (*name, text.as_str()))).err()
}

impl Congestion {
    fn of_name(text: &str) -> Self {
        match named(text) {
            Some(name) => Self::Known(name.into()),
            None => Self::Custom { name: text.to_owned(), parameters: CustomParameters::new() },
        }
    }

    fn of_table(mut table: BTreeMap<String, Json>) -> Result<Self, String> {
        let kind = table.remove("kind").as_ref().map(as_option).unwrap_or_default();
        if kind == KERNEL {
            let name = table.remove("name").as_ref().map(as_option).unwrap_or_default();
            return Ok(Self::Kernel { name });
        }
        let Some(name) = named(&kind) else {
            return Ok(Self::Custom { name: kind, parameters: table });
        };
        let written: Vec<_> = table.iter().map(|(name, value)| (name, as_option(value))).collect();
        let written = written.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        name.with(written).map(Self::Known).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for Congestion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable {
            expecting: "the name of a congestion controller or a table with a `kind`",
            text: |text| Ok(Self::of_name(text)),
            table: Self::of_table,
            number: None,
        })
    }
}

impl Serialize for Congestion {
    /// With the parameters that are not the defaults, and those that a profile may set: read under
    /// another profile, the text is still the same controller.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, changed) = match self {
            Self::Kernel { name } => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("kind", KERNEL)?;
                map.serialize_entry("name", name)?;
                return map.end();
            }
            Self::Custom { name, parameters } if parameters.is_empty() => {
                return serializer.serialize_str(name);
            }
            Self::Custom { name, parameters } => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("kind", name)?;
                for (parameter, value) in parameters {
                    map.serialize_entry(parameter, value)?;
                }
                return map.end();
            }
            Self::Known(known) => (known.name().name(), known.changed()),
        };
        let has = |name| changed.iter().any(|(other, _)| *other == name);
        let of_profile = TcpProfile::Ns2.congestion_parameters(kind).iter();
        let unchanged: Vec<_> = of_profile.filter(|(name, _)| !has(*name)).collect();
        if changed.is_empty() && unchanged.is_empty() {
            return serializer.serialize_str(kind);
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", kind)?;
        for (name, value) in changed {
            map.serialize_entry(name, &json(value))?;
        }
        for (name, value) in unchanged {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn json(value: Value) -> Json {
    match value {
        Value::Duration(value) => value.to_string().into(),
        Value::Number(value) => value.into(),
        Value::Flag(value) => value.into(),
        Value::Word(value) => value.into(),
    }
}

impl JsonSchema for Congestion {
    fn schema_name() -> Cow<'static, str> {
        CHOICE.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (name, table) = (generator.subschema_for::<Name>(), generator.subschema_for::<Table>());
        json_schema!({
            "description": "A congestion controller by name, or with parameters.",
            "anyOf": [name, table],
        })
    }
}

/// The value of a parameter by name, in the schema; the controller says which values will do.
pub(crate) struct ParameterValue;

impl JsonSchema for ParameterValue {
    fn schema_name() -> Cow<'static, str> {
        PARAMETER.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A text, a number, true or false, or a list of these.",
            "type": ["string", "number", "boolean", "array"],
        })
    }
}

/// A controller's name, in the schema.
struct Name;

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "CongestionName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |name: CongestionName| choice(name.name(), &doc(name));
        json_schema!({
            "description": "The names of the congestion controllers.",
            "oneOf": names().map(one).collect::<Vec<_>>(),
        })
    }
}

/// `doc`, and what each word means.
fn meanings<'a>(doc: &str, words: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let each = words.map(|(word, meaning)| format!("`{word}`: {}", meaning.trim_end_matches('.')));
    format!("{doc} {}.", each.collect::<Vec<_>>().join("; "))
}

fn doc(name: CongestionName) -> String {
    let emulated = if name.runs_in(World::Simulation) { "" } else { " Emulated only." };
    format!("{}{emulated}", name.doc())
}

fn choice(word: &str, doc: &str) -> Json {
    serde_json::json!({ "description": doc, "type": "string", "const": word })
}

/// A controller with its parameters, in the schema.
struct Table;

impl JsonSchema for Table {
    fn schema_name() -> Cow<'static, str> {
        TABLE.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut kinds: Vec<Json> = names().map(|name| kind(name, generator)).collect();
        kinds.push(serde_json::json!({
            "description": "Any that the Linux kernel has; emulated only.",
            "type": "object",
            "properties": {
                "name": { "description": "What the kernel calls it.", "type": "string" },
                "kind": { "type": "string", "const": KERNEL },
            },
            "additionalProperties": false,
            "required": ["kind", "name"],
        }));
        json_schema!({
            "description": "A congestion controller with its parameters.",
            "oneOf": kinds,
        })
    }
}

fn kind(name: CongestionName, generator: &mut SchemaGenerator) -> Json {
    let mut properties = Map::new();
    let variants = name.variants();
    if let Some(first) = variants.first() {
        let words: Vec<Json> = variants.iter().map(|one| choice(one.name, one.doc)).collect();
        let what = variants.iter().map(|one| (one.name, one.doc));
        let what = meanings("What the other parameters are where they are not given.", what);
        let variant =
            serde_json::json!({ "description": what, "oneOf": words, "default": first.name });
        properties.insert("variant".to_owned(), variant);
    }
    for parameter in name.parameters() {
        let others: Vec<_> = variants.iter().skip(1).map(|variant| variant.name).collect();
        properties.insert(parameter.name.to_owned(), property(&parameter, &others, generator));
    }
    properties
        .insert("kind".to_owned(), serde_json::json!({ "type": "string", "const": name.name() }));
    serde_json::json!({
        "description": doc(name),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "required": ["kind"],
    })
}

/// A parameter; `others` are the names of the variants behind the first.
fn property(info: &ParameterInfo, others: &[&str], generator: &mut SchemaGenerator) -> Json {
    let mut doc = info.doc.to_owned();
    let mut schema = match info.kind {
        ParameterKind::Duration(min, max) => {
            doc += &format!(" From {min} to {max}.");
            generator.subschema_for::<Duration>().to_value()
        }
        ParameterKind::Number(unit, min, max) => {
            let of = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
            doc += &format!(" From {min} to {max}{of}.");
            serde_json::json!({ "type": "number", "minimum": min, "maximum": max })
        }
        ParameterKind::Flag => serde_json::json!({ "type": "boolean" }),
        ParameterKind::Choice(words) => {
            doc = meanings(&doc, words.iter().copied());
            let words: Vec<Json> = words.iter().map(|(word, doc)| choice(word, doc)).collect();
            serde_json::json!({ "oneOf": words })
        }
    };
    for (variant, value) in others.iter().zip(info.defaults.iter().skip(1)) {
        if Some(value) != info.defaults.first() {
            doc += &format!(" With `variant = \"{variant}\"`: {value} by default.");
        }
    }
    schema["description"] = doc.into();
    if let Some(default) = info.defaults.first() {
        schema["default"] = json(*default);
    }
    schema
}
