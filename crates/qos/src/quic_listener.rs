//! The QUIC listener.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;

use super::core::{deadline, lock};
use super::handshakes::MAX_PENDING;
use super::listener::Accepted;
use super::quic::{CONTROL, control_flow, settings};
use super::setup::{self, SetupError};
use super::wire::{Reason, Setup, WireError};
use super::{QosConnection, QosOptions, facade, maintenance};
use ontempo_monitor::Carrier;
use ontempo_transport::live::mailbox::Mailbox;
use ontempo_transport::live::{self, Connection, Listener, ReceiveFlow};
use ontempo_transport::{Delivery, Identity, Token};

/// How long a refusal may take to be delivered.
const REFUSING: Wall = Wall::from_secs(2);

/// Accepts connections over QUIC.
pub struct QosConnectionListener {
    listener: Listener,
    options: QosOptions,
    pending: Mutex<Vec<Pending>>,
    bell: Bell,
}

impl std::fmt::Debug for QosConnectionListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QosConnectionListener").field("local", &self.listener.local()).finish()
    }
}

/// True if there may be something new.
type Bell = Arc<Mailbox<bool>>;

fn ringing(bell: &Bell) -> impl Fn() + Send + Sync + 'static {
    let bell = bell.clone();
    move || bell.change(|has_rung| *has_rung = true)
}

/// A connection in its handshake, or with a refusal not yet delivered.
struct Pending {
    connection: Connection,
    peer_control: Option<ReceiveFlow>,
    is_refused: bool,
    until: Instant,
}

enum Progress {
    Waits,
    /// The peer speaks another protocol, or is gone.
    Drops,
    Refuses(SetupError),
    Agrees(ReceiveFlow, Box<Setup>),
}

impl QosConnection {
    /// Listens at an address, with the specifications for every connection, for clients with
    /// `token`.
    ///
    /// # Errors
    /// If the specifications contradict themselves, the certificate cannot be used, or the system's
    /// error.
    pub fn bind(
        at: impl ToSocketAddrs,
        (identity, token): (&Identity, &Token),
        options: QosOptions,
    ) -> Result<QosConnectionListener, SetupError> {
        options.check(Carrier::Quic)?;
        let live = settings(&options);
        let listener = facade::first(at, |address| {
            Ok(Listener::bind(address, identity, token.clone(), &live)?)
        })?;
        let bell = Bell::default();
        listener.on_change(ringing(&bell));
        Ok(QosConnectionListener { listener, options, pending: Mutex::default(), bell })
    }
}

impl QosConnectionListener {
    /// The local address.
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local()
    }

    /// Waits for the next connection with an agreement. Peers that speak another protocol, or
    /// nothing, do not delay it.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<(QosConnection, SocketAddr)> {
        loop {
            if let Accepted::Connection(connection, remote) = self.accept_or_refuse()? {
                return Ok((connection, remote));
            }
        }
    }

    /// Waits for the next connection, or the next refused peer.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept_or_refuse(&self) -> io::Result<Accepted<QosConnection>> {
        let mut pending = lock(&self.pending);
        loop {
            if let Some((remote, why)) = self.take(&mut pending) {
                return Ok(Accepted::Refused(remote, why));
            }
            let mut place = 0;
            while let Some(one) = pending.get_mut(place) {
                match one.progress(&self.options, &self.bell) {
                    Progress::Waits if Instant::now() < one.until => place += 1,
                    Progress::Waits | Progress::Drops => drop(pending.remove(place)),
                    Progress::Refuses(why) => {
                        return Ok(Accepted::Refused(one.connection.remote(), why));
                    }
                    Progress::Agrees(peer_control, hello) => {
                        let one = pending.remove(place);
                        if let Ok(accepted) = one.agree(&self.options, peer_control, &hello) {
                            return Ok(accepted);
                        }
                    }
                }
            }
            let until = pending.iter().map(|one| one.until).min();
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            self.bell.wait(left, |has_rung| std::mem::take(has_rung).then_some(()));
        }
    }

    /// Takes the connections that wait; returns a client that was refused, by its token for example.
    fn take(&self, pending: &mut Vec<Pending>) -> Option<(SocketAddr, SetupError)> {
        while let Some(accepted) = self.listener.accept_within(Wall::ZERO) {
            let connection = match accepted {
                live::Accepted::Connection(connection) => connection,
                live::Accepted::Refused { remote: Some(remote), closed } => {
                    return Some((remote, SetupError::NotAdmitted(closed)));
                }
                live::Accepted::Refused { remote: None, .. } => continue,
            };
            if pending.len() == MAX_PENDING {
                pending.remove(0);
            }
            connection.on_change(ringing(&self.bell));
            let until = deadline(self.options.setup_timeout);
            pending.push(Pending { connection, peer_control: None, is_refused: false, until });
        }
        None
    }
}

