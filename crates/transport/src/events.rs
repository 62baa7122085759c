//! Events of an endpoint, and what it sends and receives.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use noq_proto::EcnCodepoint;
use ontempo_foundation::Time;

use crate::close::Closed;
use crate::connection::{ConnectionEvent, ReceiveStatistics, SendStatistics};
use crate::endpoint::ConnectionId;
use crate::flow::{Delivery, FlowConfig, FlowId};
use crate::identity::IdentityError;
use ontempo_udp::Dscp;

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// On an outgoing connection flows may be opened and units be sent: the server's limits are known. Its answer
    /// to the token is not: [`Connected`](Self::Connected) follows, or [`Closed`](Self::Closed).
    Early {
        /// Its id.
        connection: ConnectionId,
    },
    /// A connection, outgoing or incoming, is open.
    Connected {
        /// Its id.
        connection: ConnectionId,
        /// True for an incoming one.
        accepted: bool,
    },
    /// The peer opened a flow.
    FlowOpened {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
        /// Its configuration.
        config: FlowConfig,
    },
    /// A flow without deliveries has one again.
    Readable {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
    },
    /// A full flow accepts units again.
    Writable {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
    },
    /// Units sent by this side were dropped at their deadline: the peer does not have them and
    /// will not get them.
    Dropped {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
        /// Their numbers.
        units: Vec<u64>,
    },
    /// The peer finished a flow, and all of it was delivered. It counts as one of the peer's
    /// concurrent flows until [`release_flow`](crate::Connection::release_flow).
    FlowEnded {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
        /// Its statistics.
        statistics: ReceiveStatistics,
    },
    /// All units of a finished flow have arrived or been dropped; the flow is removed.
    FlowSettled {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
        /// Its statistics.
        statistics: SendStatistics,
    },
    /// After [`FlowError::NotTaken`](crate::FlowError::NotTaken): the peer allows another flow.
    FlowAllowed {
        /// The connection.
        connection: ConnectionId,
    },
    /// What a flow had delivered and the application had not [received](crate::Connection::receive), where the
    /// connection is gone with its [`Closed`](Self::Closed), which follows: the peer's program has been told
    /// that it arrived.
    Left {
        /// The connection.
        connection: ConnectionId,
        /// The flow.
        flow: FlowId,
        /// In order.
        deliveries: VecDeque<Delivery>,
    },
    /// A connection was closed by the peer, was lost, or could not be established. No event of it
    /// follows.
    Closed {
        /// Its id.
        connection: ConnectionId,
        /// The reason.
        closed: Closed,
    },
}

/// Origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The sender's address.
    pub remote: SocketAddr,
    /// The local address that it was sent to, if the driver knows.
    pub local: Option<IpAddr>,
    /// Its ECN.
    pub ecn: Option<EcnCodepoint>,
}

impl Source {
    /// A datagram from `remote`, without further information.
    pub fn of(remote: SocketAddr) -> Self {
        Self { remote, local: None, ecn: None }
    }
}

/// A transmission: one datagram, or several of one size to one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub destination: SocketAddr,
    /// Local source address; `None`: the system's choice.
    pub local: Option<IpAddr>,
    /// Its ECN.
    pub ecn: Option<EcnCodepoint>,
    /// Bytes in the buffer.
    pub size: usize,
    /// Size of each datagram but the last, if there are several.
    pub segment: Option<usize>,
    /// DSCP of its connection; `None`: the socket's.
    pub dscp: Option<Dscp>,
}

/// Result of polling an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// A transmission, in the buffer. Poll again.
    Transmit(Transmit),
    /// Nothing before this time: then call
    /// [`Endpoint::handle_timeout`](crate::Endpoint::handle_timeout).
    WaitUntil(Time),
    /// Nothing before something arrives or the application acts.
    Idle,
}

/// Why a connection could not be started.
#[derive(Debug)]
pub enum ConnectFailed {
    /// The trust configuration is unusable.
    Trust(IdentityError),
    /// The maximum number of connections is reached.
    TooMany,
    /// The address or the name is invalid.
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

pub(crate) fn event(connection: ConnectionId, accepted: bool, event: ConnectionEvent) -> Event {
    match event {
        ConnectionEvent::Early => Event::Early { connection },
        ConnectionEvent::Open => Event::Connected { connection, accepted },
        ConnectionEvent::FlowOpened(flow, config) => Event::FlowOpened { connection, flow, config },
        ConnectionEvent::Readable(flow) => Event::Readable { connection, flow },
        ConnectionEvent::Writable(flow) => Event::Writable { connection, flow },
        ConnectionEvent::Dropped(flow, units) => Event::Dropped { connection, flow, units },
        ConnectionEvent::FlowEnded(flow, statistics) => {
            Event::FlowEnded { connection, flow, statistics }
        }
        ConnectionEvent::FlowSettled(flow, statistics) => {
            Event::FlowSettled { connection, flow, statistics }
        }
        ConnectionEvent::FlowAllowed => Event::FlowAllowed { connection },
        ConnectionEvent::Closed(closed) => Event::Closed { connection, closed },
    }
}
