//! The JSON Schema of the scenario file, and its reference for readers.

use std::collections::BTreeMap;
use std::fmt::Write;

use ontempo_foundation::Quantity;
use serde_json::Value as Json;

use crate::model::Scenario;
use crate::profile;
use crate::shape::{Field, Shape, Shapes};

/// The JSON Schema (2020-12) of a scenario file, from the model's types.
pub fn json_schema() -> Json {
    let mut schema = model_schema();
    schema["properties"]["include"] = serde_json::json!({
        "description": "Files whose tables this one is laid over, relative to it.",
        "type": "array",
        "items": { "type": "string" },
    });
    // What a profile gives need not be written.
    for link in ["LinkSpec", "GraphLink"] {
        let required = &mut schema["$defs"][link]["required"];
        let fields = required.as_array_mut().map(std::mem::take).unwrap_or_default();
        let of_profile = |name: &Json| name == "rate" || name == "delay";
        let (given, others): (Vec<Json>, Vec<Json>) = fields.into_iter().partition(of_profile);
        *required = others.into();
        if link == "LinkSpec" {
            schema["$defs"]["BackLinkSpec"] = schema["$defs"][link].clone();
        }
        schema["$defs"][link]["anyOf"] =
            serde_json::json!([{ "required": given }, { "required": ["profile"] }]);
    }
    // The way back has the profile of its link.
    for link in ["LinkSpec", "GraphLink", "BackLinkSpec"] {
        let back = &mut schema["$defs"][link]["properties"]["back"]["anyOf"][0];
        *back = serde_json::json!({ "$ref": "#/$defs/BackLinkSpec" });
    }
    schema
}

/// The schema of what is left when all files are merged.
pub(crate) fn model_schema() -> Json {
    schemars::schema_for!(Scenario).to_value()
}

const PREAMBLE: &str = "\
# The scenario file

A scenario is a TOML file. Quantities are texts with their unit:

| quantity | written as |
| --- | --- |
| duration | `\"30 ms\"`; units ns, us, ms, s, min, h |
| rate | `\"25 Mbit/s\"`; units bit/s, kbit/s, Mbit/s, Gbit/s; or `\"unlimited\"` |
| bytes | `\"1000 bytes\"`; units bytes, kB, MB, GB, KiB, MiB, GiB |
| packets | `\"150 packets\"` |
| limit | packets or bytes |

A file may begin with `include = [\"base.toml\"]`: the tables of the files named, whose paths
are relative to the file, are merged in order, and the file's own values win. A table of
another `kind` replaces the included one.
";

/// The reference of the scenario file in Markdown: every table with its fields, from
/// [`json_schema`].
pub fn reference() -> String {
    let shapes = Shapes::of_model();
    let mut page = PREAMBLE.to_owned();
    section(&mut page, "Scenario", &shapes.root, &shapes.root_doc, shapes);
    let named: BTreeMap<&str, (&Shape, &str)> =
        shapes.named().map(|(name, shape, doc)| (name, (shape, doc))).collect();
    for name in in_reading_order(shapes, &named) {
        if let Some((shape, doc)) = named.get(name) {
            section(&mut page, &heading(name), shape, doc, shapes);
            if name == "TcpProfile" {
                profile::reference(&mut page, toml_of);
            }
        }
    }
    page
}

/// The names of the sections: each where it is first mentioned, depth first.
fn in_reading_order<'a>(
    shapes: &'a Shapes,
    named: &BTreeMap<&'a str, (&'a Shape, &'a str)>,
) -> Vec<&'a str> {
    let mut order: Vec<&str> = Vec::new();
    let mut open = vec![&shapes.root];
    while let Some(shape) = open.pop() {
        match shape {
            Shape::Named(name) => {
                let Some((inner, _)) = named.get(name.as_str()) else { continue };
                let is_unit = matches!(inner, Shape::Unit(_) | Shape::Limit);
                if !is_unit && !order.contains(&name.as_str()) {
                    order.push(name);
                    open.push(inner);
                }
            }
            Shape::List(item) | Shape::Map(item) => open.push(item),
            Shape::Either(text, table) => open.extend([table.as_ref(), text.as_ref()]),
            Shape::Table(fields) => open.extend(fields.iter().rev().map(|field| &field.shape)),
            Shape::Tagged(variants) => {
                let fields = variants.iter().rev().flat_map(|one| one.fields.iter().rev());
                open.extend(fields.map(|field| &field.shape));
            }
            _ => {}
        }
    }
    order
}

fn section(page: &mut String, heading: &str, shape: &Shape, doc: &str, shapes: &Shapes) {
    _ = writeln!(page, "\n## {heading}\n\n{}", one_line(doc));
    contents(page, shape, shapes);
}

fn contents(page: &mut String, shape: &Shape, shapes: &Shapes) {
    match shape {
        Shape::Table(fields) => table(page, fields, shapes),
        Shape::Choice(choices) => {
            _ = writeln!(page);
            for choice in choices {
                _ = writeln!(page, "- `\"{}\"`: {}", choice.text, one_line(&choice.doc));
            }
        }
        Shape::Tagged(variants) => {
            for variant in variants {
                let doc = one_line(&variant.doc);
                _ = writeln!(page, "\n### `kind = \"{}\"`\n\n{doc}", variant.kind);
                table(page, &variant.fields, shapes);
            }
        }
        Shape::Either(text, table) => {
            let (text, table) = (text.as_ref(), table.as_ref());
            _ = writeln!(
                page,
                "\nEither {}, or {}.",
                type_name(text, shapes),
                type_name(table, shapes)
            );
            [text, table].iter().for_each(|shape| contents(page, shape, shapes));
        }
        _ => {}
    }
}

