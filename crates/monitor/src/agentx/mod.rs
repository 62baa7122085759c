//! A sub-agent of net-snmp's `snmpd` or any other master agent: AgentX (RFC 2741).
//!
//! [`Agent`] is the protocol without a socket. [`serve`] runs it over a socket and reconnects when
//! the master goes away.

mod pdu;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use agentx::encodings::{SearchRange, VarBindList};
use agentx::pdu::{
    Close, CloseReason, Get, GetBulk, GetNext, Header, Notify, Open, Ping, Register, ResError,
    Response, Type,
};

use super::mib::qos::NOT_WRITABLE;
use super::mib::{MODULES, Objects, Oid, Value};
use pdu::Reply;

/// The fixed part of every message (RFC 2741, 6.1).
const HEADER: usize = 20;
/// Maximum payload accepted from a master.
const MAX_PAYLOAD_LEN: u32 = 1 << 20;
/// Maximum objects in one answer; a manager asks again for more.
const MAX_OBJECTS: usize = 500;
/// `commitFailed` and `undoFailed` (RFC 3416), which the PDUs of the library do not know.
const COMMIT_FAILED: u16 = 14;
const UNDO_FAILED: u16 = 15;

/// Why a session ended.
#[derive(Debug)]
pub enum Ended {
    /// The connection failed.
    Io(io::Error),
    /// The master closed the session, or refused it.
    ByMaster(String),
    /// The peer does not speak AgentX.
    Malformed(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::ByMaster(reason) => write!(f, "the master agent {reason}"),
            Self::Malformed(what) => write!(f, "the master agent sent {what}"),
        }
    }
}

impl std::error::Error for Ended {}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    /// Registering the module with this index.
    Registering(usize),
    Serving,
}

/// One session with a master agent, as a state machine: messages in, messages out.
#[derive(Debug)]
pub struct Agent {
    stage: Stage,
    session: u32,
    packet: u32,
    up: Duration,
}

impl Agent {
    /// A session, and the message that opens it.
    ///
    /// # Errors
    /// Never: the message has a fixed length.
    pub fn open() -> io::Result<(Self, Vec<u8>)> {
        let [.., own] = MODULES;
        let id = Oid::of(&[own.root]).to_message();
        let mut open = Open::new(id, "ontempo: delivered quality of service, reservations");
        open.header.packet_id = 1;
        let agent = Self { stage: Stage::Opening, session: 0, packet: 1, up: Duration::ZERO };
        Ok((agent, open.to_bytes()?))
    }

