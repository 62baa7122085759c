//! A sender that comes while a receiver has another.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration as Wall;

use common::unit;
use ontempo_session::{
    Backlog, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, Sender, SenderEvent,
    SenderOptions, Source, Target, configuration,
};
use ontempo_transport::live::{Listener, Options};
use ontempo_transport::{CloseReason, DeliveryOrder, Identity, Reliability, Token, Trust};

/// What a receiver has written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl ReceiverHandler for Written {
    fn open(&mut self) -> Result<Target, String> {
        Ok(Target::Bytes { to: Box::new(self.clone()), name: "the test".to_owned() })
    }

    fn on_event(&mut self, _: ReceiverEvent<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Where a receiver listens, and what a sender of a stream that is to be whole needs.
fn both() -> (Listener, SenderOptions) {
    let transport = Options { configuration: configuration(), ..Options::default() };
    let identity = Identity::self_signed(&["localhost"]).expect("made");
    let (at, token) = (SocketAddr::from(([127, 0, 0, 1], 0)), Token::new(b"open").expect("short"));
    let listener = Listener::bind(at, &identity, token.clone(), &transport).expect("a free port");
    let options = SenderOptions {
        grace: ontempo_session::latency::GRACE,
        remote: listener.local(),
        name: "localhost".to_owned(),
        trust: Trust::Fingerprint(identity.fingerprint()),
        token,
        transport,
        latency: None,
        order: DeliveryOrder::InOrder,
        reliability: Reliability::Full,
        stream: None,
        elementary: None,
        give_up: Wall::from_secs(5),
        stop: Arc::<AtomicBool>::default(),
    };
    (listener, options)
}

/// The next sender is refused, after all its units have been acknowledged, and none was read.
fn refuse(listener: &Listener) {
    let connection = listener.accept();
    let flow = connection.accept_flow().expect("its flow");
    std::thread::sleep(Wall::from_millis(1_500));
    drop(flow);
    connection.close_with(CloseReason::Busy, "another sender is connected");
}

#[test]
fn a_sender_that_is_refused_waits_and_what_was_acknowledged_is_sent_again() {
    let (listener, options) = both();
    let refusing = spawn(move || {
        refuse(&listener);
        let connection = listener.accept();
        connection.accept_flow().expect("its flow");
        connection.close_with(CloseReason::Busy, "another sender is connected");
        listener
    });
    let backlog = Arc::new(Backlog::new(1 << 20, false));
    let told = Arc::new(Mutex::new((0, 0)));
    let events = Arc::clone(&told);
    let handler = move |event: SenderEvent<'_>| {
        let mut told = events.lock().expect("no panic");
        match event {
            SenderEvent::Occupied(..) => told.0 += 1,
            SenderEvent::Connected { again } => told.1 += u64::from(!again),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let mut sender =
        Sender::connect(options, Arc::clone(&backlog), Source::Program, handler).expect("connects");
    (0..100).for_each(|id| backlog.push(unit(id)));
    backlog.end(None);
    let sending = spawn(move || {
        let done = sender.run();
        (done, sender.totals())
    });
    let listener = refusing.join().expect("no panic");
    let written = Written::default();
    let once = ReceiverOptions { once: true, ..ReceiverOptions::default() };
    Receiver::new(listener, once, written.clone()).run().expect("all was received");
    let (done, totals) = sending.join().expect("no panic");
    done.expect("all was sent");
    let all: Vec<u8> = (0..100u32).flat_map(u32::to_be_bytes).collect();
    assert!(*written.0.lock().expect("no panic") == all, "the bytes differ");
    // It is told once that it waits, and that it is connected when it begins, and when it goes on.
    assert_eq!(*told.lock().expect("no panic"), (1, 2));
    // Units of the stream, and its end, which is queued anew for each connection.
    assert_eq!((totals.flow.units, totals.reconnected), (102, 0));
}