fn table(page: &mut String, fields: &[Field], shapes: &Shapes) {
    if fields.is_empty() {
        return;
    }
    _ = writeln!(page, "\n| field | type | default | meaning |\n| --- | --- | --- | --- |");
    for field in fields {
        let Field { name, doc, shape, required, default } = field;
        let default = match default {
            _ if *required => "required".to_owned(),
            Some(Json::Object(table)) if table.len() > 2 => "the defaults of its fields".to_owned(),
            Some(value) => format!("`{}`", toml_of(value)),
            None => "none".to_owned(),
        };
        let (kind, meaning) = (type_name(shape, shapes), one_line(doc).replace('|', "\\|"));
        _ = writeln!(page, "| `{name}` | {kind} | {default} | {meaning} |");
    }
}

fn type_name(shape: &Shape, shapes: &Shapes) -> String {
    match shape {
        Shape::Named(name) => match shapes.resolve(shape) {
            unit @ (Shape::Unit(_) | Shape::Limit) => type_name(unit, shapes),
            _ => {
                let heading = heading(name);
                format!(
                    "[{}](#{})",
                    heading.to_lowercase(),
                    heading.to_lowercase().replace(' ', "-")
                )
            }
        },
        Shape::Unit(Quantity::Duration) => "duration".to_owned(),
        Shape::Unit(Quantity::Rate) => "rate".to_owned(),
        Shape::Unit(Quantity::Bytes) => "bytes".to_owned(),
        Shape::Unit(Quantity::Packets) => "packets".to_owned(),
        Shape::Unit(Quantity::MessageRate) => "rate of messages".to_owned(),
        Shape::Unit(Quantity::Percent) => "share".to_owned(),
        Shape::Limit => "limit".to_owned(),
        Shape::Text | Shape::Choice(_) => "text".to_owned(),
        Shape::Whole { .. } => "whole number".to_owned(),
        Shape::Number => "number".to_owned(),
        Shape::Flag => "true or false".to_owned(),
        Shape::List(item) => format!("list of {}", type_name(item, shapes)),
        Shape::Map(item) => format!("table of {}", type_name(item, shapes)),
        Shape::Table(_) | Shape::Tagged(_) => "a table".to_owned(),
        Shape::Either(text, table) => {
            format!("{} or {}", type_name(text, shapes), type_name(table, shapes))
        }
        Shape::Parameter | Shape::Any => "value".to_owned(),
    }
}

/// `FlowGroup` as `Flow group`; the endings `Spec` and `Kind` mean nothing to a reader.
fn heading(name: &str) -> String {
    let short = name.strip_suffix("Spec").or(name.strip_suffix("Kind")).unwrap_or(name);
    let mut heading = String::new();
    for (place, letter) in short.chars().enumerate() {
        if place > 0 && letter.is_uppercase() {
            heading.push(' ');
            heading.extend(letter.to_lowercase());
        } else {
            heading.push(letter);
        }
    }
    heading
}

fn one_line(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn toml_of(value: &Json) -> String {
    match value {
        Json::Array(items) => {
            format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", "))
        }
        Json::Object(fields) => {
            let written = fields.iter().map(|(name, value)| format!("{name} = {}", toml_of(value)));
            format!("{{ {} }}", written.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_every_field_with_type_and_default() {
        let page = reference();
        assert!(page.contains("| `rate` | rate | required | How fast bits leave. With"), "{page}");
        assert!(page.contains("| `packet` | bytes | `\"1000 bytes\"` |"));
        assert!(page.contains("| `queue` | [queue](#queue) | `{ kind = \"drop-tail\" }` |"));
        assert!(page.contains("- `\"per-link\"`: Once for each link"));
        for (name, shape, _) in Shapes::of_model().named() {
            let is_unit = matches!(shape, Shape::Unit(_) | Shape::Limit);
            let section = format!("\n## {}\n", heading(name));
            assert!(is_unit || page.contains(&section), "{name} has no section");
        }
    }

    #[test]
    fn the_reference_has_the_values_of_both_profiles_of_tcp() {
        let page = reference();
        for row in [
            "| field | `\"linux\"` | `\"ns-2\"` |",
            "| `initial-window` | `\"10 packets\"` | `\"2 packets\"` |",
            "| `recovery` | `\"rack\"` | `\"sack\"` |",
            "| `variant` of `cubic` | `\"linux\"` | `\"rfc9438\"` |",
        ] {
            assert!(page.contains(row), "{row}");
        }
    }

    #[test]
    fn no_field_of_the_reference_lacks_its_meaning() {
        for line in reference().lines() {
            assert!(!line.ends_with("|  |"), "{line}");
        }
    }

    #[test]
    fn the_schema_knows_units_and_refuses_unknown_fields() {
        let schema = json_schema();
        assert_eq!(schema["$defs"]["Rate"]["type"], "string");
        assert_eq!(schema["$defs"]["GraphLink"]["additionalProperties"], false);
        assert_eq!(schema["$defs"]["Transport"]["oneOf"][0]["additionalProperties"], false);
        assert_eq!(schema["properties"]["include"]["type"], "array");
    }
}
