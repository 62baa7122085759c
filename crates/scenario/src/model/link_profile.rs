//! Names of the technologies that a link may have the values of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Technologies of access links and paths, with values from published measurements
/// ([docs/profiles.md](../profiles.md)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkProfile {
    /// ADSL2+ at home: slow up, interleaved, stable.
    Dsl,
    /// Cable at home with bufferbloat: fast, with a deep queue up.
    Cable,
    /// LTE in one place: a rate that varies with fading and load, deep queues.
    LteStill,
    /// LTE in a moving car: a rate that fades, handovers, outages, deep queues.
    LteDriving,
    /// 5G in a moving car: a fast and uneven rate, long handovers.
    #[serde(rename = "5g")]
    FiveG,
    /// Starlink: rate and delay change each 15 s, with a spike of delay and losses.
    SatelliteLeo,
    /// A geostationary satellite: more than half a second of round trip.
    SatelliteGeo,
    /// Wi-Fi with contention: packets leave together in the turns of the station.
    Wifi,
    /// Wi-Fi at the edge of its range: slow, with losses in bursts and in fades.
    WifiLossy,
    /// A path from New York to London: a long delay, a stable rate, few losses.
    Transcontinental,
    /// An office's connection shared with the downloads of others.
    Office,
}

impl LinkProfile {
    /// All profiles, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::Dsl,
        Self::Cable,
        Self::LteStill,
        Self::LteDriving,
        Self::FiveG,
        Self::SatelliteLeo,
        Self::SatelliteGeo,
        Self::Wifi,
        Self::WifiLossy,
        Self::Transcontinental,
        Self::Office,
    ];

    /// Its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dsl => "dsl",
            Self::Cable => "cable",
            Self::LteStill => "lte-still",
            Self::LteDriving => "lte-driving",
            Self::FiveG => "5g",
            Self::SatelliteLeo => "satellite-leo",
            Self::SatelliteGeo => "satellite-geo",
            Self::Wifi => "wifi",
            Self::WifiLossy => "wifi-lossy",
            Self::Transcontinental => "transcontinental",
            Self::Office => "office",
        }
    }

    /// The profile of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// A direction of an access link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessDirection {
    /// To the subscriber.
    Downlink,
    /// From the subscriber.
    Uplink,
}

impl AccessDirection {
    /// Its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Downlink => "downlink",
            Self::Uplink => "uplink",
        }
    }

    /// The other direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Downlink => Self::Uplink,
            Self::Uplink => Self::Downlink,
        }
    }
}
