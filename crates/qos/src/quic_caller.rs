//! Many connections over QUIC from one socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use super::core::{deadline, lock};
use super::facade;
use super::quic::{local_to, settings};
use super::{QosConnection, QosOptions, Reserve, SetupError};
use ontempo_monitor::Carrier;
use ontempo_transport::live::Caller;
use ontempo_transport::live::mailbox::Mailbox;
use ontempo_transport::quic::span;
use ontempo_transport::{Token, Trust};

/// Set-ups under way at a time. Of one host a listener ignores more than 32 that have not presented
/// the token (`half_open`): their first packets would be repeated after one second, and after two.
const MAX_SETUPS: usize = 24;

/// Connects many times with the same options, from one socket and thread. With
/// [`QosOptions::reserve`] each connection has its own: a reservation is for the packets of an
/// address and a port.
pub struct QosCaller {
    options: QosOptions,
    /// The endpoint, and the local address that it has.
    latest: Mutex<Option<(IpAddr, Arc<Caller>)>>,
    /// Set-ups under way.
    setups: Mailbox<usize>,
}

/// One of the set-ups under way.
struct Turn<'a>(&'a Mailbox<usize>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.change(|setups| *setups -= 1);
    }
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
        Ok(Self { options, latest: Mutex::default(), setups: Mailbox::default() })
    }

    /// As [`QosConnection::connect`]. While 24 others are being set up it waits for its turn, at most
    /// for [`QosOptions::setup_timeout`].
    ///
    /// # Errors
    /// Those of [`QosConnection::connect`].
    pub fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        (trust, token): (&Trust, &Token),
    ) -> Result<QosConnection, SetupError> {
        let turn = self.turn()?;
        let until = deadline(self.options.setup_timeout);
        let caller = self.caller(address)?;
        let connection = caller.connect(address, name, trust, token.clone())?;
        let connected = QosConnection::greet(connection, &self.options, until)?;
        drop(turn);
        facade::must_reserve(&**connected.inner(), &self.options)?;
        Ok(connected)
    }

    fn turn(&self) -> Result<Turn<'_>, SetupError> {
        let take = |setups: &mut usize| (*setups < MAX_SETUPS).then(|| *setups += 1);
        let taken = self.setups.wait(Some(self.options.setup_timeout), take);
        taken.map(|()| Turn(&self.setups)).ok_or(SetupError::Crowded(MAX_SETUPS))
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

#[cfg(test)]
mod tests {
    use std::time::Duration as Wall;

    use super::*;

    #[test]
    fn a_set_up_that_never_has_its_turn_does_not_blame_the_other_end() {
        let setup_timeout = Wall::from_millis(20);
        let options = QosOptions { setup_timeout, ..QosOptions::default() };
        let caller = QosCaller::new(options).expect("no contradiction");
        let turns: Vec<_> = std::iter::repeat_with(|| caller.turn()).take(MAX_SETUPS).collect();
        assert!(turns.iter().all(Result::is_ok));
        let error = caller.turn().err().expect("all turns are taken");
        assert_eq!(
            error.to_string(),
            "24 other connections were being set up all the while: try again"
        );
        drop(turns);
        assert!(caller.turn().is_ok());
    }
}