    /// Whether all modules are registered.
    pub fn is_serving(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// The master's uptime in its last response.
    pub fn up(&self) -> Duration {
        self.up
    }

    fn stamp(&mut self, header: &mut Header) {
        self.packet = self.packet.wrapping_add(1);
        header.session_id = self.session;
        header.packet_id = self.packet;
    }

    /// A notification of these objects.
    ///
    /// # Errors
    /// If they do not fit into a message.
    pub fn notify(&mut self, objects: &[(Oid, Value)]) -> io::Result<Vec<u8>> {
        let mut notify = Notify::new(VarBindList::default());
        self.stamp(&mut notify.header);
        pdu::with_objects(notify.to_bytes()?, objects)
    }

    /// A Ping.
    ///
    /// # Errors
    /// Never: the message has a fixed length.
    pub fn ping(&mut self) -> io::Result<Vec<u8>> {
        let mut ping = Ping::new();
        self.stamp(&mut ping.header);
        ping.to_bytes()
    }

    /// The message that ends the session.
    ///
    /// # Errors
    /// Never: the message has a fixed length.
    pub fn close(&mut self) -> io::Result<Vec<u8>> {
        let mut close = Close::new(CloseReason::Shutdown);
        self.stamp(&mut close.header);
        close.to_bytes()
    }

    /// Handles a message of the master and returns the answer, if any.
    ///
    /// # Errors
    /// If the master closes or refuses the session, or the message is malformed.
    pub fn handle(
        &mut self,
        message: &[u8],
        source: &mut impl Source,
    ) -> Result<Option<Vec<u8>>, Ended> {
        let malformed = |what: &str| Ended::Malformed(what.to_owned());
        let header = Header::from_bytes(message).map_err(|_| malformed("no header of AgentX"))?;
        let bad = |_| malformed("a message that is cut short or of unknown parts");
        let answered = match header.ty {
            Type::Response => {
                let reply = Reply::read(message).map_err(bad)?;
                return self.on_response(&header, &reply);
            }
            Type::Close => return Err(Ended::ByMaster("closed the session".to_owned())),
            Type::Get => {
                let get = Get::from_bytes(message).map_err(bad)?;
                let objects = source.objects();
                let names = get.sr.0.iter().map(|range| Oid::from_message(&range.start));
                let found = names.map(|name| {
                    let name = name?;
                    let value = objects.get(&name);
                    Some((name, value))
                });
                found.collect::<Option<Vec<_>>>()
            }
            Type::GetNext => {
                let get = GetNext::from_bytes(message).map_err(bad)?;
                let objects = source.objects();
                let ranges = get.sr.0.iter();
                ranges.map(|range| next(objects, range)).collect::<Option<Vec<_>>>()
            }
            Type::GetBulk => bulk(source.objects(), &GetBulk::from_bytes(message).map_err(bad)?),
            Type::TestSet | Type::CommitSet | Type::UndoSet | Type::CleanupSet => {
                return Ok(set(&header, message, source)?);
            }
            _ => None,
        };
        let Some(answered) = answered else {
            let mut response = Response::from_header(&header);
            response.res_error = ResError::ParseError;
            return Ok(Some(response.to_bytes()?));
        };
        Ok(Some(pdu::response(&header, &answered)?))
    }

    fn on_response(&mut self, header: &Header, reply: &Reply) -> Result<Option<Vec<u8>>, Ended> {
        self.up = Duration::from_millis(u64::from(reply.up) * 10);
        let fine = reply.error == ResError::NoAgentXError;
        match (self.stage, fine) {
            (Stage::Opening, true) => {
                self.session = header.session_id;
                self.register(0)
            }
            (Stage::Registering(place), true) => self.register(place + 1),
            (Stage::Opening | Stage::Registering(_), false) => {
                Err(Ended::ByMaster(format!("refused: {:?}", reply.error)))
            }
            // A master that has restarted does not know the session.
            (Stage::Serving, false) if reply.error == ResError::NotOpen => {
                Err(Ended::ByMaster("has forgotten the session".to_owned()))
            }
            (Stage::Serving, _) => Ok(None),
        }
    }

    /// Registers the module with this index; after the last one the session serves.
    fn register(&mut self, place: usize) -> Result<Option<Vec<u8>>, Ended> {
        let Some(module) = MODULES.get(place) else {
            self.stage = Stage::Serving;
            return Ok(None);
        };
        self.stage = Stage::Registering(place);
        let mut register = Register::new(Oid::of(&[module.root]).to_message());
        self.stamp(&mut register.header);
        Ok(Some(register.to_bytes()?))
    }
}

/// One step of a SET (RFC 2741, 7.2.4).
fn set(header: &Header, message: &[u8], source: &mut impl Source) -> io::Result<Option<Vec<u8>>> {
    let answered = match header.ty {
        Type::TestSet => match pdu::settings(message) {
            Some(asked) => source.test(&asked),
            None => Err((1, NOT_WRITABLE)),
        },
        Type::CommitSet => source.commit().map_err(|()| (1, COMMIT_FAILED)),
        Type::UndoSet => source.undo().map_err(|()| (1, UNDO_FAILED)),
        _ => {
            // Without an answer (7.2.4.4).
            source.clean_up();
            return Ok(None);
        }
    };
    match answered {
        Ok(()) => Response::from_header(header).to_bytes().map(Some),
        Err((index, error)) => pdu::refusal(header, index, error).map(Some),
    }
}

/// The object after the start of a range; the start with `EndOfMibView` if there is none.
/// `None` if a name is too long.
fn next(objects: &Objects, range: &SearchRange) -> Option<(Oid, Value)> {
    let start = Oid::from_message(&range.start)?;
    let end = Oid::from_message(&range.end)?;
    Some(match objects.next(&start, range.start.include != 0, &end) {
        Some(found) => found.clone(),
        None => (start, Value::EndOfMibView),
    })
}

/// RFC 2741, 7.2.3.3.
fn bulk(objects: &Objects, asked: &GetBulk) -> Option<Vec<(Oid, Value)>> {
    let mut ranges = asked.sr.0.clone();
    let once = usize::from(asked.non_repeaters).min(ranges.len());
    let mut found: Vec<_> =
        ranges[..once].iter().map(|range| next(objects, range)).collect::<Option<_>>()?;
    let repeated = &mut ranges[once..];
    for _ in 0..asked.max_repetitions {
        if repeated.is_empty() || found.len() + repeated.len() > MAX_OBJECTS {
            break;
        }
        for range in repeated.iter_mut() {
            let (name, value) = next(objects, range)?;
            range.start = name.to_message();
            found.push((name, value));
        }
    }
    Some(found)
}

/// Address of a master agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system; net-snmp's is `/var/agentx/master`.
    Path(PathBuf),
    /// `tcp:HOST:PORT`.
    Tcp(String),
}

impl Default for Address {
    fn default() -> Self {
        Self::Path(PathBuf::from("/var/agentx/master"))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("tcp:") {
            let (_, port) = rest.rsplit_once(':').unwrap_or(("", rest));
            let port = port.parse::<u16>();
            return match port {
                Ok(1..) => Ok(Self::Tcp(rest.to_owned())),
                _ => Err(format!("`{text}` has no port; write tcp:localhost:705")),
            };
        }
        match text {
            path if path.starts_with('/') => Ok(Self::Path(PathBuf::from(path))),
            _ => Err(format!(
                "`{text}` is neither a path such as /var/agentx/master nor tcp:localhost:705"
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A connection to a master.
trait Connection: Read + Write {
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()>;
}

impl Connection for UnixStream {
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read)).and_then(|()| self.set_write_timeout(Some(write)))
    }
}

impl Connection for TcpStream {
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read)).and_then(|()| self.set_write_timeout(Some(write)))
    }
}

