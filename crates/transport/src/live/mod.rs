//! Blocking API for programs: an endpoint runs on its own thread with a UDP socket.
//!
//! A [`Listener`] accepts connections and [`connect`] makes one; a [`Connection`] opens a
//! [`SendFlow`] and accepts a [`ReceiveFlow`]. All can be shared among threads. Every queue between
//! a program and the thread is bounded, so there is backpressure in both directions: a sender waits
//! while the network is slower, and a peer waits while the receiving program reads nothing. Data is
//! not copied between the program and the thread.
//!
//! Each blocking call has a variant with a time limit; a limit of zero polls. An event loop sets a
//! hook, with [`SendFlow::on_change`] for example, that is called when it should poll again.

mod connection;
mod driver;
mod error;
mod flow;
mod listener;
pub mod mailbox;
mod packets;
mod shared;
mod thread;

pub use connection::{Caller, Connection, Pending, connect};
pub use error::{Error, Options};
pub use flow::{Message, NotTaken, ReceiveFlow, SendFlow};
pub use listener::{Accepted, Listener};

#[cfg(test)]
mod tests;
