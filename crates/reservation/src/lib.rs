//! Reservations for QoS: RSVP messages, the soft-state machine, admission and enforcement.
//!
//! Nothing here opens a socket, reads a clock or starts a thread, but for [`local::Client`], the
//! connection to the daemon of the host. A [`machine::Machine`] is the RSVP process of one host or
//! router: packets, requests and the time are its input; packets, requests to traffic control and
//! events its output. [`message::Message`] is the contents of a packet.

pub mod htb;
pub mod integrity;
#[cfg(unix)]
pub mod local;
pub mod machine;
pub mod message;
pub mod qos;
