//! What several test programs of sessions send, and what receives it.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration as Wall;

use ontempo_foundation::Time;
use ontempo_media::{Kind, Part, Span, Unit};
use ontempo_session::{ReceiverEvent, ReceiverHandler, SenderOptions, Target, configuration};
use ontempo_transport::live::{Listener, Options};
use ontempo_transport::{DeliveryOrder, Identity, Reliability, Token, Trust};

/// What a test has received, and how many were refused.
#[derive(Clone, Default)]
pub(crate) struct Seen(pub(crate) Arc<Mutex<(Vec<u8>, usize)>>);

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

/// Where a receiver listens, and what a sender of a stream that is to be whole needs.
pub(crate) fn both() -> (Listener, SenderOptions) {
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

/// A unit of one datagram that says its number.
pub(crate) fn unit(id: u64) -> Unit {
    let spans = vec![Span { offset: 0, length: 4 }];
    let part = Part { datagram: id, length: 4, arrived: Time::ZERO, spans, stuffing: Vec::new() };
    Unit {
        id,
        kind: Kind::Datagram,
        media_time: None,
        slack: None,
        continues: None,
        dependencies: Vec::new(),
        parts: vec![part],
        data: (id as u32).to_be_bytes().to_vec(),
    }
}
