//! The emulated network of ontempo: a scenario with real packets, in real time, on one machine.
//!
//! Each host of the scenario is a network namespace with one interface, whose other end this
//! process holds. What a host sends is read there, offered to the links of its route, which are
//! those of `ontempo-network` with real time as their time, and written to the host that it is
//! for when it is due. Flows are sockets of the kernel, with the congestion control that the
//! scenario names. An [`Emulation`] sets this up, runs it, yields the same tables as a simulation,
//! and takes everything down again, however it ends; after `kill -9`, [`remove_leftovers`] does.
//!
//! Everything here needs the rights of root, Linux, and the program `ip` of iproute2.

mod address;
mod assemble;
mod carriage;
mod carrier;
mod clock;
mod commands;
mod error;
mod ip;
mod iproute;
mod lateness;
mod limits;
mod mark;
mod network;
mod numbering;
mod rest;
mod results;
mod routers;
mod routes;
mod run;
mod space;
mod sys;
mod traffic;
mod waiter;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use address::Version;
pub use carriage::Carriage;
pub use commands::Log;
pub use error::EmulationError;
pub use lateness::Lateness;
pub use limits::check;
pub use mark::remove_leftovers;
pub use results::Results;
pub use run::Emulation;

/// The version of this emulator, as a run's manifest names it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is chosen for a run beside its scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What losses, delays and applications are drawn from.
    pub seed: u64,
    /// The version of IP of the scenario's flows; hosts have addresses of both.
    pub version: Version,
    /// What the run is called in its namespaces' names; the process's number where not given.
    pub name: Option<String>,
}

/// How another thread ends a run.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: Arc<AtomicBool>,
}

impl Control {
    /// Ends the run within some milliseconds.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// What a signal may set, to end the run.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.cancelled.clone()
    }

    /// True once [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
