//! Connections with the token that pretend to be a path of another sender's stream.

mod common;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration as Wall;

use common::{Seen, both, unit};
use ontempo_session::paths::{PathAddress, PathMode, PathOptions, PathSender};
use ontempo_session::{Backlog, Receiver, ReceiverOptions, SenderEvent, Source};
use ontempo_transport::live::connect;
use ontempo_transport::{CloseReason, FlowConfig};

#[test]
fn who_does_not_know_the_streams_secret_does_not_join_it_also_with_the_token() {
    let (listener, options) = both();
    let (remote, trust) = (options.remote, options.trust.clone());
    let (token, transport) = (options.token.clone(), options.transport.clone());
    let seen = Seen::default();
    let once = ReceiverOptions { once: true, ..ReceiverOptions::default() };
    let handler = seen.clone();
    let receiving = spawn(move || Receiver::new(listener, once, handler).run());
    let backlog = Arc::new(Backlog::new(1 << 20, false));
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
                format!("ontempo paths 1 {number} ontempo media 7 {guess} 200000000 50000000 0 0");
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
