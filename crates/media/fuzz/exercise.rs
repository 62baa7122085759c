//! What the fuzz targets do with bytes, and the tests on stable with
//! every file of the corpus.

use ontempo_foundation::{Duration, Time};
use ontempo_media::ts::{PACKET, SYNC};
use ontempo_media::{
    Chunker, Depacketizer, DepacketizerOptions, ElementaryDatagram, Format, FrameAssembler,
    FrameTable, LiveDemultiplexer, MAX_ELEMENTARY_FRAME, Packetizer, PacketizerOptions, PcrClock,
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
    if let Ok(unit) = Unit::read(7, bytes) {
        let mut again = Vec::new();
        unit.write(&mut again);
        assert_eq!(Unit::read(7, &again), Ok(unit.clone()));
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
    let datagrams = datagrams(bytes);
    cut_and_join(&datagrams, None);
    cut_and_join(&datagrams, Some(Format::Rtp));
}

/// Datagrams of an elementary stream, each behind a byte that says its length: carried unchanged; what
/// is read is written the same, and frames are put together from it.
pub(crate) fn elementary(bytes: &[u8]) {
    let datagrams = datagrams(bytes);
    cut_and_join(&datagrams, Some(Format::Elementary));
    cut_and_join(&datagrams, Some(Format::Elementaries));
    let mut assembler = FrameAssembler::default();
    for bytes in &datagrams {
        let Ok(datagram) = ElementaryDatagram::read(bytes) else { continue };
        let mut written = Vec::new();
        datagram.write(&mut written);
        assert_eq!(&written, bytes);
        if let ElementaryDatagram::Part(part) = datagram
            && let Some(frame) = assembler.push(&part)
        {
            assert!(frame.data.len() <= MAX_ELEMENTARY_FRAME);
        }
    }
}

fn datagrams(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut datagrams) = (bytes, Vec::new());
    while let Some((&length, after)) = rest.split_first() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        datagrams.push(datagram.to_vec());
        rest = after;
    }
    datagrams
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
            let read = Unit::read(unit.id, &bytes).expect("what was written");
            let carried = Unit { continues: None, dependencies: Vec::new(), ..unit };
            assert_eq!(read, carried);
            depacketizer.push(Time::ZERO, &read);
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

/// The bytes as a table of frames: what is read is written and read the same.
pub(crate) fn frames(bytes: &[u8]) {
    let Ok(table) = FrameTable::read_csv(&String::from_utf8_lossy(bytes)) else { return };
    assert_eq!(table.check(), Ok(()));
    assert_eq!(FrameTable::read_csv(&table.write_csv()), Ok(table));
}

/// The payload of a packet in which this section begins, with its checksum (ISO/IEC 13818-1, annex A).
fn section(bytes: &[u8]) -> Vec<u8> {
    let sum = bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    });
    [&[0], bytes, &sum.to_be_bytes()].concat()
}

/// The first byte says which types of stream, the rest is content of packets: of pictures, or of sound
/// where the length is odd. What it is cut into is a valid table, and what is live is bounded.
pub(crate) fn marks(bytes: &[u8]) {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let private = |name: &[u8]| [&[0x06, name.len() as u8][..], name].concat();
    let pictures = match first & 8 {
        0 => vec![[0x1b, 0x24, 0x02, 0x42][usize::from(first & 3)], 0],
        _ => private(&[5, 4, b'A', b'V', b'0', b'1', 0x80, 4, 0x81, 8, 0x0c, 0xc0]),
    };
    let sound = match first & 16 {
        0 => vec![if first & 4 == 0 { 0x0f } else { 0x03 }, 0],
        _ => private(&[5, 4, b'O', b'p', b'u', b's', 0x7f, 2, 0x80, first & 7]),
    };
    let pat = section(&[0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0]);
    let mut entries = Vec::new();
    for (pid, coding) in [(0, pictures), (1, sound)] {
        entries.extend([coding[0], 0xe1, pid, 0xf0]);
        entries.extend(&coding[1..]);
    }
    let mut pmt = vec![2, 0xb0, 13 + entries.len() as u8, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0];
    pmt.extend(&entries);
    let mut stream = [packet(0, true, &pat), packet(0x1000, true, &section(&pmt))].concat();
    // Each PES packet has a byte with its length, and one with its time.
    while let Some((&[length, time], after)) = rest.split_first_chunk() {
        let (content, after) = after.split_at(after.len().min(usize::from(length >> 1)));
        rest = after;
        let stamp = |mark: u8, time: u8| [mark | time >> 4 & 0x0e | 1, 0, 1, 0, 1];
        let mut pes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
        pes.extend([stamp(0x30, time << 4), stamp(0x10, time)].concat());
        pes.extend(content);
        let pid = 0x100 + u16::from(length & 1);
        stream.extend(packet(pid, true, &pes));
    }
    let (mut live, mut units) = (LiveDemultiplexer::new(), Vec::new());
    stream.chunks(PACKET).for_each(|datagram| live.push(datagram, &mut units));
    assert_eq!(live.streams().len(), 2);
    // OBUs get sizes where they had none: of at most two bytes here, each of one at least.
    assert!(units.iter().map(|unit| unit.bytes.len()).sum::<usize>() <= 2 * stream.len());
    index(&stream);
    let Ok((table, _)) = FrameTable::from_transport_stream(&stream) else { return };
    assert_eq!(table.check(), Ok(()));
    assert_eq!(FrameTable::read_csv(&table.write_csv()), Ok(table));
}

/// A packet of at most 183 bytes of payload, whose counter may jump.
fn packet(pid: u16, begins: bool, payload: &[u8]) -> Vec<u8> {
    let begins = if begins { 0x40 } else { 0 };
    let mut bytes = vec![SYNC, (pid >> 8) as u8 | begins, pid as u8, 0x30];
    let room = PACKET - 5 - payload.len();
    bytes.push(room as u8);
    if room > 0 {
        bytes.push(0x80);
        bytes.resize(5 + room, 0xff);
    }
    bytes.extend(payload);
    bytes
}
