//! What a gateway does with its connections, whatever carries them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

/// Maximum bytes of a stream that become one message.
const MAX_PIECE: usize = 64 * 1024;

/// Bytes of messages that are written to a stream at a time.
const BACK_PIECE: usize = 8 * 1024;

/// The connections of a gateway, numbered from 1.
#[derive(Debug)]
pub struct Relayed<C> {
    max: usize,
    /// Number of the latest connection.
    last: u64,
    /// `None` until both ends of the connection have agreed.
    open: BTreeMap<u64, Option<C>>,
}

impl<C> Relayed<C> {
    /// At most `max` connections at a time.
    pub fn new(max: usize) -> Self {
        Self { max, last: 0, open: BTreeMap::new() }
    }

    /// Maximum connections at a time.
    pub fn max(&self) -> usize {
        self.max
    }

    /// The number of a new connection; `None` if there are as many as may be.
    pub fn begin(&mut self) -> Option<u64> {
        if self.open.len() >= self.max {
            return None;
        }
        self.last += 1;
        self.open.insert(self.last, None);
        Some(self.last)
    }

    /// Both ends of a connection have agreed.
    pub fn agreed(&mut self, number: u64, connection: C) {
        self.open.insert(number, Some(connection));
    }

    /// A connection has ended: its place is free. What is returned may take long to drop.
    pub fn end(&mut self, number: u64) -> Option<C> {
        self.open.remove(&number).flatten()
    }

    /// Ends all: the numbers of those that had agreed, and their connections.
    pub fn end_all(&mut self) -> Vec<(u64, C)> {
        let all = std::mem::take(&mut self.open);
        all.into_iter().filter_map(|(number, one)| Some((number, one?))).collect()
    }
}

/// From a stream to messages: what one read gives is one message.
#[derive(Debug)]
pub struct Forward {
    buffer: Vec<u8>,
    /// Bytes of a message that is not sent yet.
    unsent: usize,
}

impl Forward {
    /// Messages have at most this many bytes, and at most 64 KiB.
    pub fn new(max_message: usize) -> Self {
        Self { buffer: vec![0; max_message.min(MAX_PIECE)], unsent: 0 }
    }

    /// Reads once and sends; `false` at the end of the stream. After an error of `send`, the
    /// message is sent by the next call.
    ///
    /// # Errors
    /// That of the stream or of `send`.
    pub fn step(
        &mut self,
        mut from: impl Read,
        send: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.unsent == 0 {
            self.unsent = match from.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
                Err(error) => return Err(error),
            };
        }
        send(&self.buffer[..self.unsent])?;
        self.unsent = 0;
        Ok(true)
    }
}

/// From messages to a stream.
#[derive(Debug)]
pub struct Backward {
    buffer: Vec<u8>,
    /// Where the bytes begin that are not written yet, and where they end.
    unwritten: (usize, usize),
}

impl Default for Backward {
    fn default() -> Self {
        Self { buffer: vec![0; BACK_PIECE], unwritten: (0, 0) }
    }
}

impl Backward {
    /// Reads once, unless bytes are left, and writes once; `false` at the end of the messages.
    ///
    /// # Errors
    /// That of either.
    pub fn step(&mut self, mut from: impl Read, mut to: impl Write) -> io::Result<bool> {
        if self.unwritten.0 == self.unwritten.1 {
            self.unwritten = match from.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => (0, length),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
                Err(error) => return Err(error),
            };
        }
        let (start, end) = self.unwritten;
        match to.write(&self.buffer[start..end]) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                self.unwritten.0 += written;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}
