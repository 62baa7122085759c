//! QoSockets: a specification asked for, agreed on, kept or not kept (qosockets, II).
//!
//! [`QosListener`] and [`QosStream`] are TCP, [`QosSocketListener`] and [`QosSocket`] are UDP. Each
//! end says by [`QosOptions`] what it asks of what it sends and of what it receives; when a
//! connection is there, both have agreed, or both know why not. From then on what is delivered is
//! measured, told to both ends, held against what was agreed ([`Event`]) and written where
//! `ontempo monitor` and `ontempo export` look.
//!
//! A process has one thread for all its connections, which sleeps but for a moment twice a second.

#[cfg(unix)]
mod core;
#[cfg(unix)]
mod events;
#[cfg(unix)]
mod facade;
mod file;
#[cfg(unix)]
mod incoming;
#[cfg(unix)]
mod listener;
#[cfg(unix)]
mod network;
#[cfg(unix)]
mod offset;
#[cfg(unix)]
mod options;
#[cfg(unix)]
mod outgoing;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod setup;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod stream;
#[cfg(unix)]
mod tcp;
#[cfg(unix)]
mod tender;
#[cfg(test)]
#[cfg(unix)]
mod tests;
pub mod wire;

pub use file::{SpecificationError, read};
#[cfg(unix)]
pub use {
    events::{Event, Events},
    listener::{Accepted, QosListener},
    options::{Delivery, Direction, Message, QosOptions, Reserve},
    outgoing::LadderOptions,
    setup::{Disagreement, SetupError},
    socket::{QosSocket, QosSocketListener},
    stream::QosStream,
};
