//! Values that may be written in more than one way: a text or a table.
//!
//! Serde's untagged enums answer only that nothing fitted; these say what was expected.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use ontempo_foundation::{Duration, Quantity, UnitError, UnitProblem};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::model::{Delay, DelayLaw, QueueLimit, Start};

/// Why a text is not the limit of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// Its unit fits, its number does not; or its unit is missing.
    Unit(UnitError),
    /// Neither packets nor bytes.
    Neither(String),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(error) => error.fmt(f),
            Self::Neither(text) => {
                write!(f, "`{text}` is a number neither of packets nor of bytes; ")?;
                write!(f, "write \"150 packets\" or \"500 kB\"")
            }
        }
    }
}

impl std::error::Error for LimitError {}

impl FromStr for QueueLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let error = match text.parse() {
            Ok(packets) => return Ok(Self::Packets(packets)),
            Err(error) => error,
        };
        match UnitError::problem(&error) {
            UnitProblem::OtherQuantity(Quantity::Bytes) => {
                text.parse().map(Self::Bytes).map_err(LimitError::Unit)
            }
            UnitProblem::NotANumber
            | UnitProblem::UnknownUnit(_)
            | UnitProblem::OtherQuantity(_) => Err(LimitError::Neither(text.trim().to_owned())),
            _ => Err(LimitError::Unit(error)),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => packets.fmt(f),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl Serialize for QueueLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for QueueLimit {
    fn schema_name() -> Cow<'static, str> {
        "QueueLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A number of packets or of bytes.",
            "pattern": r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(packets?|bytes?|B|kB|MB|GB|KiB|MiB|GiB)\s*$",
            "examples": ["150 packets", "500 kB"],
        })
    }
}

struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = QueueLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit such as \"150 packets\" or \"500 kB\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<QueueLimit, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<QueueLimit, E> {
        Err(E::custom(UnitError::bare_number(Quantity::Packets, number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<QueueLimit, E> {
        Err(E::custom(UnitError::bare_number(Quantity::Packets, number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<QueueLimit, E> {
        Err(E::custom(UnitError::bare_number(Quantity::Packets, number)))
    }
}

/// Reads a text or a table, each by its own function.
pub(crate) struct TextOrTable<T, Table> {
    pub(crate) expecting: &'static str,
    pub(crate) text: fn(&str) -> Result<T, String>,
    pub(crate) table: fn(Table) -> Result<T, String>,
    /// The quantity that a bare number lacks the unit of.
    pub(crate) number: Option<Quantity>,
}

impl<T, Table> TextOrTable<T, Table> {
    fn refuse<E: Error>(&self, number: impl fmt::Display) -> E {
        match self.number {
            Some(quantity) => E::custom(UnitError::bare_number(quantity, number)),
            None => E::custom(format_args!("{number} is a number; {} is needed", self.expecting)),
        }
    }
}

impl<'de, T, Table: Deserialize<'de>> Visitor<'de> for TextOrTable<T, Table> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        (self.table)(table).map_err(serde::de::Error::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Err(self.refuse(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Err(self.refuse(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Err(self.refuse(number))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse().map_err(|error: UnitError| error.to_string())
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable {
            expecting: "a duration such as \"30 ms\" or a table with a `kind`",
            text: |text| duration(text).map(Self::Fixed),
            table: |law: DelayLaw| Ok(Self::Law(law)),
            number: Some(Quantity::Duration),
        })
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    low: Duration,
    high: Duration,
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable {
            expecting: "a duration such as \"1.5 s\" or a table with `low` and `high`",
            text: |text| duration(text).map(Self::At),
            table: |Range { low, high }| Ok(Self::Between { low, high }),
            number: Some(Quantity::Duration),
        })
    }
}
