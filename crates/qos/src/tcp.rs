//! Messages on a byte stream: each with its header, control messages between those of the
//! application.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use ontempo_udp::Deadline;

use super::channel::{Channel, Waiting};
use super::core::{Control, Core};
use super::wire::{Counted, Header, Kind, MAX_CONTROL_LEN, TCP_HEADER, WireError};

/// Read-ahead in bytes: small messages need few system calls, large ones are read directly into
/// their buffer.
const AHEAD: usize = 64 * 1024;

/// Read-ahead after a message longer than this: read-ahead is copied once more.
const AHEAD_OF_LONG: usize = 2 * 1024;
const LONG: usize = 16 * 1024;

/// Messages up to this length are copied behind their header and written in one piece: that
/// costs less than a second buffer in the system call.
const COPIED: usize = 4 * 1024;

/// An invalid length or kind from the peer.
pub(super) fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

pub(super) fn too_long(length: usize, most: usize, what: &str) -> io::Error {
    let text = format!("a message of {length} bytes is longer than {what}: {most}");
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// The writer's state.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The rest of a partially written message.
    rest: Vec<u8>,
    /// A header and a short message.
    piece: Vec<u8>,
    /// So many messages of the peer have been acknowledged to it.
    pub(super) acknowledged: u64,
    /// The peer of a connection that can be made anew has been told, on this channel, that each end has all of the
    /// other's: nothing follows.
    pub(super) has_left: bool,
}

