//! Fills the values of profiles into a document. What is of the wrong shape stays as it is, to be
//! refused by the check.

use crate::document::{Node, Table, Value};
use crate::model::{AccessDirection, LinkProfile};
use crate::profiles::Profile;
use crate::shape::{Field, Shape};

const PROFILE: &str = "profile";
const DIRECTION: &str = "direction";
const BACK: &str = "back";

/// Fills the values of the profiles that links of `document` name.
pub(crate) fn fill(document: &mut Node) {
    use AccessDirection::{Downlink, Uplink};
    let Some(topology) = table_of(document, "topology") else { return };
    let has_reverse = topology.contains_key("reverse");
    for (name, direction, makes_back) in [
        ("bottleneck", Downlink, !has_reverse),
        ("reverse", Uplink, false),
        // A host is the subscriber of its access link.
        ("access", Uplink, true),
        ("receiver-access", Uplink, true),
    ] {
        if let Some(link) = topology.get_mut(name) {
            fill_link(link, direction, makes_back);
        }
    }
    if let Some(Value::List(links)) = topology.get_mut("links").map(|links| &mut links.value) {
        for link in links {
            let is_duplex = link
                .as_table_mut()
                .and_then(|link| link.get("duplex"))
                .is_none_or(|duplex| matches!(duplex.value, Value::Flag(true)));
            fill_link(link, Downlink, is_duplex);
        }
    }
}

/// Fields of a link of a graph that are not those of one direction.
const ENDS: [&str; 3] = ["from", "to", "duplex"];

/// `direction` is that of the link where it says none itself; `makes_back`: whether it also is the
/// way back, unless it has one of its own.
fn fill_link(link: &mut Node, direction: AccessDirection, makes_back: bool) {
    let origin = link.origin.clone();
    let Some(fields) = link.as_table_mut() else { return };
    if let Some(back) = fields.get_mut(BACK) {
        fill_link(back, direction.opposite(), false);
    }
    let Some(named) = fields.get(PROFILE).and_then(profile) else { return };
    let named_at = fields.remove(PROFILE).map_or(origin, |profile| profile.origin);
    let direction = match fields.get(DIRECTION).and_then(self::direction) {
        Some(given) => {
            fields.remove(DIRECTION);
            given
        }
        None => direction,
    };
    let back = fields.remove(BACK);
    let values = |direction| {
        let mut values = Profile::of(named).values(direction);
        values.set_origin(&named_at);
        values
    };
    let mut filled = values(direction);
    filled.merge(link.clone());
    let back = if makes_back {
        let mut shared = link.clone();
        if let Some(fields) = shared.as_table_mut() {
            fields.retain(|name, _| !ENDS.contains(&name.as_str()));
        }
        let mut other = values(direction.opposite());
        other.merge(shared);
        if let Some(back) = back {
            other.merge(back);
        }
        Some(other)
    } else {
        back
    };
    if let (Some(fields), Some(back)) = (filled.as_table_mut(), back) {
        fields.insert(BACK.to_owned(), back);
    }
    *link = filled;
}

fn profile(node: &Node) -> Option<LinkProfile> {
    match &node.value {
        Value::Text(name) => LinkProfile::of_name(name),
        _ => None,
    }
}

fn direction(node: &Node) -> Option<AccessDirection> {
    let all = [AccessDirection::Downlink, AccessDirection::Uplink];
    all.into_iter().find(|one| matches!(&node.value, Value::Text(name) if name == one.name()))
}

fn table_of<'a>(node: &'a mut Node, name: &str) -> Option<&'a mut Table> {
    node.as_table_mut()?.get_mut(name)?.as_table_mut()
}

/// Whether `table` is a link whose profile is unknown: it alone is to be reported.
pub(crate) fn gives(fields: &[Field], table: &Table) -> bool {
    let is_link = |field: &Field| {
        field.name == PROFILE && matches!(&field.shape, Shape::Named(name) if name == "LinkProfile")
    };
    table.contains_key(PROFILE) && fields.iter().any(is_link)
}
