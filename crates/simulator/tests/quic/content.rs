//! The test content, and the applications that send and check it.

use noq_proto::{Connection, Dir, Event, ReadError, StreamEvent, StreamId, WriteError};
use ontempo_foundation::Bytes;

use crate::checksum::Checksum;

/// Content that differs at every offset, so that misplaced bytes are found.
#[derive(Clone, Copy, Debug)]
struct Content {
    seed: u64,
}

impl Content {
    /// Writes the content from `offset` into `out`.
    fn fill(self, offset: u64, out: &mut [u8]) {
        let mut place = offset / 8;
        let mut skip = (offset % 8) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let mut word = Checksum::new(self.seed);
            word.word(place);
            let word = word.finish().to_le_bytes();
            let length = rest.len().min(8 - skip);
            let (part, after) = rest.split_at_mut(length);
            part.copy_from_slice(&word[skip..skip + length]);
            (place, skip, rest) = (place + 1, 0, after);
        }
    }
}

/// Bytes written to the stack at a time.
const CHUNK: usize = 16 * 1024;

/// Sends a number of bytes of content on one stream, as fast as the stack accepts them.
pub(crate) struct Sender {
    content: Content,
    total: u64,
    written: u64,
    stream: Option<StreamId>,
    /// Offset of the next content to write.
    chunk: Vec<u8>,
    /// Whether the stack may accept more: since the start, or since its last event.
    writable: bool,
}

impl Sender {
    pub(crate) fn new(seed: u64, total: Bytes) -> Self {
        Self {
            content: Content { seed },
            total: total.get(),
            written: 0,
            stream: None,
            chunk: Vec::new(),
            writable: true,
        }
    }

    fn progress(&mut self, connection: &mut Connection) {
        if self.stream.is_none() {
            self.stream = connection.streams().open(Dir::Uni);
        }
        let Some(stream) = self.stream else {
            return;
        };
        while self.writable && self.written < self.total {
            if self.chunk.is_empty() {
                self.chunk.resize(CHUNK.min((self.total - self.written) as usize), 0);
                self.content.fill(self.written, &mut self.chunk);
            }
            match connection.send_stream(stream).write(&self.chunk) {
                Ok(taken) => {
                    self.chunk.drain(..taken);
                    self.written += taken as u64;
                }
                Err(WriteError::Blocked) => self.writable = false,
                Err(error) => panic!("the receiver never refuses the stream: {error}"),
            }
            if self.written == self.total {
                let finished = connection.send_stream(stream).finish();
                finished.expect("a stream is finished once");
            }
        }
    }
}

/// Reads one stream and compares it with the content.
pub(crate) struct Receiver {
    content: Content,
    stream: Option<StreamId>,
    readable: bool,
    scratch: Vec<u8>,
    /// Bytes read, in order.
    pub(crate) received: u64,
    /// The first chunk that differs from the content.
    pub(crate) wrong_at: Option<u64>,
    /// The stream has ended and all of it was read.
    pub(crate) finished: bool,
}

impl Receiver {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            content: Content { seed },
            stream: None,
            readable: false,
            scratch: Vec::new(),
            received: 0,
            wrong_at: None,
            finished: false,
        }
    }

    fn progress(&mut self, connection: &mut Connection) {
        if self.stream.is_none() {
            self.stream = connection.streams().accept(Dir::Uni);
        }
        let Some(stream) = self.stream.filter(|_| self.readable && !self.finished) else {
            return;
        };
        self.readable = false;
        let mut stream = connection.recv_stream(stream);
        let mut chunks = stream.read(true).expect("the stream is open and read in order");
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.scratch.resize(chunk.bytes.len(), 0);
                    self.content.fill(self.received, &mut self.scratch);
                    if chunk.offset != self.received || chunk.bytes != self.scratch {
                        self.wrong_at = self.wrong_at.or(Some(self.received));
                    }
                    self.received += chunk.bytes.len() as u64;
                }
                Ok(None) => {
                    self.finished = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(error) => panic!("the sender never gives the stream up: {error}"),
            }
        }
        // Credit is sent with the next packet in any case: the endpoint is polled after this.
        let _ = chunks.finalize();
    }
}

/// The application of an endpoint.
pub(crate) enum Application {
    Sender(Sender),
    Receiver(Receiver),
}

impl Application {
    /// Handles an event of the stack.
    pub(crate) fn on_event(&mut self, event: &Event) {
        match (self, event) {
            (_, Event::ConnectionLost { reason }) => panic!("the connection was lost: {reason}"),
            (Self::Sender(sender), Event::Stream(StreamEvent::Writable { .. })) => {
                sender.writable = true;
            }
            (
                Self::Receiver(receiver),
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Readable { .. }),
            ) => receiver.readable = true,
            _ => {}
        }
    }

    /// Does what is possible now.
    pub(crate) fn progress(&mut self, connection: &mut Connection) {
        match self {
            Self::Sender(sender) => sender.progress(connection),
            Self::Receiver(receiver) => receiver.progress(connection),
        }
    }
}
