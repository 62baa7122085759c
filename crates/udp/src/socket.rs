//! The UDP socket.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::num::NonZeroU8;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ontempo_foundation::{Bytes, Time};
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, Type};

use super::group::Steering;
#[cfg(target_os = "linux")]
use super::linux;
use super::plain;
use super::{Clock, Datagram, Dscp, Transmit};

/// Maximum of datagrams a call: Linux takes 64, and more since 6.9.
const MAX_SEGMENTS: usize = 64;

/// Maximum of bytes a call: an IP packet's length, less the longest headers.
const MAX_BYTES: usize = 65_535 - 60 - 8;

/// Whether routers may fragment a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragmentation {
    /// The system's default.
    Allow,
    /// Never (DF): a packet above the path MTU is refused with an error.
    Refuse,
    /// Never (DF), and ignore the path MTU known to the system: for probing the MTU.
    #[default]
    Probe,
}

/// Options of a socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// DSCP of packets without one of their own.
    pub dscp: Dscp,
    /// Whether routers may fragment packets.
    pub fragmentation: Fragmentation,
    /// Send buffer in bytes; `None`: the system's default. The system may
    /// grant less: [`Socket::buffers`].
    pub send_buffer: Option<Bytes>,
    /// Receive buffer in bytes; `None`: the system's default.
    pub receive_buffer: Option<Bytes>,
    /// Send several datagrams by one call if the kernel can (Linux: UDP_SEGMENT).
    pub gso: bool,
    /// Receive several datagrams as one if the kernel can (Linux: UDP_GRO).
    pub gro: bool,
    /// Use only what the standard library has.
    pub plain: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            dscp: Dscp::default(),
            fragmentation: Fragmentation::Probe,
            // 20 ms at 800 Mbit/s: what arrives while the driver sleeps.
            send_buffer: Some(Bytes::new(2 << 20)),
            receive_buffer: Some(Bytes::new(2 << 20)),
            gso: true,
            gro: true,
            plain: false,
        }
    }
}

/// Why a socket could not be opened.
#[derive(Debug)]
pub struct BindError {
    /// The requested address.
    pub address: SocketAddr,
    /// The system's error.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, error } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                write!(f, "UDP port {} is taken by another program; choose another", address.port())
            }
            io::ErrorKind::AddrNotAvailable => {
                write!(f, "{} is no address of this machine", address.ip())
            }
            io::ErrorKind::PermissionDenied => {
                write!(f, "UDP port {} needs the rights of root", address.port())
            }
            _ if address.ip().is_multicast() => {
                write!(f, "the multicast group {} cannot be joined: {error}", address.ip())
            }
            _ => write!(f, "no UDP socket at {address}: {error}"),
        }
    }
}

impl std::error::Error for BindError {}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    /// An IPv6 socket, which may carry IPv4 too.
    is_ipv6: bool,
    dscp: Dscp,
    /// Cleared when the kernel refuses a batch.
    gso: AtomicBool,
    is_plain: bool,
}

impl Socket {
    /// A socket at `address`. At the unspecified IPv6 address it is dual: it serves IPv4, too. At a multicast
    /// address it is a member of that group on the interface of the system's route to it (IPv6: of the scope in
    /// the address), and others may be beside it.
    ///
    /// # Errors
    /// If the address is not local or is in use, or the system has no such sockets or no route to the group.
    pub fn bind(address: SocketAddr, options: SocketOptions) -> Result<Self, BindError> {
        Self::open(address, options, false).map_err(|error| BindError { address, error })
    }

