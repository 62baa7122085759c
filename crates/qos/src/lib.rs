//! QoS sockets: a specification negotiated, reserved and monitored (qosockets, II).
//!
//! [`QosListener`] and [`QosStream`] are TCP, [`QosSocketListener`] and [`QosSocket`] are UDP,
//! [`QosConnectionListener`] and [`QosConnection`] are QUIC. Each end gives in [`QosOptions`] the
//! specifications of its
//! sending and receiving directions; the handshake
//! results in an agreed specification or in a reason at both ends. Delivery is then
//! measured, reported to both ends, compared with the agreement ([`Event`]) and published for
//! `ontempo monitor` and `ontempo export`.
//!
//! A violation never closes or slows a connection: the application gets an event
//! and decides. Only a TCP connection that breaks, and is not made anew within `rec_time`, ends.
//!
//! If the user of a program chooses the transport, it uses [`AnySocket`].
//!
//! A process has one maintenance thread for all connections, which wakes twice a second.
//! A QUIC connection has one more thread, which receives the peer's control messages.

mod any;
mod channel;
mod clock;
mod connection;
mod core;
mod door;
mod events;
mod facade;
mod file;
mod gate;
mod handshakes;
mod incoming;
mod listener;
mod maintenance;
mod network;
mod offset;
mod options;
mod outgoing;
mod quic;
mod quic_caller;
mod quic_listener;
mod recovery;
mod relay;
mod report;
mod returning;
mod setup;
mod socket;
mod socket_listener;
mod stream;
mod sys;
mod tcp;
#[cfg(test)]
mod tests;
pub mod wire;

pub use file::{SpecificationError, read, read_ladder};
pub use ontempo_transport::Buffers;
pub use {
    any::AnySocket,
    events::{Event, Events},
    listener::{ACCEPT_BACK_OFF, Accepted, QosListener, is_exhausted, is_of_one_connection},
    options::{Delivery, Direction, Message, QosOptions, Reserve},
    outgoing::LadderOptions,
    quic::{QosConnection, UNRELIABLE},
    quic_caller::QosCaller,
    quic_listener::QosConnectionListener,
    relay::{Activity, Backward, Begun, Forward, Pace, Rates, Relayed},
    setup::{Disagreement, SetupError},
    socket::QosSocket,
    socket_listener::QosSocketListener,
    stream::QosStream,
};
