//! RSVP packets: IP protocol 46 over raw sockets.
//!
//! A router takes packets that are for others by their Router Alert option: IPv4 hands each that it
//! would forward to a raw socket of its protocol with IP_ROUTER_ALERT set; IPv6 hands each whose
//! hop-by-hop option has RSVP's value to a socket with IPV6_ROUTER_ALERT of that value. Neither
//! then forwards it. What leaves bears TTL, interface and source of its own, and the last may be
//! another host's (PATH comes from the flow's sender).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_int, in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage,
    recvmsg, sendmsg,
};
use ontempo_reservation::htb::SIGNALLING_PRIORITY;
use ontempo_reservation::machine::{InterfaceId, Transmit};
use ontempo_reservation::message::PROTOCOL;
use socket2::{Domain, Protocol, Socket, Type};

use crate::sys::{set_number, set_option};

/// Router Alert in IPv4 (RFC 2113): option 148, four bytes, "examine packet".
const ALERT_V4: [u8; 4] = [148, 4, 0, 0];
/// Router Alert in IPv6 (RFC 2711) as a whole header of hop-by-hop options: option 5 with the value
/// of RSVP, and padding.
const ALERT_V6: [u8; 8] = [0, 0, 5, 2, 0, RSVP_ALERT as u8, 1, 0];
/// A datagram contains an RSVP message (RFC 2711 section 2.1).
const RSVP_ALERT: c_int = 1;
/// Of `linux/in6.h`, Linux 5.1; libc lacks it.
const IPV6_ROUTER_ALERT_ISOLATE: c_int = 30;
/// Number of the hop-by-hop options header.
const HOP_BY_HOP: u8 = 0;
/// Bytes of the IPv6 header.
const HEADER_V6: usize = 40;
/// SO_PRIORITY of the class that HTB has for these messages: they must pass in an overload, or their
/// reservations would time out.
const SIGNALLING: c_int = SIGNALLING_PRIORITY as c_int;
/// DSCP CS6, network control (RFC 4594).
const NETWORK_CONTROL: c_int = 48 << 2;
/// Bytes that may wait to be received: some ten thousand messages.
const BUFFER: c_int = 16 << 20;
/// The longest IP packet.
const MAX_DATAGRAM: usize = 65_536;

/// A packet that has come.
pub(crate) struct Packet<'a> {
    pub(crate) interface: InterfaceId,
    pub(crate) source: IpAddr,
    pub(crate) ttl: u8,
    pub(crate) payload: &'a [u8],
}

/// The sockets.
pub(crate) struct Packets {
    /// For packets to this host and, by their alert, to others; and to send without alert.
    v4: Socket,
    v4_alert: Socket,
    /// `None` where the host has no IPv6.
    v6: Option<SocketsV6>,
    buffer: Vec<u8>,
}

struct SocketsV6 {
    plain: Socket,
    /// To send with the option.
    alert: Socket,
    /// Takes those for others: as they are, with all headers.
    forwarded: Socket,
}

/// Which socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketKind {
    V4,
    V6,
    ForwardedV6,
}

