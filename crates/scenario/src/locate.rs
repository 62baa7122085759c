//! Where what a world refuses was written: a scenario that makes sense has no places any more.

use std::path::Path;

use crate::error::{Problem, ScenarioError};
use crate::model::{LinkSpec, Scenario, Topology};
use crate::overrides::Overrides;
use crate::parse::{problem, read_document};
use crate::path::FieldPath;
use crate::profiles;

/// What is wrong with fields of the scenario in the file `path`, with where each was written; in the order
/// of the file.
///
/// # Errors
/// If the file cannot be read again.
pub fn located(
    path: &Path,
    overrides: &Overrides,
    refused: &[(FieldPath, String)],
) -> Result<Vec<Problem>, ScenarioError> {
    let mut document = read_document(path)?;
    overrides.apply(&mut document)?;
    // What a profile gives was written where the profile is named.
    profiles::fill(&mut document);
    let locate = |(path, what): &(FieldPath, String)| problem(&document, path, what.clone());
    let mut problems: Vec<Problem> = refused.iter().map(locate).collect();
    problems.sort_by_key(Problem::place);
    Ok(problems)
}

impl Scenario {
    /// The table of the file in which the link `name` of a layout is described.
    pub fn path_of_link(&self, name: &str) -> FieldPath {
        let path = FieldPath::root("topology");
        match &self.topology {
            Topology::Dumbbell { bottleneck, reverse, receiver_access, .. } => match name {
                "bottleneck" => path.key("bottleneck"),
                "reverse" if reverse.is_some() => path.key("reverse"),
                "reverse" => back(path.key("bottleneck"), bottleneck),
                _ if receiver_access.is_some() && name.contains(".sink") => {
                    path.key("receiver-access")
                }
                _ => path.key("access"),
            },
            Topology::ParkingLot { bottleneck, .. } => match name.strip_prefix("hop ") {
                Some(hop) if hop.ends_with("reverse") => back(path.key("bottleneck"), bottleneck),
                Some(_) => path.key("bottleneck"),
                None => path.key("access"),
            },
            Topology::Graph { links } => {
                let is = |from: &str, to: &str| {
                    name.strip_prefix(from)
                        .and_then(|rest| rest.strip_prefix(" -> "))
                        .is_some_and(|rest| rest == to)
                };
                let found = links.iter().enumerate().find_map(|(place, link)| {
                    let path = path.key("links").index(place);
                    if is(&link.from, &link.to) {
                        return Some(path);
                    }
                    let is_back = link.duplex && is(&link.to, &link.from);
                    is_back.then(|| back(path, &link.link))
                });
                found.unwrap_or(path)
            }
        }
    }

    /// The field that makes the link `name`, described at `path`, change during a run.
    pub fn path_of_change(&self, name: &str) -> FieldPath {
        let path = self.path_of_link(name);
        let event = self.events.iter().position(|event| event.link == name);
        match self.spec_at(&path) {
            Some(link) if link.schedule.is_some() => path.key("schedule"),
            Some(link) if !link.outages.is_empty() => path.key("outages"),
            _ => event.map_or(path, |place| FieldPath::root("events").index(place)),
        }
    }

    /// The link that is described at `path`.
    fn spec_at(&self, path: &FieldPath) -> Option<&LinkSpec> {
        let backbone = crate::backbone::Backbone::new(&self.topology);
        let found = backbone.links.iter().find(|link| self.path_of_link(&link.name) == *path);
        found.map(|link| link.spec)
    }
}

/// Where the way back of the link at `path` is described.
fn back(path: FieldPath, link: &LinkSpec) -> FieldPath {
    if link.back.is_some() { path.key("back") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const GRAPH: &str = r#"
duration = "1 s"
[topology]
kind = "graph"
links = [
    { from = "a", to = "b", rate = "1 Mbit/s", delay = "1 ms" },
    { from = "b", to = "c", rate = "1 Mbit/s", delay = "1 ms", outages = [{ at = "0 s", for = "1 ms" }] },
]
[flows.f]
from = "a"
to = "c"
application = { kind = "ftp" }
transport = { kind = "tcp" }
[[events]]
at = "100 ms"
link = "b -> a"
set = { rate = "2 Mbit/s" }
"#;

    #[test]
    fn a_link_is_found_where_it_is_described_in_either_direction() {
        let scenario = parse(GRAPH, "g.toml").unwrap();
        let of = |name| scenario.path_of_link(name).to_string();
        assert_eq!(of("a -> b"), "topology.links[0]");
        assert_eq!(of("c -> b"), "topology.links[1]");
        let of = |name| scenario.path_of_change(name).to_string();
        assert_eq!(of("b -> c"), "topology.links[1].outages");
        assert_eq!(of("b -> a"), "events[0]");
    }

    #[test]
    fn what_is_refused_is_told_with_its_line() {
        let file =
            std::env::temp_dir().join(format!("ontempo-{}-located.toml", std::process::id()));
        std::fs::write(&file, GRAPH).unwrap();
        let fields = [
            (FieldPath::root("events").index(0), "no event".to_owned()),
            (FieldPath::root("topology").key("links").index(1).key("outages"), "none".to_owned()),
        ];
        let problems = located(&file, &Overrides::none(), &fields);
        std::fs::remove_file(&file).unwrap();
        let lines: Vec<String> = problems.unwrap().iter().map(Problem::to_string).collect();
        let name = file.display();
        assert_eq!(
            lines,
            [
                format!("{name}:7: topology.links[1].outages: none"),
                format!("{name}:14: events[0]: no event")
            ]
        );
    }
}
