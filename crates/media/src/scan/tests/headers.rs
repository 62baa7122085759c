//! Headers of PES packets that are cut or damaged.

use super::*;

/// The same PES packets, of each of which the first packet has only so many bytes.
fn cut_after(bytes: &[u8], kept: usize) -> Vec<u8> {
    let (mut counters, mut cut) = ([0; 2], Vec::new());
    let mut finish = |pid: u16, content: &mut Vec<u8>, cut: &mut Vec<u8>| {
        let Some(counter) = counters.get_mut(usize::from(pid.wrapping_sub(VIDEO))) else { return };
        let (begin, rest) = content.split_at(kept);
        let parts = std::iter::once(begin).chain(rest.chunks(PACKET - 4));
        for (number, part) in parts.enumerate() {
            cut.extend(packet(pid, number == 0, *counter, part));
            *counter += 1;
        }
        content.clear();
    };
    let (mut pid, mut content) = (0, Vec::new());
    for one in bytes.chunks_exact(PACKET) {
        let header = ts::header(one).expect("a packet");
        if header.begins {
            finish(pid, &mut content, &mut cut);
        }
        pid = header.pid;
        match pid {
            VIDEO | SOUND => content.extend(&one[header.payload..]),
            _ => cut.extend(one),
        }
    }
    finish(pid, &mut content, &mut cut);
    cut
}

#[test]
fn a_header_that_goes_on_in_the_next_packet_is_read_as_a_whole_one() {
    let whole = FrameTable::from_transport_stream(&film()).expect("a film");
    let shown = units(&mut LiveDemultiplexer::new(), &film());
    for kept in 0..19 {
        let bytes = cut_after(&film(), kept);
        assert_eq!(FrameTable::from_transport_stream(&bytes), Ok(whole.clone()), "{kept}");
        let cut = units(&mut LiveDemultiplexer::new(), &bytes);
        assert!(pictures(&cut) == pictures(&shown), "{kept}");
    }
}

/// The film with other bytes in the packets with a payload of pictures, of which the first begin the third picture.
fn changed(change: impl Fn(&mut [u8], &ts::Header)) -> Vec<String> {
    let (mut bytes, mut begun) = (film(), 0);
    for one in bytes.chunks_exact_mut(PACKET) {
        let header = ts::header(one).expect("a packet");
        begun += u32::from(header.pid == VIDEO && header.begins);
        if header.pid == VIDEO && begun == 3 {
            change(one, &header);
        }
    }
    FrameTable::from_transport_stream(&bytes).expect("a film").1
}

#[test]
fn a_picture_whose_header_is_damaged_or_missing_is_reported() {
    let note = "PES packets without a whole header, which are left out: 1";
    let damaged = changed(|one, header| one[header.payload] |= u8::from(header.begins));
    assert_eq!(damaged, [note]);
    let cut = cut_after(&film(), 5);
    let first = cut.chunks_exact(PACKET).take(3).collect::<Vec<_>>().concat();
    let mut without = [first, cut[4 * PACKET..].to_vec()].concat();
    let (_, notes) = FrameTable::from_transport_stream(&without).expect("a film");
    assert!(notes.iter().any(|one| one == note), "{notes:?}");
    // The last packet of all.
    without = [film(), packet(VIDEO, true, 10, &[0, 0, 1])].concat();
    let (_, notes) = FrameTable::from_transport_stream(&without).expect("a film");
    assert!(notes.iter().any(|one| one == note), "{notes:?}");
}

#[test]
fn packets_that_say_that_they_have_errors_are_reported() {
    let notes = changed(|one, _| one[1] |= 0x80);
    assert_eq!(notes, ["packets that say that they have errors, which are taken as they are: 2"]);
}
