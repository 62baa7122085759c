//! The UDP transport.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_mechanisms::qos::Specification;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use super::channel::wait_readable;
use super::core::{Control, Core, deadline, lock, try_lock};
use super::maintenance::{self, Maintained};
use super::setup::{self, Established, SetupError};
use super::socket_listener::QosSocketListener;
use super::tcp::too_long;
use super::wire::{
    Header, Kind, MAX_CONTROL_LEN, MAX_SETUP, Offer, Setup, UDP_HEADER, UDP_PADDING, UDP_SHORT,
    WireError,
};
use super::{Delivery, Direction, Events, Message, QosOptions, facade};
use ontempo_monitor::Carrier;
use ontempo_transport::quic::span;
use ontempo_udp::random;
use ontempo_udp::{Deadline, Dscp, any_for};

/// Timeout of the first attempt; it doubles with each further one.
const FIRST_WAIT: Wall = Wall::from_millis(200);

/// A QoS socket over UDP.
///
/// A clone is the same connection. It ends when the last clone is dropped; the peer is notified.
#[derive(Clone, Debug)]
pub struct QosSocket(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    core: Core,
    socket: UdpSocket,
    /// The answer of this end, to be repeated if it was lost.
    offer: Offer,
    reader: Mutex<Reader>,
    /// Timeout of receiving, ns; 0: none.
    read_timeout: AtomicU64,
}

#[derive(Debug)]
struct Reader {
    /// A message read while the application did not read.
    waiting: Option<(Header, Vec<u8>)>,
    /// Buffer for any datagram of this connection, and one byte more.
    room: Box<[u8]>,
    /// Whether the last message was long: the next is read directly into the application's buffer.
    is_long: bool,
}

impl Reader {
    fn new(most: usize) -> Self {
        let longest = LONG_HEADER + most.max(MAX_CONTROL_LEN).max(MAX_SETUP) + 1;
        Self { waiting: None, room: vec![0; longest].into_boxed_slice(), is_long: false }
    }
}

/// Result of reading a datagram.
enum Got {
    Data(Header),
    TooLong(usize),
    Nothing,
}

impl QosSocket {
    /// Connects to and negotiates with the peer.
    ///
    /// # Errors
    /// As [`QosStream::connect`](super::QosStream::connect).
    pub fn connect(to: impl ToSocketAddrs, options: &QosOptions) -> Result<Self, SetupError> {
        options.check(Carrier::Udp)?;
        facade::first(to, |address| Self::connect_one(address, options))
    }

    fn connect_one(address: SocketAddr, options: &QosOptions) -> Result<Self, SetupError> {
        let socket = UdpSocket::bind(any_for(address))?;
        socket.connect(address)?;
        let established = ask(&socket, options)?;
        let connected = Self::establish(socket, options, &established)?;
        facade::must_reserve(&**connected.inner(), options)?;
        Ok(connected)
    }

    /// Listens at an address, with the specifications for every flow. At the unspecified address of
    /// a host with several, answers are sent from the address that the system chooses, which must
    /// be the one that the client used.
    ///
    /// # Errors
    /// If the specifications contradict themselves, or the system's error.
    pub fn bind(
        at: impl ToSocketAddrs,
        options: QosOptions,
    ) -> Result<QosSocketListener, SetupError> {
        QosSocketListener::bind(at, options)
    }

    pub(super) fn establish(
        socket: UdpSocket,
        options: &QosOptions,
        established: &Established,
    ) -> Result<Self, SetupError> {
        socket.set_read_timeout(None)?;
        let addresses = (socket.local_addr()?, socket.peer_addr()?);
        let core = facade::core(Carrier::Udp, addresses, options, established);
        facade::mark((&socket).into(), addresses.0.is_ipv4(), core.dscp())?;
        let reader = Mutex::new(Reader::new(core.max_receive_size));
        let inner = Arc::new(Inner {
            core,
            socket,
            offer: options.offer(),
            reader,
            read_timeout: AtomicU64::new(0),
        });
        maintenance::register(&inner);
        Ok(Self(Arc::new(Handle(inner))))
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }

