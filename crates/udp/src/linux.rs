//! The system calls of the socket under Linux, each with the reason why it is sound.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::{size_of_val, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use ontempo_foundation::Time;
use socket2::{SockAddr, SockAddrStorage};

use super::control::{Control, int};
use super::socket::Taken;
use super::{Clock, Datagram, Dscp, Ecn};

/// Datagrams (or batches joined by the kernel) received by one call.
const BATCH: usize = 16;

/// Maximum bytes of a UDP datagram, or of joined datagrams.
const MAX_DATAGRAM: usize = 65_535;

/// Sets an integer option.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value` and keeps no pointer to it.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an integer option.
pub(super) fn option(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which any bits make.
    let done = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Spreads what arrives among the sockets at the address of this one by a program of classic BPF.
pub(super) fn steer(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    let length = size_of_val(&program) as libc::socklen_t;
    // SAFETY: the kernel reads `program` and the `len` steps that it points to, and keeps no pointer to them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            length,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends `data` with these control messages.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    destination: &SockAddr,
    control: &Control,
    data: &[u8],
) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let control = control.as_bytes();
    // SAFETY: `msghdr` consists of numbers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = destination.as_ptr().cast_mut().cast();
    message.msg_namelen = destination.len();
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_ptr().cast_mut().cast();
    message.msg_controllen = control.len();
    // SAFETY: all that `message` points to lives until the call returns, and sendmsg only reads it.
    let done = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel tell to which address each datagram of `socket` came.
pub(super) fn tell_local(socket: &UdpSocket, is_ipv6: bool) -> io::Result<()> {
    let (level, name) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    set_option(socket.as_fd(), level, name, 1)
}

/// Receives a datagram: its bytes, where it is from, and the address that it came to and may be answered from.
pub(super) fn receive_told(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
    let mut control = Control::new();
    let mut name = SockAddrStorage::zeroed();
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `msghdr` consists of numbers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name.size_of();
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    let room = control.room();
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = room.len();
    // SAFETY: `message` points to buffers of the given lengths, which live and are not touched otherwise until
    // the call returns; no pointer is kept.
    let size = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let size = usize::try_from(size).map_err(|_| io::Error::last_os_error())?;
    control.set_length(message.msg_controllen);
    let length = message.msg_namelen.min(name.size_of());
    // SAFETY: the kernel wrote `msg_namelen` bytes of `name`, the rest being zeros.
    let source = unsafe { SockAddr::new(name, length) };
    let source = source.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    let local = Notes::read(&control, Time::ZERO, 0).local;
    Ok((size, source, local.filter(|address| !address.is_multicast())))
}

/// Sends a datagram from `source`.
pub(super) fn send_from(
    socket: &UdpSocket,
    data: &[u8],
    destination: SocketAddr,
    source: Option<IpAddr>,
) -> io::Result<()> {
    let to_ipv4 = destination.ip().to_canonical().is_ipv4();
    let control = control(to_ipv4, 0, source, None);
    send(socket.as_fd(), &destination.into(), &control, data)
}

/// Buffers for one receive call.
pub(super) struct Batch {
    data: Vec<u8>,
    controls: Vec<Control>,
    names: Vec<SockAddrStorage>,
    /// Bytes of data and of name, and flags, of each.
    got: Vec<(usize, libc::socklen_t, c_int)>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            data: vec![0; BATCH * MAX_DATAGRAM],
            controls: vec![Control::new(); BATCH],
            names: (0..BATCH).map(|_| SockAddrStorage::zeroed()).collect(),
            got: Vec::with_capacity(BATCH),
        }
    }

    /// Receives without waiting; returns the number of messages.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.got.clear();
        let mut pieces: [libc::iovec; BATCH] =
            [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: `mmsghdr` consists of numbers and pointers, for which zeros are valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let rooms = self.data.chunks_exact_mut(MAX_DATAGRAM).zip(&mut self.controls);
        let rooms = rooms.zip(&mut self.names).zip(pieces.iter_mut().zip(&mut messages));
        for (((data, control), name), (piece, message)) in rooms {
            *piece = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
            let header = &mut message.msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = name.size_of();
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            let control = control.room();
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = control.len();
        }
        // SAFETY: each of the `BATCH` messages points to buffers of its own, of the given lengths,
        // which live and are not touched otherwise until the call returns; no pointer is kept.
        let got = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as _,
                flags as _,
                ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        for (message, control) in messages.iter().take(got).zip(&mut self.controls) {
            let header = &message.msg_hdr;
            control.set_length(header.msg_controllen);
            self.got.push((message.msg_len as usize, header.msg_namelen, header.msg_flags));
        }
        Ok(got)
    }

    /// Passes on each datagram received.
    pub(super) fn each(&mut self, clock: Clock, mut take: impl FnMut(Time, Datagram<'_>)) -> Taken {
        // Where this thread is kept waiting between the two, a datagram seems younger than it is, and no round trip too short.
        let wall = Clock::wall();
        let now = clock.now();
        let (mut count, is_last) = (0, self.got.len() < BATCH);
        let rooms = self.data.chunks_exact(MAX_DATAGRAM).zip(&self.controls);
        for (((room, control), name), &(length, name_length, flags)) in
            rooms.zip(&self.names).zip(&self.got)
        {
            let Some(source) = address(name, name_length) else { continue };
            let data = &room[..length.min(MAX_DATAGRAM)];
            if flags & libc::MSG_TRUNC != 0 {
                continue;
            }
            let notes = Notes::read(control, now, wall);
            let segment = if notes.segment == 0 { data.len().max(1) } else { notes.segment };
            let empty = data.is_empty().then_some(data);
            for data in data.chunks(segment).chain(empty) {
                count += 1;
                take(
                    now,
                    Datagram {
                        source,
                        local: notes.local,
                        received: notes.received,
                        ecn: Ecn::of(notes.class),
                        dscp: Dscp::of(notes.class),
                        data,
                    },
                );
            }
        }
        self.got.clear();
        Taken { datagrams: count, is_last }
    }
}

