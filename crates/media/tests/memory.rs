//! What a sender can make a depacketizer hold; alone in its process, whose memory is measured.

use ontempo_foundation::Time;
use ontempo_media::{Depacketizer, DepacketizerOptions, Kind, Part, Release, Span, Unit};

/// What the process may hold with a buffer of 64 MB, bytes.
const MAX_MEMORY: usize = 200 << 20;

/// The largest resident memory of this process so far, bytes; `None` where there is no procfs.
fn peak_memory() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok().map(|kib| kib << 10)
}

/// Every second byte of the largest datagram, each a piece of its own; the rest never comes.
fn shreds(datagram: u64) -> Unit {
    let spans: Vec<Span> = (0..32_767).map(|place| Span { offset: 2 * place, length: 1 }).collect();
    let data = vec![7; spans.len()];
    let parts = vec![Part { datagram, length: u16::MAX, arrived: Time::ZERO, spans }];
    let (kind, dependencies) = (Kind::Datagram, Vec::new());
    Unit {
        id: datagram,
        kind,
        media_time: None,
        slack: None,
        dependencies,
        continues: None,
        parts,
        data,
    }
}

#[test]
fn a_sender_of_single_bytes_makes_it_hold_no_more_than_its_buffer() {
    let Some(before) = peak_memory() else {
        ontempo_testing::skip!("this machine has no /proc/self/status");
    };
    for release in [Release::InOrder, Release::WhenWhole] {
        let options = DepacketizerOptions { release, ..DepacketizerOptions::default() };
        let mut depacketizer = Depacketizer::new(options);
        // Some 20 MB on the wire: offset, length and one byte for each piece. Datagram 0 is missing.
        for datagram in 1..=200 {
            let mut wire = Vec::new();
            shreds(datagram).write(&mut wire);
            let unit = Unit::read(&wire).expect("a unit");
            depacketizer.push(Time::ZERO, &unit);
            while depacketizer.poll(Time::ZERO).is_some() {}
        }
        let held = peak_memory().unwrap_or(0) - before;
        assert!(held < MAX_MEMORY, "{held} bytes held after 20 MB were sent");
        assert!(depacketizer.statistics().forced > 0, "the buffer was never full");
    }
}
