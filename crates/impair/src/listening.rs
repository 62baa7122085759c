//! The socket at which clients reach a relay.

#[cfg(target_os = "linux")]
pub(crate) use ontempo_udp::Addressed as Listening;

#[cfg(not(target_os = "linux"))]
pub(crate) use plain::Listening;

/// What the standard library has: it does not tell to which address a datagram came.
#[cfg(not(target_os = "linux"))]
mod plain {
    use std::io;
    use std::net::{IpAddr, SocketAddr, UdpSocket};

    #[derive(Debug)]
    pub(crate) struct Listening(UdpSocket);

    impl Listening {
        pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
            Ok(Self(socket))
        }

        pub(crate) fn socket(&self) -> &UdpSocket {
            &self.0
        }

        pub(crate) fn receive(
            &self,
            buffer: &mut [u8],
        ) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
            self.0.recv_from(buffer).map(|(size, source)| (size, source, None))
        }

        pub(crate) fn send(
            &self,
            data: &[u8],
            destination: SocketAddr,
            _: Option<IpAddr>,
        ) -> io::Result<usize> {
            self.0.send_to(data, destination)
        }
    }
}
