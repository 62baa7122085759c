//! Transport streams in files that are damaged, cut, or none.

use super::*;

#[test]
fn bytes_that_are_no_transport_stream_are_named() {
    let read = |bytes: &[u8]| TransportStreamIndex::read(bytes).expect_err("none").to_string();
    assert!(read(&[]).starts_with("0 bytes are no whole number of transport packets"));
    assert!(read(&[0x47; 100]).starts_with("100 bytes are no"));
    let broken = [pat(), vec![0; ts::PACKET]].concat();
    assert_eq!(read(&broken), "no transport packet at byte 188: it does not begin with 0x47");
}

#[test]
fn a_stream_that_is_cut_or_damaged_keeps_the_places_of_its_packets() {
    let stream = [
        pat(),
        pmt(),
        pes(VIDEO, true, 0, 90_000, 100),
        more(VIDEO),
        pes(AUDIO, false, 108, 5, 100),
        more(VIDEO),
        pes(VIDEO, false, 0, 93_600, 100),
        more(VIDEO),
    ];
    let mut bytes = stream.concat();
    let whole = TransportStreamIndex::read(&bytes).expect("a stream");
    assert_eq!((whole.cut, whole.damaged.len()), (0, 0));
    bytes[3 * ts::PACKET] = 0;
    bytes.extend(&more(VIDEO)[..100]);
    let index = TransportStreamIndex::read(&bytes).expect("a stream");
    assert_eq!((index.packets, index.cut, index.damaged), (8, 100, vec![3]));
    let places = |index: &[IndexedUnit], kind: Kind| {
        let unit = index.iter().find(|unit| unit.kind == kind).expect("one");
        unit.packets.clone()
    };
    assert_eq!(places(&index.units, Kind::Key), [2, 5]);
    for kind in [Kind::Tables, Kind::Sound, Kind::Frame] {
        assert_eq!(places(&index.units, kind), places(&whole.units, kind));
    }
    // Two of eight are beyond the bound.
    bytes[5 * ts::PACKET] = 0;
    assert_eq!(TransportStreamIndex::read(&bytes), Err(IndexError::Sync(3 * ts::PACKET)));
}
