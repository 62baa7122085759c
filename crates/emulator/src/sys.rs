//! System calls without a safe wrapper in our libraries, each with the reason why it is sound.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_short};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

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
    _retransmits_to_flags: [u8; 6],
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
    pub(crate) timeouts: u16,
    _timeout_recoveries: u16,
    _timeout_time: u32,
}

/// Reads `TCP_INFO` of a connection.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
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
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
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

const _: () = assert!(size_of::<InterfaceRequest>() == 40 && size_of::<TcpInfo>() == 248);
