//! Profiles of TCP: the defaults that a document's flows leave to a profile, filled in before
//! the document becomes a scenario.
//!
//! A scenario therefore holds values alone. Its canonical form shows all of them and is the same
//! whether a value was written or came from a profile.

use std::fmt::Write;

use serde_json::Value as Json;

use crate::document::{Node, Table, Value};
use crate::model::{ProfileValue, TcpProfile, TcpSpec};

const FIELD: &str = "profile";

/// Fills the profile's values into each TCP flow of a document that has the model's shape.
pub(crate) fn fill(document: &mut Node) {
    let Some(flows) = document.as_table_mut().and_then(|root| root.get_mut("flows")) else {
        return;
    };
    for group in flows.as_table_mut().into_iter().flat_map(|flows| flows.values_mut()) {
        let transport = group.as_table_mut().and_then(|group| group.get_mut("transport"));
        if let Some(transport) = transport.filter(|transport| transport.kind() == Some("tcp")) {
            fill_transport(transport);
        }
    }
}

fn fill_transport(transport: &mut Node) {
    let origin = transport.origin.clone();
    let Some(fields) = transport.as_table_mut() else { return };
    let Some(named) = fields.remove(FIELD) else { return };
    let profile = TcpProfile::ALL.into_iter().find(|profile| is_text(&named, profile.name()));
    let Some(profile) = profile.filter(|profile| *profile != TcpProfile::default()) else { return };
    let mut filled = Node { value: Value::Table(values(profile)), origin: origin.clone() };
    filled.set_origin(&origin);
    omit_what_conflicts(fields, &mut filled);
    filled.merge(transport.clone());
    let congestion = filled.as_table_mut().and_then(|fields| fields.get_mut("congestion"));
    congestion.into_iter().for_each(|congestion| fill_congestion(congestion, profile));
    *transport = filled;
}

fn is_text(node: &Node, expected: &str) -> bool {
    matches!(&node.value, Value::Text(text) if text == expected)
}

/// What `profile` sets otherwise than the default profile.
fn values(profile: TcpProfile) -> Table {
    differences(profile).map(|(name, _, value)| (name, Node::of_json(&value))).collect()
}

