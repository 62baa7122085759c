//! Connections for programs: an endpoint carried by a thread of its own over a UDP socket, and
//! calls that wait.
//!
//! A [`Listener`] takes connections and [`connect`] begins one; a [`Connection`] opens a
//! [`SendFlow`] and accepts a [`ReceiveFlow`]. All can be shared among threads. Every queue between
//! a program and the thread is bounded: who sends faster than the network waits, and what a program
//! does not take keeps the peer from sending more. Data is handed over, never copied.
//!
//! Each wait has a form with a time limit and one that does not wait; a foreign event loop is told
//! by [`SendFlow::on_change`] and its likes when it is worth to ask again.

mod carried;
mod connection;
mod error;
mod flow;
mod listener;
pub mod mailbox;
mod shared;

pub use connection::{Caller, Connection, Pending, connect};
pub use error::{Error, Options};
pub use flow::{Message, NotTaken, ReceiveFlow, SendFlow};
pub use listener::{Accepted, Listener};

#[cfg(test)]
mod tests;
