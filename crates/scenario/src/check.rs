//! Holds a document against the shapes of the model, and finds everything that does not fit.
//!
//! Serde alone would stop at the first error, and inside tagged tables it no longer knows
//! which field it was at.

use std::str::FromStr;

use ontempo_foundation::{
    Bytes, Duration, MessageRate, Packets, Percent, Quantity, Rate, UnitError,
};

use crate::congestion;
use crate::custom::CustomNames;
use crate::document::{Node, Table, Value};
use crate::error::{Origin, Problem};
use crate::model::QueueLimit;
use crate::nearest::{listed, nearest};
use crate::path::FieldPath;
use crate::profiles;
use crate::shape::{Field, Shape, Shapes, Variant};

/// Everything in `document` that the model does not allow; `controllers` are the caller's.
pub(crate) fn check(document: &Node, controllers: &CustomNames) -> Vec<Problem> {
    let mut checker = Checker { shapes: Shapes::of_model(), controllers, problems: Vec::new() };
    checker.value(document, &checker.shapes.root, &FieldPath::default());
    checker.problems
}

struct Checker<'a> {
    shapes: &'static Shapes,
    controllers: &'a CustomNames,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn report(&mut self, origin: &Origin, path: &FieldPath, what: String) {
        self.problems.push(Problem { origin: Some(origin.clone()), field: path.to_string(), what });
    }

    fn value(&mut self, node: &Node, shape: &Shape, path: &FieldPath) {
        let (shapes, found) = (self.shapes, self.problems.len());
        if matches!(shape, Shape::Named(name) if name == congestion::CHOICE)
            && self.custom(node, path)
        {
            return;
        }
        let is_congestion = matches!(shape, Shape::Named(name) if name == congestion::TABLE);
        let shape = shapes.resolve(shape);
        let misfit = match (shape, &node.value) {
            (Shape::Any, _) | (Shape::Text, Value::Text(_)) | (Shape::Flag, Value::Flag(_)) => None,
            (Shape::Unit(quantity), Value::Text(text)) => unit_error(*quantity, text),
            (Shape::Limit, Value::Text(text)) => error_of::<QueueLimit>(text),
            (Shape::Unit(quantity), Value::Whole(number)) => bare(*quantity, number),
            (Shape::Unit(quantity), Value::Number(number)) => bare(*quantity, number),
            (Shape::Limit, Value::Whole(number)) => bare(Quantity::Packets, number),
            (Shape::Limit, Value::Number(number)) => bare(Quantity::Packets, number),
            (Shape::Whole { most }, Value::Whole(number)) => whole_error(*number, *most),
            (Shape::Number, Value::Whole(_)) => None,
            (Shape::Number, Value::Number(number)) if number.is_finite() => None,
            (Shape::Number, Value::Number(number)) => {
                Some(format!("{number} will not do; a finite number is needed"))
            }
            (Shape::Choice(choices), Value::Text(text)) => {
                unknown_choice(text, choices.iter().map(|choice| choice.text.as_str()))
            }
            (Shape::List(item), Value::List(items)) => {
                for (place, node) in items.iter().enumerate() {
                    self.value(node, item, &path.index(place));
                }
                None
            }
            (Shape::Map(item), Value::Table(table)) => {
                for (name, node) in table {
                    self.value(node, item, &path.key(name));
                }
                None
            }
            (Shape::Table(fields), Value::Table(table)) => {
                self.unknown_fields(table, fields, path, |_| String::new());
                self.fields(node, table, fields, path);
                None
            }
            (Shape::Tagged(variants), Value::Table(table)) => {
                self.tagged(node, table, variants, path);
                None
            }
            (Shape::Parameter, _) => (!is_parameter(node)).then(|| NO_PARAMETER.to_owned()),
            (Shape::Either(_, table), Value::Table(_)) => return self.value(node, table, path),
            (Shape::Either(text, _), Value::Text(_) | Value::Whole(_) | Value::Number(_)) => {
                return self.value(node, text, path);
            }
            _ => Some(format!("{}; {} is needed", node.describe(), shapes.wanted(shape))),
        };
        if let Some(what) = misfit {
            self.report(&node.origin, path, what);
        }
        if is_congestion && self.problems.len() == found {
            self.congestion(node, path);
        }
    }

    /// What the registry of congestion controllers has against the values of a table whose fields
    /// are of the right shape.
    fn congestion(&mut self, node: &Node, path: &FieldPath) {
        let (Value::Table(table), Some(kind)) = (&node.value, node.kind()) else { return };
        let parameters = table.iter().filter(|(name, _)| *name != "kind");
        let written = parameters.map(|(name, node)| (name.as_str(), node.to_json()));
        if let Some(error) = congestion::misfit(kind, written) {
            let origin = table.get(&error.parameter).map_or(&node.origin, |node| &node.origin);
            self.report(origin, &path.key(&error.parameter), error.what);
        }
    }

    /// Checks the choice of a congestion controller, and reports a name that is neither the registry's
    /// nor the caller's; false if what is left to check is a choice of the registry.
    fn custom(&mut self, node: &Node, path: &FieldPath) -> bool {
        let (named, at) = match &node.value {
            Value::Table(table) => match table.get("kind") {
                Some(kind) => (kind, path.key("kind")),
                None => return false,
            },
            _ => (node, path.clone()),
        };
        let Value::Text(name) = &named.value else { return false };
        let is_known = congestion::names_in_files().any(|known| known == name);
        if is_known || self.controllers.iter().next().is_none() {
            return false;
        }
        if let Some(what) = unknown_choice(name, self.controllers.with_registry()) {
            self.report(&named.origin, &at, what);
        }
        if let Value::Table(table) = &node.value {
            for (name, node) in table.iter().filter(|(_, node)| !is_parameter(node)) {
                self.report(&node.origin, &path.key(name), NO_PARAMETER.to_owned());
            }
        }
        true
    }

    fn tagged(&mut self, node: &Node, table: &Table, variants: &[Variant], path: &FieldPath) {
        let kinds = || variants.iter().map(|variant| variant.kind.as_str());
        let Some(kind_node) = table.get("kind") else {
            let what = format!("missing field `kind`; known kinds: {}", listed(kinds()));
            return self.report(&node.origin, path, what);
        };
        let kind_path = path.key("kind");
        let Value::Text(kind) = &kind_node.value else {
            let what = format!("{}; known kinds: {}", kind_node.describe(), listed(kinds()));
            return self.report(&kind_node.origin, &kind_path, what);
        };
        let Some(variant) = variants.iter().find(|variant| variant.kind == *kind) else {
            let what = unknown_choice(kind, kinds()).unwrap_or_default();
            return self.report(&kind_node.origin, &kind_path, what);
        };
        self.unknown_fields(table, &variant.fields, path, |name| {
            let has_field = |other: &&Variant| other.fields.iter().any(|field| field.name == name);
            match variants.iter().find(has_field) {
                Some(owner) => format!(" of kind `{kind}`, but of kind `{}`", owner.kind),
                None => format!(" of kind `{kind}`"),
            }
        });
        self.fields(node, table, &variant.fields, path);
    }

    /// Reports each field of `table` that is none of `fields`; `of_what` describes it.
    fn unknown_fields(
        &mut self,
        table: &Table,
        fields: &[Field],
        path: &FieldPath,
        of_what: impl Fn(&str) -> String,
    ) {
        let names = || fields.iter().map(|field| field.name.as_str());
        for (name, node) in table {
            let is_tag = name == "kind" && !of_what("kind").is_empty();
            if is_tag || names().any(|known| known == name) {
                continue;
            }
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known fields: {}", listed(names())),
            };
            let what = format!("unknown field{}; {hint}", of_what(name));
            self.report(&node.origin, &path.key(name), what);
        }
    }

    fn fields(&mut self, node: &Node, table: &Table, fields: &[Field], path: &FieldPath) {
        for field in fields {
            match table.get(&field.name) {
                Some(value) => self.value(value, &field.shape, &path.key(&field.name)),
                None if field.required && !profiles::gives(fields, table) => {
                    let example = self.shapes.example(&field.shape);
                    let what = format!("missing field `{0}`; write {0} = {example}", field.name);
                    self.report(&node.origin, path, what);
                }
                None => {}
            }
        }
    }
}

