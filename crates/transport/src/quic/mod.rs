//! What stands between the QUIC stack and the mechanisms.
//!
//! The stack is noq-proto. It speaks of instants, counts bytes, and keeps to itself what a
//! mechanism wants to see; these adapters translate, and decide nothing.

mod account;
mod adapter;
mod clock;
mod fixed;
mod foreign;
mod outstanding;
mod spaced;
mod watch;

pub use account::{Account, SharedAccount};
pub use adapter::{Adapter, Factory, Log, Pacing, SharedLog};
pub use clock::{Epoch, span};
pub(crate) use fixed::StaticWindow;
pub(crate) use foreign::ForeignFactory;
pub(crate) use spaced::SpacedFactory;
pub(crate) use watch::{Watched, WatchedClient, WatchedServer, watched};
