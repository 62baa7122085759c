//! System calls without a safe wrapper in our libraries, each with the reason why it is sound.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_short};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{offset_of, size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ontempo_foundation::Duration;
use rustix::time::{ClockId, clock_gettime};

/// `struct ifreq` of `linux/if.h`, as TUNSETIFF reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: c_short,
    rest: [u8; 22],
}

/// Opens a TUN device called `name` in the network namespace of the calling thread. The device
/// is gone when the file is closed.
pub(crate) fn open_tun(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "this kernel has no TUN devices (/dev/net/tun is missing), of which hosts' \
                 interfaces are made; load them with: sudo modprobe tun",
            ),
            kind => io::Error::new(kind, format!("/dev/net/tun: {error}")),
        })?;
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: (libc::IFF_TUN | libc::IFF_NO_PI) as c_short,
        rest: [0; 22],
    };
    let room = libc::IFNAMSIZ - 1;
    for (slot, byte) in request.name.iter_mut().take(room).zip(name.bytes()) {
        *slot = byte;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is laid out as, and
    // keeps no pointer to it.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// `struct tcp_info` of `linux/tcp.h`, up to the fields of Linux 6.7; fields that an older kernel
/// does not fill are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpInfo {
    pub(crate) state: u8,
    pub(crate) congestion_state: u8,
    /// Timeouts since the last acknowledgement of something new.
    pub(crate) timeouts_in_a_row: u8,
    _probes_to_flags: [u8; 5],
    _rto_ato: [u32; 2],
    pub(crate) segment_size: u32,
    _receive_segment: u32,
    pub(crate) unacknowledged: u32,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) retransmitting: u32,
    _fackets: u32,
    _last: [u32; 4],
    _path_mtu_and_receive_ssthresh: [u32; 2],
    pub(crate) smoothed_rtt_us: u32,
    _rtt_variation: u32,
    pub(crate) ssthresh: u32,
    pub(crate) window: u32,
    _advertised_to_receive_space: [u32; 4],
    pub(crate) total_retransmitted: u32,
    _pacing_rates: [u64; 2],
    pub(crate) bytes_acknowledged: u64,
    _bytes_received: u64,
    _segments_out: u32,
    pub(crate) segments_in: u32,
    _not_sent: u32,
    pub(crate) minimum_rtt_us: u32,
    pub(crate) data_segments_in: u32,
    pub(crate) data_segments_out: u32,
    _delivery_rate_to_limits: [u64; 4],
    _delivered: [u32; 2],
    _bytes_sent: [u64; 2],
    _duplicates_to_rehash: [u32; 6],
    timeouts: u16,
    _timeout_recoveries: u16,
    _timeout_time: u32,
}

impl TcpInfo {
    /// All timeouts of the connection, if they are in the first `length` bytes: since Linux 6.7.
    fn timeouts(&self, length: usize) -> Option<u16> {
        let end = offset_of!(Self, timeouts) + size_of_val(&self.timeouts);
        (length >= end).then_some(self.timeouts)
    }
}

/// Reads `TCP_INFO` of a connection; also the number of its timeouts, if the kernel tells it.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<(TcpInfo, Option<u16>)> {
    let mut info = TcpInfo::default();
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, all of whose fields are numbers
    // that any bits make.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((info, info.timeouts(length as usize)))
}

/// Priority of the thread that carries packets, above that of the thread that sends them: a packet of
/// another host that is due may not wait for an application.
pub(crate) const FORWARDING_PRIORITY: c_int = 2;
/// Priority of the thread that serves the applications.
pub(crate) const TRAFFIC_PRIORITY: c_int = 1;

/// Gives the calling thread real-time priority (`SCHED_FIFO`), from 1.
pub(crate) fn set_realtime_priority(priority: c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    let policy: c_int = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads `parameters` and keeps no pointer to it; thread 0 is the caller.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes `command` begin with real-time priority (`SCHED_RR`), if this process may: with that of the thread
/// that serves the applications, since the program is one of them.
pub(crate) fn begin_with_realtime_priority(command: &mut Command) {
    let parameters = libc::sched_param { sched_priority: TRAFFIC_PRIORITY };
    // SAFETY: between fork and exec the closure makes one system call, which reads `parameters` and
    // keeps no pointer to it; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            // Without the right it runs as an ordinary process, as the threads then do.
            let _ = libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters);
            Ok(())
        });
    }
}

/// Sets an option of a socket whose value is an `int`.
fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one `int`, as each option given here has, and keeps no pointer to it.
    let done = unsafe {
        let length = size_of::<c_int>() as libc::socklen_t;
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel tell of `socket` when each datagram came and how many it lost before, and gives it
/// room for `bytes`.
pub(crate) fn stamp_arrivals(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set_receive_buffer(socket, bytes)
}

/// Gives a socket room for `bytes`, and as much again for the kernel's own overhead, whatever
/// `net.core.rmem_max` is; of TCP the kernel then no longer changes it.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

/// Limits the receive window of a TCP socket to `bytes`; of a listening one, those of its connections.
pub(crate) fn limit_window(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)
}

/// A datagram that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    /// Its bytes, as far as there was room.
    pub(crate) length: usize,
    /// How long ago it came.
    pub(crate) age: Duration,
    /// Datagrams that the socket has lost since it was made.
    pub(crate) lost: u32,
}

/// Reads the next datagram of a socket that stamps arrivals.
///
/// # Errors
/// `WouldBlock` if none is there.
pub(crate) fn receive_stamped(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Stamped> {
    // As `struct cmsghdr` is aligned.
    let mut control = [0u64; 16];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a message header is valid with all its fields zero or null; the kernel writes within the
    // lengths given here, to memory that outlives the call. The headers of control messages are followed
    // by the macros of the C library, within what the kernel has filled, and their contents are read
    // without regard to alignment.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT);
        let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
        let mut read = Stamped { length, age: Duration::ZERO, lost: 0 };
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    read.age = age(data.cast::<libc::timespec>().read_unaligned());
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    read.lost = data.cast::<u32>().read_unaligned();
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok(read)
    }
}

/// How long ago the system's time was `then`; none if that is to come.
fn age(then: libc::timespec) -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let age = nanos(now.tv_sec, now.tv_nsec) - nanos(then.tv_sec, then.tv_nsec);
    Duration::from_nanos(u64::try_from(age).unwrap_or(0))
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40 && size_of::<TcpInfo>() == 248);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_known_where_the_kernel_fills_in_their_field() {
        let info = TcpInfo { timeouts: 3, ..TcpInfo::default() };
        // Linux 6.1 ends with the field before.
        let of_length = [232, 240, 241, 242, 248].map(|length| info.timeouts(length));
        assert_eq!(of_length, [None, None, None, Some(3), Some(3)]);
    }
}
