//! Runs a relay over sockets of one address, a thread each.

use std::io;
use std::sync::mpsc::sync_channel;

use ontempo_transport::{Configuration, Endpoint, Identity, IdentityError, STEERING, Share, Token};
use ontempo_udp::{Clock, Driver, DriverOptions, Socket, SocketOptions};

use crate::driver::{Command, RelayDriver};
use crate::figures::RelayStatistics;
use crate::options::RelayOptions;
use crate::relay::{Relay, RelayEvent};

/// Whom a relay admits.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// What clients know it by.
    pub identity: &'a Identity,
    /// The token of sources, and of viewers if these have none of their own.
    pub sources: Token,
    /// The token of viewers.
    pub viewers: Option<Token>,
}

/// The threads of a relay. Dropping it ends them.
#[derive(Debug)]
pub struct RelayThreads {
    drivers: Vec<Driver<RelayDriver>>,
}

/// The endpoints of a relay's threads, with a seed each.
///
/// # Errors
/// If the identity cannot be used.
pub fn endpoints(
    configuration: &Configuration,
    access: &Access<'_>,
    options: &RelayOptions,
    mut seed: impl FnMut() -> [u8; 32],
) -> Result<Vec<Endpoint>, IdentityError> {
    let listen = |share| {
        let mut endpoint = Endpoint::with_share(configuration.clone(), seed(), share);
        endpoint.listen(access.identity, access.sources.clone())?;
        if let Some(viewers) = &access.viewers {
            endpoint.admit(viewers.clone());
        }
        Ok(endpoint)
    };
    Share::among(options.threads).into_iter().map(listen).collect()
}

impl RelayThreads {
    /// Starts a thread for each of `endpoints`, and sockets beside `socket`, which was bound with `of_socket`.
    ///
    /// # Errors
    /// If the system has no socket, thread or file descriptor left.
    pub fn start(
        socket: Socket,
        of_socket: SocketOptions,
        endpoints: Vec<Endpoint>,
        (options, seed): (RelayOptions, u64),
    ) -> io::Result<Self> {
        let sockets = socket.group(options.threads, of_socket, STEERING)?;
        let (clock, parts) = (Clock::new(), Relay::parts(options, seed));
        let start = |((socket, endpoint), part)| {
            let protocol = RelayDriver::new(endpoint, part);
            let hub = protocol.hub();
            let place = protocol.place();
            let driver = Driver::spawn(socket, protocol, clock, DriverOptions::default())?;
            hub.inbox(place).wake_by(driver.wake());
            Ok(driver)
        };
        let drivers = sockets.into_iter().zip(endpoints).zip(parts).map(start);
        Ok(Self { drivers: drivers.collect::<io::Result<_>>()? })
    }

    /// True if a thread has ended: its socket has failed.
    pub fn has_ended(&self) -> bool {
        self.drivers.iter().any(Driver::has_ended)
    }

    /// The figures, and what has happened since they were asked for last; `None` if a thread has ended.
    pub fn report(&self) -> Option<(RelayStatistics, Vec<RelayEvent>)> {
        let (mut all, mut happened): (Option<RelayStatistics>, _) = (None, Vec::new());
        for driver in &self.drivers {
            let (reply, report) = sync_channel(1);
            driver.command(Command::Report(reply)).ok()?;
            let (figures, events) = report.recv().ok()?;
            happened.extend(events);
            let (before, bytes) =
                all.map_or((0, (0, 0)), |all| (all.left_out, (all.bytes_received, all.bytes_sent)));
            // The last has what all have reported.
            all = Some(RelayStatistics {
                left_out: before + figures.left_out,
                bytes_received: bytes.0 + figures.bytes_received,
                bytes_sent: bytes.1 + figures.bytes_sent,
                ..figures
            });
        }
        Some((all?, happened))
    }

    /// Closes all connections, and waits until clients know it or half a second has passed.
    ///
    /// # Errors
    /// If a socket has failed.
    pub fn end(self) -> io::Result<()> {
        for driver in &self.drivers {
            // The thread has ended by itself if the command fails.
            let _ = driver.command(Command::End);
        }
        self.drivers.into_iter().try_for_each(|driver| driver.wait().map(drop))
    }
}
