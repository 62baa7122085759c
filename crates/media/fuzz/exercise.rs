//! What the fuzz targets do with bytes, and the tests on stable with
//! every file of the corpus.

use ontempo_foundation::{Duration, Time};
use ontempo_media::ts::{PACKET, SYNC};
use ontempo_media::{
    Chopper, Cutter, CutterOptions, Format, Joiner, JoinerOptions, PcrClock, Release,
    TransportStreamIndex, Unit,
};

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
