//! System calls without a safe wrapper, each with the reason why it is sound.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration as Wall;

/// Puts another connection in the place of a socket: its number stays, so that who waits at it goes on
/// waiting. Both are shut down or new, so that no thread is in a call of the old one for long.
///
/// # Errors
/// The system's error: nothing has changed.
pub(super) fn replace(socket: &TcpStream, by: TcpStream) -> io::Result<()> {
    // SAFETY: both descriptors are open, as their owners are borrowed or owned here; the one that is
    // replaced is a TCP socket afterwards, too, and still has its one owner.
    let done = unsafe { libc::dup3(by.as_raw_fd(), socket.as_raw_fd(), libc::O_CLOEXEC) };
    // `by` is closed: the connection is open under the other number.
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the system knows of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// It was reset. An end of the peer's is seen by who reads, behind what has come before it.
    pub(super) has_ended: bool,
    /// Neither end has ended its sending, and it was not reset.
    pub(super) is_up: bool,
    /// How long nothing has come from the peer's host, though packets are on their way to it.
    pub(super) unacknowledged: Option<Wall>,
}

/// The states of a connection that is up, and of one that was reset (`include/net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
const CLOSE: u8 = 7;

/// What the system knows; `None` if it does not say.
pub(super) fn known(socket: &TcpStream) -> Option<Known> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, and keeps no pointer to it.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done < 0 {
        return None;
    }
    // SAFETY: the structure consists of numbers, for which zeros and whatever the kernel wrote are valid.
    let info = unsafe { info.assume_init() };
    let silent = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    let unacknowledged = (info.tcpi_unacked > 0).then(|| Wall::from_millis(silent.into()));
    let (has_ended, is_up) = (info.tcpi_state == CLOSE, info.tcpi_state == ESTABLISHED);
    Some(Known { has_ended, is_up, unacknowledged })
}
