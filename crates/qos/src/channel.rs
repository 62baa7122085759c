//! What carries the bytes of a QoS stream: a TCP socket, or memory in tests.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags};

use super::sys;

/// Whether a call blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// As the channel is set.
    AsSet,
    /// Until this time at the latest.
    Until(Instant),
    /// It does not block.
    Never,
}

/// A stream of bytes in both directions. Errors, and 0 at the end, are those of
/// [`Read`] and [`Write`].
pub(super) trait Channel {
    fn receive(&self, room: &mut [u8], waiting: Waiting) -> io::Result<usize>;
    fn receive_vectored(
        &self,
        places: &mut [IoSliceMut<'_>],
        waiting: Waiting,
    ) -> io::Result<usize>;
    fn send(&self, data: &[u8], waiting: Waiting) -> io::Result<usize>;
    fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Whether an end that was just received is not the peer's: this end has shut down its reading alone.
    fn is_read_shut(&self) -> bool {
        false
    }
    /// Ends this end's sending.
    fn finish(&self);
    /// Ends both directions.
    fn hang_up(&self);
}

/// Waits until something can be received, at most until `until`.
///
/// # Errors
/// [`WouldBlock`](io::ErrorKind::WouldBlock) at that time, or the system's error.
pub(super) fn wait_readable(socket: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads what has arrived, without waiting.
fn receive_now(stream: &TcpStream, room: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(stream, room, RecvFlags::DONTWAIT).map(|(got, _)| got)
}

/// What `receive`, which does not wait, has received by `until`. What is there already takes no second system call.
///
/// # Errors
/// [`WouldBlock`](io::ErrorKind::WouldBlock) at that time, or the system's error.
fn received(
    stream: &TcpStream,
    until: Instant,
    mut receive: impl FnMut() -> Result<usize, Errno>,
) -> io::Result<usize> {
    while Instant::now() < until {
        match receive() {
            Err(Errno::AGAIN) => wait_readable(stream, until)?,
            got => return got.map_err(io::Error::from),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

impl Channel for TcpStream {
    #[inline]
    fn receive(&self, room: &mut [u8], waiting: Waiting) -> io::Result<usize> {
        match waiting {
            Waiting::AsSet => (&*self).read(room),
            Waiting::Until(until) => received(self, until, || receive_now(self, room)),
            Waiting::Never => receive_now(self, room).map_err(io::Error::from),
        }
    }

    #[inline]
    fn receive_vectored(
        &self,
        places: &mut [IoSliceMut<'_>],
        waiting: Waiting,
    ) -> io::Result<usize> {
        let Waiting::Until(until) = waiting else { return (&*self).read_vectored(places) };
        received(self, until, || {
            let mut none = RecvAncillaryBuffer::default();
            rustix::net::recvmsg(self, places, &mut none, RecvFlags::DONTWAIT).map(|got| got.bytes)
        })
    }

    #[inline]
    fn send(&self, data: &[u8], waiting: Waiting) -> io::Result<usize> {
        match waiting {
            Waiting::AsSet | Waiting::Until(_) => (&*self).write(data),
            Waiting::Never => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(self, data, flags).map_err(io::Error::from)
            }
        }
    }

    #[inline]
    fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(pieces)
    }

    fn is_read_shut(&self) -> bool {
        sys::known(self).is_some_and(|known| known.is_up)
    }

    fn finish(&self) {
        // It may be closed already.
        let _ = self.shutdown(Shutdown::Write);
    }

    fn hang_up(&self) {
        // It may be closed already.
        let _ = self.shutdown(Shutdown::Both);
    }
}
