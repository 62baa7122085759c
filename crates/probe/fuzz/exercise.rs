//! What the fuzz target does with bytes, and the test on stable with every file of the corpus.

use std::net::SocketAddr;

use ontempo_foundation::{Duration, Time};
use ontempo_probe::wire::{self, Message};
use ontempo_probe::{Pace, Receiver, ReceiverOptions, Sender, SenderOptions};
use ontempo_udp::{Datagram, Dscp, Ecn, Next, Protocol};

/// Packets, each behind a byte that says its length, come to both ends of an open session.
pub(crate) fn spaced(bytes: &[u8]) {
    let (near, far) = (SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 2], 2)));
    let mut receiver = Receiver::new(ReceiverOptions::default(), 7, |_| {});
    let mut sender = Sender::new(SenderOptions::to(far), 0);
    sender.begin(Pace::Constant(Duration::ZERO), Some(10));
    greet(&mut sender, &mut receiver, near, far);
    let mut rest = bytes;
    let mut now = Time::from_secs_f64(1.0);
    let mut buffer = Vec::new();
    while let Some((&length, after)) = rest.split_first() {
        let (packet, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        if let Ok((session, message)) = wire::read(packet) {
            buffer.clear();
            wire::write(session, &message, &mut buffer);
            assert_eq!(wire::read(&buffer), Ok((session, message)));
        }
        now += Duration::from_millis(7);
        receiver.handle(now, datagram(near, packet));
        sender.handle(now, datagram(far, packet));
        for end in [receiver.next_timeout(), sender.next_timeout()] {
            now = if end < now + Duration::from_secs(5) { now.max(end) } else { now };
        }
        receiver.handle_timeout(now);
        sender.handle_timeout(now);
        buffer.clear();
        if let Next::Transmit(_) = receiver.poll_transmit(now, &mut buffer) {
            assert!(wire::read(&buffer).is_ok());
        }
        buffer.clear();
        sender.poll_transmit(now, &mut buffer);
        assert!(sender.totals().received <= sender.sent());
    }
}

fn datagram(source: SocketAddr, data: &[u8]) -> Datagram<'_> {
    let (ecn, dscp) = (Ecn::default(), Dscp::default());
    Datagram { source, local: None, received: Time::ZERO, ecn, dscp, data }
}

/// The greeting, to its end.
fn greet(sender: &mut Sender, receiver: &mut Receiver, near: SocketAddr, far: SocketAddr) {
    let mut buffer = Vec::new();
    for _ in 0..2 {
        buffer.clear();
        sender.poll_transmit(Time::ZERO, &mut buffer);
        receiver.handle(Time::ZERO, datagram(near, &buffer));
        buffer.clear();
        receiver.poll_transmit(Time::ZERO, &mut buffer);
        sender.handle(Time::ZERO, datagram(far, &buffer));
    }
    assert!(sender.is_open());
    // The first message of each kind that data is not.
    assert!(!matches!(wire::read(&buffer), Ok((_, Message::Data(_)))));
}
