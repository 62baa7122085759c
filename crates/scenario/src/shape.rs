//! What each place of a scenario file may hold, read from the model's JSON Schema.
//!
//! The schema is derived from the model's types, so the check of a file, the reference and the
//! types themselves cannot disagree.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ontempo_foundation::Quantity;
use serde_json::Value as Json;

use crate::congestion;

/// What a value may be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A text with a unit.
    Unit(Quantity),
    /// Packets or bytes.
    Limit,
    /// Any text.
    Text,
    /// A whole number from 0.
    Whole { most: u64 },
    /// Any finite number.
    Number,
    /// `true` or `false`.
    Flag,
    /// One of several texts.
    Choice(Vec<Choice>),
    /// Items of one shape.
    List(Box<Shape>),
    /// A table with names of the user's.
    Map(Box<Shape>),
    /// A table with given fields.
    Table(Fields),
    /// A table whose `kind` says what its other fields are.
    Tagged(Vec<Variant>),
    /// A text of the first shape, or a table of the second.
    Either(Box<Shape>, Box<Shape>),
    /// What a congestion controller may have as a parameter.
    Parameter,
    /// The shape of this name in [`Shapes`].
    Named(String),
    /// Unknown to this module; a test sees to it that the model holds none.
    Any,
}

/// A text that may be chosen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) doc: String,
}

/// One kind of a tagged table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub(crate) kind: String,
    pub(crate) doc: String,
    /// All but `kind`.
    pub(crate) fields: Fields,
}

/// The fields of a table, in the order of the model.
pub(crate) type Fields = Vec<Field>;

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    /// What holds where it is not given, as JSON; `None` where nothing does.
    pub(crate) default: Option<Json>,
}

/// All shapes of the model.
#[derive(Debug)]
pub(crate) struct Shapes {
    pub(crate) root: Shape,
    pub(crate) root_doc: String,
    /// By the name of their type, with its doc comment.
    named: BTreeMap<String, (Shape, String)>,
}

impl Shapes {
    /// The shapes of the scenario model.
    pub(crate) fn of_model() -> &'static Self {
        static SHAPES: OnceLock<Shapes> = OnceLock::new();
        SHAPES.get_or_init(|| Self::of_schema(&crate::schema::model_schema()))
    }

    fn of_schema(schema: &Json) -> Self {
        let definitions = schema["$defs"].as_object().into_iter().flatten();
        let named = definitions.map(|(name, definition)| {
            let shape = match name.as_str() {
                "Duration" => Shape::Unit(Quantity::Duration),
                "Rate" => Shape::Unit(Quantity::Rate),
                "Bytes" => Shape::Unit(Quantity::Bytes),
                "Packets" => Shape::Unit(Quantity::Packets),
                "MessageRate" => Shape::Unit(Quantity::MessageRate),
                "Percent" => Shape::Unit(Quantity::Percent),
                "QueueLimit" => Shape::Limit,
                congestion::PARAMETER => Shape::Parameter,
                _ => shape(definition),
            };
            (name.clone(), (shape, doc(definition)))
        });
        let named = named.collect();
        Self { root: shape(schema), root_doc: doc(schema), named }
    }

    /// The shape behind a name.
    pub(crate) fn resolve<'a>(&'a self, shape: &'a Shape) -> &'a Shape {
        match shape {
            Shape::Named(name) => match self.named.get(name) {
                Some((shape, _)) => self.resolve(shape),
                None => &Shape::Any,
            },
            shape => shape,
        }
    }

    /// The named shapes and their doc comments.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &Shape, &str)> {
        self.named.iter().map(|(name, (shape, doc))| (name.as_str(), shape, doc.as_str()))
    }
}

fn doc(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}

fn shape(schema: &Json) -> Shape {
    if let Some(reference) = schema["$ref"].as_str() {
        return Shape::Named(reference.trim_start_matches("#/$defs/").to_owned());
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        return either(alternatives);
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        return one_of(alternatives);
    }
    let type_name = match &schema["type"] {
        Json::Array(names) => names.iter().filter_map(Json::as_str).find(|name| *name != "null"),
        name => name.as_str(),
    };
    match type_name {
        Some("string") => Shape::Text,
        Some("boolean") => Shape::Flag,
        Some("number") => Shape::Number,
        Some("integer") => Shape::Whole {
            most: if schema["format"] == "uint32" { u64::from(u32::MAX) } else { u64::MAX },
        },
        Some("array") => Shape::List(Box::new(shape(&schema["items"]))),
        Some("object") if schema["additionalProperties"].is_object() => {
            Shape::Map(Box::new(shape(&schema["additionalProperties"])))
        }
        Some("object") => Shape::Table(fields(schema)),
        _ => Shape::Any,
    }
}

fn either(alternatives: &[Json]) -> Shape {
    let mut shapes = alternatives.iter().filter(|one| one["type"] != "null").map(shape);
    match (shapes.next(), shapes.next(), shapes.next()) {
        (Some(only), None, _) => only,
        (Some(text), Some(table), None) => Shape::Either(Box::new(text), Box::new(table)),
        _ => Shape::Any,
    }
}

fn one_of(alternatives: &[Json]) -> Shape {
    let choice =
        |one: &Json| Some(Choice { text: one["const"].as_str()?.to_owned(), doc: doc(one) });
    if let Some(choices) = alternatives.iter().map(choice).collect() {
        return Shape::Choice(choices);
    }
    let variant = |one: &Json| {
        let kind = one["properties"]["kind"]["const"].as_str()?.to_owned();
        Some(Variant { kind, doc: doc(one), fields: fields(one) })
    };
    match alternatives.iter().map(variant).collect() {
        Some(variants) => Shape::Tagged(variants),
        None => Shape::Any,
    }
}

fn fields(schema: &Json) -> Fields {
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name))
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let field = |(name, property): (&String, &Json)| Field {
        name: name.clone(),
        doc: doc(property),
        shape: shape(property),
        required: is_required(name),
        default: property.get("default").cloned(),
    };
    properties.filter(|(_, property)| property.get("const").is_none()).map(field).collect()
}
