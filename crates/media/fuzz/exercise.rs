//! What the fuzz targets do with bytes, and the tests on stable with
//! every file of the corpus.

use ontempo_foundation::{Duration, Time};
use ontempo_media::ts::{PACKET, SYNC};
use ontempo_media::{
    Chunker, Depacketizer, DepacketizerOptions, Format, Packetizer, PacketizerOptions, PcrClock,
    Release, TransportStreamIndex, Unit,
};

/// A stream of bytes: chopped, cut, and put back the same. And the bytes as a unit of a peer.
pub(crate) fn ts(bytes: &[u8]) {
    let (mut chunker, mut clock) = (Chunker::new(1_316), PcrClock::default());
    let mut datagrams = Vec::new();
    for some in bytes.chunks(1_000) {
        chunker.push(some);
        while let Some(datagram) = chunker.poll() {
            clock.due(datagram);
            datagrams.push(datagram.to_vec());
        }
    }
    chunker.finish();
    while let Some(datagram) = chunker.poll() {
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
            let mut depacketizer =
                Depacketizer::new(DepacketizerOptions { release, max_bytes: 1_000 });
            depacketizer.push(Time::ZERO, &unit);
            depacketizer.push(Time::ZERO, &unit);
            while depacketizer.poll(Time::ZERO).is_some() {}
            assert!(depacketizer.waiting() <= 1_000);
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
    let mut packetizer =
        Packetizer::new(PacketizerOptions { format, ..PacketizerOptions::default() });
    let options =
        DepacketizerOptions { release: Release::InOrder, ..DepacketizerOptions::default() };
    let mut depacketizer = Depacketizer::new(options);
    let mut now = Time::ZERO;
    let mut bytes = Vec::new();
    let mut join = |packetizer: &mut Packetizer| {
        while let Some(unit) = packetizer.poll() {
            bytes.clear();
            unit.write(&mut bytes);
            assert_eq!(Unit::read(&bytes).as_ref(), Ok(&unit));
            depacketizer.push(Time::ZERO, &unit);
        }
    };
    for datagram in datagrams {
        now += Duration::from_micros(100);
        packetizer.push(now, datagram);
        join(&mut packetizer);
    }
    packetizer.finish();
    join(&mut packetizer);
    depacketizer.finish();
    let back: Vec<_> = std::iter::from_fn(|| depacketizer.poll(now)).map(|one| one.data).collect();
    assert_eq!(back, datagrams);
}
