//! A connection over a byte stream, whatever carries it.

use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration as Wall, Instant};

use super::Message;
use super::channel::{Channel, Waiting};
use super::core::{Control, Core, lock, try_lock};
use super::tcp::{Reader, Writer, damaged, too_long};
use super::wire::Header;
use ontempo_transport::quic::span;

#[derive(Debug)]
pub(super) struct Connection<C> {
    pub(super) core: Core,
    pub(super) channel: C,
    pub(super) writer: Mutex<Writer>,
    pub(super) reader: Mutex<Reader>,
    /// Timeout of receiving, ns; 0: none.
    read_timeout: AtomicU64,
}

impl<C: Channel> Connection<C> {
    /// A connection after its handshake.
    pub(super) fn new(core: Core, channel: C) -> Self {
        let (writer, reader) = (Mutex::new(Writer::default()), Mutex::new(Reader::new()));
        Self { core, channel, writer, reader, read_timeout: AtomicU64::new(0) }
    }

    /// Timeout of a whole call that receives; the channel must have it, too.
    pub(super) fn set_read_timeout(&self, timeout: Option<Wall>) {
        self.read_timeout.store(timeout.map_or(0, |timeout| span(timeout).as_nanos()), Relaxed);
    }

    /// When a call that begins now ends.
    #[inline]
    fn until(&self) -> Option<Instant> {
        let timeout = self.read_timeout.load(Relaxed);
        (timeout > 0).then(|| Instant::now() + Wall::from_nanos(timeout))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If it exceeds the agreed size, or the system's error.
    #[inline]
    pub(super) fn send_message(&self, data: &[u8]) -> io::Result<()> {
        if data.len() > self.core.max_send_size {
            return Err(too_long(data.len(), self.core.max_send_size, "what was agreed"));
        }
        let sent = lock(&self.writer).send(&self.channel, &self.core, data);
        self.core.unless_failed(sent.is_err(), sent)
    }

    /// The next message; `None` if the peer has finished sending.
    ///
    /// # Errors
    /// If it is longer than the buffer (it is lost), the peer violates the protocol, or the
    /// system's error.
    #[inline]
    pub(super) fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        let until = self.until();
        let mut reader = lock(&self.reader);
        reader.begin(until);
        loop {
            if !self.opened(&mut reader)? {
                return self.core.unless_failed(true, Ok(None));
            }
            let (header, length) = reader.message(&self.channel, buffer)?;
            // A stream delivers no duplicates and in order, unless the peer violates the protocol.
            if let Some(arrival) = self.core.on_data(&header, length) {
                let (sequence, delay) = (arrival.sequence, arrival.timing.delay);
                return Ok(Some(Message { length, sequence, delay }));
            }
        }
    }

    /// Bytes of messages, as of a stream; 0 at its end.
    ///
    /// # Errors
    /// If the peer violates the protocol, or the system's error.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = self.until();
        let mut reader = lock(&self.reader);
        reader.begin(until);
        while !buffer.is_empty() && self.opened(&mut reader)? {
            let (got, whole) = reader.bytes(&self.channel, buffer)?;
            if let Some(header) = whole {
                // The application gets the bytes, whatever is counted.
                let _ = self.core.on_data(&header, header.length);
            }
            if got > 0 {
                return Ok(got);
            }
        }
        self.core.unless_failed(!buffer.is_empty(), Ok(0))
    }

    /// Handles the peer's control messages while the application does not read; true if more may
    /// come.
    pub(super) fn hear(&self) -> bool {
        let Some(mut reader) = try_lock(&self.reader) else { return false };
        if reader.has_opened() {
            return false;
        }
        let opened = self.open(&mut reader, Waiting::Never);
        opened.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends a control message, or skips it.
    pub(super) fn send_control(&self, control: &Control) {
        // Another thread writes a message, or waits to: the report is skipped.
        let Some(mut writer) = try_lock(&self.writer) else { return };
        writer.send_control(&self.channel, &self.core, control);
    }

    /// Waits for the application's next message; false at the end.
    #[inline]
    fn opened(&self, reader: &mut Reader) -> io::Result<bool> {
        let opened = self.open(reader, Waiting::AsSet);
        // What the system says of a connection that this end has ended is not why.
        self.core.unless_failed(opened.is_err(), opened)
    }

    /// Advances to the application's next message; a protocol violation ends the connection.
    #[inline]
    fn open(&self, reader: &mut Reader, waiting: Waiting) -> io::Result<bool> {
        let opened = reader
            .open(&self.channel, &self.core, waiting, |header, body| self.on_control(header, body));
        if let Err(error) = &opened
            && error.kind() == ErrorKind::InvalidData
        {
            self.channel.hang_up();
        }
        opened
    }

    fn on_control(&self, header: &Header, body: &[u8]) -> io::Result<()> {
        if let Some(answer) = self.core.on_control(header, body).map_err(damaged)? {
            self.send_control(&answer);
        }
        Ok(())
    }
}