    fn core(&self) -> &Core {
        &self.inner().core
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If it exceeds the agreed size, or the system's error.
    #[inline]
    pub fn send_message(&self, data: &[u8]) -> io::Result<()> {
        let inner = self.inner();
        let core = &inner.core;
        if data.len() > core.max_send_size {
            return Err(too_long(data.len(), core.max_send_size, "what was agreed"));
        }
        if core.is_closed() {
            return core.unless_failed(true, Err(ErrorKind::BrokenPipe.into()));
        }
        let header = core.header(core.counter.count(data.len()), data.len());
        inner.send(&header, data, SendFlags::empty())
    }

    /// Waits for a message; `None` if the peer has closed. A buffer of
    /// [`max_receive_size`](Self::max_receive_size) bytes always suffices. Duplicates are dropped, and if
    /// order is agreed, messages that arrive after a later one too.
    ///
    /// # Errors
    /// If the message is longer than the buffer (it is lost), or the system's error.
    #[inline]
    pub fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        let inner = self.inner();
        let core = &inner.core;
        let timeout = inner.read_timeout.load(Relaxed);
        let deadline = (timeout > 0).then(|| Deadline::after(Duration::from_nanos(timeout)));
        let mut reader = lock(&inner.reader);
        loop {
            let got = match reader.waiting.take() {
                None => inner.receive(&mut reader, buffer, RecvFlags::empty()),
                Some((header, data)) => Ok(match buffer.get_mut(..data.len()) {
                    Some(room) => {
                        room.copy_from_slice(&data);
                        Got::Data(header)
                    }
                    None => Got::TooLong(data.len()),
                }),
            };
            match got {
                Ok(Got::Data(header)) => {
                    if let Some(arrival) = core.on_data(&header, header.length) {
                        let (sequence, delay) = (arrival.sequence, arrival.timing.delay);
                        return Ok(Some(Message { length: header.length, sequence, delay }));
                    }
                }
                Ok(Got::TooLong(length)) => {
                    return Err(too_long(length, buffer.len(), "the buffer"));
                }
                Ok(Got::Nothing) => {}
                Err(_) if core.is_closed() => return core.unless_failed(true, Ok(None)),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            if core.is_closed() {
                return core.unless_failed(true, Ok(None));
            }
            // The first wait had the socket's own timeout.
            if let Some(deadline) = deadline {
                wait_readable(&inner.socket, deadline.instant())?;
            }
        }
    }

    /// Timeout of receiving; `None`: none. It is that of the whole call, whatever arrives meanwhile.
    ///
    /// # Errors
    /// Zero, or the system's error.
    pub fn set_read_timeout(&self, timeout: Option<Wall>) -> io::Result<()> {
        self.inner().socket.set_read_timeout(timeout)?;
        let nanos = timeout.map_or(0, |timeout| span(timeout).as_nanos());
        self.inner().read_timeout.store(nanos, Relaxed);
        Ok(())
    }
}

facade::methods!(QosSocket);

/// An ICMP error of an earlier datagram: the next may arrive.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    )
}

