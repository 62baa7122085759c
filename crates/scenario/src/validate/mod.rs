//! Whether a scenario makes sense, beyond having the right form.

mod adus;
mod flows;
mod links;
mod media;
mod random;
mod reservations;
#[cfg(test)]
mod tests;
mod varying;

use ontempo_foundation::Duration;

use crate::backbone::Backbone;
use crate::error::{Problem, ScenarioError};
use crate::model::{Event, LinkSpec, Measure, Scenario};
use crate::nearest::{listed, nearest};
use crate::path::FieldPath;
use crate::traces;

/// The most flows of one run.
const MAX_FLOWS: u64 = 1_000_000;

/// The longest processing time of a host.
const MAX_HOST_JITTER: Duration = Duration::from_secs(1);

/// What is wrong, each with the field that should be changed.
#[derive(Default)]
pub(crate) struct Findings(Vec<(FieldPath, String)>);

impl Findings {
    fn add(&mut self, path: &FieldPath, what: impl Into<String>) {
        self.0.push((path.clone(), what.into()));
    }

    fn require(&mut self, is_right: bool, path: &FieldPath, what: &str) {
        if !is_right {
            self.add(path, what);
        }
    }

    fn probability(&mut self, path: &FieldPath, value: f64) {
        if !(0.0..=1.0).contains(&value) {
            self.add(path, format!("{value} is not a probability; a number from 0 to 1 is needed"));
        }
    }

    /// Reports `name` as none of `known`, which are the scenario's `what`.
    fn unknown<'a>(
        &mut self,
        path: &FieldPath,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) {
        let hint = match nearest(name, known.clone()) {
            Some(near) => format!("did you mean `{near}`? Known"),
            None => "known".to_owned(),
        };
        self.add(path, format!("there is no {what} `{name}`; {hint}: {}", listed(known)));
    }
}

/// The error that findings about a scenario of no particular file amount to.
fn into_result(findings: Vec<(FieldPath, String)>) -> Result<(), ScenarioError> {
    let problem =
        |(path, what): (FieldPath, String)| Problem { origin: None, field: path.to_string(), what };
    ScenarioError::unless_empty(findings.into_iter().map(problem).collect())
}

