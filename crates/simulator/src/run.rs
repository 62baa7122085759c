//! A run in progress: the state that the engine advances and the tables are built from.

use ontempo_foundation::Time;
use ontempo_runtime::{FlowTotals, LinkTotals};

use crate::agents::Agent;
use crate::fabric::Fabric;
use crate::names::Names;
use crate::probes::Probes;

/// All state of a run.
pub(crate) struct Run {
    pub(crate) agents: Vec<Agent>,
    pub(crate) fabric: Fabric,
    pub(crate) names: Names,
    pub(crate) probes: Probes,
    pub(crate) end: Time,
    pub(crate) measured: Measured,
}

/// The measured span, and the totals at its start; `None` if it is the whole run.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) from: Time,
    pub(crate) flows: Vec<FlowTotals>,
    pub(crate) links: Vec<LinkTotals>,
    /// Bytes of each flow there and back.
    pub(crate) wires: Vec<[u64; 2]>,
}