/// The handshake of the connecting end.
fn ask(socket: &UdpSocket, options: &QosOptions) -> Result<Established, SetupError> {
    let (clock, session, offer) = (maintenance::clock(), random(), options.offer());
    let (mut cookie, mut wait) = ([0; 16], FIRST_WAIT);
    let until = deadline(options.setup_timeout);
    let mut refusal = None;
    let mut room = [0; MAX_SETUP + 1];
    while Instant::now() < until {
        let hello = setup::hello(&offer, session, cookie, clock.now());
        // The peer may not listen yet; the next attempt will show.
        refusal = socket.send(&hello.to_bytes()).err().or(refusal);
        let again = (Instant::now() + wait).min(until);
        wait *= 2;
        loop {
            let left = again.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            let got = match socket.recv(&mut room) {
                Ok(got) => got,
                Err(error) if is_passing(&error) => {
                    refusal = Some(error);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            match Setup::read(&room[..got]) {
                Ok(Setup::Challenge { session: of, cookie: fresh }) if of == session => {
                    // The round trip for the cookie is not waited for again.
                    if cookie != fresh {
                        (cookie, wait) = (fresh, FIRST_WAIT);
                        break;
                    }
                }
                Ok(answer) => {
                    let concluded =
                        setup::conclude(&offer, (session, cookie), &answer, clock.now());
                    if let Some(concluded) = concluded {
                        return concluded;
                    }
                }
                Err(error @ WireError::Version(_)) => return Err(error.into()),
                Err(_) => {}
            }
        }
    }
    Err(refusal.map_or(SetupError::Silent, SetupError::Io))
}

/// Header and padding of a long message.
const LONG_HEADER: usize = UDP_HEADER + UDP_PADDING;

/// What follows the header of a datagram, without the padding; `None` if that is no padding.
#[inline]
fn without_padding(body: &[u8]) -> Option<&[u8]> {
    if body.len() <= UDP_SHORT {
        return Some(body);
    }
    body.strip_prefix(&[0; UDP_PADDING])
}

/// Sends a datagram by `send`.
#[inline]
fn sent(mut send: impl FnMut() -> Result<usize, Errno>) -> io::Result<()> {
    let mut tried = false;
    loop {
        match send() {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            // The error is about an earlier datagram; this one was not sent.
            Err(Errno::CONNREFUSED) if !tried => tried = true,
            Err(Errno::CONNREFUSED) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Inner {
    #[inline]
    fn send(&self, header: &Header, data: &[u8], flags: SendFlags) -> io::Result<()> {
        let flags = flags | SendFlags::NOSIGNAL;
        let header = header.to_udp(self.core.session);
        if data.len() > UDP_SHORT {
            let mut long = [0; LONG_HEADER];
            long[..UDP_HEADER].copy_from_slice(&header);
            let pieces = [IoSlice::new(&long), IoSlice::new(data)];
            return sent(|| {
                let mut none = SendAncillaryBuffer::default();
                rustix::net::sendmsg(&self.socket, &pieces, &mut none, flags)
            });
        }
        match data.len() {
            ..=104 => self.send_piece::<128>(&header, data, flags),
            105..=1_512 => self.send_piece::<1_536>(&header, data, flags),
            _ => self.send_piece::<{ UDP_HEADER + UDP_SHORT }>(&header, data, flags),
        }
    }

    /// Sends a header and a short message in one piece, made on the stack: neither a buffer of the socket,
    /// which other threads may want, nor one of the thread costs as little.
    #[inline]
    fn send_piece<const ROOM: usize>(
        &self,
        header: &[u8; UDP_HEADER],
        data: &[u8],
        flags: SendFlags,
    ) -> io::Result<()> {
        let mut piece = [0; ROOM];
        let whole = &mut piece[..UDP_HEADER + data.len()];
        let (head, body) = whole.split_at_mut(UDP_HEADER);
        head.copy_from_slice(header);
        body.copy_from_slice(data);
        sent(|| rustix::net::send(&self.socket, &*whole, flags))
    }

    /// Reads a datagram. Short ones are copied: that costs less than a scattered
    /// read.
    #[inline]
    fn receive(&self, reader: &mut Reader, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Got> {
        if reader.is_long {
            return self.receive_long(reader, buffer, flags);
        }
        let (got, _) = rustix::net::recv(&self.socket, &mut *reader.room, flags)?;
        let (head, body) = reader.room[..got].split_at(got.min(UDP_HEADER));
        let Some(body) = without_padding(body) else { return Ok(Got::Nothing) };
        let header = Header::of_udp(head, body.len(), self.core.session);
        let Ok(header @ Header { kind: Kind::Data, .. }) = header else {
            self.on_other(header, head, body);
            return Ok(Got::Nothing);
        };
        if header.length > self.core.max_receive_size {
            return Ok(Got::Nothing);
        }
        reader.is_long = header.length > UDP_SHORT;
        let Some(place) = buffer.get_mut(..header.length) else {
            return Ok(Got::TooLong(header.length));
        };
        place.copy_from_slice(body);
        Ok(Got::Data(header))
    }

    /// The same for long ones, which are read directly into the application's buffer.
    fn receive_long(
        &self,
        reader: &mut Reader,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> io::Result<Got> {
        let (mut head, most) = ([0; LONG_HEADER], buffer.len());
        let mut places = [
            IoSliceMut::new(&mut head),
            IoSliceMut::new(buffer),
            IoSliceMut::new(&mut reader.room),
        ];
        let mut none = RecvAncillaryBuffer::default();
        let got = rustix::net::recvmsg(&self.socket, &mut places, &mut none, flags)?.bytes;
        if got <= UDP_HEADER + UDP_SHORT {
            // A short one after long ones.
            reader.is_long = false;
            let second = got.saturating_sub(LONG_HEADER);
            let (second, third) = (second.min(most), second.saturating_sub(most));
            let head = &head[..got.min(LONG_HEADER)];
            let all = [head, &buffer[..second], &reader.room[..third]].concat();
            return Ok(self.on_short(&all, buffer));
        }
        let (length, is_padded) = (got - LONG_HEADER, head[UDP_HEADER..] == [0; UDP_PADDING]);
        let header = Header::of_udp(&head[..UDP_HEADER], length, self.core.session);
        Ok(match header {
            Ok(header @ Header { kind: Kind::Data, .. }) if is_padded => match length {
                _ if length > self.core.max_receive_size => Got::Nothing,
                _ if length > most => Got::TooLong(length),
                _ => Got::Data(header),
            },
            // No other kind is as long.
            _ => Got::Nothing,
        })
    }

    /// Takes a datagram that was read as if it were long.
    #[cold]
    fn on_short(&self, datagram: &[u8], buffer: &mut [u8]) -> Got {
        let (head, body) = datagram.split_at(datagram.len().min(UDP_HEADER));
        let header = Header::of_udp(head, body.len(), self.core.session);
        let Ok(header @ Header { kind: Kind::Data, .. }) = header else {
            self.on_other(header, head, body);
            return Got::Nothing;
        };
        match buffer.get_mut(..body.len()) {
            _ if body.len() > self.core.max_receive_size => Got::Nothing,
            None => Got::TooLong(body.len()),
            Some(place) => {
                place.copy_from_slice(body);
                Got::Data(header)
            }
        }
    }

    /// Handles anything but the application's messages; other senders are ignored.
    #[cold]
    fn on_other(&self, header: Result<Header, WireError>, head: &[u8], body: &[u8]) {
        match header {
            Ok(header) => {
                if let Ok(Some(answer)) = self.core.on_control(&header, body) {
                    self.send_control(&answer);
                }
            }
            Err(_) if Setup::begins(head) => {
                // The peer has not received our answer.
                if let Ok(Setup::Hello { session, sent, offer, .. }) =
                    Setup::read(&[head, body].concat())
                    && session == self.core.session
                {
                    let now = self.core.clock.now();
                    let (answer, _) =
                        setup::answer(&self.offer, (session, [0; 16]), sent, offer, now);
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    let _ = rustix::net::send(&self.socket, &answer.to_bytes(), flags);
                }
            }
            Err(_) => {}
        }
    }
}

impl Maintained for Inner {
    fn core(&self) -> &Core {
        &self.core
    }

    fn mark(&self, dscp: Dscp) -> io::Result<()> {
        facade::mark((&self.socket).into(), self.core.remote().is_ipv4(), dscp)
    }

    fn send_control(&self, control: &Control) {
        let sent = self.core.clock.now().as_nanos();
        let Control { kind, body } = control;
        let header = Header { kind: *kind, length: body.len(), sequence: 0, sent };
        // If the send buffer is full, the next report has it.
        let _ = self.send(&header, body, SendFlags::DONTWAIT);
    }

    fn listen(&self) -> Option<BorrowedFd<'_>> {
        let mut reader = try_lock(&self.reader)?;
        let mut room = Vec::new();
        // At most as much as an application that reads would get in that time.
        for _ in 0..64 {
            if reader.waiting.is_some() {
                return None;
            }
            room.resize(self.core.max_receive_size, 0);
            match self.receive(&mut reader, &mut room, RecvFlags::DONTWAIT) {
                Ok(Got::Data(header)) => {
                    room.truncate(header.length);
                    reader.waiting = Some((header, std::mem::take(&mut room)));
                }
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    return (error.kind() == ErrorKind::WouldBlock).then(|| self.socket.as_fd());
                }
            }
        }
        None
    }

    fn hang_up(&self) {
        // Wakes only a thread that waits for messages.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.core.close();
        self.0.send_control(&Control { kind: Kind::Bye, body: Vec::new() });
    }
}

impl AsFd for QosSocket {
    /// Readable also for control messages.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner().socket.as_fd()
    }
}