impl Pending {
    fn progress(&mut self, options: &QosOptions, bell: &Bell) -> Progress {
        if self.connection.is_closed().is_some() {
            return Progress::Drops;
        }
        if self.is_refused {
            return Progress::Waits;
        }
        if self.peer_control.is_none() {
            match self.connection.accept_flow_within(Wall::ZERO) {
                None => return Progress::Waits,
                Some(Ok(peer_control)) if peer_control.config().label == CONTROL => {
                    peer_control.on_change(ringing(bell));
                    self.peer_control = Some(peer_control);
                }
                Some(_) => return Progress::Drops,
            }
        }
        let got = self
            .peer_control
            .as_ref()
            .and_then(|peer_control| peer_control.receive_within(Wall::ZERO));
        let unit = match got {
            None => return Progress::Waits,
            Some(Ok(Some(Delivery::Unit(unit)))) => unit,
            Some(_) => return Progress::Drops,
        };
        let hello = match Setup::read(&unit.data) {
            Ok(hello @ Setup::Hello { .. }) => hello,
            Err(error @ WireError::Version(_)) => {
                let (reason, offer) = (Reason::Version, options.offer());
                return self.refuse(&Setup::Refuse { session: 0, reason, offer }, error.into());
            }
            _ => return Progress::Drops,
        };
        let Setup::Hello { session, sent, offer, .. } = hello else { return Progress::Drops };
        let now = maintenance::clock().now();
        match (
            setup::answer(&options.offer(), (session, [0; 16]), sent, offer, now),
            self.peer_control.take(),
        ) {
            ((_, Ok(_)), Some(peer_control)) => Progress::Agrees(peer_control, Box::new(hello)),
            ((answer, Err(error)), _) => self.refuse(&answer, error),
            _ => Progress::Drops,
        }
    }

    /// Sends the reason; the peer then closes the connection.
    fn refuse(&mut self, answer: &Setup, why: SetupError) -> Progress {
        let sent = self.connection.open_flow(control_flow());
        let sent = sent.and_then(|control| control.send(Bytes::from(answer.to_bytes())));
        if sent.is_err() {
            return Progress::Drops;
        }
        (self.is_refused, self.until) = (true, Instant::now() + REFUSING);
        Progress::Refuses(why)
    }

    fn agree(
        self,
        options: &QosOptions,
        peer_control: ReceiveFlow,
        hello: &Setup,
    ) -> Result<Accepted<QosConnection>, SetupError> {
        let Setup::Hello { session, sent, offer, .. } = *hello else {
            return Err(WireError::Malformed.into());
        };
        // The clocks are compared by the sending time.
        let now = maintenance::clock().now();
        let (answer, settled) =
            setup::answer(&options.offer(), (session, [0; 16]), sent, offer, now);
        let established = settled?;
        let control = self.connection.open_flow(control_flow())?;
        control.send(Bytes::from(answer.to_bytes()))?;
        let remote = self.connection.remote();
        let flows = (control, peer_control);
        let connected = QosConnection::establish(self.connection, flows, options, &established)?;
        Ok(Accepted::Connection(connected, remote))
    }
}
