//! One stream in, thousands out: takes streams of [`Sender`](ontempo_session::Sender)s and gives
//! each to many viewers, each with what its path bears.
//!
//! Units are passed on as they came: payload, order, reliability, priority, dependencies, and what is
//! left of the deadline. No payload is copied for a viewer but small ones, of which several share a
//! packet, and none is read but key frames of several elementary streams, for the number of their
//! stream. A [`Relay`] knows neither socket nor clock; a [`RelayDriver`] runs one over a socket,
//! [`RelayThreads`] one on several threads.
//!
//! A viewer connects like a sender, and opens its flow of reports first, whose label names the
//! stream that it asks for; then the relay opens the flow of units, as a sender does. From there on
//! the protocol is that of [`ontempo_session::message`].

mod contest;
mod driver;
mod figures;
mod held;
mod hub;
mod inbox;
mod keys;
mod messages;
mod numbers;
mod options;
mod relay;
mod round;
mod source;
mod stream;
mod threads;
mod viewer;

pub use driver::{Command, RelayDriver};
pub use figures::{RelayStatistics, StreamStatistics};
pub use options::{RelayOptions, configuration};
pub use relay::{Relay, RelayEvent};
pub use threads::{Access, RelayThreads, endpoints};
