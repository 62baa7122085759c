//! Profiles of links: the values of a technology, with their sources, and the statistics that what
//! they generate is held against.
//!
//! A profile is a file of values as a scenario has them. They are filled into a document before it
//! becomes a scenario, which therefore holds values alone: its canonical form can be run again,
//! whatever the profile says by then.

mod fill;
mod page;
mod trace;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::document::Node;
use crate::model::{AccessDirection, LinkProfile, LinkSpec};
use crate::nearest::{listed, nearest};

pub(crate) use fill::{fill, gives};
pub use page::{page, shown};
pub use trace::trace;

/// A profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// One line that says what it is.
    pub summary: String,
    /// To the subscriber.
    pub downlink: LinkSpec,
    /// From the subscriber.
    pub uplink: LinkSpec,
    /// Where its values come from.
    pub basis: Vec<Basis>,
    /// What its statistics must be.
    pub targets: Vec<Target>,
    /// Published works by the names by which basis and targets cite them.
    pub sources: BTreeMap<String, String>,
    values: [Json; 2],
}

/// Where a value of a profile comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basis {
    /// The values.
    pub of: String,
    /// The name of a source; none for an assumption of this project.
    pub source: Option<String>,
    /// What the source says and how the values follow, or why they are assumed.
    pub why: String,
}

/// Bounds of a statistic of what a profile generates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Target {
    /// What is computed.
    pub statistic: Statistic,
    /// Of which direction; both together where none is given.
    pub direction: Option<AccessDirection>,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// The name of a source; none where the bounds follow from an assumption of the profile.
    pub source: Option<String>,
    /// Where the source's figure was read; none where there is no source.
    pub read: Option<Read>,
    /// What the source says.
    pub says: String,
}

/// Where a source's figure was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Read {
    /// In the source itself: its text, its abstract, or its authors' own account.
    Source,
    /// In the report that is named with the source.
    Report,
    /// Nowhere again since it was written down from memory.
    Memory,
    /// The source gives no figure, only what it is like.
    NoFigure,
}

/// A statistic of what a profile generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Median of the mean rates of seconds, in Mbit/s.
    RateMedian,
    /// Mean rate, in Mbit/s.
    RateMean,
    /// 5th percentile of the mean rates of seconds, in Mbit/s.
    RateP5,
    /// 95th percentile of the mean rates of seconds, in Mbit/s.
    RateP95,
    /// Standard deviation of the mean rates of seconds, divided by their mean.
    RateVariation,
    /// Root mean square of the change of the mean rate from one second to the next, in Mbit/s.
    RateStep,
    /// Lag at which the autocorrelation of the mean rates of seconds falls below 1/e, in seconds.
    RateCorrelationTime,
    /// Share of time in which the rate is below its nominal value.
    ShareBelowNominal,
    /// Share of time in which nothing passes.
    OutageShare,
    /// Mean length of the outages longer than 100 ms, in seconds.
    LongOutage,
    /// Mean length of the outages of at most 100 ms, in ms.
    ShortOutage,
    /// Mean time between the starts of outages of at most 100 ms, in seconds.
    ShortOutageInterval,
    /// Mean time between the starts of outages of any length, in seconds.
    OutageInterval,
    /// Lowest round trip, in ms.
    RttMin,
    /// 25th percentile of round trips, in ms.
    RttP25,
    /// Median of round trips, in ms.
    RttMedian,
    /// 75th percentile of round trips, in ms.
    RttP75,
    /// 90th percentile of round trips, in ms.
    RttP90,
    /// 99th percentile of round trips, in ms.
    RttP99,
    /// Mean difference of round trips a second apart, in ms.
    RttJitter,
    /// Share of packets lost on the wire.
    Loss,
    /// Mean number of packets lost in a row, of packets 20 ms apart.
    LossRun,
    /// How long a full queue takes to drain at the nominal rate, in ms.
    QueueDrain,
}

/// The profile of this name.
///
/// # Errors
/// There is none: a sentence with the nearest name and all of them.
pub fn find(name: &str) -> Result<LinkProfile, String> {
    let known = || LinkProfile::ALL.into_iter().map(LinkProfile::name);
    LinkProfile::of_name(name).ok_or_else(|| match nearest(name, known()) {
        Some(near) => {
            format!("no profile {name:?}; did you mean `{near}`? Known: {}", listed(known()))
        }
        None => format!("no profile {name:?}; known: {}", listed(known())),
    })
}

/// What a profile's file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    summary: String,
    downlink: Json,
    uplink: Json,
    basis: Vec<Basis>,
    targets: Vec<Target>,
    sources: BTreeMap<String, String>,
}

impl Profile {
    /// The values of `profile`.
    pub fn of(profile: LinkProfile) -> &'static Self {
        static PROFILES: OnceLock<Vec<Profile>> = OnceLock::new();
        let profiles = PROFILES.get_or_init(|| LinkProfile::ALL.map(Self::read).into());
        // `ALL` has each profile once.
        let place = LinkProfile::ALL.iter().position(|one| *one == profile);
        &profiles[place.unwrap_or_default()]
    }

    /// The link in one direction.
    pub const fn link(&self, direction: AccessDirection) -> &LinkSpec {
        match direction {
            AccessDirection::Downlink => &self.downlink,
            AccessDirection::Uplink => &self.uplink,
        }
    }

    /// The values of one direction, as in a scenario.
    fn values(&self, direction: AccessDirection) -> Node {
        Node::of_json(&self.values[usize::from(direction == AccessDirection::Uplink)])
    }

    /// Reads a file of this crate; a test reads all of them.
    fn read(profile: LinkProfile) -> Self {
        let name = profile.name();
        let node = Node::parse(text(profile), name).expect("a profile of this crate is TOML");
        let file: File =
            serde_json::from_value(node.to_json()).expect("a profile of this crate has its fields");
        let [downlink, uplink] = [file.downlink, file.uplink].map(|mut values| {
            if let Some(schedule) = values.get_mut("schedule").and_then(Json::as_object_mut) {
                schedule.entry("title").or_insert_with(|| Json::from(name));
            }
            values
        });
        let link = |values: &Json| -> LinkSpec {
            serde_json::from_value(values.clone()).expect("a direction of a profile is a link")
        };
        Self {
            summary: file.summary,
            downlink: link(&downlink),
            uplink: link(&uplink),
            basis: file.basis,
            targets: file.targets,
            sources: file.sources,
            values: [downlink, uplink],
        }
    }
}

/// The file of a profile.
const fn text(profile: LinkProfile) -> &'static str {
    match profile {
        LinkProfile::Dsl => include_str!("dsl.toml"),
        LinkProfile::Cable => include_str!("cable.toml"),
        LinkProfile::LteStill => include_str!("lte-still.toml"),
        LinkProfile::LteDriving => include_str!("lte-driving.toml"),
        LinkProfile::FiveG => include_str!("5g.toml"),
        LinkProfile::SatelliteLeo => include_str!("satellite-leo.toml"),
        LinkProfile::SatelliteGeo => include_str!("satellite-geo.toml"),
        LinkProfile::Wifi => include_str!("wifi.toml"),
        LinkProfile::WifiLossy => include_str!("wifi-lossy.toml"),
        LinkProfile::Transcontinental => include_str!("transcontinental.toml"),
        LinkProfile::Office => include_str!("office.toml"),
    }
}
