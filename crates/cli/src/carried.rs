//! Messages over the carrier that the user has chosen.

use std::io;

use ontempo_qos::{
    Accepted, AnySocket, QosConnection, QosConnectionListener, QosListener, QosOptions, QosSocket,
    QosSocketListener, QosStream,
};
use ontempo_transport::{Fingerprint, Trust};
use serde_json::json;

use crate::address::resolve;
use crate::arguments::{At, Receiver, Transport};
use crate::deliver;
use crate::failure::{Failure, environment};
use crate::quality::failed;
use crate::telling::Teller;

/// By what a sender knows its receiver.
fn trust(receiver: &Receiver) -> Result<Trust, Failure> {
    match receiver.fingerprint {
        Some(fingerprint) => Ok(Trust::Fingerprint(fingerprint)),
        None if receiver.insecure => Ok(Trust::Anybody),
        None => Err(Failure::Input(
            "whom to trust is missing: give --fingerprint, which the receiver prints, or --insecure"
                .to_owned(),
        )),
    }
}

/// Connects over the carrier that the user has chosen.
pub(crate) fn connect(receiver: &Receiver, options: &QosOptions) -> Result<AnySocket, Failure> {
    let to = receiver.to.as_str();
    let address = resolve(to, "")?;
    let connected = match receiver.over {
        Transport::Tcp => QosStream::connect(address, options).map(AnySocket::Tcp),
        Transport::Udp => QosSocket::connect(address, options).map(AnySocket::Udp),
        Transport::Quic => {
            let token = deliver::token(receiver.token.as_deref())?;
            let host = to.rsplit_once(':').map_or("", |(host, _)| host);
            let name = host.trim_matches(['[', ']']);
            let known = (&trust(receiver)?, &token);
            QosConnection::connect(address, name, known, options).map(AnySocket::Quic)
        }
    };
    connected.map_err(failed(to))
}

/// Where connections come to over any carrier.
pub(crate) enum Listening {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener, Fingerprint),
}

impl Listening {
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

    /// Tells where it listens, and the fingerprint where there is one.
    pub(crate) fn tell(&self, teller: Teller) -> Result<(), Failure> {
        let local = match self {
            Self::Tcp(listener) => listener.local_address().map_err(environment)?,
            Self::Udp(listener) => listener.local_address(),
            Self::Quic(listener, _) => listener.local_address(),
        };
        let mut what = json!({ "local": local.to_string() });
        let mut text = format!("listening at {local}");
        if let Self::Quic(_, fingerprint) = self {
            text += &format!(", fingerprint {fingerprint}");
            what["fingerprint"] = fingerprint.to_string().into();
        }
        teller.say("listening", what, &format!("{text}; Ctrl-C ends it"))
    }

    /// The next one with whom there is an agreement; tells of those with whom there is none.
    pub(crate) fn accept(&self, teller: Teller) -> io::Result<AnySocket> {
        loop {
            let (remote, why) = match self {
                Self::Tcp(listener) => match listener.accept_or_refuse()? {
                    Accepted::Connection(stream, _) => return Ok(AnySocket::Tcp(stream)),
                    Accepted::Refused(remote, why) => (remote, why),
                },
                Self::Udp(listener) => match listener.accept_or_refuse()? {
                    Accepted::Connection(socket, _) => return Ok(AnySocket::Udp(socket)),
                    Accepted::Refused(remote, why) => (remote, why),
                },
                Self::Quic(listener, _) => match listener.accept_or_refuse()? {
                    Accepted::Connection(one, _) => return Ok(AnySocket::Quic(one)),
                    Accepted::Refused(remote, why) => (remote, why),
                },
            };
            let what = json!({ "remote": remote.to_string(), "what": why.to_string() });
            // Where the output is gone, the summary says so.
            let _ = teller.say("refused", what, &format!("{remote}: {why}"));
        }
    }
}