/// Each field in which `profile` differs from the default profile: name, default value, its value.
fn differences(profile: TcpProfile) -> impl Iterator<Item = (String, Json, Json)> {
    let json = |profile| match serde_json::to_value(TcpSpec::of(profile)) {
        Ok(Json::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let base = json(TcpProfile::default());
    json(profile).into_iter().filter_map(move |(name, value)| {
        let before = base.get(&name).cloned().unwrap_or_default();
        (before != value).then_some((name, before, value))
    })
}

/// A field that is given may exclude a part of the profile: probes need RACK, a proportional
/// reduction SACK, and a clock of ticks has a timeout of its own.
fn omit_what_conflicts(given: &Table, filled: &mut Node) {
    let Some(fields) = filled.as_table_mut() else { return };
    if let Some(recovery) = given.get("recovery").filter(|node| !is_text(node, "rack")) {
        fields.remove("tail-loss-probe");
        if !is_text(recovery, "sack") {
            fields.remove("proportional-rate-reduction");
        }
    }
    if given.contains_key("clock") {
        fields.remove("rto");
    }
}

fn fill_congestion(node: &mut Node, profile: TcpProfile) {
    let origin = node.origin.clone();
    let of = |value| Node { value, origin: origin.clone() };
    let name = match &node.value {
        Value::Text(name) => name.clone(),
        _ => node.kind().unwrap_or_default().to_owned(),
    };
    let parameters = profile.congestion_parameters(&name);
    if parameters.is_empty() {
        return;
    }
    if let Value::Text(_) = &node.value {
        node.value = Value::Table(Table::from([("kind".to_owned(), of(Value::Text(name)))]));
    }
    let Some(table) = node.as_table_mut() else { return };
    // Another variant is another system's.
    if table.contains_key("variant") {
        return;
    }
    for (name, value) in parameters {
        let value = match value {
            ProfileValue::Flag(flag) => Value::Flag(*flag),
            ProfileValue::Word(word) => Value::Text((*word).to_owned()),
        };
        table.entry((*name).to_owned()).or_insert_with(|| of(value));
    }
}

/// The values of all profiles side by side, for the reference.
pub(crate) fn reference(page: &mut String, shown: impl Fn(&Json) -> String) {
    let names: Vec<_> = TcpProfile::ALL.iter().map(|one| format!("`\"{}\"`", one.name())).collect();
    _ = writeln!(page, "\nWhere the profiles of TCP differ:\n");
    _ = writeln!(page, "| field | {} |\n| --- | --- | --- |", names.join(" | "));
    for (name, before, value) in differences(TcpProfile::Linux) {
        _ = writeln!(page, "| `{name}` | `{}` | `{}` |", shown(&before), shown(&value));
    }
    for controller in ["cubic", "reno", "newreno"] {
        for (name, value) in TcpProfile::Linux.congestion_parameters(controller) {
            let (before, value) = match value {
                ProfileValue::Flag(flag) => ((!flag).to_string(), flag.to_string()),
                ProfileValue::Word(word) => ("\"acks\"".to_owned(), format!("{word:?}")),
            };
            _ = writeln!(page, "| `{name}` of `{controller}` | `{before}` | `{value}` |");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{AckKind, RecoveryKind, Scenario, TcpProfile, TcpSpec, Transport};
    use crate::testing::{VIDEO, scenario};
    use crate::{Overrides, parse_with};

    fn tcp(scenario: &Scenario) -> &TcpSpec {
        match &scenario.flows["video"].transport {
            Transport::Tcp(spec) => spec,
            other => panic!("{other:?}"),
        }
    }

    fn with(fields: &str) -> Scenario {
        let text = VIDEO.replace("congestion = \"pert\"", fields);
        assert_ne!(text, VIDEO);
        scenario(&text)
    }

    #[test]
    fn a_profile_sets_what_the_flow_leaves_out() {
        let expected = TcpSpec::of(TcpProfile::Linux);
        let read = with("profile = \"linux\"");
        let spec = tcp(&read);
        assert_eq!(spec.recovery, expected.recovery);
        assert_eq!((spec.ack, spec.rto, spec.handshake), (expected.ack, expected.rto, true));
        let text = read.canonical();
        assert!(text.contains(r#"{"kind":"cubic","counting":"packets","hystart":true}"#), "{text}");
    }

    #[test]
    fn a_field_that_is_given_wins_over_the_profile() {
        let read = with(
            "profile = \"linux\", recovery = \"newreno\", ack = { kind = \"delayed\", timeout = \
             \"10 ms\" }, congestion = { kind = \"cubic\", hystart = false }, initial-window = \
             \"4 packets\"",
        );
        let spec = tcp(&read);
        assert_eq!(spec.recovery, RecoveryKind::NewReno);
        assert!(!spec.tail_loss_probe && !spec.proportional_rate_reduction);
        let AckKind::Delayed { timeout, quick } = spec.ack else { panic!("{:?}", spec.ack) };
        assert_eq!((timeout.to_string(), quick.get()), ("10 ms".to_owned(), 16));
        assert_eq!(spec.initial_window.get(), 4);
        assert!(!read.canonical().contains("hystart"), "{}", read.canonical());
    }

    #[test]
    fn the_profile_of_ns_2_is_the_default() {
        let default = scenario(VIDEO);
        assert_eq!(with("congestion = \"pert\", profile = \"ns-2\""), default);
        assert!(!default.canonical().contains("profile"));
    }

    #[test]
    fn the_canonical_form_of_a_profile_reads_as_the_same_scenario() {
        for fields in ["", ", congestion = { kind = \"cubic\", hystart = false }"] {
            let read = with(&format!("profile = \"linux\"{fields}"));
            let again: Scenario = serde_json::from_str(&read.canonical()).unwrap();
            assert_eq!(again, read);
        }
    }

    #[test]
    fn a_profile_can_be_set_on_the_command_line() {
        let overrides = Overrides::parse(["flows.video.transport.profile=linux"]).unwrap();
        let read = parse_with(VIDEO, "s.toml", &overrides).unwrap();
        assert_eq!(tcp(&read).recovery, RecoveryKind::Rack);
        let overrides = Overrides::parse(["flows.video.transport.profile=bsd"]).unwrap();
        let error = parse_with(VIDEO, "s.toml", &overrides).unwrap_err().to_string();
        assert!(error.contains("bsd") && error.contains("`ns-2`, `linux`"), "{error}");
    }

    #[test]
    fn what_needs_another_field_says_so() {
        for (fields, needed) in [
            ("tail-loss-probe = true", "recovery = \"rack\""),
            ("recovery = \"reno\", proportional-rate-reduction = true", "recovery = \"rack\""),
            ("rto = \"linux\", clock = \"10 ms\"", "clock"),
        ] {
            let text = VIDEO.replace("congestion = \"pert\"", fields);
            let error = crate::parse(&text, "s.toml").unwrap_err().to_string();
            assert!(error.contains(needed), "{error}");
        }
    }
}
