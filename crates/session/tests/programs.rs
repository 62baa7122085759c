//! A sending and a receiving program that use only the crate's public API.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Time};
use ontempo_media::{
    Codings, Elementary, FrameKind, FrameTimes, Kind, Part, Span, Unit, cut_frame,
};
use ontempo_session::{
    Backlog, Error, Feed, Outcome, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions,
    Sender, SenderEvent, SenderOptions, Source, Target, configuration,
};
use ontempo_transport::live::{Listener, Options};
use ontempo_transport::{CloseReason, DeliveryOrder, Identity, Reliability, Token, Trust};

/// A target whose bytes a test compares.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A full disk.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Handler<F> {
    open: F,
    last: Option<(u64, bool)>,
}

/// Takes frames of H.264 only.
struct Frames(SharedBuffer);

impl ReceiverHandler for Frames {
    fn open(&mut self) -> Result<Target, String> {
        Ok(Target::Bytes { to: Box::new(self.0.clone()), name: "the test".to_owned() })
    }

    fn take_elementary(&mut self, codings: Codings) -> Result<(), String> {
        match codings.only() {
            Some(Elementary::H264) => Ok(()),
            _ => Err(format!("no {codings} here")),
        }
    }

    fn on_event(&mut self, _: ReceiverEvent<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut() -> Box<dyn Write + Send>> ReceiverHandler for Handler<F> {
    fn open(&mut self) -> Result<Target, String> {
        Ok(Target::Bytes { to: (self.open)(), name: "the test".to_owned() })
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        if let ReceiverEvent::StreamEnded(report) = event {
            self.last = Some((report.whole_datagrams, report.is_final));
        }
        ControlFlow::Continue(())
    }
}

fn transport() -> Options {
    Options { configuration: configuration(), ..Options::default() }
}

fn listener() -> (Listener, Trust) {
    let identity = Identity::self_signed(&["localhost"]).expect("made");
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let token = Token::new(b"open").expect("short");
    let listener = Listener::bind(at, &identity, token, &transport()).expect("a free port");
    (listener, Trust::Fingerprint(identity.fingerprint()))
}

fn options(remote: SocketAddr, trust: Trust, token: &[u8]) -> SenderOptions {
    SenderOptions {
        grace: ontempo_session::latency::GRACE,
        remote,
        name: "localhost".to_owned(),
        trust,
        token: if token.is_empty() { Token::anyone() } else { Token::new(token).expect("short") },
        transport: transport(),
        latency: Some(Duration::from_millis(200)),
        order: DeliveryOrder::InOrder,
        reliability: Reliability::Full,
        stream: None,
        elementary: None,
        give_up: Wall::from_secs(5),
        stop: Arc::new(AtomicBool::new(false)),
    }
}

/// A unit that is one datagram.
fn unit(id: u64, data: Vec<u8>) -> Unit {
    let length = u16::try_from(data.len()).expect("short");
    let spans = vec![Span { offset: 0, length }];
    let parts = vec![Part { datagram: id, length, arrived: Time::ZERO, spans, stuffing: vec![] }];
    let (kind, dependencies) = (Kind::Frame, Vec::new());
    Unit { id, kind, media_time: None, slack: None, continues: None, dependencies, parts, data }
}

fn ignore_events(_: SenderEvent<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_program_receives_what_another_sends() {
    let (listener, trust) = listener();
    let remote = listener.local();
    let written = SharedBuffer::default();
    let to = written.clone();
    let receiving = spawn(move || {
        let open = move || -> Box<dyn Write + Send> { Box::new(to.clone()) };
        let options = ReceiverOptions { once: true, ..ReceiverOptions::default() };
        let mut receiver = Receiver::new(listener, options, Handler { open, last: None });
        (receiver.run(), receiver.handler().last)
    });
    let backlog = Arc::new(Backlog::new(1 << 20, false));
    let mut expected = Vec::new();
    for id in 0..100 {
        let data = vec![id as u8; 500 + id as usize];
        expected.extend_from_slice(&data);
        backlog.push(unit(id, data));
    }
    backlog.end(None);
    let options = options(remote, trust, b"open");
    let mut sender =
        Sender::connect(options, backlog, Source::Program, ignore_events).expect("connected");
    sender.run().expect("sent");
    let totals = sender.totals();
    // The last unit says where the stream ends.
    assert_eq!((totals.flow.units, totals.flow.arrived, totals.reconnected), (101, 101, 0));
    assert!(totals.report.is_final);
    assert_eq!(totals.report.whole_datagrams, 100);
    let (outcome, last) = receiving.join().expect("no panic");
    assert_eq!(outcome.expect("received"), Outcome::StreamEnded);
    assert_eq!(last, Some((100, true)));
    assert!(*written.0.lock().expect("no panic") == expected, "the bytes differ");
}

#[test]
fn a_wrong_token_and_a_receiver_that_cannot_write_are_reported_as_close_reasons() {
    let (listener, trust) = listener();
    let remote = listener.local();
    let receiving = spawn(move || {
        let open = || -> Box<dyn Write + Send> { Box::new(Full) };
        Receiver::new(listener, ReceiverOptions::default(), Handler { open, last: None }).run()
    });
    let backlog = Arc::new(Backlog::new(1 << 20, false));
    let refused = options(remote, trust.clone(), b"guess");
    match Sender::connect(refused, Arc::clone(&backlog), Source::Program, ignore_events).err() {
        Some(Error::Transport(error)) => {
            assert_eq!(error.close_reason(), Some(CloseReason::WrongToken));
        }
        other => panic!("not refused: {other:?}"),
    }
    let options = options(remote, trust, b"open");
    let sender = Sender::connect(options, Arc::clone(&backlog), Source::Program, ignore_events);
    for id in 0..200 {
        backlog.push(unit(id, vec![1; 1_000]));
    }
    backlog.end(None);
    match sender.expect("connected").run() {
        Err(Error::EndedByReceiver(closed)) => assert_eq!(closed.reason, CloseReason::Failed),
        other => panic!("not ended by the receiver: {other:?}"),
    }
    let failed = receiving.join().expect("no panic");
    assert!(matches!(failed, Err(Error::Target(_))), "{failed:?}");
}

#[test]
fn a_sender_that_is_stopped_before_anybody_has_answered_leaves_no_attempt_behind() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let remote = silent.local_addr().expect("an address");
    let (_, trust) = listener();
    let options = options(remote, trust, b"open");
    let stop = Arc::clone(&options.stop);
    let stopping = spawn(move || {
        // It has begun to connect.
        silent.recv_from(&mut [0; 2_000]).expect("a datagram");
        stop.store(true, Ordering::Relaxed);
    });
    let backlog = Arc::new(Backlog::new(1 << 20, false));
    let ended = Sender::connect(options, backlog, Source::Program, ignore_events).err();
    assert!(matches!(ended, Some(Error::Unanswered(at)) if at == remote), "{ended:?}");
    stopping.join().expect("no panic");
}

#[test]
fn frames_are_written_one_behind_the_other_and_a_coding_that_is_not_taken_is_refused() {
    let (listener, trust) = listener();
    let remote = listener.local();
    let written = SharedBuffer::default();
    let handler = Frames(written.clone());
    let receiving = spawn(move || {
        let options = ReceiverOptions { once: true, ..ReceiverOptions::default() };
        Receiver::new(listener, options, handler).run()
    });
    let frames = [vec![1; 70_000], vec![2; 10], vec![3; 300_000]];
    let send = |words: &str| {
        let backlog = Arc::new(Backlog::new(1 << 20, false));
        let codings = words.parse().expect("codings");
        let feed = Feed::elementary(codings, &backlog).expect("a thread");
        let elementary = Some(codings);
        let options = SenderOptions { elementary, ..options(remote, trust.clone(), b"open") };
        let mut sender =
            Sender::connect(options, backlog, Source::Program, ignore_events).expect("connected");
        feed.batch().push(b"\0what a decoder has to know");
        for (number, frame) in (0..).zip(&frames) {
            let (kind, times) = (FrameKind::Key, FrameTimes::default());
            cut_frame(kind, number, times, frame, |part| feed.batch().push(part)).expect("cut");
        }
        feed.end();
        sender.run()
    };
    for (words, expected) in [("av1", "no AV1 here"), ("h264+opus", "no H.264 and Opus here")] {
        match send(words) {
            Err(Error::EndedByReceiver(closed)) => {
                assert_eq!(closed.reason, CloseReason::Failed);
                assert!(closed.sentence.contains(expected), "{}", closed.sentence);
            }
            other => panic!("not refused: {other:?}"),
        }
    }
    send("h264").expect("sent");
    assert_eq!(receiving.join().expect("no panic").expect("received"), Outcome::StreamEnded);
    assert!(*written.0.lock().expect("no panic") == frames.concat(), "the bytes differ");
}
