//! QoSockets: a specification asked for, agreed on, kept or not kept (qosockets, II).
//!
//! [`QosListener`] and [`QosStream`] are TCP, [`QosSocketListener`] and [`QosSocket`] are UDP,
//! [`QosConnectionListener`] and [`QosConnection`] are QUIC. Each end says by [`QosOptions`] what it asks of what it sends and of what it receives; when a
//! connection is there, both have agreed, or both know why not. From then on what is delivered is
//! measured, told to both ends, held against what was agreed ([`Event`]) and written where
//! `ontempo monitor` and `ontempo export` look.
//!
//! A violation of what was agreed closes no connection: it is an event, and the program decides.
//!
//! A program whose user chooses the carrier has an [`AnySocket`].
//!
//! A process has one thread for all its connections, which sleeps but for a moment twice a second.
//! A connection over QUIC has one more, which hears what the other end tells.

mod any;
mod core;
mod events;
mod facade;
mod file;
mod incoming;
mod listener;
mod network;
mod offset;
mod options;
mod outgoing;
mod quic;
mod quic_listener;
mod report;
mod setup;
mod socket;
mod socket_listener;
mod stream;
mod tcp;
mod tender;
#[cfg(test)]
mod tests;
pub mod wire;

pub use file::{SpecificationError, read};
pub use {
    any::AnySocket,
    events::{Event, Events},
    listener::{Accepted, QosListener},
    options::{Delivery, Direction, Message, QosOptions, Reserve},
    outgoing::LadderOptions,
    quic::QosConnection,
    quic_listener::QosConnectionListener,
    setup::{Disagreement, SetupError},
    socket::QosSocket,
    socket_listener::QosSocketListener,
    stream::QosStream,
};
