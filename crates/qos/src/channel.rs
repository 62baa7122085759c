//! What carries the bytes of a QoS stream: a TCP socket, or memory in tests.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};

use rustix::net::{RecvFlags, SendFlags};

/// Whether a call blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// As the channel is set.
    AsSet,
    /// It does not block.
    Never,
}

/// A stream of bytes in both directions. Errors, and 0 at the end, are those of
/// [`Read`] and [`Write`].
pub(super) trait Channel {
    fn receive(&self, room: &mut [u8], waiting: Waiting) -> io::Result<usize>;
    fn receive_vectored(&self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    fn send(&self, data: &[u8], waiting: Waiting) -> io::Result<usize>;
    fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Ends both directions.
    fn hang_up(&self);
}

impl Channel for TcpStream {
    #[inline]
    fn receive(&self, room: &mut [u8], waiting: Waiting) -> io::Result<usize> {
        match waiting {
            Waiting::AsSet => (&*self).read(room),
            Waiting::Never => {
                let got = rustix::net::recv(self, room, RecvFlags::DONTWAIT);
                got.map(|(got, _)| got).map_err(io::Error::from)
            }
        }
    }

    #[inline]
    fn receive_vectored(&self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(places)
    }

    #[inline]
    fn send(&self, data: &[u8], waiting: Waiting) -> io::Result<usize> {
        match waiting {
            Waiting::AsSet => (&*self).write(data),
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

    fn hang_up(&self) {
        // It may be closed already.
        let _ = self.shutdown(Shutdown::Both);
    }
}
