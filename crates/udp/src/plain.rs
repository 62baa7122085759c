//! The socket of systems that can only send and receive: one datagram a call, the
//! DSCP of the socket alone, arrival times taken by the program.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use ontempo_foundation::Time;

use super::socket::Taken;
use super::{Clock, Datagram, Dscp, Ecn};

/// Datagrams received in a row.
const BATCH: usize = 16;

/// Maximum bytes of a UDP datagram.
const MAX_DATAGRAM: usize = 65_535;

/// Buffer for one datagram.
pub(super) struct Room(Vec<u8>);

impl Room {
    pub(super) fn new() -> Self {
        Self(vec![0; MAX_DATAGRAM])
    }

    /// Passes on waiting datagrams.
    pub(super) fn each(
        &mut self,
        socket: &UdpSocket,
        clock: Clock,
        mut take: impl FnMut(Time, Datagram<'_>),
    ) -> io::Result<Taken> {
        for count in 0..BATCH {
            let (length, source) = match socket.recv_from(&mut self.0) {
                Ok(got) => got,
                Err(_) if count > 0 => return Ok(Taken { datagrams: count, is_last: true }),
                Err(error) => return Err(error),
            };
            let now = clock.now();
            let source = SocketAddr::new(source.ip().to_canonical(), source.port());
            let (ecn, dscp) = (Ecn::default(), Dscp::default());
            let data = &self.0[..length];
            take(now, Datagram { source, local: None, received: now, ecn, dscp, data });
        }
        Ok(Taken { datagrams: BATCH, is_last: false })
    }
}