impl Packets {
    pub(crate) fn open() -> io::Result<Self> {
        let v4 = raw(Domain::IPV4, c_int::from(PROTOCOL))?;
        set_number(&v4, libc::IPPROTO_IP, libc::IP_ROUTER_ALERT, 1)?;
        set_number(&v4, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        let v4_alert = sender_v4()?;
        set_option(&v4_alert, libc::IPPROTO_IP, libc::IP_OPTIONS, &ALERT_V4)?;
        configure_sender_v4(&v4)?;
        let v6 = match SocketsV6::open() {
            Ok(sockets) => Some(sockets),
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { v4, v4_alert, v6, buffer: vec![0; MAX_DATAGRAM] })
    }

    /// What is to be waited for.
    pub(crate) fn sources(&self) -> Vec<(SocketKind, BorrowedFd<'_>)> {
        let mut sources = vec![(SocketKind::V4, self.v4.as_fd())];
        if let Some(v6) = &self.v6 {
            sources.push((SocketKind::V6, v6.plain.as_fd()));
            sources.push((SocketKind::ForwardedV6, v6.forwarded.as_fd()));
        }
        sources
    }

    /// Takes one packet; `None` where none waits. One that is no RSVP is passed over.
    pub(crate) fn receive(&mut self, from: SocketKind) -> io::Result<Option<Packet<'_>>> {
        let socket = match (from, &self.v6) {
            (SocketKind::V4, _) => &self.v4,
            (SocketKind::V6, Some(v6)) => &v6.plain,
            (SocketKind::ForwardedV6, Some(v6)) => &v6.forwarded,
            (_, None) => return Ok(None),
        };
        loop {
            let got = match from {
                SocketKind::V4 => receive_v4(socket, &mut self.buffer),
                SocketKind::V6 => receive_v6(socket, &mut self.buffer),
                SocketKind::ForwardedV6 => receive_forwarded(socket, &mut self.buffer),
            };
            match got {
                Ok(Some((interface, source, ttl, span))) => {
                    let payload = self.buffer.get(span).unwrap_or_default();
                    return Ok(Some(Packet { interface, source, ttl, payload }));
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn send(&self, packet: &Transmit) -> io::Result<()> {
        let index = packet.interface.0;
        let data = [IoSlice::new(&packet.payload)];
        match (packet.source, packet.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let socket = if packet.router_alert { &self.v4_alert } else { &self.v4 };
                let info = in_pktinfo {
                    ipi_ifindex: c_int::try_from(index).map_err(io::Error::other)?,
                    ipi_spec_dst: in_addr { s_addr: u32::from(source).to_be() },
                    ipi_addr: in_addr { s_addr: 0 },
                };
                let ttl = c_int::from(packet.ttl);
                let control =
                    [ControlMessage::Ipv4PacketInfo(&info), ControlMessage::Ipv4Ttl(&ttl)];
                let to = SockaddrIn::from(SocketAddrV4::new(destination, 0));
                sendmsg(socket.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&to))?;
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let Some(v6) = &self.v6 else {
                    return Err(io::Error::other("this host has no IPv6"));
                };
                let socket = if packet.router_alert { &v6.alert } else { &v6.plain };
                let info = in6_pktinfo {
                    ipi6_addr: in6_addr { s6_addr: source.octets() },
                    ipi6_ifindex: index,
                };
                let limit = c_int::from(packet.ttl);
                let control =
                    [ControlMessage::Ipv6PacketInfo(&info), ControlMessage::Ipv6HopLimit(&limit)];
                let to = SockaddrIn6::from(SocketAddrV6::new(destination, 0, 0, 0));
                sendmsg(socket.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&to))?;
            }
            _ => return Err(io::Error::other("addresses of two families")),
        }
        Ok(())
    }
}

impl SocketsV6 {
    fn open() -> io::Result<Self> {
        let plain = sender_v6()?;
        set_number(&plain, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set_number(&plain, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        let alert = sender_v6()?;
        discard_received(&alert)?;
        set_option(&alert, libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &ALERT_V6)?;
        let forwarded = raw(Domain::IPV6, libc::IPPROTO_RAW)?;
        // Linux keeps one list of these sockets for all network namespaces.
        set_number(&forwarded, libc::IPPROTO_IPV6, IPV6_ROUTER_ALERT_ISOLATE, 1)?;
        set_number(&forwarded, libc::IPPROTO_IPV6, libc::IPV6_ROUTER_ALERT, RSVP_ALERT)?;
        set_number(&forwarded, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        Ok(Self { plain, alert, forwarded })
    }
}

fn raw(domain: Domain, protocol: c_int) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(protocol)))?;
    socket.set_nonblocking(true)?;
    // Refreshes of many states come at once, beyond what the system allows its users.
    set_number(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
    Ok(socket)
}

fn sender_v4() -> io::Result<Socket> {
    let socket = raw(Domain::IPV4, c_int::from(PROTOCOL))?;
    discard_received(&socket)?;
    configure_sender_v4(&socket)?;
    Ok(socket)
}

fn configure_sender_v4(socket: &Socket) -> io::Result<()> {
    set_number(socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
    // In this order: the first sets the second.
    set_number(socket, libc::IPPROTO_IP, libc::IP_TOS, NETWORK_CONTROL)?;
    set_number(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, SIGNALLING)
}

fn sender_v6() -> io::Result<Socket> {
    let socket = raw(Domain::IPV6, c_int::from(PROTOCOL))?;
    set_number(&socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1)?;
    set_number(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, NETWORK_CONTROL)?;
    set_number(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, SIGNALLING)?;
    Ok(socket)
}

/// Keeps a socket that only sends from queueing received packets.
fn discard_received(socket: &Socket) -> io::Result<()> {
    set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
}

/// Interface, source, TTL, and where in the buffer the message is.
type Location = Option<(InterfaceId, IpAddr, u8, std::ops::Range<usize>)>;

/// The kernel's information about a received packet.
struct Received {
    length: usize,
    interface: InterfaceId,
    /// Its hop limit (IPv6 with IPV6_RECVHOPLIMIT).
    limit: Option<u8>,
    source: Option<IpAddr>,
}

/// Receives a packet; `None` for a truncated one and one without its interface.
fn take(socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut pieces = [IoSliceMut::new(buffer)];
    // Large enough for IPv4, too.
    let mut control = nix::cmsg_space!(in6_pktinfo, c_int);
    let got = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut pieces,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let (mut index, mut limit) = (None, None);
    for message in got.cmsgs()? {
        match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => index = info.ipi_ifindex.try_into().ok(),
            ControlMessageOwned::Ipv6PacketInfo(info) => index = Some(info.ipi6_ifindex),
            ControlMessageOwned::Ipv6HopLimit(value) => limit = value.try_into().ok(),
            _ => {}
        }
    }
    let cut = got.flags.contains(MsgFlags::MSG_TRUNC);
    let from = got.address.as_ref().and_then(SockaddrStorage::as_sockaddr_in6);
    let source = from.map(|from| IpAddr::V6(from.ip()));
    let received =
        |index| Received { length: got.bytes, interface: InterfaceId(index), limit, source };
    Ok(index.filter(|_| !cut).map(received))
}

/// The packet has its IPv4 header.
fn receive_v4(socket: &Socket, buffer: &mut [u8]) -> io::Result<Location> {
    let Some(Received { length, interface, .. }) = take(socket, buffer)? else { return Ok(None) };
    let Some(header) = buffer.first_chunk::<20>() else { return Ok(None) };
    let begins = usize::from(header[0] & 0x0f) * 4;
    let source = [header[12], header[13], header[14], header[15]];
    if begins < 20 || length < begins {
        return Ok(None);
    }
    Ok(Some((interface, source.into(), header[8], begins..length)))
}

fn receive_v6(socket: &Socket, buffer: &mut [u8]) -> io::Result<Location> {
    let Some(Received { length, interface, limit, source }) = take(socket, buffer)? else {
        return Ok(None);
    };
    Ok(source.zip(limit).map(|(source, limit)| (interface, source, limit, 0..length)))
}

/// The packet has its IPv6 header and the hop-by-hop options that brought it here.
fn receive_forwarded(socket: &Socket, buffer: &mut [u8]) -> io::Result<Location> {
    let Some(Received { length, interface, .. }) = take(socket, buffer)? else { return Ok(None) };
    let Some((header, rest)) = buffer.get(..length).and_then(|all| all.split_first_chunk()) else {
        return Ok(None);
    };
    let header: &[u8; HEADER_V6] = header;
    let &[protocol, words, ..] = rest else { return Ok(None) };
    let begins = HEADER_V6 + (usize::from(words) + 1) * 8;
    if header[0] >> 4 != 6 || header[6] != HOP_BY_HOP || protocol != PROTOCOL || begins > length {
        return Ok(None);
    }
    let mut source = [0; 16];
    source.copy_from_slice(&header[8..24]);
    Ok(Some((interface, source.into(), header[7], begins..length)))
}
