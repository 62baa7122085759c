//! Reservations for QoS: RSVP messages, the soft-state machine, admission and enforcement.
//!
//! Nothing here opens a socket, reads a clock or starts a thread, but for [`local::Client`], which
//! talks to the daemon of its host. A [`machine::Machine`] is one
//! host's or router's RSVP: packets, answers and the time go in, packets, requests to traffic
//! control and events come out. [`message::Message`] is what the packets say.

pub mod htb;
pub mod integrity;
#[cfg(unix)]
pub mod local;
pub mod machine;
pub mod message;
pub mod qos;
