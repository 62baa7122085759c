//! The emulated network of ontempo: a scenario with real packets, in real time, on one machine.
//!
//! Each host of the scenario is a network namespace with one TUN interface, whose other end this
//! process holds. A packet that a host sends is read there, passed through the links of its route,
//! which are those of `ontempo-network` run in real time, and written to its destination when it is
//! due. Flows are sockets of the kernel with the congestion control that the scenario names. An
//! [`Emulation`] sets this up, runs it, returns the same tables as a simulation, and removes
//! everything however it ends; after `kill -9`, [`remove_leftovers`] does.
//!
//! Requires root, Linux, and the program `ip` of iproute2.

mod assemble;
mod carriers;
mod changes;
mod clock;
mod commands;
mod epoll;
mod error;
mod forwarder;
mod ip;
mod iproute;
mod lateness;
mod limits;
mod namespace;
mod network;
mod numbering;
mod report;
mod results;
mod routers;
mod routes;
mod run;
mod run_lock;
mod sleep_quota;
mod sys;
mod trace;
mod traffic;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use changes::{LinkState, Links, NotChanged};
pub use commands::{Log, require_program};
pub use error::EmulationError;
pub use lateness::Lateness;
pub use limits::check;
pub use ontempo_runtime::Version;
pub use report::ForwardingReport;
pub use results::Results;
pub use run::Emulation;
pub use run_lock::{
    Hosted, control_socket, controlled_runs, hosts_of, is_active, remove_leftovers,
};
pub use trace::{Trace, TraceError, Traced};

/// The version of this emulator, as written to a run's manifest.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Options of a run beside its scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Seed of losses, delays and applications.
    pub seed: u64,
    /// IP version of the scenario's flows; hosts have addresses of both.
    pub version: Version,
    /// Name of the run, part of its namespaces' names; default: the process id.
    pub name: Option<String>,
}

/// Cancels a run from another thread.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: Arc<AtomicBool>,
}

impl Control {
    /// Ends the run within milliseconds.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// A flag for signal handlers; setting it ends the run.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.cancelled.clone()
    }

    /// True once [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
