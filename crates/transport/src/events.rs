//! What an endpoint tells, and what it is told.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use noq_proto::EcnCodepoint;
use ontempo_foundation::Time;

use crate::close::Closed;
use crate::connection::{ReceiveStatistics, SendStatistics, Told};
use crate::endpoint::ConnectionId;
use crate::flow::{FlowConfig, FlowId};
use crate::identity::IdentityError;
use ontempo_udp::Dscp;

/// What an endpoint tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A connection that was asked for, or that a peer began, can be used.
    Connected {
        /// Which.
        connection: ConnectionId,
        /// True where the peer began it.
        accepted: bool,
    },
    /// The peer opened a flow.
    FlowOpened {
        /// On which connection.
        connection: ConnectionId,
        /// Which.
        flow: FlowId,
        /// How it is delivered.
        config: FlowConfig,
    },
    /// A flow that had nothing to receive has.
    Readable {
        /// On which connection.
        connection: ConnectionId,
        /// Which.
        flow: FlowId,
    },
    /// A flow that was full has room.
    Writable {
        /// On which connection.
        connection: ConnectionId,
        /// Which.
        flow: FlowId,
    },
    /// Units that this side sent were dropped at their deadline: the peer does not have them and
    /// will not.
    Dropped {
        /// On which connection.
        connection: ConnectionId,
        /// Of which flow.
        flow: FlowId,
        /// Their numbers.
        units: Vec<u64>,
    },
    /// The peer finished a flow, and all of it has been received.
    FlowEnded {
        /// On which connection.
        connection: ConnectionId,
        /// Which.
        flow: FlowId,
        /// How it was received.
        statistics: ReceiveStatistics,
    },
    /// All of a flow that this side finished has arrived or been dropped; it is forgotten.
    FlowSettled {
        /// On which connection.
        connection: ConnectionId,
        /// Which.
        flow: FlowId,
        /// How it was sent.
        statistics: SendStatistics,
    },
    /// A connection was closed by the peer, or lost, or never came to be. It tells nothing more.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        closed: Closed,
    },
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The sender's address.
    pub remote: SocketAddr,
    /// Which of this side's addresses it came to, where the driver knows.
    pub local: Option<IpAddr>,
    /// Its congestion mark.
    pub ecn: Option<EcnCodepoint>,
}

impl Source {
    /// A datagram from `remote`, of which nothing else is known.
    pub fn of(remote: SocketAddr) -> Self {
        Self { remote, local: None, ecn: None }
    }
}

/// What is to be sent: one datagram, or several of one size to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: SocketAddr,
    /// From which of this side's addresses; `None`: the system's choice.
    pub local: Option<IpAddr>,
    /// The congestion mark to send with.
    pub ecn: Option<EcnCodepoint>,
    /// Bytes in the buffer.
    pub size: usize,
    /// Where there are several datagrams, the size of each but the last.
    pub segment: Option<usize>,
    /// The class of the connection that it is of; `None` where it has none of its own.
    pub dscp: Option<Dscp>,
}

/// What an endpoint answers that is asked what to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// This, whose bytes are in the buffer. Ask again.
    Transmit(Transmit),
    /// Nothing before this time: then call [`Endpoint::handle_timeout`](crate::Endpoint::handle_timeout).
    WaitUntil(Time),
    /// Nothing before something arrives or is asked for.
    Idle,
}

/// Why no connection was begun.
#[derive(Debug)]
pub enum ConnectFailed {
    /// What the server is known by cannot be used.
    Trust(IdentityError),
    /// The endpoint has as many connections as it may.
    TooMany,
    /// The address or the name is not one.
    Address(noq_proto::ConnectError),
}

impl fmt::Display for ConnectFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trust(error) => write!(f, "{error}"),
            Self::TooMany => f.write_str("the endpoint has as many connections as it may"),
            Self::Address(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ConnectFailed {}

pub(crate) fn event(connection: ConnectionId, accepted: bool, told: Told) -> Event {
    match told {
        Told::Open => Event::Connected { connection, accepted },
        Told::FlowOpened(flow, config) => Event::FlowOpened { connection, flow, config },
        Told::Readable(flow) => Event::Readable { connection, flow },
        Told::Writable(flow) => Event::Writable { connection, flow },
        Told::Dropped(flow, units) => Event::Dropped { connection, flow, units },
        Told::FlowEnded(flow, statistics) => Event::FlowEnded { connection, flow, statistics },
        Told::FlowSettled(flow, statistics) => Event::FlowSettled { connection, flow, statistics },
        Told::Closed(closed) => Event::Closed { connection, closed },
    }
}
