//! Values of the configuration, whose errors say what would be right, and which key is wrong.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use toml::de::{DeArray, DeTable, DeValue};

/// What a value must be, for its type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Flag,
    Number,
    List,
    Table,
}

struct Expected<T> {
    kind: Kind,
    what: &'static str,
    marker: PhantomData<T>,
}

/// `true` or `false`.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    read(deserializer, Kind::Flag, "true or false")
}

/// A text; `what` says which, with an example.
pub(crate) fn text<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    what: &'static str,
) -> Result<T, D::Error> {
    read(deserializer, Kind::Text, what)
}

/// A whole number from 0 on.
pub(crate) fn number<'de, D: Deserializer<'de>>(
    deserializer: D,
    what: &'static str,
) -> Result<u64, D::Error> {
    read(deserializer, Kind::Number, what)
}

/// A list.
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    what: &'static str,
) -> Result<T, D::Error> {
    read(deserializer, Kind::List, what)
}

/// A table.
pub(crate) fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    what: &'static str,
) -> Result<T, D::Error> {
    read(deserializer, Kind::Table, what)
}

/// One of these words; `what` lists them.
pub(crate) fn word<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    what: &'static str,
    words: &[(&str, T)],
) -> Result<T, D::Error> {
    let written: String = text(deserializer, what)?;
    let found = words.iter().find(|(word, _)| *word == written);
    found
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&written), &what))
}

fn read<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    kind: Kind,
    what: &'static str,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Expected { kind, what, marker: PhantomData })
}

impl<T> Expected<T> {
    fn check<E: Error>(&self, kind: Kind, found: Unexpected<'_>) -> Result<(), E> {
        if self.kind == kind { Ok(()) } else { Err(E::invalid_type(found, &self.what)) }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Expected<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        self.check(Kind::Text, Unexpected::Str(value))?;
        T::deserialize(value.into_deserializer())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.check(Kind::Flag, Unexpected::Bool(value))?;
        T::deserialize(value.into_deserializer())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        let found = Unexpected::Signed(value);
        self.check(Kind::Number, found)?;
        let value = u64::try_from(value).map_err(|_| E::invalid_value(found, &self.what))?;
        T::deserialize(value.into_deserializer())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<T, A::Error> {
        self.check(Kind::List, Unexpected::Seq)?;
        T::deserialize(SeqAccessDeserializer::new(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, values: A) -> Result<T, A::Error> {
        self.check(Kind::Table, Unexpected::Map)?;
        T::deserialize(MapAccessDeserializer::new(values))
    }
}

/// What an error of a document says, with the key that it is about in its last line, which a log may show alone.
pub(crate) fn with_key(error: &toml::de::Error, document: &str) -> String {
    let said = error.to_string();
    let said = said.trim_end();
    let message = error.message();
    let (Some(span), Some(place)) = (error.span(), said.strip_suffix(message)) else {
        return said.to_owned();
    };
    let parsed = DeTable::parse(document).ok();
    let key = parsed.and_then(|document| in_table(document.get_ref(), span.start));
    key.map_or_else(|| said.to_owned(), |key| format!("{place}{key}: {message}"))
}

/// The key whose value is at this byte, or whose name.
fn in_table(table: &DeTable<'_>, at: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let name = if name.bytes().all(is_bare) { name.to_string() } else { format!("{name:?}") };
        if let Some(more) = in_value(value.get_ref(), at) {
            return Some(format!("{name}{more}"));
        }
        // The value of a table with a header is that, without what follows.
        (key.span().contains(&at) || value.span().contains(&at)).then_some(name)
    })
}

/// The same below a value, with what is between.
fn in_value(value: &DeValue<'_>, at: usize) -> Option<String> {
    match value {
        DeValue::Table(table) => in_table(table, at).map(|key| format!(".{key}")),
        DeValue::Array(list) => in_list(list, at),
        _ => None,
    }
}

fn in_list(list: &DeArray<'_>, at: usize) -> Option<String> {
    list.iter().enumerate().find_map(|(place, value)| {
        let more = in_value(value.get_ref(), at);
        let is_it = more.is_some() || value.span().contains(&at);
        is_it.then(|| format!("[{place}]{}", more.unwrap_or_default()))
    })
}
