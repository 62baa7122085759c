//! A socket of the standard library that knows to which of this machine's addresses a datagram came.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::linux;

/// A UDP socket whose answers can leave from the address that was written to. Without that, a socket at the
/// unspecified address answers from the one that the route chooses, which a connected client does not hear.
///
/// Linux alone tells of each datagram; it is not asked of a socket that has one address.
#[derive(Debug)]
pub struct Addressed {
    socket: UdpSocket,
    is_told: bool,
}

impl Addressed {
    /// Takes a bound socket, which stays blocking or not as it is.
    ///
    /// # Errors
    /// If the system refuses the option (`IP_PKTINFO`, `IPV6_RECVPKTINFO`: RFC 3542, section 6.1).
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let local = socket.local_addr()?.ip();
        let is_told = local.is_unspecified();
        if is_told {
            linux::tell_local(&socket, local.is_ipv6())?;
        }
        Ok(Self { socket, is_told })
    }

    /// The socket itself.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Receives a datagram: its bytes, where it is from, and to which address it came, if that is told and can be
    /// answered from. What does not fit into `buffer` is lost.
    ///
    /// # Errors
    /// Those of [`UdpSocket::recv_from`].
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
        if self.is_told {
            return linux::receive_told(&self.socket, buffer);
        }
        self.socket.recv_from(buffer).map(|(size, from)| (size, from, None))
    }

    /// Sends a datagram, from `source` if it is given.
    ///
    /// # Errors
    /// Those of [`UdpSocket::send_to`]; also if `source` is no address of this machine any more.
    pub fn send(
        &self,
        data: &[u8],
        destination: SocketAddr,
        source: Option<IpAddr>,
    ) -> io::Result<usize> {
        if source.is_some() {
            linux::send_from(&self.socket, data, destination, source)?;
            return Ok(data.len());
        }
        self.socket.send_to(data, destination)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A datagram to `at` and the answer to it; what each was from.
    fn answered(bound: &str, at: &str, client: &str) -> (Option<IpAddr>, SocketAddr, SocketAddr) {
        let socket = UdpSocket::bind(bound).expect("a socket");
        let port = socket.local_addr().expect("its address").port();
        let socket = Addressed::new(socket).expect("it is told");
        let client = UdpSocket::bind(client).expect("a socket");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let at = SocketAddr::new(at.parse().expect("an address"), port);
        client.send_to(b"question", at).expect("sent");
        let mut buffer = [0; 16];
        let (size, from, local) = socket.receive(&mut buffer).expect("a question");
        assert_eq!(&buffer[..size], b"question");
        assert_eq!(socket.send(b"answer", from, local).expect("sent"), 6);
        let (size, answerer) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!(&buffer[..size], b"answer");
        (local, answerer, at)
    }

    #[test]
    fn an_answer_leaves_from_the_address_that_was_asked() {
        for bound in ["0.0.0.0:0", "[::]:0"] {
            let (local, answerer, at) = answered(bound, "127.0.0.2", "127.0.0.1:0");
            assert_eq!((local, answerer), (Some(at.ip()), at), "{bound}");
        }
        let (local, answerer, at) = answered("[::]:0", "::1", "[::1]:0");
        assert_eq!((local, answerer), (Some(at.ip()), at));
        let (local, answerer, at) = answered("127.0.0.2:0", "127.0.0.2", "127.0.0.1:0");
        assert_eq!((local, answerer), (None, at), "one address alone");
    }
}
