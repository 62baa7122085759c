//! Endpoints and security (RFC 9622, sections 6.1 and 6.3).

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use ontempo_transport::{Identity, Token, TokenError, Trust, random_token};

use crate::error::{EstablishmentError, PropertyError};

/// Addresses of a name that are tried, at most.
const MAX_ADDRESSES: usize = 16;

/// Where to listen, or whence to initiate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalEndpoint {
    /// An address of this machine; empty: all, or the one that the system chooses.
    pub address: String,
    /// UDP port, of QoS sockets also that of TCP; 0: a free one.
    pub port: u16,
}

impl LocalEndpoint {
    /// The addresses to be tried, in this order.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, PropertyError> {
        if self.address.is_empty() {
            // All of a machine; one without IPv6 has the second only.
            let all = ["::", "0.0.0.0"];
            let all = all.into_iter().filter_map(|any| any.parse::<IpAddr>().ok());
            return Ok(all.map(|any| SocketAddr::new(any, self.port)).collect());
        }
        let wrong = |_| {
            let wrong =
                format!("{:?}: an address of this machine, such as 127.0.0.1", self.address);
            PropertyError::out_of_range("address", wrong)
        };
        let address = self.address.parse::<IpAddr>().map_err(wrong)?;
        Ok(vec![SocketAddr::new(address, self.port)])
    }
}

/// Whom to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl RemoteEndpoint {
    /// All addresses of the host, in the system's order, each once, at most 16.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, EstablishmentError> {
        let failed = |error| EstablishmentError::Name { host: self.host.clone(), error };
        let mut found = Vec::new();
        for address in (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)? {
            if !found.contains(&address) && found.len() < MAX_ADDRESSES {
                found.push(address);
            }
        }
        match found.is_empty() {
            true => Err(failed(io::Error::other("this name has no address"))),
            false => Ok(found),
        }
    }
}

/// Whom to trust, and who may connect (RFC 9622, section 6.3).
#[derive(Clone, Default)]
pub struct SecurityParameters {
    /// Of the side that initiates: how the peer is verified.
    pub trust: Option<Trust>,
    /// The secret of both, 1 to 256 bytes; a listener without one makes one.
    pub token: Option<Vec<u8>>,
    /// Of a listener: certificate and key; `None`: new ones.
    pub identity: Option<Arc<Identity>>,
    /// A listener admits everybody, without a token.
    pub anyone: bool,
    /// NewDisabledSecurityParameters of RFC 9622: nothing is encrypted and nobody verified, over TCP
    /// or UDP. Of QoS sockets only; units are always over QUIC.
    pub disabled: bool,
}

impl SecurityParameters {
    /// What the side that initiates presents.
    pub(crate) fn presented(&self) -> Result<Token, EstablishmentError> {
        match self.token.as_deref() {
            Some(token) => Token::new(token).map_err(EstablishmentError::Token),
            None => Ok(Token::anyone()),
        }
    }

    /// What a listener asks for, and its bytes.
    pub(crate) fn asked(&self) -> Result<(Token, Vec<u8>), EstablishmentError> {
        if self.anyone {
            return match self.token {
                Some(_) => Err(EstablishmentError::Property(PropertyError::out_of_range(
                    "token",
                    "given beside anyone: one of them",
                ))),
                None => Ok((Token::anyone(), Vec::new())),
            };
        }
        let bytes = match &self.token {
            Some(token) => token.clone(),
            None => {
                let made = random_token();
                made.map_err(|_| EstablishmentError::Token(TokenError::Empty))?.into_bytes()
            }
        };
        Ok((Token::new(&bytes).map_err(EstablishmentError::Token)?, bytes))
    }

    /// The certificate of a listener.
    pub(crate) fn identity(&self) -> Result<Arc<Identity>, EstablishmentError> {
        match &self.identity {
            Some(identity) => Ok(Arc::clone(identity)),
            None => {
                let made = Identity::self_signed(&["localhost"]);
                made.map(Arc::new).map_err(EstablishmentError::Identity)
            }
        }
    }
}
