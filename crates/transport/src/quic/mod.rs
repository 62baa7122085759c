//! Adapters between the QUIC stack and the mechanisms.
//!
//! The stack is noq-proto. It uses instants, counts bytes, and hides what a
//! mechanism needs; these adapters translate, and decide nothing.

mod account;
mod adapter;
mod clock;
mod fixed;
mod outstanding;
mod retry;
mod spaced;
mod watch;

pub use account::{Account, SharedAccount};
pub use adapter::{Adapter, Factory, Log, Pacing, SharedLog};
pub use clock::{Epoch, span};
pub(crate) use fixed::StaticWindow;
pub(crate) use retry::{is_retry, is_undamaged};
pub(crate) use spaced::SpacedFactory;
pub(crate) use watch::{Watched, WatchedClient, WatchedServer, watched};
