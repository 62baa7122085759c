//! Where the transport stream goes.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ontempo_place::Output;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, Stdout, stdout};
use tokio::net::UdpSocket;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::source::{PACKET, resolve};

/// Packets of MPEG-TS in a datagram, as players expect.
const PACKETS: usize = 7;

/// Mode of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

pub(crate) enum Sink {
    Udp { socket: UdpSocket, to: SocketAddr },
    Pipe(Stdout),
    File(File),
}

impl Sink {
    pub(crate) async fn open(place: &Place, overwrite: bool) -> Result<Self, Failure> {
        match place {
            Place::Udp(address) => {
                let to = resolve(address, "--to udp://").await?;
                let any = match to {
                    SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                };
                let socket = UdpSocket::bind(any).await.map_err(|error| {
                    Failure::Environment(format!("--to udp://{address}: {error}"))
                })?;
                Ok(Self::Udp { socket, to })
            }
            Place::Pipe => Ok(Self::Pipe(stdout())),
            Place::File(path) => {
                let named = format!("--to {}", path.display());
                let failed = |error: io::Error| Failure::Input(format!("{named}: {error}"));
                let place = Output::at(path, !overwrite).map_err(failed)?;
                let file = match place.create_new(NEW_FILE) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists && !overwrite => {
                        let sentence = "it exists: --overwrite replaces it";
                        return Err(Failure::Input(format!("{named}: {sentence}")));
                    }
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        let file = place.open(|| false).map_err(failed)?;
                        file.set_len(0).map_err(failed)?;
                        file
                    }
                    made => made.map_err(failed)?,
                };
                Ok(Self::File(File::from_std(file)))
            }
        }
    }

    /// Writes whole packets. A datagram that nobody takes is lost, as on any network.
    pub(crate) async fn write(&mut self, packets: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp { socket, to } => {
                for datagram in packets.chunks(PACKETS * PACKET) {
                    match socket.send_to(datagram, *to).await {
                        Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            Self::Pipe(pipe) => {
                pipe.write_all(packets).await?;
                pipe.flush().await
            }
            Self::File(file) => file.write_all(packets).await,
        }
    }

    pub(crate) async fn end(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush().await,
            Self::Udp { .. } | Self::Pipe(_) => Ok(()),
        }
    }
}
