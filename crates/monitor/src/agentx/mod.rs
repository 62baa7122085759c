//! A sub-agent of net-snmp's `snmpd` or any other master agent: AgentX (RFC 2741).
//!
//! [`Agent`] is the protocol without a socket. [`serve`] runs it over a socket and reconnects when
//! the master goes away.

mod pdu;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use agentx::encodings::{SearchRange, Value as Set, VarBindList};
use agentx::pdu::{
    Close, CloseReason, Get, GetBulk, GetNext, Header, Notify, Open, Ping, Register, ResError,
    Response, TestSet, Type,
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
        Type::TestSet => match TestSet::from_bytes(message) {
            Ok(asked) => source.test(&settings(asked.vb)),
            // Such as octets that are no text, which the library does not read.
            Err(_) => Err((1, NOT_WRITABLE)),
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

/// The objects of a SET. A name that is too long, or a value of another kind, is one that nobody
/// can set.
fn settings(asked: VarBindList) -> Vec<(Oid, Value)> {
    let values = asked.0.into_iter().map(|bind| {
        let value = match bind.data {
            Set::Integer(value) => Value::Integer(value),
            _ => Value::OctetString(Vec::new()),
        };
        (Oid::from_message(&bind.name).unwrap_or_default(), value)
    });
    values.collect()
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

#[cfg(test)]
mod tests {
    use agentx::encodings::{ID, SearchRangeList, Value as Read, VarBind};
    use proptest::prelude::*;

    use super::super::tests::collected;
    use super::*;

    fn objects() -> Objects {
        let mut objects = Objects::default();
        objects.set_sockets(&[collected(1)], 0);
        objects
    }

    fn response(to: &[u8], session: u32, error: ResError) -> Vec<u8> {
        let mut response = Response::from_header(&Header::from_bytes(to).unwrap());
        response.header.session_id = session;
        response.res_error = error;
        response.to_bytes().unwrap()
    }

    /// Objects that do not change, of which the integers can be set.
    #[derive(Default)]
    struct Fixed {
        objects: Objects,
        tested: Vec<(Oid, Value)>,
        set: Vec<(Oid, Value)>,
    }

    impl Fixed {
        fn of(objects: Objects) -> Self {
            Self { objects, ..Self::default() }
        }
    }

    impl Source for Fixed {
        fn begun(&mut self, _: Duration) {}

        fn objects(&mut self) -> &Objects {
            &self.objects
        }

        fn test(&mut self, objects: &[(Oid, Value)]) -> Result<(), (u16, u16)> {
            let is_integer = |(_, value): &(Oid, Value)| matches!(value, Value::Integer(_));
            if let Some(place) = objects.iter().position(|one| !is_integer(one)) {
                return Err((place as u16 + 1, 7));
            }
            self.tested = objects.to_vec();
            Ok(())
        }

        fn commit(&mut self) -> Result<(), ()> {
            self.set.clone_from(&self.tested);
            Ok(())
        }

        fn undo(&mut self) -> Result<(), ()> {
            if self.set.is_empty() {
                return Err(());
            }
            self.set.clear();
            Ok(())
        }

        fn clean_up(&mut self) {
            self.tested.clear();
        }

        fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>> {
            Vec::new()
        }

        fn stopped(&self) -> bool {
            false
        }
    }

    fn serving() -> Agent {
        let mut nothing = Fixed::default();
        let (mut agent, open) = Agent::open().unwrap();
        let mut asked = open;
        for _ in MODULES {
            let register =
                agent.handle(&response(&asked, 9, ResError::NoAgentXError), &mut nothing);
            asked = register.unwrap().unwrap();
        }
        let done = agent.handle(&response(&asked, 9, ResError::NoAgentXError), &mut nothing);
        assert_eq!(done.unwrap(), None);
        assert!(agent.is_serving());
        agent
    }

    #[test]
    fn a_session_is_opened_and_the_modules_are_registered() {
        let ping = serving().ping().unwrap();
        assert_eq!(Header::from_bytes(&ping).unwrap().session_id, 9);
    }

    #[test]
    fn a_master_that_refuses_is_told_of() {
        let (mut agent, open) = Agent::open().unwrap();
        let refused = response(&open, 0, ResError::OpenFailed);
        let ended = agent.handle(&refused, &mut Fixed::default()).unwrap_err();
        assert_eq!(ended.to_string(), "the master agent refused: OpenFailed");
    }

    #[test]
    fn a_bulk_walks_until_the_end() {
        let mut objects = Fixed::of(objects());
        let start: ID = "1.3.6.1.4.1.8072.9999.9999.2000".parse().unwrap();
        let mut bulk = GetBulk::new(SearchRangeList(vec![SearchRange::new(start, ID::default())]));
        bulk.max_repetitions = 100;
        let answer = serving().handle(&bulk.to_bytes().unwrap(), &mut objects).unwrap().unwrap();
        let binds = Response::from_bytes(&answer).unwrap().vb.unwrap().0;
        let ends = binds.iter().filter(|bind| bind.data == Read::EndOfMibView).count();
        assert_eq!((binds.len(), ends), (100, 100 - (1 + 24 + 14)));
    }

    #[test]
    fn what_a_source_does_not_let_be_set_is_not_writable() {
        let mut test = TestSet::new(VarBindList(vec![VarBind::default()]));
        let answer = serving().handle(&test.to_bytes().unwrap(), &mut Flood(objects()));
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer[24..28], [17, 0, 1, 0]);
    }

    #[test]
    fn a_set_is_tested_committed_undone_and_cleaned_up() {
        use agentx::pdu::{CleanupSet, CommitSet, UndoSet};
        let (mut agent, mut source) = (serving(), Fixed::default());
        let name: ID = "1.3.6.1.4".parse().unwrap();
        let bind = |data| VarBind { name: name.clone(), data };
        let mut step =
            |message: Vec<u8>, source: &mut Fixed| agent.handle(&message, source).unwrap();
        let refused = vec![bind(Read::Integer(1)), bind(Read::Gauge32(1))];
        let answer = step(TestSet::new(VarBindList(refused)).to_bytes().unwrap(), &mut source);
        assert_eq!(answer.unwrap()[24..28], [7, 0, 2, 0], "the second is of the wrong type");
        let fine = VarBindList(vec![bind(Read::Integer(2))]);
        for message in
            [TestSet::new(fine).to_bytes().unwrap(), CommitSet::default().to_bytes().unwrap()]
        {
            assert_eq!(step(message, &mut source).unwrap()[24..28], [0; 4]);
        }
        assert_eq!(source.set, [(Oid::of(&[&[1, 3, 6, 1, 4]]), Value::Integer(2))]);
        let undo = || UndoSet::default().to_bytes().unwrap();
        assert_eq!(step(undo(), &mut source).unwrap()[24..28], [0; 4]);
        assert_eq!(step(undo(), &mut source).unwrap()[24..28], [15, 0, 1, 0]);
        assert_eq!(step(CleanupSet::default().to_bytes().unwrap(), &mut source), None);
        assert_eq!(source.tested, []);
    }

    #[test]
    fn an_address_says_what_would_be_right() {
        assert_eq!("tcp:localhost:705".parse(), Ok(Address::Tcp("localhost:705".to_owned())));
        assert_eq!("/var/agentx/master".parse(), Ok(Address::default()));
        assert!("tcp:localhost".parse::<Address>().unwrap_err().contains("has no port"));
        assert!("master".parse::<Address>().unwrap_err().contains("neither a path"));
    }

    /// More notifications than a socket's buffer takes.
    struct Flood(Objects);

    impl Source for Flood {
        fn begun(&mut self, _: Duration) {}

        fn objects(&mut self) -> &Objects {
            &self.0
        }

        fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>> {
            let text = Value::OctetString(vec![b'x'; 255]);
            vec![vec![(Oid::of(&[&[1, 3, 6]]), text)]; 100_000]
        }

        fn stopped(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_master_that_reads_nothing_is_left() {
        let folder = super::super::tests::folder("silent-master");
        let path = folder.join("master");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let served = serve(&Address::Path(path), &mut Flood(objects()));
            ended.send(served.unwrap_err().to_string()).unwrap();
        });
        let (mut master, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        for _ in 0..=MODULES.len() {
            let asked = loop {
                if let Some(message) = take_message(&mut received).unwrap() {
                    break message;
                }
                read_some(&mut master, &mut received).unwrap();
            };
            master.write_all(&response(&asked, 9, ResError::NoAgentXError)).unwrap();
        }
        let why = end.recv_timeout(Duration::from_secs(60)).expect("it gives up");
        assert!(why.contains("temporarily unavailable"), "{why}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = serving().handle(&bytes, &mut Fixed::of(objects()));
            let mut received = bytes;
            let _ = take_message(&mut received);
        }

        #[test]
        fn no_message_of_a_known_kind_makes_it_panic(
            kind in 1u8..19, flags in any::<u8>(),
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut message = vec![1, kind, flags, 0];
            message.extend([0; 16]);
            message.extend(payload);
            let _ = serving().handle(&message, &mut Fixed::of(objects()));
        }
    }
}
