//! Connections with the token that pretend to be a path of another sender's stream.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration as Wall;

use common::unit;
use ontempo_session::paths::{PathAddress, PathMode, PathOptions, PathSender};
use ontempo_session::{
    Backlog, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, SenderEvent, SenderOptions,
    Source, Target, configuration,
};
use ontempo_transport::live::{Listener, Options, connect};
use ontempo_transport::{
    CloseReason, DeliveryOrder, FlowConfig, Identity, Reliability, Token, Trust,
};

/// What a test has received, and how many were refused.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<(Vec<u8>, usize)>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl ReceiverHandler for Seen {
    fn open(&mut self) -> Result<Target, String> {
        Ok(Target::Bytes { to: Box::new(self.clone()), name: "the test".to_owned() })
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        if let ReceiverEvent::Refused { .. } = event {
            self.0.lock().expect("no panic").1 += 1;
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn who_does_not_know_the_streams_secret_does_not_join_it_also_with_the_token() {
    let transport = Options { configuration: configuration(), ..Options::default() };
    let identity = Identity::self_signed(&["localhost"]).expect("made");
    let (at, token) = (SocketAddr::from(([127, 0, 0, 1], 0)), Token::new(b"open").expect("short"));
    let listener = Listener::bind(at, &identity, token.clone(), &transport).expect("a free port");
    let (remote, trust) = (listener.local(), Trust::Fingerprint(identity.fingerprint()));
    let seen = Seen::default();
    let once = ReceiverOptions { once: true, ..ReceiverOptions::default() };
    let handler = seen.clone();
    let receiving = spawn(move || Receiver::new(listener, once, handler).run());
    let backlog = Arc::new(Backlog::new(1 << 20, false));
    let options = SenderOptions {
        grace: ontempo_session::latency::GRACE,
        remote,
        name: "localhost".to_owned(),
        trust: trust.clone(),
        token: token.clone(),
        transport: transport.clone(),
        latency: None,
        order: DeliveryOrder::InOrder,
        reliability: Reliability::Full,
        stream: None,
        elementary: None,
        give_up: Wall::from_secs(5),
        stop: Arc::<AtomicBool>::default(),
    };
    let path = |last| PathAddress { remote, local: Some(SocketAddr::from(([127, 0, 0, last], 0))) };
    let paths = PathOptions { mode: PathMode::Failover, paths: vec![path(2), path(3)] };
    let quiet = |_: SenderEvent<'_>| ControlFlow::Continue(());
    let source = (Arc::clone(&backlog), Source::Program);
    let mut sender =
        PathSender::connect(options, &paths, source.0, source.1, quiet).expect("connected");
    let has_ended = Arc::<AtomicBool>::default();
    let ended = Arc::clone(&has_ended);
    let sending = spawn(move || {
        let done = sender.run();
        ended.store(true, Ordering::Relaxed);
        done
    });
    backlog.push(unit(0));
    sleep(Wall::from_millis(300));
    let guesses = ["0", "1", "ffffffffffffffffffffffffffffffff"];
    for (count, guess) in guesses.into_iter().enumerate() {
        for number in [1, 3] {
            let stranger =
                connect(remote, "localhost", &trust, token.clone(), &transport).expect("a token");
            let label =
                format!("ontempo paths 1 {number} ontempo media 4 {guess} 200000000 50000000 0");
            let config = FlowConfig { label, ..FlowConfig::default() };
            let flow = stranger.open_flow(config).expect("a flow");
            let _ = flow.send(bytes::Bytes::from_static(b"\0\0\0\x01nonsense"));
            let closed = stranger.closed(Wall::from_secs(5)).expect("refused");
            assert_eq!(closed.reason, CloseReason::Busy, "{count}: {closed}");
        }
    }
    assert!(!has_ended.load(Ordering::Relaxed));
    backlog.push(unit(1));
    backlog.end(None);
    sending.join().expect("no panic").expect("all was sent");
    receiving.join().expect("no panic").expect("all was received");
    let seen = seen.0.lock().expect("no panic");
    assert_eq!((seen.0.as_slice(), seen.1), (&[0, 0, 0, 0, 0, 0, 0, 1][..], 6));
}
