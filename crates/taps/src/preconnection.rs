//! What a connection is to be (RFC 9622, section 6).

use std::net::SocketAddr;

use ontempo_transport::live::{self, Caller, Options};
use ontempo_udp::any_for;

use crate::connection::Connection;
use crate::endpoints::{LocalEndpoint, RemoteEndpoint, SecurityParameters};
use crate::error::{EstablishmentError, PropertyError};
use crate::group::{Group, Side};
use crate::listener::Listener;
use crate::message::MessageProperties;
use crate::properties::ConnectionProperties;
use crate::selection::TransportProperties;

/// What a connection is to be: units over QUIC.
#[derive(Clone, Default)]
pub struct Preconnection {
    /// Where to listen, or whence to initiate; `None`: as the system chooses.
    pub local: Option<LocalEndpoint>,
    /// Whom to reach.
    pub remote: Option<RemoteEndpoint>,
    /// What is selected.
    pub transport: TransportProperties,
    /// What the connection has from its beginning.
    pub connection: ConnectionProperties,
    /// Whom to trust, and who may connect.
    pub security: SecurityParameters,
    /// Ours: all else, such as the congestion control. Properties come before it.
    pub options: Options,
}

impl Preconnection {
    /// The options with the properties, if these can be had.
    fn checked(&self) -> Result<Options, PropertyError> {
        self.transport.check()?;
        self.connection.check()?;
        if self.security.disabled {
            let why = "units are over QUIC, which is always encrypted; QoS sockets may be without";
            return Err(PropertyError::not_provided("disabled", why));
        }
        Ok(self.connection.options(&self.transport, &self.options))
    }

    /// Connects: the event Ready is the return (RFC 9622, section 7.1). A name's addresses are tried
    /// in turn.
    ///
    /// # Errors
    /// The properties cannot be fulfilled, something is missing, or there is no answer, a refusal,
    /// or a peer that is not trusted.
    pub fn initiate(&self) -> Result<Connection, EstablishmentError> {
        let options = self.checked()?;
        let remote = self.remote.as_ref();
        let remote = remote.ok_or(EstablishmentError::Missing("remote: needed to initiate"))?;
        let missing = EstablishmentError::Missing("security.trust: needed to initiate");
        let trust = self.security.trust.as_ref().ok_or(missing)?;
        let token = self.security.presented()?;
        let local = self.local.clone().unwrap_or_default();
        let mut failed = None;
        for address in remote.addresses()? {
            let from = bind_address(&local, address)?;
            let connected = Caller::bind(from, &options)
                .and_then(|caller| caller.connect(address, &remote.host, trust, token.clone()));
            match connected {
                Ok(carrier) => {
                    let group = Group::new(carrier, self.transport.clone(), Side::Initiates);
                    return Ok(Connection::first(group));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // A name without an address is an error of `addresses`.
        let nothing = || EstablishmentError::Missing("remote: this name has no address");
        Err(failed.map_or_else(nothing, EstablishmentError::Live))
    }

    /// Connects, and sends a first message after the handshake (RFC 9622, section 7.1).
    ///
    /// # Errors
    /// Those of [`initiate`](Self::initiate) and of [`Connection::send`]: where the message cannot be
    /// sent, the connection is aborted.
    pub fn initiate_with_send(
        &self,
        data: impl Into<bytes::Bytes>,
        properties: &MessageProperties,
    ) -> Result<Connection, EstablishmentError> {
        let connection = self.initiate()?;
        match connection.send(data, properties) {
            Ok(_) => Ok(connection),
            Err(error) => {
                connection.abort("the first message could not be sent");
                Err(EstablishmentError::FirstMessage(error))
            }
        }
    }

    /// Waits for peers (RFC 9622, section 7.2).
    ///
    /// # Errors
    /// The properties cannot be fulfilled, or the address cannot be bound.
    pub fn listen(&self) -> Result<Listener, EstablishmentError> {
        let options = self.checked()?;
        let (token, bytes) = self.security.asked()?;
        let identity = self.security.identity()?;
        let mut failed = None;
        for address in self.local.clone().unwrap_or_default().addresses()? {
            match live::Listener::bind(address, &identity, token.clone(), &options) {
                Ok(listener) => {
                    let transport = self.transport.clone();
                    return Ok(Listener::new(listener, identity.fingerprint(), bytes, transport));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let nothing = || EstablishmentError::Missing("local: no address to listen at");
        Err(failed.map_or_else(nothing, EstablishmentError::Live))
    }

    /// Refused: peers do not meet without a listener (RFC 9622, section 7.3).
    ///
    /// # Errors
    /// Always [`PropertyError::NotProvided`].
    pub fn rendezvous(&self) -> Result<Connection, EstablishmentError> {
        Err(PropertyError::not_provided("rendezvous", "one side has to listen").into())
    }
}

/// The address to bind for a connection to `remote`.
fn bind_address(local: &LocalEndpoint, remote: SocketAddr) -> Result<SocketAddr, PropertyError> {
    let mut from = any_for(remote);
    if !local.address.is_empty() {
        from = local.addresses()?.first().copied().unwrap_or(from);
    }
    from.set_port(local.port);
    Ok(from)
}
