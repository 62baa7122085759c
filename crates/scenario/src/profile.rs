//! Profiles of TCP: the defaults that a document's flows leave to a profile, filled in before
//! the document becomes a scenario.
//!
//! A scenario therefore holds values alone. Its canonical form shows all of them and is the same
//! whether a value was written or came from a profile.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use crate::document::{Node, Table, Value};
use crate::model::{TcpProfile, TcpSpec};

/// A flow's own profile.
const FIELD: &str = "profile";
/// The profile of all flows that name none.
const OF_ALL: &str = "tcp-profile";

/// Fills the profile's values into each TCP flow of a document that has the model's shape.
pub(crate) fn fill(document: &mut Node) {
    let Some(root) = document.as_table_mut() else { return };
    let of_all = root.remove(OF_ALL).and_then(|node| named(&node)).unwrap_or_default();
    let Some(flows) = root.get_mut("flows") else { return };
    for group in flows.as_table_mut().into_iter().flat_map(|flows| flows.values_mut()) {
        let transport = group.as_table_mut().and_then(|group| group.get_mut("transport"));
        if let Some(transport) = transport.filter(|transport| transport.kind() == Some("tcp")) {
            fill_transport(transport, of_all);
        }
    }
}

fn named(node: &Node) -> Option<TcpProfile> {
    TcpProfile::ALL.into_iter().find(|profile| is_text(node, profile.name()))
}

fn fill_transport(transport: &mut Node, of_all: TcpProfile) {
    let origin = transport.origin.clone();
    let Some(fields) = transport.as_table_mut() else { return };
    let profile = fields.remove(FIELD).and_then(|node| named(&node)).unwrap_or(of_all);
    let mut filled = Node { value: Value::Table(values(profile)), origin: origin.clone() };
    filled.set_origin(&origin);
    omit_what_conflicts(fields, &mut filled);
    let given_pacing = fields.contains_key("pacing");
    filled.merge(transport.clone());
    if let Some(fields) = filled.as_table_mut() {
        fill_congestion(fields, profile, given_pacing);
    }
    *transport = filled;
}

fn is_text(node: &Node, expected: &str) -> bool {
    matches!(&node.value, Value::Text(text) if text == expected)
}

/// The values of a profile; of the congestion controller the name alone.
fn values(profile: TcpProfile) -> Table {
    let mut fields = json(profile);
    if let Some(congestion) = fields.get_mut("congestion")
        && let Some(kind) = congestion.get("kind").cloned()
    {
        *congestion = kind;
    }
    fields.into_iter().map(|(name, value)| (name, Node::of_json(&value))).collect()
}

