//! What a connection over a QoS socket is to be.

use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{AnySocket, QosConnection, QosListener, QosOptions, QosSocket, QosStream};

use super::connection::Connection;
use super::listener::{Bound, Listener};
use super::protocol::{Protocol, may_lose, select};
use crate::endpoints::{LocalEndpoint, RemoteEndpoint, SecurityParameters};
use crate::error::{EstablishmentError, PropertyError};
use crate::properties::{CapacityProfile, ConnectionProperties};
use crate::selection::{Preference, TransportProperties};

/// What a connection is to be: a QoS socket over the protocol that the properties select.
#[derive(Clone, Default)]
pub struct Preconnection {
    /// Where to listen.
    pub local: Option<LocalEndpoint>,
    /// Whom to reach.
    pub remote: Option<RemoteEndpoint>,
    /// What is selected.
    pub transport: TransportProperties,
    /// What the connection has from its beginning.
    pub connection: ConnectionProperties,
    /// Whom to trust, and who may connect; disabled: TCP or UDP.
    pub security: SecurityParameters,
    /// Ours: the specifications of both directions, reservations and all else.
    pub options: QosOptions,
}

/// What was selected, and what it is asked.
pub(super) struct Selected {
    pub(super) protocol: Protocol,
    pub(super) options: QosOptions,
}

impl Preconnection {
    /// The protocol that the properties select.
    ///
    /// # Errors
    /// None fulfils them.
    pub fn protocol(&self) -> Result<Protocol, PropertyError> {
        select(!self.security.disabled, &self.transport, &self.options)
    }

    /// Selects, and makes options of the properties.
    fn selected(&self) -> Result<Selected, PropertyError> {
        let protocol = self.protocol()?;
        self.connection.check()?;
        let usual = ConnectionProperties::default();
        let times = [
            ("conn_timeout", self.connection.conn_timeout == usual.conn_timeout),
            ("keep_alive_timeout", self.connection.keep_alive_timeout == usual.keep_alive_timeout),
        ];
        if let Some((name, _)) = times.into_iter().find(|(_, is_usual)| !is_usual) {
            let why = "a QoS socket has rec_time and max_delay of its specification instead";
            return Err(PropertyError::not_provided(name, why));
        }
        let mut options = self.options.clone();
        for specification in [&mut options.send, &mut options.receive] {
            order(specification, self.transport.preserve_order)?;
        }
        if self.transport.reliability == Preference::Require && protocol == Protocol::Quic {
            options.reliable |= may_lose(&options.send) || may_lose(&options.receive);
        }
        let profile = self.connection.conn_capacity_profile;
        if profile != CapacityProfile::Default {
            options.dscp = Some(profile.dscp());
        }
        Ok(Selected { protocol, options })
    }

    /// Connects and negotiates: the event Ready is the return. A name's addresses are tried in turn.
    ///
    /// # Errors
    /// The properties cannot be fulfilled, something is missing, there is no answer, or the ends do
    /// not agree.
    pub fn initiate(&self) -> Result<Connection, EstablishmentError> {
        let Selected { protocol, options } = self.selected()?;
        if self.local.is_some() {
            let why = "the system binds a QoS socket that connects";
            return Err(PropertyError::not_provided("local", why).into());
        }
        let remote = self.remote.as_ref();
        let remote = remote.ok_or(EstablishmentError::Missing("remote: needed to initiate"))?;
        let to = remote.addresses()?;
        let socket = match protocol {
            Protocol::Tcp => AnySocket::Tcp(QosStream::connect(&to[..], &options)?),
            Protocol::Udp => AnySocket::Udp(QosSocket::connect(&to[..], &options)?),
            Protocol::Quic => {
                let missing = "security.trust: needed to initiate, unless security is disabled";
                let missing = EstablishmentError::Missing(missing);
                let trust = self.security.trust.as_ref().ok_or(missing)?;
                let token = self.security.presented()?;
                let made =
                    QosConnection::connect(&to[..], &remote.host, (trust, &token), &options)?;
                AnySocket::Quic(made)
            }
        };
        Ok(Connection::new(socket, &self.transport, &options))
    }

