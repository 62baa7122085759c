//! `ontempo rsvpd`: RSVP for a host or a router under Linux.
//!
//! What RSVP does is [`ontempo_reservation`]'s machine, which knows no socket and no clock. Here
//! are the sockets: `packets` of IP protocol 46, `routes` of the kernel, `enforcement` by
//! `tc`, `applications` over a local socket; and `daemon`, the loop around them, one thread.

mod aggregates;
mod applications;
mod config;
mod count;
mod daemon;
mod enforcement;
mod error;
mod keys;
mod link_layer;
mod log;
mod netlink;
mod notify;
mod packets;
mod routes;
mod sys;
mod tc;
mod traffic_control;
mod written;

pub use config::Config;
pub use daemon::{Signals, run};
pub use error::DaemonError;
pub use log::Level;
pub use traffic_control::{class_counters, objects};