/// What is wrong with a value that is no parameter.
const NO_PARAMETER: &str = "a parameter is a text, a finite number, true or false, or a list of \
                            these; write gain = 0.5";

/// Whether a congestion controller may have the value as a parameter.
fn is_parameter(node: &Node) -> bool {
    let is_plain = |node: &Node| match &node.value {
        Value::Text(_) | Value::Whole(_) | Value::Flag(_) => true,
        Value::Number(number) => number.is_finite(),
        Value::Moment(_) | Value::List(_) | Value::Table(_) => false,
    };
    match &node.value {
        Value::List(items) => items.iter().all(is_plain),
        _ => is_plain(node),
    }
}

fn unit_error(quantity: Quantity, text: &str) -> Option<String> {
    match quantity {
        Quantity::Duration => error_of::<Duration>(text),
        Quantity::Rate => error_of::<Rate>(text),
        Quantity::Bytes => error_of::<Bytes>(text),
        Quantity::Packets => error_of::<Packets>(text),
        Quantity::MessageRate => error_of::<MessageRate>(text),
        Quantity::Percent => error_of::<Percent>(text),
    }
}

fn error_of<T: FromStr<Err: ToString>>(text: &str) -> Option<String> {
    text.parse::<T>().err().map(|error| error.to_string())
}

