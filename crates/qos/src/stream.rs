//! The TCP transport.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration as Wall, Instant};

use ontempo_mechanisms::qos::Specification;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::rand::{GetRandomFlags, getrandom};

use super::channel::Channel;
use super::core::{Control, Core, deadline, lock, lock_until, try_lock};
use super::maintenance::{self, Maintained};
use super::recovery::Recovery;
use super::returning::{self, Inner, Way};
use super::setup::{self, Established, SetupBytes, SetupError};
use super::tcp::too_long;
use super::wire::{Cookie, MAX_SETUP, Setup};
use super::{Delivery, Direction, Events, Message, QosOptions, facade};
use ontempo_monitor::Carrier;
use ontempo_udp::Dscp;

/// A QoS socket over TCP.
///
/// A clone is the same connection, so that one thread can send and another receive. It ends when
/// the last clone is dropped. [`Read`] and [`Write`] are for code that uses byte streams: one
/// call of `write` is one message.
#[derive(Clone, Debug)]
pub struct QosStream(Arc<Handle>);

/// The application's handle.
#[derive(Debug)]
struct Handle(Arc<Inner>);

impl QosStream {
    /// Connects to and negotiates with the peer.
    ///
    /// # Errors
    /// If the specifications contradict themselves, the peer does not answer in time, disagrees or
    /// speaks
    /// another protocol, or a required reservation is refused.
    pub fn connect(to: impl ToSocketAddrs, options: &QosOptions) -> Result<Self, SetupError> {
        options.check(Carrier::Tcp)?;
        let connect = |address| Ok(TcpStream::connect_timeout(&address, options.setup_timeout)?);
        Self::begin(facade::first(to, connect)?, options)
    }

    fn begin(stream: TcpStream, options: &QosOptions) -> Result<Self, SetupError> {
        let (clock, session) = (maintenance::clock(), ontempo_udp::random());
        let until = deadline(options.setup_timeout);
        stream.set_write_timeout(Some(options.setup_timeout))?;
        let token = unguessable()?;
        let hello = setup::hello(&options.offer(), session, token, clock.now());
        (&stream).write_all(&hello.to_bytes())?;
        let answer = read_setup(&stream, until)?;
        let now = clock.now();
        let concluded = setup::conclude(&options.offer(), (session, token), &answer, now);
        let established =
            concluded.unwrap_or(Err(SetupError::Wire(super::wire::WireError::Malformed)))?;
        let connected = Self::establish(stream, options, &established, Way::Connect)?;
        facade::must_reserve(&**connected.inner(), options)?;
        Ok(connected)
    }

