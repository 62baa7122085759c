//! A connection over a QoS socket.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration as Wall;

use ontempo_foundation::Duration;
use ontempo_qos::{AnySocket, Direction, QosOptions};

use super::protocol::{Protocol, may_lose};
use crate::error::{Aborted, PropertyError, SendError};
use crate::message::MessageProperties;
use crate::properties::DEFAULT_PRIORITY;
use crate::selection::TransportProperties;

/// How long [`Connection::close`] waits for the peer.
const LINGER: Wall = Wall::from_secs(5);

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its data, whole.
    pub data: Vec<u8>,
    /// Its number this way, from 0; missing ones were lost.
    pub number: u64,
    /// How long it was on its way.
    pub age: Duration,
}

/// Messages to and from a peer, of an agreed quality. Several threads may use it. What RFC 9622 has
/// no word for is at its [`socket`](Self::socket).
pub struct Connection {
    socket: AnySocket,
    /// Whether this side sends, and whether it receives.
    ways: (bool, bool),
    /// What was agreed of what this side sends.
    is_ordered: bool,
    is_reliable: bool,
    has_final: AtomicBool,
    /// Room for the longest message.
    buffer: Mutex<Vec<u8>>,
}

impl Connection {
    pub(super) fn new(
        socket: AnySocket,
        transport: &TransportProperties,
        options: &QosOptions,
    ) -> Self {
        let agreed = socket.agreed(Direction::Sending);
        let is_permutable = agreed.permutable.value == Some(true);
        let (is_ordered, is_reliable) = match &socket {
            AnySocket::Tcp(_) => (true, true),
            AnySocket::Udp(_) => (!is_permutable, false),
            AnySocket::Quic(_) => {
                (options.reliable || !is_permutable, options.reliable || !may_lose(&agreed))
            }
        };
        Self {
            socket,
            ways: transport.ways(),
            is_ordered,
            is_reliable,
            has_final: AtomicBool::new(false),
            buffer: Mutex::default(),
        }
    }

    /// Over which protocol.
    pub fn protocol(&self) -> Protocol {
        match self.socket {
            AnySocket::Tcp(_) => Protocol::Tcp,
            AnySocket::Udp(_) => Protocol::Udp,
            AnySocket::Quic(_) => Protocol::Quic,
        }
    }

    /// The QoS socket: what was agreed, delivery, events such as violations, reservations, time
    /// limits. Its event `Recovered` is the RFC's PathChange.
    pub fn socket(&self) -> &AnySocket {
        &self.socket
    }

    /// The property canSend, until the connection has ended.
    pub fn can_send(&self) -> bool {
        self.ways.0 && !self.has_final.load(Ordering::Relaxed)
    }

    /// The property canReceive, until the connection has ended.
    pub fn can_receive(&self) -> bool {
        self.ways.1
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.socket.peer_address()
    }

    /// The address of this side.
    pub fn local(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Refused: a QoS socket is one connection.
    ///
    /// # Errors
    /// Always [`PropertyError::NotProvided`].
    pub fn clone_connection(&self) -> Result<Self, PropertyError> {
        Err(PropertyError::not_provided(
            "clone",
            "a QoS socket is one connection; initiate another",
        ))
    }

    /// # Errors
    /// The message has a property that QoS sockets do not have.
    fn check(&self, properties: &MessageProperties) -> Result<(), PropertyError> {
        properties.check(self.is_ordered, self.is_reliable)?;
        let ours = "max_delay of the specification is that of all messages";
        let absent = [
            ("msg_lifetime", properties.msg_lifetime.is_some(), ours),
            ("msg_priority", properties.msg_priority != DEFAULT_PRIORITY, "a QoS socket has none"),
            ("depends_on", !properties.depends_on.is_empty(), "a QoS socket has none"),
            (
                "is_final",
                properties.is_final && self.protocol() == Protocol::Udp,
                "over UDP a direction has no end; close the connection",
            ),
        ];
        match absent.into_iter().find(|(_, is_asked, _)| *is_asked) {
            Some((name, _, why)) => Err(PropertyError::not_provided(name, why)),
            None => Ok(()),
        }
    }

    /// Sends a message; waits while the network accepts no more: the return is the event Sent.
    ///
    /// # Errors
    /// It is longer than agreed, has a property that is not there, or the connection has ended.
    pub fn send(&self, data: &[u8], properties: &MessageProperties) -> Result<(), SendError> {
        if !self.can_send() {
            return Err(SendError::NotSending);
        }
        self.check(properties)?;
        self.socket.send_message(data).map_err(SendError::Qos)?;
        if properties.is_final {
            self.has_final.store(true, Ordering::Relaxed);
            self.socket.finish();
        }
        Ok(())
    }

    /// Waits for the next message (the event Received); `None` behind the peer's last.
    ///
    /// # Errors
    /// The connection ended before, or the socket's time limit has passed (the event ReceiveError).
    pub fn receive(&self) -> Result<Option<Message>, Aborted> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.resize(self.socket.max_receive_size(), 0);
        let received = self.socket.receive_message(&mut buffer);
        let received = received.map_err(|error| Aborted(error.to_string()))?;
        Ok(received.map(|message| Message {
            data: buffer.get(..message.length).unwrap_or_default().to_vec(),
            number: message.sequence,
            age: message.delay,
        }))
    }

    /// Ends it in order: what was sent arrives, for up to 5 s; over UDP at once.
    ///
    /// # Errors
    /// The peer has not received everything by then, or the connection was lost.
    pub fn close(self) -> Result<(), Aborted> {
        let closed = self.socket.clone().close(LINGER);
        // TCP where both sides have ended already: nothing is left to be ended. After a reset the
        // next call fails.
        if closed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotConnected) {
            while self.receive()?.is_some() {}
            return Ok(());
        }
        closed.map_err(|error| Aborted(error.to_string()))
    }

    /// Ends it at once: what has not arrived is lost. The peer's calls fail, over TCP and UDP they
    /// see the end.
    pub fn abort(self) {
        self.socket.hang_up();
    }
}