/// The source of a sub-agent's objects and notifications, polled at every turn.
pub trait Source {
    /// A session was opened; the master has been up for so long. Time stamps count from its start.
    fn begun(&mut self, up: Duration);

    /// The objects as they are now.
    fn objects(&mut self) -> &Objects;

    /// Whether these objects could be set now, in place of those tested before: else the place of the
    /// first that cannot, from 1, and why (error-status of RFC 3416). By default none can.
    ///
    /// # Errors
    /// They cannot.
    fn test(&mut self, _objects: &[(Oid, Value)]) -> Result<(), (u16, u16)> {
        Err((1, NOT_WRITABLE))
    }

    /// Sets what was tested.
    ///
    /// # Errors
    /// It has failed.
    #[expect(clippy::result_unit_err, reason = "AgentX has one code for it")]
    fn commit(&mut self) -> Result<(), ()> {
        Err(())
    }

    /// Sets what was there before.
    ///
    /// # Errors
    /// It has failed.
    #[expect(clippy::result_unit_err, reason = "AgentX has one code for it")]
    fn undo(&mut self) -> Result<(), ()> {
        Err(())
    }

    /// Forgets what was tested.
    fn clean_up(&mut self) {}

    /// Notifications since the last call.
    fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>>;

    /// Whether to stop.
    fn stopped(&self) -> bool;
}

/// How often the source is polled for notifications.
const TURN: Duration = Duration::from_millis(250);
/// For a master to accept a connection, and to read what it is sent: a stop takes as long at most.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of Pings to an idle master.
const PING_EVERY: Duration = Duration::from_secs(15);

/// One session: serves `source` to the master at `address` until the source stops it.
///
/// # Errors
/// Why the session ended before that. A new one may be opened.
pub fn serve(address: &Address, source: &mut impl Source) -> Result<(), Ended> {
    match address {
        Address::Path(path) => converse(UnixStream::connect(path)?, source),
        Address::Tcp(address) => converse(connect(address)?, source),
    }
}

/// Connects to the first address of a name that accepts in time.
fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = None;
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "has no address")))
}

fn converse(mut connection: impl Connection, source: &mut impl Source) -> Result<(), Ended> {
    connection.set_timeouts(TURN, PATIENCE)?;
    let (mut agent, open) = Agent::open()?;
    connection.write_all(&open)?;
    let mut received = Vec::new();
    let mut heard = Instant::now();
    let mut pinged = heard;
    let mut begun = false;
    while !source.stopped() {
        if agent.is_serving() {
            if !std::mem::replace(&mut begun, true) {
                source.begun(agent.up());
            }
            for objects in source.notifications() {
                connection.write_all(&agent.notify(&objects)?)?;
            }
        }
        if read_some(&mut connection, &mut received)? {
            heard = Instant::now();
        }
        while let Some(message) = take_message(&mut received)? {
            if let Some(answer) = agent.handle(&message, source)? {
                connection.write_all(&answer)?;
            }
        }
        let silent = heard.elapsed();
        if silent > 2 * PING_EVERY {
            return Err(Ended::ByMaster("does not answer".to_owned()));
        }
        if silent > PING_EVERY && pinged.elapsed() > PING_EVERY && agent.is_serving() {
            connection.write_all(&agent.ping()?)?;
            pinged = Instant::now();
        }
    }
    connection.write_all(&agent.close()?)?;
    Ok(())
}

/// Waits for bytes for at most one turn; true if some arrived.
fn read_some(connection: &mut impl Connection, received: &mut Vec<u8>) -> Result<bool, Ended> {
    let mut buffer = [0; 4096];
    match connection.read(&mut buffer) {
        Ok(0) => Err(Ended::ByMaster("closed the connection".to_owned())),
        Ok(count) => {
            received.extend_from_slice(&buffer[..count]);
            Ok(true)
        }
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
                Ok(false)
            }
            _ => Err(error.into()),
        },
    }
}

/// Takes the first whole message of the received bytes; `None` if it is
/// incomplete.
///
/// # Errors
/// If the bytes do not begin like a message.
pub fn take_message(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Ended> {
    if received.len() < HEADER {
        return Ok(None);
    }
    let malformed = |what: String| Ended::Malformed(what);
    let header =
        Header::from_bytes(received).map_err(|_| malformed("no header of AgentX".to_owned()))?;
    if header.version != 1 {
        return Err(malformed(format!("version {} of AgentX, not 1", header.version)));
    }
    if header.payload_length > MAX_PAYLOAD_LEN {
        return Err(malformed(format!("a message of {} bytes", header.payload_length)));
    }
    let length = HEADER + header.payload_length as usize;
    if received.len() < length {
        return Ok(None);
    }
    let rest = received.split_off(length);
    Ok(Some(std::mem::replace(received, rest)))
}
