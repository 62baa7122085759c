//! Where the transport stream comes from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, Stdin, stdin};
use tokio::net::{UdpSocket, lookup_host};

use crate::arguments::Place;
use crate::failure::Failure;

/// Bytes of a packet of MPEG-TS, and the byte that each begins with.
pub(crate) const PACKET: usize = 188;
pub(crate) const SYNC: u8 = 0x47;

/// Bytes that may wait in the socket while the program has no turn; the system may grant less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Bytes read at a time; more than any datagram.
const READ: usize = 1 << 16;

pub(crate) enum Source {
    Udp { socket: UdpSocket, host: Option<IpAddr>, strange: u64 },
    Pipe(Stdin),
    File(File),
}

impl Source {
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        match place {
            Place::Udp(address) => {
                let at = resolve(address, "--from udp://").await?;
                let socket = UdpSocket::bind(at).await.map_err(|error| {
                    Failure::Environment(format!("--from udp://{address}: {error}"))
                })?;
                let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
                Ok(Self::Udp { socket, host: None, strange: 0 })
            }
            Place::Pipe => Ok(Self::Pipe(stdin())),
            Place::File(path) => {
                let file = File::open(path).await;
                let file = file.map_err(|error| {
                    Failure::Input(format!("--from {}: {error}", path.display()))
                })?;
                Ok(Self::File(file))
            }
        }
    }

    /// Reads into `buffer`, which is as long as what came: nothing at the end. A datagram that holds no packets of
    /// MPEG-TS is left out.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        loop {
            buffer.resize(READ, 0);
            let count = match self {
                Self::Udp { socket, host, strange } => {
                    let (count, from) = socket.recv_from(buffer).await?;
                    // The first host that sends packets is the source: another's could end the program.
                    if !is_packets(&buffer[..count]) || *host.get_or_insert(from.ip()) != from.ip()
                    {
                        *strange += 1;
                        continue;
                    }
                    count
                }
                Self::Pipe(pipe) => pipe.read(buffer).await?,
                Self::File(file) => file.read(buffer).await?,
            };
            buffer.truncate(count);
            return Ok(());
        }
    }

    /// Datagrams that were left out.
    pub(crate) fn strange(&self) -> u64 {
        match self {
            Self::Udp { strange, .. } => *strange,
            _ => 0,
        }
    }
}

/// True for whole packets of MPEG-TS.
fn is_packets(datagram: &[u8]) -> bool {
    !datagram.is_empty()
        && datagram.len().is_multiple_of(PACKET)
        && datagram.chunks_exact(PACKET).all(|packet| packet[0] == SYNC)
}

/// An address of `HOST:PORT`; without a host that of all of this machine.
pub(crate) async fn resolve(address: &str, option: &str) -> Result<SocketAddr, Failure> {
    let wrong = |what: String| Failure::Input(format!("{option}{address}: {what}"));
    if let Some(port) = address.strip_prefix(':') {
        let port = port.parse().map_err(|_| wrong("that is no port".to_owned()))?;
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    let mut all = lookup_host(address).await.map_err(|error| wrong(error.to_string()))?;
    all.next().ok_or_else(|| wrong("the name has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_packets_are_told_from_anything_else() {
        let mut packets = vec![0; 7 * PACKET];
        packets.iter_mut().step_by(PACKET).for_each(|byte| *byte = SYNC);
        assert!(is_packets(&packets));
        assert!(!is_packets(&packets[1..]));
        assert!(!is_packets(&packets[..PACKET + 1]));
        assert!(!is_packets(&[]));
        packets[3 * PACKET] = 0;
        assert!(!is_packets(&packets));
    }
}
