//! Media over real networks: application data units over QUIC.
//!
//! An [`Endpoint`] has all connections of one UDP socket: it connects, listens and demultiplexes.
//! It is sans-I/O: no socket, no clock, no thread. A driver passes it datagrams and the time, and
//! polls it for datagrams to send and the next timeout; the same endpoint runs over sockets, over
//! the emulator's hosts, and in virtual time over the network of [`simulated`]. It never looks into
//! a unit.
//!
//! A [`Connection`] carries flows in both directions, and a flow carries units: each has
//! a number, and may have a deadline, a priority, and dependencies. The delivery order
//! and the reliability are configured for each flow
//! ([`FlowConfig`]).
//!
//! [`live`] is the blocking API with sockets and threads.

mod address;
mod admission;
mod buffers;
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
mod seeded;
mod share;
pub mod simulated;
pub mod wire;

pub use buffers::Buffers;
pub use close::{CloseReason, Closed};
pub use config::{
    Configuration, Congestion, CongestionName, CustomLaw, DelayedAcks, Limits, PacingConfig,
    ParameterError, UnknownCongestion,
};
pub use connection::{
    Connection, ConnectionStatistics, DelayStatistics, FlowError, ReceiveStatistics, SendError,
    SendStatistics,
};
pub use endpoint::{ConnectionId, Endpoint};
pub use events::{ConnectFailed, Event, Poll, Source, Transmit};
pub use flow::{Delivery, DeliveryOrder, FlowConfig, FlowId, Outgoing, Reliability, Unit};
pub use identity::{Fingerprint, Identity, IdentityError, Token, TokenError, Trust, random_token};
pub use noq_proto::EcnCodepoint;
pub use qlog::{MAX_TRACE_BYTES, MAX_TRACES, Qlog, QlogError};
pub use share::{STEERING, Share};
pub use wire::AckRequest;
