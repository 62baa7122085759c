//! Tests of the sub-agent: bytes of a master in, answers out.

use agentx::encodings::{ID, OctetString, SearchRangeList, Value as Read, VarBind};
use agentx::pdu::TestSet;
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
        let register = agent.handle(&response(&asked, 9, ResError::NoAgentXError), &mut nothing);
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
fn whatever_octets_a_value_has_the_one_of_the_wrong_type_is_named() {
    let (mut agent, mut source) = (serving(), Fixed::default());
    let name: ID = "1.3.6.1.4".parse().unwrap();
    let bind = |data| VarBind { name: name.clone(), data };
    let text = bind(Read::OctetString(OctetString("xyz".to_owned())));
    let mut test = TestSet::new(VarBindList(vec![bind(Read::Integer(1)), text]));
    let message = test.to_bytes().unwrap();
    let at = message.windows(3).position(|one| one == b"xyz").unwrap();
    // Twice a kind and the name; an integer, and a length with four octets.
    let name_length = (message.len() - HEADER - 2 * 4 - 4 - 8) / 2;
    let at_kind = HEADER + 4 + name_length + 4;
    // Octets, an address and an opaque value, none of them text.
    for kind in [4, 64, 68] {
        let mut message = message.clone();
        message[at..at + 3].copy_from_slice(&[0xff, 0x80, 0]);
        message[at_kind] = kind;
        let answer = agent.handle(&message, &mut source).unwrap().unwrap();
        assert_eq!(answer[24..28], [7, 0, 2, 0], "kind {kind}");
    }
    // One that is cut short sets nothing.
    for length in HEADER + 1..message.len() {
        let answer = agent.handle(&message[..length], &mut source);
        let refused = answer.is_ok_and(|answer| answer.is_some_and(|one| one[24..26] != [0, 0]));
        // But after the first object.
        assert!(refused || source.tested.len() == 1, "{length}");
    }
}

#[test]
fn a_set_is_tested_committed_undone_and_cleaned_up() {
    use agentx::pdu::{CleanupSet, CommitSet, UndoSet};
    let (mut agent, mut source) = (serving(), Fixed::default());
    let name: ID = "1.3.6.1.4".parse().unwrap();
    let bind = |data| VarBind { name: name.clone(), data };
    let mut step = |message: Vec<u8>, source: &mut Fixed| agent.handle(&message, source).unwrap();
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
