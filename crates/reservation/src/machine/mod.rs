//! One node's RSVP, without I/O (RFC 2205, RFC 2209, RFC 2961).
//!
//! A driver gives a [`Machine`] each packet of protocol 46, the applications' requests and changes
//! of routes, always with the time `now`, and calls [`Machine::on_timeout`] when
//! [`Machine::poll_timeout`] is due. After each call it takes the results:
//! [`Machine::poll_transmit`] gives packets, [`Machine::poll_control`] changes of the installed
//! reservations, [`Machine::poll_event`] notifications. The machine itself calls only [`Routes`].
//!
//! Jitter comes from the random stream that it is given, all maps are ordered: the same inputs
//! give the same outputs. The state of a node is bounded by [`Limits`].

mod admission;
mod api;
mod boundary;
mod config;
mod interfaces;
mod merge;
mod message_ids;
mod node;
mod path;
mod reliable;
#[cfg(unix)]
mod report;
mod resv;
mod send;
mod shares;
mod state;
mod timers;
mod unopened;
mod update;

pub use api::check_flows;
pub use boundary::{
    Arrival, Change, ControlError, ControlRequest, ErrorTerms, Event, Handle, InterfaceConfig,
    InterfaceId, NextHop, RequestError, Reservation, Routes, TrafficControl, Transmit,
};
pub use config::{Config, Limits};
pub use node::{Census, Machine, is_of_host};
