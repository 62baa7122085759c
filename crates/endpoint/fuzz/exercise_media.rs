//! What the fuzz targets of media and spaced packets do with bytes, and the tests on stable with
//! every file of the corpus.

use std::net::SocketAddr;

use ontempo_endpoint::media::ts::{PACKET, SYNC};
use ontempo_endpoint::media::{
    Chopper, Cutter, CutterOptions, Format, Joiner, JoinerOptions, PcrClock, Release,
    TransportStreamIndex, Unit,
};
use ontempo_endpoint::spaced::wire::{self, Message};
use ontempo_endpoint::spaced::{Pace, Receiver, ReceiverOptions, Sender, SenderOptions};
use ontempo_endpoint::udp::{Datagram, Dscp, Ecn, Next, Protocol};
use ontempo_foundation::{Duration, Time};

/// A stream of bytes: chopped, cut, and put back the same. And the bytes as a unit of a peer.
pub(crate) fn ts(bytes: &[u8]) {
    let (mut chopper, mut clock) = (Chopper::new(1_316), PcrClock::default());
    let mut datagrams = Vec::new();
    for some in bytes.chunks(1_000) {
        chopper.push(some);
        while let Some(datagram) = chopper.poll() {
            clock.due(datagram);
            datagrams.push(datagram.to_vec());
        }
    }
    chopper.finish();
    while let Some(datagram) = chopper.poll() {
        datagrams.push(datagram.to_vec());
    }
    assert_eq!(datagrams.concat(), bytes);
    cut_and_join(&datagrams, None);
    index(bytes);
    if let Ok(unit) = Unit::read(bytes) {
        let mut again = Vec::new();
        unit.write(&mut again);
        assert_eq!(Unit::read(&again), Ok(unit.clone()));
        for release in [Release::InOrder, Release::WhenWhole] {
            let mut joiner = Joiner::new(JoinerOptions { release, most_bytes: 1_000 });
            joiner.push(Time::ZERO, &unit);
            joiner.push(Time::ZERO, &unit);
            while joiner.poll(Time::ZERO).is_some() {}
            assert!(joiner.waiting() <= 1_000);
        }
    }
}

/// The bytes as whole packets of a transport stream.
fn index(bytes: &[u8]) {
    let mut packets = bytes[..bytes.len() / PACKET * PACKET].to_vec();
    packets.chunks_mut(PACKET).for_each(|packet| packet[0] = SYNC);
    let Ok(index) = TransportStreamIndex::read(&packets) else { return };
    assert_eq!(index.packets * PACKET, packets.len());
    assert!(index.due.is_sorted());
    for unit in &index.units {
        assert!(unit.packets.is_sorted() && unit.packets.last() < Some(&index.packets));
        assert!(unit.size <= unit.packets.len() * PACKET);
    }
}

/// Datagrams, each behind a byte that says its length.
pub(crate) fn rtp(bytes: &[u8]) {
    let (mut rest, mut datagrams) = (bytes, Vec::new());
    while let Some((&length, after)) = rest.split_first() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        datagrams.push(datagram.to_vec());
        rest = after;
    }
    cut_and_join(&datagrams, None);
    cut_and_join(&datagrams, Some(Format::Rtp));
}

fn cut_and_join(datagrams: &[Vec<u8>], format: Option<Format>) {
    let mut cutter = Cutter::new(CutterOptions { format, ..CutterOptions::default() });
    let options = JoinerOptions { release: Release::InOrder, ..JoinerOptions::default() };
    let mut joiner = Joiner::new(options);
    let mut now = Time::ZERO;
    let mut bytes = Vec::new();
    let mut join = |cutter: &mut Cutter| {
        while let Some(unit) = cutter.poll() {
            bytes.clear();
            unit.write(&mut bytes);
            assert_eq!(Unit::read(&bytes).as_ref(), Ok(&unit));
            joiner.push(Time::ZERO, &unit);
        }
    };
    for datagram in datagrams {
        now += Duration::from_micros(100);
        cutter.push(now, datagram);
        join(&mut cutter);
    }
    cutter.finish();
    join(&mut cutter);
    joiner.finish();
    let back: Vec<_> = std::iter::from_fn(|| joiner.poll(now)).map(|one| one.data).collect();
    assert_eq!(back, datagrams);
}

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
