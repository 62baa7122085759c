//! Many connections over QUIC from one socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::core::lock;
use super::quic::{local_to, settings};
use super::{QosConnection, QosOptions, Reserve, SetupError};
use ontempo_monitor::Carrier;
use ontempo_transport::live::Caller;
use ontempo_transport::quic::span;
use ontempo_transport::{Token, Trust};

/// Connects many times with the same options, from one socket and thread. With
/// [`QosOptions::reserve`] each connection has its own: a reservation is for the packets of an
/// address and a port.
pub struct QosCaller {
    options: QosOptions,
    /// The endpoint, and the local address that it has.
    latest: Mutex<Option<(IpAddr, Arc<Caller>)>>,
}

impl std::fmt::Debug for QosCaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QosCaller").field("options", &self.options).finish_non_exhaustive()
    }
}

impl QosCaller {
    /// Nothing is bound before the first connection.
    ///
    /// # Errors
    /// If the specifications contradict themselves.
    pub fn new(options: QosOptions) -> Result<Self, SetupError> {
        options.check(Carrier::Quic)?;
        Ok(Self { options, latest: Mutex::default() })
    }

    /// As [`QosConnection::connect`].
    ///
    /// # Errors
    /// Those of [`QosConnection::connect`].
    pub fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        (trust, token): (&Trust, &Token),
    ) -> Result<QosConnection, SetupError> {
        let until = Instant::now() + self.options.setup_timeout;
        let caller = self.caller(address)?;
        let connection = caller.connect(address, name, trust, token.clone())?;
        QosConnection::greet(connection, &self.options, until)
    }

    /// The endpoint for a connection to this address; another one where the route has changed.
    fn caller(&self, to: SocketAddr) -> Result<Arc<Caller>, SetupError> {
        let local = local_to(to)?.ip();
        let mut latest = lock(&self.latest);
        if let Some((of, caller)) = &*latest
            && *of == local
            && self.options.reserve == Reserve::None
        {
            return Ok(Arc::clone(caller));
        }
        let mut live = settings(&self.options);
        live.configuration.handshake_timeout = span(self.options.setup_timeout);
        let caller = Arc::new(Caller::bind(SocketAddr::new(local, 0), &live)?);
        if self.options.reserve == Reserve::None {
            *latest = Some((local, Arc::clone(&caller)));
        }
        Ok(caller)
    }
}
