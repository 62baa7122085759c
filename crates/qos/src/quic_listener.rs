//! Where connections over QUIC come to.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;

use super::core::lock;
use super::listener::{Accepted, MAX_PENDING};
use super::quic::{CONTROL, control_flow, settings};
use super::setup::{self, SetupError};
use super::wire::{Reason, Setup, WireError};
use super::{QosConnection, QosOptions, facade, tender};
use ontempo_transport::live::mailbox::Mailbox;
use ontempo_transport::live::{self, Connection, Listener, ReceiveFlow};
use ontempo_transport::{Delivery, Identity, Token};

/// How long a refusal is given to come.
const REFUSING: Wall = Wall::from_secs(2);

/// Waits for connections over QUIC.
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

/// True where there may be something new.
type Bell = Arc<Mailbox<bool>>;

fn ringing(bell: &Bell) -> impl Fn() + Send + Sync + 'static {
    let bell = bell.clone();
    move || bell.change(|has_rung| *has_rung = true)
}

/// Somebody who has connected and not yet said all, or has not heard our refusal.
struct Pending {
    connection: Connection,
    told: Option<ReceiveFlow>,
    is_refused: bool,
    until: Instant,
}

enum Progress {
    Waits,
    /// It is none of ours, or gone.
    Drops,
    Refuses(SetupError),
    Agrees(ReceiveFlow, Box<Setup>),
}

impl QosConnection {
    /// Listens at an address, with what is asked of every connection there, for clients that know
    /// `token`.
    ///
    /// # Errors
    /// What is asked for contradicts itself; the certificate cannot be used; or what the system
    /// says.
    pub fn bind(
        at: impl ToSocketAddrs,
        (identity, token): (&Identity, &Token),
        options: QosOptions,
    ) -> Result<QosConnectionListener, SetupError> {
        setup::check(&options.offer())?;
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
    /// The address that it listens at.
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local()
    }

    /// Waits for the next connection on which there is an agreement. Those who speak something
    /// else, or nothing, do not hold it up.
    ///
    /// # Errors
    /// What the system says.
    pub fn accept(&self) -> io::Result<(QosConnection, SocketAddr)> {
        loop {
            if let Accepted::Connection(connection, remote) = self.accept_or_refuse()? {
                return Ok((connection, remote));
            }
        }
    }

    /// Waits for the next connection, or for somebody with whom there is no agreement.
    ///
    /// # Errors
    /// What the system says.
    pub fn accept_or_refuse(&self) -> io::Result<Accepted<QosConnection>> {
        let mut pending = lock(&self.pending);
        loop {
            self.take(&mut pending);
            let mut place = 0;
            while let Some(one) = pending.get_mut(place) {
                match one.progress(&self.options, &self.bell) {
                    Progress::Waits if Instant::now() < one.until => place += 1,
                    Progress::Waits | Progress::Drops => drop(pending.remove(place)),
                    Progress::Refuses(why) => {
                        return Ok(Accepted::Refused(one.connection.remote(), why));
                    }
                    Progress::Agrees(told, hello) => {
                        let one = pending.remove(place);
                        if let Ok(accepted) = one.agree(&self.options, told, &hello) {
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

    fn take(&self, pending: &mut Vec<Pending>) {
        while let Some(accepted) = self.listener.accept_within(Wall::ZERO) {
            let live::Accepted::Connection(connection) = accepted else { continue };
            if pending.len() == MAX_PENDING {
                pending.remove(0);
            }
            connection.on_change(ringing(&self.bell));
            let until = Instant::now() + self.options.patience;
            pending.push(Pending { connection, told: None, is_refused: false, until });
        }
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
        if self.told.is_none() {
            match self.connection.accept_flow_within(Wall::ZERO) {
                None => return Progress::Waits,
                Some(Ok(told)) if told.config().label == CONTROL => {
                    told.on_change(ringing(bell));
                    self.told = Some(told);
                }
                Some(_) => return Progress::Drops,
            }
        }
        let got = self.told.as_ref().and_then(|told| told.receive_within(Wall::ZERO));
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
        let now = tender::clock().now();
        match (setup::answer(&options.offer(), session, sent, offer, now), self.told.take()) {
            ((_, Ok(_)), Some(told)) => Progress::Agrees(told, Box::new(hello)),
            ((answer, Err(both)), _) => {
                self.refuse(&answer, SetupError::Disagreement(Box::new(both)))
            }
            _ => Progress::Drops,
        }
    }

    /// Says why; the other end then ends the connection.
    fn refuse(&mut self, answer: &Setup, why: SetupError) -> Progress {
        let told = self.connection.open_flow(control_flow());
        let told = told.and_then(|control| control.send(Bytes::from(answer.to_bytes())));
        if told.is_err() {
            return Progress::Drops;
        }
        (self.is_refused, self.until) = (true, Instant::now() + REFUSING);
        Progress::Refuses(why)
    }

    fn agree(
        self,
        options: &QosOptions,
        told: ReceiveFlow,
        hello: &Setup,
    ) -> Result<Accepted<QosConnection>, SetupError> {
        let Setup::Hello { session, sent, offer, .. } = *hello else {
            return Err(WireError::Malformed.into());
        };
        // The clocks are compared by when this leaves.
        let now = tender::clock().now();
        let (answer, settled) = setup::answer(&options.offer(), session, sent, offer, now);
        let established = settled.map_err(|both| SetupError::Disagreement(Box::new(both)))?;
        let control = self.connection.open_flow(control_flow())?;
        control.send(Bytes::from(answer.to_bytes()))?;
        let remote = self.connection.remote();
        let flows = (control, told);
        let connected = QosConnection::establish(self.connection, flows, options, &established)?;
        Ok(Accepted::Connection(connected, remote))
    }
}