    /// Waits for peers that agree.
    ///
    /// # Errors
    /// The properties cannot be fulfilled, the specifications contradict themselves, or the address
    /// cannot be bound.
    pub fn listen(&self) -> Result<Listener, EstablishmentError> {
        let selected = self.selected()?;
        let at = self.local.clone().unwrap_or_default().addresses()?;
        let options = selected.options.clone();
        let bound = match selected.protocol {
            Protocol::Tcp => Bound::Tcp(QosListener::bind(&at[..], options)?),
            Protocol::Udp => Bound::Udp(QosSocket::bind(&at[..], options)?),
            Protocol::Quic => {
                let (token, bytes) = self.security.asked()?;
                let identity = self.security.identity()?;
                let listener = QosConnection::bind(&at[..], (&identity, &token), options)?;
                Bound::Quic(listener, identity.fingerprint(), bytes)
            }
        };
        Ok(Listener::new(bound, self.transport.clone(), selected))
    }

    /// Refused: one side has to listen (RFC 9622, section 7.3).
    ///
    /// # Errors
    /// Always [`PropertyError::NotProvided`].
    pub fn rendezvous(&self) -> Result<Connection, EstablishmentError> {
        Err(PropertyError::not_provided("rendezvous", "one side has to listen").into())
    }
}

/// Makes `permutable` of the property `preserve_order`.
fn order(specification: &mut Specification, asked: Preference) -> Result<(), PropertyError> {
    let permutable = &mut specification.permutable;
    match (asked, permutable.value) {
        (Preference::Require, Some(true)) => Err(PropertyError::not_provided(
            "preserve_order",
            "the specification is permutable; let it be Preference::NoPreference",
        )),
        (Preference::NoPreference | Preference::Avoid | Preference::Prohibit, None) => {
            // An end that asks for order has it.
            *permutable = Term::coerced(true);
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ontempo_foundation::{Duration, Percent};

    fn plain() -> Preconnection {
        let security = SecurityParameters { disabled: true, ..Default::default() };
        Preconnection { security, ..Default::default() }
    }

    fn refused(one: &Preconnection) -> String {
        one.selected().err().expect("it is refused").to_string()
    }

    #[test]
    fn order_and_loss_become_those_of_the_specification() {
        let mut one = plain();
        assert_eq!(one.selected().expect("TCP").options.send.permutable.value, None);
        one.transport.preserve_order = Preference::NoPreference;
        let options = one.selected().expect("TCP").options;
        assert_eq!(options.send.permutable, Term::coerced(true));
        assert_eq!(options.receive.permutable, Term::coerced(true));
        one.options.send.permutable = Term::firm(false);
        assert_eq!(one.selected().expect("TCP").options.send.permutable, Term::firm(false));
        one.options.send.permutable = Term::firm(true);
        one.transport.preserve_order = Preference::Require;
        assert!(refused(&one).starts_with("preserve_order: "), "{}", refused(&one));
        let mut secure = Preconnection::default();
        assert!(!secure.selected().expect("QUIC").options.reliable);
        secure.options.send.loss = Term::firm(Percent::new(2));
        assert!(secure.selected().expect("QUIC").options.reliable);
        secure.transport.reliability = Preference::Prefer;
        assert!(!secure.selected().expect("QUIC").options.reliable);
    }

    #[test]
    fn a_profile_is_a_dscp_and_times_are_refused_by_their_names() {
        let mut one = plain();
        assert_eq!(one.selected().expect("TCP").options.dscp, None);
        one.connection.conn_capacity_profile = CapacityProfile::Scavenger;
        let dscp = one.selected().expect("TCP").options.dscp.expect("set");
        assert_eq!(dscp.get(), 1);
        one.connection.conn_timeout = Duration::from_secs(3);
        assert!(refused(&one).starts_with("conn_timeout: "), "{}", refused(&one));
        let mut one = plain();
        one.connection.keep_alive_timeout = None;
        assert!(refused(&one).starts_with("keep_alive_timeout: "), "{}", refused(&one));
    }
}