/// The address that the kernel has written.
fn address(name: &SockAddrStorage, length: libc::socklen_t) -> Option<SocketAddr> {
    // SAFETY: `name` is a storage of which the kernel wrote `length` bytes, the rest being zeros
    // or an earlier address; a storage may be read as any bits.
    let name = unsafe { SockAddr::new(ptr::read(name), length.min(name.size_of())) };
    name.as_socket().map(plain)
}

/// An IPv4-mapped address becomes an IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Ancillary data of a datagram.
struct Notes {
    class: u8,
    local: Option<IpAddr>,
    /// Bytes of each of the joined datagrams; 0 if there is one.
    segment: usize,
    received: Time,
}

impl Notes {
    fn read(control: &Control, now: Time, wall: u64) -> Self {
        let mut notes = Self { class: 0, local: None, segment: 0, received: now };
        for (level, kind, data) in control.messages() {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => notes.class = data.first().map_or(0, |&b| b),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    notes.class = int(data).map_or(0, |class| class as u8);
                }
                // `in_pktinfo`: interface, the local address to answer from, the header's.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let bytes = data.get(4..).and_then(|rest| rest.first_chunk::<4>());
                    notes.local = bytes.map(|&bytes| Ipv4Addr::from(bytes).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let bytes = data.first_chunk::<16>();
                    notes.local = bytes.map(|&bytes| Ipv6Addr::from(bytes).to_canonical());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    notes.segment = int(data).and_then(|size| size.try_into().ok()).unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    if let Some(stamp) = wall_time(data) {
                        notes.received = Clock::at_wall(now, wall, stamp);
                    }
                }
                _ => {}
            }
        }
        notes
    }
}

/// Nanoseconds of a `timespec`.
fn wall_time(data: &[u8]) -> Option<u64> {
    const WORD: usize = size_of::<libc::time_t>();
    let seconds = libc::time_t::from_ne_bytes(data.get(..WORD)?.try_into().ok()?);
    let nanos = libc::c_long::from_ne_bytes(*data.get(WORD..)?.first_chunk()?);
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::try_from(nanos).ok()?)
}

/// The control messages of a packet.
pub(super) fn control(
    to_ipv4: bool,
    class: u8,
    source: Option<IpAddr>,
    segment: Option<u16>,
) -> Control {
    let mut control = Control::new();
    let word = c_int::from(class).to_ne_bytes();
    if to_ipv4 {
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &word);
    } else {
        control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &word);
    }
    match source {
        Some(IpAddr::V4(address)) if to_ipv4 => {
            // Interface (any), the address to send from, the header's (unused).
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&address.octets());
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        Some(IpAddr::V6(address)) if !to_ipv4 => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&address.octets());
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        _ => {}
    }
    if let Some(segment) = segment {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
    }
    control
}
