//! The deterministic network simulator of ontempo.
//!
//! A [`Simulation`] is one run of a scenario with one seed, in virtual time, on one thread; it
//! yields [`Results`]: Arrow tables by the schemas of `ontempo_scenario::tables`. The same
//! scenario and seed give the same bytes on every machine. Runs share nothing, so that a study
//! runs as many at once as the machine has cores. Packets that cross a link can be written as
//! they pass, for Wireshark ([`Simulation::trace`]); a [`RunFolder`] writes a run to disk
//! completely or not at all, and [`read_tables`] reads it.
//!
//! Hosts are one-way, as in ns-2: a TCP flow sends data forward and ACKs of 40 bytes back over
//! real links, without a handshake. `ontempo-mechanisms` decides what a flow does and
//! `ontempo-network` what a link does; this crate holds time, routes and counters.
//!
//! A link whose discipline decides at dequeue (CoDel, FQ-CoDel) costs one more event per packet.
//!
//! Two ideas make it fast. A first-in first-out link knows a packet's departure time when the
//! packet is offered, so that a hop is one event; a link fed by only one other link is computed
//! ahead and costs no event. And events wait in a timing wheel, whose cost does not grow
//! with their number.

mod agents;
mod assemble;
mod custom;
mod errors;
mod fabric;
mod hosts;
mod names;
mod packet;
mod probes;
mod results;
mod routes;
mod run;
mod scheduled;
mod simulation;
mod timer;
mod trace;
mod watch;
mod wheel;

/// The version of this engine, as a run's manifest names it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use custom::CustomLaws;
pub use errors::{Cancelled, SetupError};
pub use fabric::Work;
pub use ontempo_runtime::{
    MANIFEST, MAX_MANIFEST, Manifest, REPEAT, ReadError, ReadErrorReason, ResultTable, RunFolder,
    Standstill, StandstillEntry, TraceEntry, lock_folder, read_column, read_table, read_tables,
};
pub use results::Results;
pub use simulation::{Control, Simulation};
pub use trace::Trace;
