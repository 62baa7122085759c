//! What a group of flows reserves.

use ontempo_foundation::{Bytes, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;

/// What a flow has reserved: a token bucket that each link polices, and a class there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reservation {
    /// The group whose flows it is for; each flow has a reservation of its own.
    pub flows: String,
    /// The flow's number in its group, for one flow alone; all where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Which of the flow's packets it is for.
    #[serde(default)]
    pub direction: Direction,
    /// Controlled load or guaranteed.
    #[serde(default)]
    pub service: Service,
    /// Token rate r, headers counted (TSpec, RFC 2215).
    pub rate: Rate,
    /// Bucket depth b: what may come at once.
    pub bucket: Bytes,
    /// Peak rate p, policed where given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Rate>,
    /// Minimum policed unit m: a smaller packet counts as this much.
    #[serde(default = "defaults::smallest")]
    pub smallest: Bytes,
    /// Maximum packet size M: a larger packet is not covered.
    #[serde(default = "defaults::largest")]
    pub largest: Bytes,
    /// Reserved rate R of the guaranteed service (RSpec, RFC 2212), at least `rate`; as `rate`
    /// where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Rate>,
    /// The links between routers on which it stands; each needs a queue `wfq` or `cbq`.
    pub links: Vec<String>,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From sender to receiver.
    #[default]
    Data,
    /// Acknowledgements, from receiver to sender.
    Acks,
}

/// A service of integrated services (RFC 1633).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// As on an unloaded network (RFC 2211): the class has the token rate.
    #[default]
    ControlledLoad,
    /// With a bound on the delay (RFC 2212): the class has the reserved rate.
    Guaranteed,
}