fn bare(quantity: Quantity, number: impl std::fmt::Display) -> Option<String> {
    Some(UnitError::bare_number(quantity, number).to_string())
}

fn whole_error(number: i128, most: u64) -> Option<String> {
    if number < 0 {
        Some(format!("{number} is negative; a whole number from 0 is needed"))
    } else if number > i128::from(most) {
        Some(format!("{number} is too large; at most {most} will do"))
    } else {
        None
    }
}

fn unknown_choice<'a>(text: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if known.clone().any(|choice| choice == text) {
        return None;
    }
    let known_list = listed(known.clone());
    Some(match nearest(text, known) {
        Some(near) => format!("unknown name {text:?}; did you mean `{near}`? Known: {known_list}"),
        None => format!("unknown name {text:?}; known: {known_list}"),
    })
}

impl Shapes {
    /// What a value of `shape` is called, with its article.
    fn wanted(&self, shape: &Shape) -> String {
        match self.resolve(shape) {
            Shape::Unit(_) | Shape::Limit => {
                format!("a text such as {}", self.example(shape))
            }
            Shape::Text => "a text".to_owned(),
            Shape::Whole { .. } => "a whole number".to_owned(),
            Shape::Number => "a number".to_owned(),
            Shape::Flag => "true or false".to_owned(),
            Shape::Choice(choices) => {
                format!("one of {}", listed(choices.iter().map(|choice| choice.text.as_str())))
            }
            Shape::List(_) => "a list".to_owned(),
            Shape::Map(_) | Shape::Table(_) => "a table".to_owned(),
            Shape::Tagged(_) => format!("a table such as {}", self.example(shape)),
            Shape::Either(text, table) => {
                format!("{} or {}", self.wanted(text), self.wanted(table))
            }
            Shape::Parameter => "a parameter".to_owned(),
            Shape::Named(_) | Shape::Any => "another value".to_owned(),
        }
    }

    /// A value of `shape`, as TOML.
    pub(crate) fn example(&self, shape: &Shape) -> String {
        match self.resolve(shape) {
            Shape::Unit(Quantity::Duration) => "\"30 ms\"".to_owned(),
            Shape::Unit(Quantity::Rate) => "\"25 Mbit/s\"".to_owned(),
            Shape::Unit(Quantity::Bytes) => "\"1000 bytes\"".to_owned(),
            Shape::Unit(Quantity::Packets) | Shape::Limit => "\"150 packets\"".to_owned(),
            Shape::Unit(Quantity::MessageRate) => "\"60 messages/s\"".to_owned(),
            Shape::Unit(Quantity::Percent) => "\"5 %\"".to_owned(),
            Shape::Text => "\"…\"".to_owned(),
            Shape::Whole { .. } => "1".to_owned(),
            Shape::Number => "0.5".to_owned(),
            Shape::Flag => "true".to_owned(),
            Shape::Choice(choices) => match choices.first() {
                Some(first) => format!("{:?}", first.text),
                None => "\"…\"".to_owned(),
            },
            Shape::List(item) => format!("[{}]", self.example(item)),
            Shape::Tagged(variants) => match variants.first() {
                Some(first) => {
                    format!("{{ {} }}", self.example_fields(Some(&first.kind), &first.fields))
                }
                None => "{ … }".to_owned(),
            },
            Shape::Table(fields) => format!("{{ {} }}", self.example_fields(None, fields)),
            Shape::Either(text, _) => self.example(text),
            Shape::Map(item) => format!("{{ name = {} }}", self.example(item)),
            Shape::Named(_) | Shape::Parameter | Shape::Any => "…".to_owned(),
        }
    }

    fn example_fields(&self, kind: Option<&str>, fields: &[Field]) -> String {
        let kind = kind.map(|kind| format!("kind = {kind:?}"));
        let required = fields.iter().filter(|field| field.required);
        let written =
            required.map(|field| format!("{} = {}", field.name, self.example(&field.shape)));
        kind.into_iter().chain(written).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_the_model_has_a_shape_that_is_checked() {
        let shapes = Shapes::of_model();
        let all = shapes.named().map(|(_, shape, _)| shape).chain([&shapes.root]);
        for shape in all {
            assert!(
                !format!("{shape:?}").contains(": Any") && !format!("{shape:?}").contains("(Any)"),
                "{shape:?}"
            );
        }
        assert!(
            shapes
                .named()
                .all(|(name, shape, _)| { !matches!(shape, Shape::Named(inner) if inner == name) })
        );
    }
}
