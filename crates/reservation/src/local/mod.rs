//! The protocol between applications and the daemon of their host, `ontempo rsvpd`.
//!
//! A stream socket of the Unix domain, one JSON document a line, at most [`MAX_LINE_LEN`] bytes
//! each. An application sends [`Question`]s; each has one [`Reply::Answer`] with its number.
//! Between them come [`Reply::Event`]s about the application's own requests. Its senders and
//! reservations end with the connection.
//!
//! ```text
//! > {"id":1,"request":{"send":{"session":{"destination":"10.0.0.3","protocol":17,"port":5000},
//!     "sender":{"address":"10.0.0.2","port":4000},
//!     "traffic":{"rate":75000.0,"burst":3000.0,"peak":null,"smallest":100,"largest":1500}}}}
//! < {"answer":{"id":1,"result":"done"}}
//! < {"event":{"reserved":{...}}}
//! ```
//!
//! (Here in several lines, there in one.) Rates are bytes a second, sizes bytes of IP packets;
//! `null` is an unbounded peak rate.

mod client;
mod protocol;
mod status;

pub use client::{Client, ClientError};
pub use protocol::{
    Answer, Failure, MAX_LINE_LEN, Notice, Question, Reply, Request, SOCKET, SOCKET_VARIABLE, line,
    question, socket,
};
pub use status::{
    Census, EnforcedStatus, InterfaceStatus, PathStatus, ProtocolStatus, RequestStatus,
    ReservationStatus, Room, SessionStatus, Status,
};
