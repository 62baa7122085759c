//! Messages over the carrier that the user has chosen.

use std::io;
use std::net::SocketAddr;
use std::time::Duration as Wall;

use ontempo_endpoint::Trust;
use ontempo_endpoint::qos::{
    Delivery, Direction, Events, Message, QosConnection, QosListener, QosOptions, QosSocket,
    QosStream,
};

use crate::arguments::{Known, Transport, Trusted};
use crate::deliver;
use crate::failure::Failure;
use crate::netvideo::failed;
use crate::probe::resolve;

/// A connection over any carrier.
#[derive(Clone)]
pub(crate) enum Carried {
    Tcp(QosStream),
    Udp(QosSocket),
    Quic(QosConnection),
}

macro_rules! each {
    ($carried:expr, $end:ident => $what:expr) => {
        match $carried {
            Carried::Tcp($end) => $what,
            Carried::Udp($end) => $what,
            Carried::Quic($end) => $what,
        }
    };
}

/// By what a sender knows its receiver.
fn trust(trusted: &Trusted) -> Result<Trust, Failure> {
    match trusted.fingerprint {
        Some(fingerprint) => Ok(Trust::Fingerprint(fingerprint)),
        None if trusted.insecure => Ok(Trust::Anybody),
        None => Err(Failure::Input(
            "whom to trust is missing: give --fingerprint, which the receiver prints, or --insecure"
                .to_owned(),
        )),
    }
}

impl Carried {
    pub(crate) fn connect(
        over: Transport,
        to: &str,
        trusted: &Trusted,
        options: &QosOptions,
    ) -> Result<Self, Failure> {
        let address = resolve(to, "")?;
        let connected = match over {
            Transport::Tcp => QosStream::connect(address, options).map(Self::Tcp),
            Transport::Udp => QosSocket::connect(address, options).map(Self::Udp),
            Transport::Quic => {
                let token = deliver::token(trusted.token.as_deref())?;
                let host = to.rsplit_once(':').map_or("", |(host, _)| host);
                let name = host.trim_matches(['[', ']']);
                let known = (&trust(trusted)?, &token);
                QosConnection::connect(address, name, known, options).map(Self::Quic)
            }
        };
        connected.map_err(failed(to))
    }

    /// Waits for one sender. `listening` is told where, and the fingerprint where there is one.
    pub(crate) fn accept(
        over: Transport,
        listen: &str,
        known: &Known,
        options: QosOptions,
        listening: impl Fn(SocketAddr, Option<String>) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let at = resolve(listen, "--listen ")?;
        let named = format!("--listen {listen}");
        let environment = |error: io::Error| Failure::Environment(format!("{named}: {error}"));
        match over {
            Transport::Tcp => {
                let listener = QosListener::bind(at, options).map_err(failed(&named))?;
                listening(listener.local_address().map_err(environment)?, None)?;
                Ok(Self::Tcp(listener.accept().map_err(environment)?.0))
            }
            Transport::Udp => {
                let listener = QosSocket::bind(at, options).map_err(failed(&named))?;
                listening(listener.local_address(), None)?;
                Ok(Self::Udp(listener.accept().map_err(environment)?.0))
            }
            Transport::Quic => {
                let identity = deliver::identity(known.identity.as_deref())?;
                let token = deliver::token(known.token.as_deref())?;
                let known = (&identity, &token);
                let listener = QosConnection::bind(at, known, options).map_err(failed(&named))?;
                let fingerprint = identity.fingerprint().to_string();
                listening(listener.local_address(), Some(fingerprint))?;
                Ok(Self::Quic(listener.accept().map_err(environment)?.0))
            }
        }
    }

    pub(crate) fn send(&self, data: &[u8]) -> io::Result<()> {
        each!(self, end => end.send_message(data))
    }

    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<Option<Message>> {
        each!(self, end => end.receive_message(room))
    }

    pub(crate) fn set_read_timeout(&self, patience: Wall) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(patience)),
            Self::Udp(socket) => socket.set_read_timeout(Some(patience)),
            Self::Quic(connection) => {
                connection.set_read_timeout(Some(patience));
                Ok(())
            }
        }
    }

    pub(crate) fn delivery(&self, direction: Direction) -> Delivery {
        each!(self, end => end.delivery(direction))
    }

    pub(crate) fn events(&self) -> Events {
        each!(self, end => end.events())
    }

    /// Ends it when the other end has what was sent, where the carrier can tell.
    pub(crate) fn close(self, patience: Wall) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.close(patience),
            Self::Udp(_) => Ok(()),
            Self::Quic(connection) => connection.close(patience),
        }
    }
}