impl Scenario {
    /// Whether the scenario makes sense; [`load`](crate::load) and [`parse`](crate::parse)
    /// have seen to it already.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        into_result(self.findings())
    }

    /// Whether the layout will have a link called `name`; `field` is what an error calls the
    /// place where the name was given.
    pub fn check_link(&self, name: &str, field: &str) -> Result<(), ScenarioError> {
        let backbone = Backbone::new(&self.topology);
        let mut findings = Findings::default();
        if !self.has_link(name, &backbone) {
            let known = backbone.links.iter().map(|link| link.name.as_str());
            findings.unknown(&FieldPath::root(field), "link", name, known);
        }
        into_result(findings.0)
    }

    /// Everything that makes no sense.
    pub(crate) fn findings(&self) -> Vec<(FieldPath, String)> {
        let mut findings = Findings::default();
        let duration = FieldPath::root("duration");
        let takes_time = self.duration > Duration::ZERO;
        findings.require(
            takes_time,
            &duration,
            "the run takes no time; write duration = \"200 s\"",
        );
        findings.require(
            self.hosts.jitter <= MAX_HOST_JITTER,
            &FieldPath::root("hosts").key("jitter"),
            &format!("a host's processing time is at most {MAX_HOST_JITTER}; write \"100 us\""),
        );
        let backbone = Backbone::new(&self.topology);
        let memory = traces::memory(backbone.specs());
        if memory > traces::MAX_MEMORY {
            // They are not read.
            let what = format!(
                "the traces and films of the scenario together take {} MiB of memory once they are read, of at most \
                 {}; shorter ones, or fewer, are needed",
                memory.div_ceil(1 << 20),
                traces::MAX_MEMORY >> 20
            );
            findings.add(&FieldPath::root("topology"), what);
            return findings.0;
        }
        let before = findings.0.len();
        links::topology(&self.topology, self.duration, &mut findings);
        let is_sound = findings.0.len() == before;
        let flows = FieldPath::root("flows");
        let has_flows = !self.flows.is_empty();
        findings.require(has_flows, &flows, "there is no flow; write a table [flows.NAME]");
        let total: u64 = self.flows.values().map(|group| u64::from(group.count)).sum();
        if total > MAX_FLOWS {
            let what = format!("{total} flows are too many; at most {MAX_FLOWS} will do");
            findings.add(&flows, what);
        }
        for (name, group) in &self.flows {
            let path = flows.key(name);
            findings.require(!name.is_empty(), &path, "a flow group needs a name");
            flows::group(group, self.duration, &self.controllers, &path, &mut findings);
            if is_sound {
                flows::route(group, &backbone, &path, &mut findings);
            }
        }
        for (group, name) in self.custom_controllers() {
            if !self.controllers.contains(name) {
                let path = flows.key(group).key("transport").key("congestion");
                let known = self.controllers.with_registry();
                findings.unknown(&path, "congestion controller", name, known);
            }
        }
        flows::conversations(self, &flows, &mut findings);
        media::together(self, &flows, &mut findings);
        if is_sound {
            reservations::all(self, &backbone, &mut findings);
        }
        varying::events(self, &backbone, &mut findings);
        self.measure(&self.measure, &backbone, &mut findings);
        findings.0
    }

    /// Everything that makes no sense about `event` as one more of this scenario, which has been
    /// checked.
    pub(crate) fn findings_about(&self, event: &Event) -> Vec<(FieldPath, String)> {
        let mut findings = Findings::default();
        varying::next_event(self, event, &mut findings);
        findings.0
    }

    fn measure(&self, measure: &Measure, backbone: &Backbone<'_>, findings: &mut Findings) {
        let path = FieldPath::root("measure");
        if measure.from > Duration::ZERO && measure.from >= self.duration {
            let what =
                format!("{} is not before the end of the run, {}", measure.from, self.duration);
            findings.add(&path.key("from"), what);
        }
        let zero = measure.sample_every == Some(Duration::ZERO);
        let what = "the interval is zero; write sample-every = \"100 ms\"";
        findings.require(!zero, &path.key("sample-every"), what);
        let zero = measure.intervals == Some(Duration::ZERO);
        let what = "the interval is zero; write intervals = \"500 ms\"";
        findings.require(!zero, &path.key("intervals"), what);
        let is_needless = measure.sample_flows.is_some() && measure.sample_every.is_none();
        let what = "nothing is sampled; write sample-every = \"100 ms\", or remove it";
        findings.require(!is_needless, &path.key("sample-flows"), what);
        for (place, name) in measure.sample_flows.iter().flatten().enumerate() {
            if !self.flows.contains_key(name) {
                let path = path.key("sample-flows").index(place);
                findings.unknown(&path, "flow group", name, self.flows.keys().map(String::as_str));
            }
        }
        for (field, names) in [("queues", &measure.queues), ("packets", &measure.packets)] {
            for (place, name) in names.iter().enumerate() {
                if !self.has_link(name, backbone) {
                    let path = path.key(field).index(place);
                    let known = backbone.links.iter().map(|link| link.name.as_str());
                    findings.unknown(&path, "link", name, known);
                }
            }
        }
    }

    /// Whether the layout has a link called `name`: one between routers, or one between a
    /// flow's own host and its router.
    fn has_link(&self, name: &str, backbone: &Backbone<'_>) -> bool {
        self.link_spec(name, backbone).is_some()
    }

    /// What the link called `name` is written as, if the layout has it.
    pub(crate) fn link_spec<'a>(
        &self,
        name: &str,
        backbone: &Backbone<'a>,
    ) -> Option<&'a LinkSpec> {
        if let Some(link) = backbone.links.iter().find(|link| link.name == name) {
            return Some(link.spec);
        }
        let (from, to) = name.split_once(" -> ")?;
        let access = |host: &str| {
            let is_source = host.ends_with(".source");
            if is_source { backbone.source_access } else { backbone.sink_access }
        };
        if self.is_access(from, to, backbone) {
            return access(from);
        }
        let reaches_host = self.is_access(to, from, backbone);
        reaches_host.then(|| access(to)).flatten().map(LinkSpec::way_back)
    }

    fn is_access(&self, host: &str, router: &str, backbone: &Backbone<'_>) -> bool {
        let mut parts = host.rsplitn(3, '.');
        let (Some(side), Some(index), Some(group_name)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let Some(group) = self.flows.get(group_name) else { return false };
        let Ok((from, to)) = backbone.ends(group) else { return false };
        let end = match side {
            "source" => from,
            "sink" => to,
            _ => return false,
        };
        let is_flow =
            index.parse().is_ok_and(|place: u32| place < group.count && place.to_string() == index);
        is_flow && backbone.source_access.is_some() && backbone.nodes[end] == router
    }
}