    /// A stream after its handshake.
    pub(super) fn establish(
        stream: TcpStream,
        options: &QosOptions,
        established: &Established,
        way: Way,
    ) -> Result<Self, SetupError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let addresses = (stream.local_addr()?, stream.peer_addr()?);
        let core = facade::core(Carrier::Tcp, addresses, options, established);
        facade::mark((&stream).into(), addresses.0.is_ipv4(), core.dscp())?;
        let rec_time = established.rec_time().map(|time| Wall::from_nanos(time.as_nanos()));
        let recovery = established.token.zip(rec_time);
        let recovery = recovery.map(|(token, rec_time)| Recovery::new(token, rec_time));
        let inner = Arc::new(Inner::new(core, stream, recovery));
        returning::prepare(&inner, way);
        maintenance::register(&inner);
        Ok(Self(Arc::new(Handle(inner))))
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }

    fn core(&self) -> &Core {
        &self.inner().core
    }

    /// Sends a message; blocks while the peer accepts no more.
    ///
    /// # Errors
    /// If it exceeds the agreed size, or the system's error.
    #[inline]
    pub fn send_message(&self, data: &[u8]) -> io::Result<()> {
        self.inner().send_message(data)
    }

    /// Waits for a message; `None` if the peer has finished sending. A buffer of
    /// [`max_receive_size`](Self::max_receive_size) bytes always suffices.
    ///
    /// # Errors
    /// If the message is longer than the buffer (it is lost), the peer violates the protocol, or
    /// the system's error.
    #[inline]
    pub fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        self.inner().receive_message(buffer)
    }

    /// Shuts down sending, receiving, or both. Before the end of sending, the peer gets a last report.
    /// Where `rec_time` is agreed, nothing is received after the end of receiving: what comes is dropped, and
    /// acknowledged.
    ///
    /// # Errors
    /// The system's error.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let inner = self.inner();
        if how == Shutdown::Write {
            inner.send_control(&self.core().status(self.core().clock.now()));
        }
        match (how, &inner.recovery) {
            (_, None) => inner.channel.shutdown(how),
            // The peer is told; what it sends is still acknowledged.
            (Shutdown::Write, Some(_)) => {
                inner.finish();
                Ok(())
            }
            (Shutdown::Read, Some(recovery)) => {
                recovery.shut_reading();
                // Only a thread in a call must be woken; of a broken one there is none.
                if try_lock(&inner.reader).is_none() {
                    let _ = inner.channel.shutdown(how);
                }
                Ok(())
            }
            (Shutdown::Both, Some(_)) => {
                inner.break_off();
                Ok(())
            }
        }
    }

    /// Finishes sending, and waits until the peer has closed: then everything has arrived.
    /// What still arrives is dropped. A process that ends right after sending needs this.
    ///
    /// Where `rec_time` is agreed, it is `Ok` only if the peer has acknowledged all, and has finished
    /// sending. It then waits on until the peer knows that as well, at most until `timeout` or until a broken
    /// connection has not come back within `rec_time`.
    ///
    /// # Errors
    /// If the peer does not close within `timeout`, or a clone is in a call all the time, or the system's error.
    pub fn close(self, timeout: Wall) -> io::Result<()> {
        let until = deadline(timeout);
        if self.inner().recovery.is_some() {
            return self.inner().close_until(until);
        }
        let Inner { channel: stream, reader, .. } = &**self.inner();
        stream.shutdown(Shutdown::Write)?;
        // A clone in a call reads to the end itself.
        let Some(_reader) = lock_until(reader, until) else {
            return Err(ErrorKind::TimedOut.into());
        };
        let mut room = vec![0; 16 * 1024];
        match read_until_end(stream, &mut room, until) {
            Err(SetupError::Silent) => Err(ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// Timeout of receiving; `None`: none. It is that of the whole call, whatever arrives meanwhile.
    ///
    /// # Errors
    /// Zero, or the system's error.
    pub fn set_read_timeout(&self, timeout: Option<Wall>) -> io::Result<()> {
        self.inner().channel.set_read_timeout(timeout)?;
        self.inner().set_read_timeout(timeout);
        Ok(())
    }

    /// Timeout of sending; `None`: none.
    ///
    /// # Errors
    /// Zero, or the system's error.
    pub fn set_write_timeout(&self, timeout: Option<Wall>) -> io::Result<()> {
        self.inner().channel.set_write_timeout(timeout)?;
        self.inner().set_write_timeout(timeout);
        Ok(())
    }

    fn read_bytes(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner().read(buffer)
    }
}

facade::methods!(QosStream);
facade::byte_stream!(QosStream);

/// Reads once, until `until`.
fn read_once(mut stream: &TcpStream, room: &mut [u8], until: Instant) -> Result<usize, SetupError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SetupError::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(room) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            got => return Ok(got?),
        }
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system has no random numbers.
fn unguessable() -> io::Result<Cookie> {
    let mut bytes = Cookie::default();
    match getrandom(&mut bytes[..], GetRandomFlags::empty())? == bytes.len() {
        true => Ok(bytes),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads a message of the handshake.
pub(super) fn read_setup(stream: &TcpStream, until: Instant) -> Result<Setup, SetupError> {
    let (mut bytes, mut room) = (SetupBytes::default(), [0; MAX_SETUP]);
    while let missing @ 1.. = bytes.missing()? {
        read_until(stream, &mut room[..missing], until)?;
        bytes.push(&room[..missing]);
    }
    Ok(bytes.read()?)
}

/// Fills `room` until `until`.
fn read_until(stream: &TcpStream, room: &mut [u8], until: Instant) -> Result<(), SetupError> {
    let mut filled = 0;
    while filled < room.len() {
        match read_once(stream, &mut room[filled..], until)? {
            0 => return Err(SetupError::Io(ErrorKind::UnexpectedEof.into())),
            more => filled += more,
        }
    }
    Ok(())
}

fn read_until_end(stream: &TcpStream, room: &mut [u8], until: Instant) -> Result<(), SetupError> {
    while read_once(stream, room, until)? > 0 {}
    Ok(())
}

/// As it is maintained: it may be made anew.
impl Maintained for Inner {
    fn core(&self) -> &Core {
        &self.core
    }

    fn mark(&self, dscp: Dscp) -> io::Result<()> {
        facade::mark((&self.channel).into(), self.core.remote().is_ipv4(), dscp)
    }

    fn send_control(&self, control: &Control) {
        Self::send_control(self, control);
    }

    fn listen(&self) -> Option<BorrowedFd<'_>> {
        self.hear().then(|| self.channel.as_fd())
    }

    fn look(&self) {
        self.look_at_path();
    }

    fn drain(self: Arc<Self>, most: usize) -> bool {
        if self.recovery.is_some() {
            return self.linger(most);
        }
        let (mut room, mut dropped) = ([0; 16 * 1024], 0);
        while dropped < most {
            match rustix::net::recv(&self.channel, &mut room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((got, _)) => dropped += got,
                Err(Errno::INTR) => {}
                Err(error) => return error == Errno::AGAIN,
            }
        }
        true
    }

    fn hang_up(&self) {
        self.channel.hang_up();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.core.close();
        if self.0.recovery.is_some() {
            self.0.finish();
            maintenance::linger(self.0.clone());
            return;
        }
        // What was written is still sent, then FIN. Control messages of the peer must be read
        // meanwhile: otherwise the system would send RST and drop what
        // has not been sent.
        if self.0.channel.shutdown(Shutdown::Write).is_ok() {
            maintenance::linger(self.0.clone());
        }
    }
}

impl AsFd for QosStream {
    /// Readable also for control messages.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner().channel.as_fd()
    }
}
