//! QoS sockets over the transport that the user has chosen.

use std::io;
use std::time::{Duration, Instant};

use ontempo_qos::{
    Accepted, AnySocket, QosConnection, QosConnectionListener, QosListener, QosOptions, QosSocket,
    QosSocketListener, QosStream,
};
use ontempo_transport::{Fingerprint, Trust};
use serde_json::json;

use crate::address::resolve;
use crate::arguments::{At, Receiver, Transport};
use crate::deliver;
use crate::event_log::EventLog;
use crate::failure::{Failure, environment};
use crate::limited::LineLimit;
use crate::quality::failed;

/// Lines about refused peers: at once, and then one in each interval.
const MAX_REFUSALS: u32 = 16;
const REFUSAL_INTERVAL: Duration = Duration::from_secs(5);

/// How the sender verifies the receiver's certificate.
fn trust(receiver: &Receiver) -> Result<Trust, Failure> {
    match receiver.fingerprint {
        Some(fingerprint) => Ok(Trust::Fingerprint(fingerprint)),
        None if receiver.insecure => Ok(Trust::Insecure),
        None => Err(Failure::Input(
            "the receiver cannot be verified: give --fingerprint, which the receiver prints, or \
             --insecure"
                .to_owned(),
        )),
    }
}

/// Connects over the transport that the user has chosen.
pub(crate) fn connect(receiver: &Receiver, options: &QosOptions) -> Result<AnySocket, Failure> {
    let congestion = receiver.congestion().map_err(Failure::Input)?;
    let options = &QosOptions { congestion, ..options.clone() };
    let to = receiver.to.as_str();
    let address = resolve(to, "")?;
    let connected = match receiver.over {
        Transport::Tcp => QosStream::connect(address, options).map(AnySocket::Tcp),
        Transport::Udp => QosSocket::connect(address, options).map(AnySocket::Udp),
        Transport::Quic => {
            let token = deliver::token(receiver.token.as_deref())?;
            let host = to.rsplit_once(':').map_or("", |(host, _)| host);
            let name = host.trim_matches(['[', ']']);
            let credentials = (&trust(receiver)?, &token);
            QosConnection::connect(address, name, credentials, options).map(AnySocket::Quic)
        }
    };
    connected.map_err(failed(to))
}

/// A listener for connections over any transport.
pub(crate) enum MessageListener {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener, Fingerprint),
}

impl MessageListener {
    pub(crate) fn bind(at: &At, options: QosOptions) -> Result<Self, Failure> {
        let address = resolve(&at.listen, "--listen ")?;
        let bound = match at.over {
            Transport::Tcp => QosListener::bind(address, options).map(Self::Tcp),
            Transport::Udp => QosSocket::bind(address, options).map(Self::Udp),
            Transport::Quic => {
                let identity = deliver::identity(at.identity.as_deref())?;
                let token = deliver::token(at.token.as_deref())?;
                QosConnection::bind(address, (&identity, &token), options)
                    .map(|listener| Self::Quic(listener, identity.fingerprint()))
            }
        };
        bound.map_err(failed(&format!("--listen {}", at.listen)))
    }

    /// Writes the local address and, over QUIC, the fingerprint.
    pub(crate) fn log_address(&self, log: EventLog) -> Result<(), Failure> {
        let local = match self {
            Self::Tcp(listener) => listener.local_address().map_err(environment)?,
            Self::Udp(listener) => listener.local_address(),
            Self::Quic(listener, _) => listener.local_address(),
        };
        let mut fields = json!({ "local": local.to_string() });
        let mut text = format!("listening at {local}");
        if let Self::Quic(_, fingerprint) = self {
            text += &format!(", fingerprint {fingerprint}");
            fields["fingerprint"] = fingerprint.to_string().into();
        }
        log.write("listening", fields, &format!("{text}; Ctrl-C ends it"))
    }

    /// The next connection whose negotiation succeeded; writes an event for each refused one, so
    /// many at a time, and the number of the others.
    pub(crate) fn accept(&self, log: EventLog) -> io::Result<AnySocket> {
        let mut limit = LineLimit::new(Instant::now(), MAX_REFUSALS, REFUSAL_INTERVAL);
        loop {
            let (remote, error) = match self {
                Self::Tcp(listener) => match listener.accept_or_refuse()? {
                    Accepted::Connection(stream, _) => return Ok(AnySocket::Tcp(stream)),
                    Accepted::Refused(remote, error) => (remote, error),
                },
                Self::Udp(listener) => match listener.accept_or_refuse()? {
                    Accepted::Connection(socket, _) => return Ok(AnySocket::Udp(socket)),
                    Accepted::Refused(remote, error) => (remote, error),
                },
                Self::Quic(listener, _) => match listener.accept_or_refuse()? {
                    Accepted::Connection(connection, _) => return Ok(AnySocket::Quic(connection)),
                    Accepted::Refused(remote, error) => (remote, error),
                },
            };
            let now = Instant::now();
            if let Some(count) = limit.not_shown(now) {
                let text = format!("{count} more lines about refusals were not shown");
                // A closed output is reported by the summary; below, too.
                let _ = log.write("not-shown", json!({ "of": "refusals", "count": count }), &text);
            }
            if limit.allows(now) {
                let fields = json!({ "remote": remote.to_string(), "what": error.to_string() });
                let _ = log.write("refused", fields, &format!("{remote}: {error}"));
            }
        }
    }
}
