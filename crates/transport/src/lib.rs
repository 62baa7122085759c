//! Media over real networks: application data units over QUIC.
//!
//! An [`Endpoint`] is what stands behind one UDP socket: it connects, listens and keeps the
//! connections. It is sans-I/O: no socket, no clock, no thread. A driver hands it what arrives and
//! the time, and asks it what to send and when to ask again; the same endpoint runs over sockets,
//! over the emulator's hosts, and in virtual time over the network of [`simulated`]. It never looks
//! into a unit.
//!
//! A [`Connection`] carries flows in both directions, and a flow application data units: each has
//! a number, and may have a deadline, a priority, and units that it depends on. What order they
//! are delivered in, and what becomes of those that are lost, is each flow's choice
//! ([`FlowConfig`]).
//!
//! Programs that want sockets and threads rather than a state machine use [`live`].

mod address;
mod close;
mod config;
mod connection;
mod endpoint;
mod events;
mod flow;
mod identity;
#[cfg(unix)]
pub mod live;
mod qlog;
pub mod quic;
pub mod simulated;
pub mod wire;

pub use close::{CloseReason, Closed};
pub use config::{
    Configuration, CongestionName, DelayedAcks, Limits, PacingConfig, UnknownCongestion,
};
pub use connection::{
    Connection, ConnectionStatistics, DelayStatistics, FlowError, ReceiveStatistics, SendError,
    SendStatistics,
};
pub use endpoint::{ConnectionId, Endpoint};
pub use events::{ConnectFailed, Event, Poll, Source, Transmit};
pub use flow::{Delivery, DeliveryOrder, FlowConfig, FlowId, Outgoing, Reliability, Unit};
pub use identity::{Fingerprint, Identity, IdentityError, Token, TokenTooLong, Trust};
pub use noq_proto::EcnCodepoint;
pub use qlog::{Qlog, QlogError};
pub use wire::AckRequest;
