//! What hosts add to the way of a packet.

use ontempo_foundation::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;

/// The hosts at which flows begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Hosts {
    /// Processing time, from the moment at which a packet is to be sent (a timer has expired, an
    /// ACK has arrived) until it reaches the host's link: random, uniform between zero and this
    /// duration. `"0 s"` switches it off. Packets sent at the same moment leave together. An
    /// emulation ignores it: its hosts are real.
    #[serde(default = "defaults::host_jitter")]
    pub jitter: Duration,
}

impl Default for Hosts {
    fn default() -> Self {
        Self { jitter: defaults::host_jitter() }
    }
}