fn json(profile: TcpProfile) -> Map<String, Json> {
    match serde_json::to_value(TcpSpec::of(profile)) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// A field that is given may exclude a part of the profile: probes need RACK, a proportional
/// reduction SACK, and a clock of ticks has a timeout of its own.
fn omit_what_conflicts(given: &Table, filled: &mut Node) {
    let origin = filled.origin.clone();
    let Some(fields) = filled.as_table_mut() else { return };
    let mut set = |field: &str, value| {
        fields.insert(field.to_owned(), Node { value, origin: origin.clone() });
    };
    if let Some(recovery) = given.get("recovery").filter(|node| !is_text(node, "rack")) {
        set("tail-loss-probe", Value::Flag(false));
        if !is_text(recovery, "sack") {
            set("proportional-rate-reduction", Value::Flag(false));
        }
    }
    if given.get("timestamps").is_some_and(|node| matches!(node.value, Value::Flag(false))) {
        set("undo-timeouts", Value::Flag(false));
    }
    if given.contains_key("clock") {
        set("rto", Value::Text("rfc6298".to_owned()));
    }
}

fn fill_congestion(fields: &mut Table, profile: TcpProfile, given_pacing: bool) {
    let Some(node) = fields.get_mut("congestion") else { return };
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
    let is_pert = name == "pert";
    if let Value::Text(_) = &node.value {
        node.value = Value::Table(Table::from([("kind".to_owned(), of(Value::Text(name)))]));
    }
    let Some(table) = node.as_table_mut() else { return };
    for (name, value) in parameters {
        let value = Value::Text((*value).to_owned());
        table.entry((*name).to_owned()).or_insert_with(|| of(value));
    }
    // The kernel's PERT paces, unless it is loaded otherwise.
    if is_pert && profile == TcpProfile::Linux && !given_pacing {
        fields.insert("pacing".to_owned(), of(Value::Text("window".to_owned())));
    }
}

/// The values of all profiles side by side, for the reference.
pub(crate) fn reference(page: &mut String, shown: impl Fn(&Json) -> String) {
    let names: Vec<_> = TcpProfile::ALL.iter().map(|one| format!("`\"{}\"`", one.name())).collect();
    _ = writeln!(page, "\nWhere the profiles of TCP differ:\n");
    _ = writeln!(page, "| field | {} |\n| --- | --- | --- |", names.join(" | "));
    let [first, second] = TcpProfile::ALL;
    let others = json(second);
    for (name, value) in json(first) {
        let other = others.get(&name).cloned().unwrap_or_default();
        if value != other {
            _ = writeln!(page, "| `{name}` | `{}` | `{}` |", shown(&value), shown(&other));
        }
    }
    for controller in ["cubic", "reno", "newreno", "pert"] {
        for (name, _) in TcpProfile::Linux.congestion_parameters(controller) {
            let of = |profile: TcpProfile| {
                let own = profile.congestion_parameters(controller);
                own.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
            };
            let cells = TcpProfile::ALL.map(|one| format!("`{:?}`", of(one)));
            _ = writeln!(page, "| `{name}` of `{controller}` | {} |", cells.join(" | "));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{
        AckKind, PacingKind, RecoveryKind, Scenario, TcpProfile, TcpSpec, Transport,
    };
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
        assert!(VIDEO.contains("congestion = \"pert\""));
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
        assert!(text.contains(r#"{"kind":"cubic","variant":"linux"}"#), "{text}");
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
        let AckKind::Delayed { timeout } = spec.ack else { panic!("{:?}", spec.ack) };
        assert_eq!(timeout.to_string(), "10 ms");
        assert_eq!(spec.initial_window.get(), 4);
        assert!(read.canonical().contains("\"hystart\":false"), "{}", read.canonical());
    }

    #[test]
    fn the_profile_of_linux_is_the_default() {
        let default = scenario(VIDEO);
        assert_eq!(with("congestion = \"pert\", profile = \"linux\""), default);
        assert!(!default.canonical().contains("profile"));
    }

    #[test]
    fn a_profile_of_all_flows_is_that_of_those_that_name_none() {
        let of_all = |fields: &str| {
            let text = VIDEO.replace("congestion = \"pert\"", fields);
            scenario(&format!("tcp-profile = \"ns-2\"\n{text}"))
        };
        let ns2 = of_all("congestion = \"pert\"");
        assert_eq!(tcp(&ns2).recovery, RecoveryKind::Sack);
        assert_eq!(ns2, with("congestion = \"pert\", profile = \"ns-2\""));
        assert_eq!(of_all("profile = \"linux\""), with("profile = \"linux\""));
    }

    #[test]
    fn the_canonical_form_reads_as_itself_whatever_the_default_is() {
        for profile in ["linux", "ns-2"] {
            for kind in ["pert", "reno", "newreno", "cubic", "vegas"] {
                let fields = format!("congestion = \"{kind}\", profile = \"{profile}\"");
                let read = with(&fields);
                let json: serde_json::Value = serde_json::from_str(&read.canonical()).unwrap();
                let mut document = crate::document::Node::of_json(&json);
                super::fill(&mut document);
                let again: Scenario = serde_json::from_value(document.to_json()).unwrap();
                assert_eq!(again, read, "{fields}");
            }
        }
    }

    #[test]
    fn the_kernels_pert_paces_and_counts_packets() {
        let linux = with("congestion = \"pert\"");
        assert_eq!(tcp(&linux).pacing, PacingKind::Window);
        let written =
            r#"{"kind":"pert","compete":"as-reno","counting":"packets","samples":"confirmed"}"#;
        assert!(linux.canonical().contains(written));
        let given = with("congestion = \"pert\", pacing = \"off\"");
        assert_eq!(tcp(&given).pacing, PacingKind::Off);
        assert_eq!(tcp(&with("congestion = \"cubic\"")).pacing, PacingKind::Off);
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
        assert!(error.contains("bsd") && error.contains("`linux`, `ns-2`"), "{error}");
    }

    #[test]
    fn what_needs_another_field_says_so() {
        for (fields, needed) in [
            ("profile = \"ns-2\", tail-loss-probe = true", "recovery = \"rack\""),
            ("timestamps = false, undo-timeouts = true", "timestamps"),
            ("recovery = \"reno\", proportional-rate-reduction = true", "recovery = \"rack\""),
            ("rto = \"linux\", clock = \"10 ms\"", "clock"),
        ] {
            let text = VIDEO.replace("congestion = \"pert\"", fields);
            let error = crate::parse(&text, "s.toml").unwrap_err().to_string();
            assert!(error.contains(needed), "{error}");
        }
    }
}