    /// A socket at `port` of all local addresses, IPv6 and IPv4, or IPv4 alone if the
    /// system has no IPv6; port 0 chooses a free one.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_any(port: u16, options: SocketOptions) -> Result<Self, BindError> {
        let dual = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        Self::bind(dual, options).or_else(|refused| match refused.error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(refused),
            _ => Self::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), options),
        })
    }

    /// A socket at an address, which it shares with others or not.
    pub(super) fn open(
        address: SocketAddr,
        options: SocketOptions,
        is_shared: bool,
    ) -> io::Result<Self> {
        let raw = RawSocket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        raw.set_nonblocking(true)?;
        if address.is_ipv6() {
            raw.set_only_v6(!address.ip().is_unspecified())?;
        }
        if let Some(size) = options.send_buffer {
            raw.set_send_buffer_size(usize::try_from(size.get()).unwrap_or(usize::MAX))?;
        }
        if let Some(size) = options.receive_buffer {
            raw.set_recv_buffer_size(usize::try_from(size.get()).unwrap_or(usize::MAX))?;
        }
        let is_plain = options.plain || cfg!(not(target_os = "linux"));
        let socket = Self {
            socket: raw.into(),
            is_ipv6: address.is_ipv6(),
            dscp: options.dscp,
            gso: AtomicBool::new(options.gso && !is_plain),
            is_plain,
        };
        socket.set_up(options)?;
        if is_shared {
            socket.share()?;
        }
        let raw = socket2::SockRef::from(&socket.socket);
        raw.set_reuse_address(address.ip().is_multicast())?;
        raw.bind(&address.into())?;
        match address {
            SocketAddr::V4(at) if at.ip().is_multicast() => {
                raw.join_multicast_v4(at.ip(), &Ipv4Addr::UNSPECIFIED)?;
            }
            SocketAddr::V6(at) if at.ip().is_multicast() => {
                raw.join_multicast_v6(at.ip(), at.scope_id())?;
            }
            _ => {}
        }
        Ok(socket)
    }

    /// Asks the kernel for the class and the time of each packet.
    #[cfg(target_os = "linux")]
    fn set_up(&self, options: SocketOptions) -> io::Result<()> {
        let file = self.socket.as_fd();
        self.set_class()?;
        let discover = |allow, refuse, probe| match options.fragmentation {
            Fragmentation::Allow => allow,
            Fragmentation::Refuse => refuse,
            Fragmentation::Probe => probe,
        };
        let discover_v4 =
            discover(libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE);
        let discover_v6 =
            discover(libc::IPV6_PMTUDISC_WANT, libc::IPV6_PMTUDISC_DO, libc::IPV6_PMTUDISC_PROBE);
        // An IPv6 socket accepts the IPv4 options for IPv4 packets.
        let mut wanted = vec![(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover_v4)];
        if self.is_ipv6 {
            wanted.push((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, discover_v6));
        }
        if !self.is_plain {
            wanted.push((libc::IPPROTO_IP, libc::IP_RECVTOS, 1));
            if self.is_ipv6 {
                wanted.push((libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1));
                wanted.push((libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1));
            } else {
                wanted.push((libc::IPPROTO_IP, libc::IP_PKTINFO, 1));
            }
            wanted.push((libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1));
        }
        for (level, name, value) in wanted {
            linux::set_option(file, level, name, value)?;
        }
        if !self.is_plain && options.gro {
            // Kernels before 5.0 do not have it.
            let _ = linux::set_option(file, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn set_up(&self, _: SocketOptions) -> io::Result<()> {
        self.set_class()
    }

    /// Lets further sockets of this user have its address.
    pub(super) fn share(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.socket).set_reuse_port(true)
    }

    /// Asks the kernel to spread what arrives among `count` sockets at this address.
    #[cfg(target_os = "linux")]
    pub(super) fn steer(&self, count: NonZeroU8, steering: Steering) -> io::Result<()> {
        if self.is_plain {
            return Err(io::ErrorKind::Unsupported.into());
        }
        linux::steer(self.socket.as_fd(), &steering.program(count))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn steer(&self, _: NonZeroU8, _: Steering) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the DSCP of the socket; a plain socket has no other.
    fn set_class(&self) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.socket);
        let class = u32::from(self.dscp.with(super::Ecn::NotCapable));
        if self.is_ipv6 { socket.set_tclass_v6(class) } else { socket.set_tos_v4(class) }
    }

    /// The local address and port.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sizes of the send and receive buffers, as the system counts them: Linux grants
    /// at most `net.core.wmem_max` and `rmem_max`, and counts double.
    ///
    /// # Errors
    /// The system's error.
    pub fn buffers(&self) -> io::Result<(Bytes, Bytes)> {
        let socket = socket2::SockRef::from(&self.socket);
        let (send, receive) = (socket.send_buffer_size()?, socket.recv_buffer_size()?);
        Ok((Bytes::new(send as u64), Bytes::new(receive as u64)))
    }

    /// Maximum number of datagrams of `size` bytes a call, at least 1.
    pub fn most_segments(&self, size: usize) -> usize {
        if self.gso.load(Relaxed) { (MAX_BYTES / size.max(1)).clamp(1, MAX_SEGMENTS) } else { 1 }
    }

    /// The path MTU to `destination` known to the system: bytes of a packet with its
    /// headers.
    ///
    /// # Errors
    /// If no such path is known, or the system does not report it.
    pub fn path_mtu(&self, destination: SocketAddr) -> io::Result<Bytes> {
        let asking = UdpSocket::bind(any_for(destination))?;
        asking.connect(destination)?;
        mtu_of(&asking, destination)
    }

    /// Sends `data` as `transmit` describes: in few calls if the kernel takes batches, else one
    /// datagram at a time. Returns the bytes sent: fewer than `data` has if the socket's buffer is
    /// full.
    ///
    /// # Errors
    /// `WouldBlock` if nothing was sent; otherwise the kernel's error for the first datagram
    /// that it refuses (above the MTU, no route).
    pub fn send(&self, transmit: &Transmit, data: &[u8]) -> io::Result<usize> {
        let segment = transmit.segment.map(usize::from).filter(|&size| size < data.len());
        let Some(segment) = segment else {
            return self.send_one(transmit, data, None).map(|()| data.len());
        };
        if segment == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sent = 0;
        while sent < data.len() {
            let rest = &data[sent..];
            let batch = &rest[..rest.len().min(segment * self.most_segments(segment))];
            let joined = (batch.len() > segment).then_some(transmit.segment).flatten();
            match self.send_one(transmit, batch, joined) {
                // The kernel or the interface cannot segment batches: from now on we do.
                Err(error) if joined.is_some() && is_refusal_of_batches(&error) => {
                    self.gso.store(false, Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent > 0 => break,
                Err(error) => return Err(error),
                Ok(()) => sent += batch.len(),
            }
        }
        Ok(sent)
    }

    #[cfg(target_os = "linux")]
    fn send_one(&self, transmit: &Transmit, data: &[u8], segment: Option<u16>) -> io::Result<()> {
        if self.is_plain {
            return self.socket.send_to(data, self.reachable(transmit.destination)).map(drop);
        }
        let to_ipv4 = transmit.destination.ip().to_canonical().is_ipv4();
        let class = transmit.dscp.unwrap_or(self.dscp).with(transmit.ecn);
        let source = transmit.source.map(|address| address.to_canonical());
        let control = linux::control(to_ipv4, class, source, segment);
        let destination = SockAddr::from(self.reachable(transmit.destination));
        linux::send(self.socket.as_fd(), &destination, &control, data)
    }

    #[cfg(not(target_os = "linux"))]
    fn send_one(&self, transmit: &Transmit, data: &[u8], _: Option<u16>) -> io::Result<()> {
        self.socket.send_to(data, self.reachable(transmit.destination)).map(drop)
    }

    /// An IPv4 address as an IPv4-mapped one.
    fn reachable(&self, address: SocketAddr) -> SocketAddr {
        match (self.is_ipv6, address.ip()) {
            (true, IpAddr::V4(ip)) => {
                SocketAddrV6::new(ip.to_ipv6_mapped(), address.port(), 0, 0).into()
            }
            _ => address,
        }
    }

    /// A reader of this socket, with its own buffers.
    pub(super) fn reader(&self) -> Reader {
        #[cfg(target_os = "linux")]
        if !self.is_plain {
            return Reader::Batches(Box::new(linux::Batch::new()));
        }
        Reader::Plain(plain::Room::new())
    }

    /// Whether batches are sent by one call.
    #[cfg(test)]
    pub(super) fn sends_batches(&self) -> bool {
        self.gso.load(Relaxed)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What one read has taken.
pub(super) struct Taken {
    pub(super) datagrams: usize,
    /// There was room for more: none is left, but what comes from now on.
    pub(super) is_last: bool,
}

/// Receives datagrams from a socket.
pub(super) enum Reader {
    #[cfg(target_os = "linux")]
    Batches(Box<linux::Batch>),
    Plain(plain::Room),
}

impl Reader {
    /// True if the kernel notes when datagrams arrive, so that they may be read later.
    pub(super) fn knows_arrivals(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Passes on waiting datagrams with the time of reading.
    pub(super) fn each(
        &mut self,
        socket: &Socket,
        clock: Clock,
        take: impl FnMut(Time, Datagram<'_>),
    ) -> io::Result<Taken> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Batches(batch) => {
                batch.receive(socket.as_fd())?;
                Ok(batch.each(clock, take))
            }
            Self::Plain(room) => room.each(&socket.socket, clock, take),
        }
    }
}

/// Whether the kernel or the interface cannot segment this batch: EIO without checksum offload,
/// EINVAL for a kernel or a socket without the feature.
fn is_refusal_of_batches(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(code) if code == libc::EIO || code == libc::EINVAL)
}

/// The unspecified address and any free port, in the family of `remote`.
pub fn any_for(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

#[cfg(target_os = "linux")]
fn mtu_of(connected: &UdpSocket, destination: SocketAddr) -> io::Result<Bytes> {
    let (level, name) = if destination.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    };
    let mtu = linux::option(connected.as_fd(), level, name)?;
    Ok(Bytes::new(u64::try_from(mtu).unwrap_or_default()))
}

#[cfg(not(target_os = "linux"))]
fn mtu_of(_: &UdpSocket, _: SocketAddr) -> io::Result<Bytes> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux reports the MTU of a path"))
}
