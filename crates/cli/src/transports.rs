//! QoS sockets over the transport that the user has chosen.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use ontempo_qos::{
    Accepted, AnySocket, QosCaller, QosConnection, QosConnectionListener, QosListener, QosOptions,
    QosSocket, QosSocketListener, QosStream, SetupError,
};
use ontempo_transport::{Fingerprint, Token, Trust};
use serde_json::json;

use crate::access::{Admitted, Destination, admitted, qr};
use crate::address::{Greeting, connect_in_turn, first_answering, resolve, resolve_all};
use crate::arguments::{At, Credentials, Receiver, Transport};
use crate::deliver;
use crate::event_log::EventLog;
use crate::failure::{Failure, environment};
use crate::limited::{LineLimit, SENTENCES, Sentences, not_shown};
use crate::output::write_stderr;
use crate::quality::failed;

/// Connects over the transport that the user has chosen.
pub(crate) fn connect(receiver: &Receiver, options: &QosOptions) -> Result<AnySocket, Failure> {
    let congestion = receiver.congestion().map_err(Failure::Input)?;
    let options = &QosOptions { congestion, ..options.clone() };
    let destination = Destination::read(&receiver.to, "")?;
    let over = match receiver.over {
        Some(over) if destination.is_url() && over != Transport::Quic => {
            return Err(Failure::Input(
                "--over: a receiver with a URL is reached over quic".to_owned(),
            ));
        }
        Some(over) => over,
        None if destination.is_url() => Transport::Quic,
        None => Transport::Udp,
    };
    let to = destination.address.as_str();
    let all = resolve_all(to, "")?;
    let connected = match over {
        Transport::Tcp => connect_in_turn(&all, |address| {
            QosStream::connect(address, options).map(AnySocket::Tcp)
        }),
        Transport::Udp => connect_in_turn(&all, |address| {
            QosSocket::connect(address, options).map(AnySocket::Udp)
        }),
        Transport::Quic => {
            let Receiver { fingerprint, insecure, credentials, .. } = receiver;
            let known = QuicPeer::of(&destination, (*fingerprint, *insecure), credentials)?;
            let address = first_answering(&all, &Greeting::quic())
                .map_err(|why| Failure::Environment(format!("{to}: {why}")))?;
            let caller = QosCaller::new(options.clone());
            caller.and_then(|caller| known.connect(&caller, address)).map(AnySocket::Quic)
        }
    };
    connected.map_err(failed(to))
}

/// How a peer over QUIC is verified, and the token that it asks for.
pub(crate) struct QuicPeer {
    name: String,
    trust: Trust,
    token: Token,
}

impl QuicPeer {
    /// As the user names it: `verified` by a fingerprint, or not.
    pub(crate) fn of(
        destination: &Destination,
        (fingerprint, is_insecure): (Option<Fingerprint>, bool),
        credentials: &Credentials,
    ) -> Result<Self, Failure> {
        let token = destination.token(credentials)?;
        let insecure = || Ok(is_insecure.then_some(Trust::Insecure));
        let trust = destination.trust(fingerprint, insecure)?;
        Ok(Self { name: destination.name.clone(), trust, token })
    }

    pub(crate) fn connect(
        &self,
        caller: &QosCaller,
        address: SocketAddr,
    ) -> Result<QosConnection, SetupError> {
        caller.connect(address, &self.name, (&self.trust, &self.token))
    }
}

/// The same, with a socket of any transport.
fn any<C>(accepted: Accepted<C>, socket: impl FnOnce(C) -> AnySocket) -> Accepted<AnySocket> {
    match accepted {
        Accepted::Connection(one, remote) => Accepted::Connection(socket(one), remote),
        Accepted::Refused(remote, error) => Accepted::Refused(remote, error),
        Accepted::Exhausted(error) => Accepted::Exhausted(error),
    }
}

/// A listener for connections over any transport.
pub(crate) enum MessageListener {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener, Fingerprint, Admitted),
}

impl MessageListener {
    pub(crate) fn bind(at: &At, options: QosOptions) -> Result<Self, Failure> {
        if at.over != Transport::Quic && at.admission.is_asked() {
            return Err(Failure::Input(
                "--token, --token-file, --anyone and --qr are for --over quic: TCP and UDP \
                 authenticate nobody"
                    .to_owned(),
            ));
        }
        let address = resolve(&at.listen, "--listen ")?;
        let bound = match at.over {
            Transport::Tcp => QosListener::bind(address, options).map(Self::Tcp),
            Transport::Udp => QosSocket::bind(address, options).map(Self::Udp),
            Transport::Quic => {
                let identity = deliver::identity(at.identity.as_deref())?;
                let admitted = admitted(&at.admission)?;
                QosConnection::bind(address, (&identity, &admitted.token), options)
                    .map(|listener| Self::Quic(listener, identity.fingerprint(), admitted))
            }
        };
        bound.map_err(failed(&format!("--listen {}", at.listen)))
    }

    /// Writes the local address and, over QUIC, the fingerprint and the other side's command line:
    /// `command` with the URL.
    pub(crate) fn log_address(
        &self,
        log: EventLog,
        command: &str,
        with_qr: bool,
    ) -> Result<(), Failure> {
        let local = match self {
            Self::Tcp(listener) => listener.local_address().map_err(environment)?,
            Self::Udp(listener) => listener.local_address(),
            Self::Quic(listener, ..) => listener.local_address(),
        };
        let mut fields = json!({ "local": local.to_string() });
        let mut text = format!("listening at {local}");
        let Self::Quic(_, fingerprint, admitted) = self else {
            text += ", anyone may connect; Ctrl-C ends it";
            return log.write("listening", fields, &text);
        };
        let url = admitted.url(local, *fingerprint, false);
        fields["fingerprint"] = fingerprint.to_string().into();
        fields["url"] = url.to_string().into();
        fields["anyone"] = admitted.is_anyone().into();
        text += &format!(", fingerprint {fingerprint}; Ctrl-C ends it");
        log.write("listening", fields, &text)?;
        log.explain(&admitted.invitation(command, &url))?;
        if with_qr {
            write_stderr(&qr(&admitted.url(local, *fingerprint, true))?);
        }
        Ok(())
    }

    /// The next connection whose negotiation succeeded, or the next refused peer.
    pub(crate) fn accept_or_refuse(&self) -> io::Result<Accepted<AnySocket>> {
        Ok(match self {
            Self::Tcp(listener) => any(listener.accept_or_refuse()?, AnySocket::Tcp),
            Self::Udp(listener) => any(listener.accept_or_refuse()?, AnySocket::Udp),
            Self::Quic(listener, ..) => any(listener.accept_or_refuse()?, AnySocket::Quic),
        })
    }

    /// The next connection whose negotiation succeeded; writes an event for each refused one, so
    /// many at a time, and the number of the others.
    pub(crate) fn accept(&self, log: EventLog) -> io::Result<AnySocket> {
        let mut limit = LineLimit::new(Instant::now(), SENTENCES);
        let exhausted = Sentences::about("missing descriptors");
        loop {
            let (remote, error) = match self.accept_or_refuse()? {
                Accepted::Connection(socket, _) => return Ok(socket),
                Accepted::Refused(remote, error) => (remote, error),
                Accepted::Exhausted(error) => {
                    exhausted.say(&format!("no connection is accepted for now: {error}"));
                    continue;
                }
            };
            let now = Instant::now();
            if let Some(count) = limit.not_shown(now) {
                let text = not_shown(count, "refusals");
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
