//! An application's end of the local socket.

use core::fmt;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::protocol::{Answer, Notice, Question, Reply, Request, line};

/// The daemon answers at once; one that takes longer is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the longest line from the daemon: the status of 20,000 sessions and more.
const MAX_REPLY: usize = 64 << 20;

/// A connection to the daemon. When it is dropped, its senders and reservations end.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    events: VecDeque<Notice>,
    last: u64,
}

/// Why a request to the daemon failed.
#[derive(Debug)]
pub enum ClientError {
    /// The daemon does not listen, or has closed the connection.
    Io(io::Error),
    /// The daemon sent an invalid reply.
    NoReply(String),
    /// It refused; its sentence.
    Refused(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => {
                write!(f, "the RSVP daemon cannot be reached: ")?;
                match error.kind() {
                    ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionReset
                    | ErrorKind::BrokenPipe => {
                        f.write_str("it has ended the connection, and what was asked for by that")
                    }
                    ErrorKind::TimedOut => {
                        write!(f, "it does not answer within {} s", ANSWER_TIMEOUT.as_secs())
                    }
                    _ => error.fmt(f),
                }
            }
            Self::NoReply(line) => write!(f, "the RSVP daemon sent an invalid reply: {line}"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl core::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Client {
    /// Connects to the daemon that listens at `path`; [`socket`](super::socket) is the usual one.
    ///
    /// # Errors
    /// Where no process listens there, or this user may not.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { stream, received: Vec::new(), events: VecDeque::new(), last: 0 })
    }

    /// Sends a request and waits for its answer; events that arrive before it are queued.
    ///
    /// # Errors
    /// Where the daemon refuses, does not answer within 10 s, or is gone.
    pub fn ask(&mut self, request: Request) -> Result<Answer, ClientError> {
        self.last += 1;
        let asked = self.last;
        if let Err(error) = self.stream.write_all(&line(&Question { id: asked, request })) {
            // A daemon that refuses a connection has said why before it has closed it.
            return match self.reply(Some(Instant::now())) {
                Ok(Some(Reply::Answer { result: Answer::Refused(reason), .. })) => {
                    Err(ClientError::Refused(reason))
                }
                _ => Err(error.into()),
            };
        }
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.reply(Some(until))? {
                None => return Err(io::Error::from(ErrorKind::TimedOut).into()),
                Some(Reply::Event(event)) => self.events.push_back(event),
                Some(Reply::Answer { result: Answer::Refused(reason), .. }) => {
                    return Err(ClientError::Refused(reason));
                }
                Some(Reply::Answer { id, result }) if id == asked => return Ok(result),
                Some(Reply::Answer { .. }) => {}
            }
        }
    }

    /// The next event; `None` where none comes within `timeout`, without end where not given.
    ///
    /// # Errors
    /// Where the daemon is gone.
    pub fn event(&mut self, timeout: Option<Duration>) -> Result<Option<Notice>, ClientError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            match self.reply(until)? {
                Some(Reply::Event(event)) => return Ok(Some(event)),
                Some(Reply::Answer { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    fn reply(&mut self, until: Option<Instant>) -> Result<Option<Reply>, ClientError> {
        let mut piece = [0; 8192];
        let (mut looked, mut tried) = (0, false);
        loop {
            let end = self.received[looked..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line: Vec<u8> = self.received.drain(..=looked + end).collect();
                let reply = serde_json::from_slice(&line);
                let said = || String::from_utf8_lossy(&line).trim().to_owned();
                return reply.map(Some).map_err(|_| ClientError::NoReply(said()));
            }
            looked = self.received.len();
            if looked > MAX_REPLY {
                return Err(ClientError::NoReply(format!("{looked} bytes without an end")));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if tried && left == Some(Duration::ZERO) {
                return Ok(None);
            }
            tried = true;
            // Zero would be for ever.
            self.stream.set_read_timeout(left.map(|left| left.max(Duration::from_micros(1))))?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(length) => self.received.extend(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Client {
    /// Readable when something has come; [`Client::event`] with no timeout then takes it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