impl Writer {
    /// Writes the rest of the last message, then a message of the application.
    ///
    /// # Errors
    /// The system's error, if nothing was written: it can be repeated.
    #[inline]
    pub(super) fn send(
        &mut self,
        stream: &impl Channel,
        core: &Core,
        data: &[u8],
    ) -> io::Result<()> {
        if !self.rest.is_empty() {
            self.send_rest(stream, Waiting::AsSet)?;
        }
        let header = core.header(core.counter.next(), data.len()).to_tcp();
        let is_short = data.len() <= COPIED;
        if is_short {
            self.piece.clear();
            self.piece.extend_from_slice(&header);
            self.piece.extend_from_slice(data);
        }
        let written = loop {
            let taken = if is_short {
                stream.send(&self.piece, Waiting::AsSet)
            } else {
                stream.send_vectored(&[IoSlice::new(&header), IoSlice::new(data)])
            };
            match taken {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => break written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        // Under the writer's lock.
        core.counter.count_alone(data.len());
        if written < header.len() + data.len() {
            self.finish(stream, &header, data, written)?;
        }
        Ok(())
    }

    /// Continues a partially written message.
    fn finish(
        &mut self,
        stream: &impl Channel,
        header: &[u8],
        data: &[u8],
        mut written: usize,
    ) -> io::Result<()> {
        while written < header.len() + data.len() {
            let (head, body) =
                (&header[written.min(header.len())..], written - written.min(header.len()));
            let body = &data[body..];
            match stream.send_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // It is partly written; the rest goes before the next message.
                    self.rest.extend(head);
                    self.rest.extend(body);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the rest of the last message.
    fn send_rest(&mut self, stream: &impl Channel, waiting: Waiting) -> io::Result<()> {
        while !self.rest.is_empty() {
            match stream.send(&self.rest, waiting) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => drop(self.rest.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the rest of the last message, then one with its header.
    ///
    /// # Errors
    /// The system's error; [`WouldBlock`](ErrorKind::WouldBlock) only if nothing of it was written: it
    /// can be repeated.
    pub(super) fn send_whole(&mut self, stream: &impl Channel, whole: &[u8]) -> io::Result<()> {
        self.send_rest(stream, Waiting::AsSet)?;
        let written = loop {
            match stream.send(whole, Waiting::AsSet) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => break written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if written < whole.len() { self.finish(stream, &[], whole, written) } else { Ok(()) }
    }

    /// Writes the rest of the last message and as much of `more` as is taken now; the rest waits.
    ///
    /// # Errors
    /// The system's error; [`WouldBlock`](ErrorKind::WouldBlock) if a rest waits.
    pub(super) fn push(&mut self, stream: &impl Channel, more: &[u8]) -> io::Result<()> {
        self.rest.extend_from_slice(more);
        self.send_rest(stream, Waiting::Never)
    }

    /// A new channel is in place, over which the peer has learned what was received.
    pub(super) fn restart(&mut self, received: u64) {
        self.rest.clear();
        self.acknowledged = received;
        self.has_left = false;
    }

    /// Writes a control message, unless one is waiting: they are repeated
    /// twice a second. False if one is waiting.
    pub(super) fn send_control(
        &mut self,
        stream: &impl Channel,
        core: &Core,
        control: &Control,
    ) -> bool {
        if self.send_rest(stream, Waiting::Never).is_err() {
            return false;
        }
        let Control { kind, body } = control;
        let sent = core.clock.now().as_nanos();
        let header = Header { kind: *kind, length: body.len(), sequence: 0, sent };
        self.rest.extend(header.to_tcp());
        self.rest.extend(body);
        // What does not fit goes before the next message; an error shows there, too.
        let _ = self.send_rest(stream, Waiting::Never);
        true
    }
}

/// The reader's state.
#[derive(Debug)]
pub(super) struct Reader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The application's message being read, and its remaining length.
    open: Option<(Header, usize)>,
    /// The part of it that was read before the timeout.
    stash: Vec<u8>,
    /// Whether the open message was too long for the application's buffer: its rest is dropped.
    is_dropped: bool,
    /// Size of the read-ahead, by the last message's length.
    ahead: usize,
    /// When the application's call ends.
    deadline: Option<Deadline>,
    /// Whether the call has read from the channel.
    has_read: bool,
    /// Bytes that a call which does not block may still read from the channel.
    allowance: usize,
    /// The reading of this channel was shut down, so that waiting for it returns at once.
    pub(super) is_shut: bool,
    /// Of a connection that can be made anew.
    pub(super) counts: Option<Counts>,
}

/// Where a reader stands in the messages of its peer, over all channels of a connection.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Messages that were taken whole.
    pub(super) taken: u64,
    /// Payload taken since the last acknowledgement.
    pub(super) unacknowledged: usize,
    /// Bytes that the application has got of the message that it reads.
    given: usize,
    /// The peer has said that no more follow.
    pub(super) has_ended: bool,
    /// It has said that each end has all of the other's: nothing follows at all.
    pub(super) has_left: bool,
    /// The channel is broken, and the number of messages taken has been sent to the peer: nothing more is read of it.
    pub(super) is_frozen: bool,
}

impl Counts {
    /// What is acknowledged: the messages, and their end as one more.
    pub(super) fn received(&self) -> u64 {
        self.taken + u64::from(self.has_ended)
    }
}

impl Reader {
    pub(super) fn new() -> Self {
        let buffer = vec![0; AHEAD].into_boxed_slice();
        Self {
            buffer,
            start: 0,
            end: 0,
            open: None,
            stash: Vec::new(),
            is_dropped: false,
            ahead: AHEAD,
            deadline: None,
            has_read: false,
            allowance: 0,
            is_shut: false,
            counts: None,
        }
    }

    /// A call of the application begins, which ends at the deadline, whatever arrives meanwhile.
    #[inline]
    pub(super) fn begin(&mut self, deadline: Option<Deadline>) {
        (self.deadline, self.has_read) = (deadline, false);
    }

    /// A call begins that does not block and reads about `most` bytes, whatever a peer sends meanwhile:
    /// then it is as if no more had come.
    pub(super) fn allow(&mut self, most: usize) {
        self.allowance = most;
    }

    /// How the application's call waits: first for the channel's timeout, which costs no system
    /// call, then for what is left of it.
    #[inline]
    fn waiting(&mut self) -> Waiting {
        let has_read = std::mem::replace(&mut self.has_read, true);
        let deadline = self.deadline.filter(|_| has_read);
        deadline.map_or(Waiting::AsSet, |deadline| Waiting::Until(deadline.instant()))
    }

    fn ahead(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads ahead; returns the number of bytes, 0 at the end of the stream.
    fn fill(&mut self, stream: &impl Channel, waiting: Waiting) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < TCP_HEADER + MAX_CONTROL_LEN {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if waiting == Waiting::Never && self.allowance == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = self.buffer.len().min(self.end + self.ahead);
        let waiting = if waiting == Waiting::AsSet { self.waiting() } else { waiting };
        let room = &mut self.buffer[self.end..most];
        let got = loop {
            match stream.receive(room, waiting) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => break got?,
            }
        };
        if got == 0 && self.counts.is_some() && stream.is_read_shut() {
            // More may come, which is then read.
            self.is_shut = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        self.end += got;
        self.allowance = self.allowance.saturating_sub(got);
        Ok(got)
    }

    /// Advances to the application's next message: `false` at the end of the stream. Control
    /// messages are passed on.
    #[inline]
    pub(super) fn open(
        &mut self,
        stream: &impl Channel,
        core: &Core,
        waiting: Waiting,
        mut control: impl FnMut(&Header, &[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        // Nor what has come of a message: the peer has been told that it is to be sent again.
        if self.open.is_some() && self.counts.as_ref().is_some_and(|counts| counts.is_frozen) {
            return Err(ErrorKind::NotConnected.into());
        }
        while self.open.is_none() {
            if let Some(counts) = &self.counts {
                // Others than the application go on: the peer still acknowledges.
                if counts.has_left || counts.has_ended && waiting == Waiting::AsSet {
                    return Ok(false);
                }
                if counts.is_frozen {
                    return Err(ErrorKind::NotConnected.into());
                }
            }
            let Some(header) = self.ahead().first_chunk() else {
                let is_whole = self.start == self.end;
                match self.fill(stream, waiting)? {
                    0 if is_whole && self.may_end() => return Ok(false),
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    _ => continue,
                }
            };
            let header = Header::of_tcp(header, core.max_receive_size).map_err(damaged)?;
            if header.kind == Kind::Data {
                if !self.is_next(&header) {
                    return Err(damaged(WireError::Malformed));
                }
                self.start += TCP_HEADER;
                self.ahead = if header.length > LONG { AHEAD_OF_LONG } else { AHEAD };
                self.open = Some((header, header.length));
                break;
            }
            let whole = TCP_HEADER + header.length;
            if self.ahead().len() < whole {
                match self.fill(stream, waiting)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    _ => continue,
                }
            }
            let start = self.start;
            self.start += whole;
            let body = &self.buffer[start + TCP_HEADER..start + whole];
            if header.kind == Kind::End
                && let Some(counts) = &mut self.counts
            {
                let Counted { messages } = Counted::read(body).map_err(damaged)?;
                if messages != counts.taken {
                    return Err(damaged(WireError::Malformed));
                }
                counts.has_ended = true;
            }
            control(&header, body)?;
            if header.kind == Kind::Bye
                && let Some(counts) = &mut self.counts
            {
                counts.has_left = true;
            }
        }
        Ok(true)
    }

    /// Whether the stream may end here: where a connection can be made anew, only after the peer said so.
    fn may_end(&self) -> bool {
        self.counts.as_ref().is_none_or(|counts| counts.has_ended)
    }

    /// Whether a message is the one that follows, where a connection can be made anew.
    fn is_next(&self, header: &Header) -> bool {
        self.counts.as_ref().is_none_or(|counts| {
            let is_next = header.sequence == counts.taken as u32;
            is_next && !counts.has_ended && header.length >= counts.given
        })
    }

    /// The open message was taken whole.
    fn on_taken(&mut self, length: usize) {
        if let Some(counts) = &mut self.counts {
            counts.taken += 1;
            counts.unacknowledged += length + TCP_HEADER;
            counts.given = 0;
        }
    }

    /// A new channel is in place: the message that was read comes again.
    pub(super) fn restart(&mut self) {
        (self.start, self.end, self.open, self.is_shut) = (0, 0, None, false);
        self.stash.clear();
        if let Some(counts) = &mut self.counts {
            counts.is_frozen = false;
            counts.unacknowledged = 0;
        }
    }

    /// Drops what the application has got of the open message before the channel broke.
    fn pass_given(&mut self, stream: &impl Channel) -> io::Result<()> {
        let Some(given) = self.counts.as_ref().map(|counts| counts.given) else { return Ok(()) };
        while let Some((header, left)) = self.open
            && given + left > header.length
            && self.stash.is_empty()
        {
            if self.start == self.end && self.fill(stream, Waiting::AsSet)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let passed = self.ahead().len().min(given + left - header.length);
            self.start += passed;
            self.open = Some((header, left - passed));
        }
        Ok(())
    }

    /// Reads the open message completely.
    ///
    /// # Errors
    /// If it is longer than the buffer (it is skipped), or the system's error: the part read so far
    /// is kept.
    #[inline]
    pub(super) fn message(
        &mut self,
        stream: &impl Channel,
        buffer: &mut [u8],
    ) -> io::Result<(Header, usize)> {
        self.pass_given(stream)?;
        let Some((header, left)) = self.open else { return Err(ErrorKind::InvalidInput.into()) };
        let length = self.stash.len() + left;
        if self.is_dropped || length > buffer.len() {
            self.pass_over(stream, Waiting::AsSet)?;
            return Err(too_long(header.length, buffer.len(), "the buffer"));
        }
        let mut filled = self.stash.len();
        buffer[..filled].copy_from_slice(&self.stash);
        self.stash.clear();
        while filled < length {
            match self.some(stream, &mut buffer[filled..length]) {
                Ok(more) => filled += more,
                Err(error) => {
                    self.stash.extend_from_slice(&buffer[..filled]);
                    self.open = Some((header, length - filled));
                    return Err(error);
                }
            }
        }
        self.open = None;
        self.on_taken(header.length);
        Ok((header, length))
    }

    /// Some bytes of the open message, at least one: from the read-ahead, or from the stream
    /// directly and with read-ahead.
    #[inline]
    fn some(&mut self, stream: &impl Channel, room: &mut [u8]) -> io::Result<usize> {
        let ahead = self.ahead();
        if !ahead.is_empty() {
            let taken = ahead.len().min(room.len());
            room[..taken].copy_from_slice(&ahead[..taken]);
            self.start += taken;
            return Ok(taken);
        }
        let (wanted, waiting) = (room.len(), self.waiting());
        let ahead = &mut self.buffer[..self.ahead];
        let mut places = [IoSliceMut::new(room), IoSliceMut::new(ahead)];
        let got = loop {
            match stream.receive_vectored(&mut places, waiting) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => break got?,
            }
        };
        (self.start, self.end) = (0, got.saturating_sub(wanted));
        Ok(got.min(wanted))
    }

    /// Drops the rest of the open message.
    pub(super) fn pass_over(&mut self, stream: &impl Channel, waiting: Waiting) -> io::Result<()> {
        self.stash.clear();
        self.is_dropped = true;
        while let Some((header, left)) = self.open {
            if left == 0 {
                (self.open, self.is_dropped) = (None, false);
                self.on_taken(header.length);
                break;
            }
            if self.start == self.end && self.fill(stream, waiting)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let passed = self.ahead().len().min(left);
            self.start += passed;
            self.open = Some((header, left - passed));
        }
        Ok(())
    }

    /// Some bytes of the open message, as of a stream; and its header once it is complete.
    pub(super) fn bytes(
        &mut self,
        stream: &impl Channel,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Option<Header>)> {
        self.pass_given(stream)?;
        let Some((header, left)) = self.open else { return Ok((0, None)) };
        let mut got = self.stash.len().min(buffer.len());
        buffer[..got].copy_from_slice(&self.stash[..got]);
        self.stash.drain(..got);
        let mut left = left;
        if got == 0 && left > 0 {
            let wanted = buffer.len().min(left);
            got = self.some(stream, &mut buffer[..wanted])?;
            left -= got;
        }
        let is_whole = left == 0 && self.stash.is_empty();
        self.open = (!is_whole).then_some((header, left));
        if is_whole {
            self.on_taken(header.length);
        } else if let Some(counts) = &mut self.counts {
            counts.given += got;
        }
        Ok((got, is_whole.then_some(header)))
    }

    /// Whether a message of the application has begun.
    pub(super) fn has_opened(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
impl Writer {
    /// Bytes that wait to be written.
    pub(super) fn unsent(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
impl Reader {
    /// Bytes of a message that were read before a timeout.
    pub(super) fn stashed(&self) -> usize {
        self.stash.len()
    }
}
