//! When datagrams leave: those of a file by its clock references, those of a stream by when they came.

use ontempo_foundation::{Duration, Time};

use super::{VIDEO, at, packet};
use crate::{
    Chunker, Depacketizer, DepacketizerOptions, Kind, Part, PcrClock, Release, Span, Unit,
    ts::PACKET,
};

/// Bytes of the datagrams between two clock references.
const BETWEEN: usize = 10 * PACKET;

/// A stream with a clock reference on this PID every 40 ms, from this time of its clock on.
fn stream(pid: u16, from: Duration, length: Duration) -> Vec<u8> {
    let each = Duration::from_millis(40);
    let count = length.as_nanos() / each.as_nanos();
    let with_reference = |place| {
        let base = (from + each * place).as_nanos() * 9 / 100_000;
        let mut adaptation = vec![0x10];
        adaptation.extend(((base >> 1) as u32).to_be_bytes());
        adaptation.extend([(base as u8 & 1) << 7 | 0x7e, 0]);
        let others = packet(pid, false, &[], &[9; 184]).repeat(BETWEEN / PACKET - 1);
        [packet(pid, false, &adaptation, &[9; 100]), others].concat()
    };
    (0..count).flat_map(with_reference).collect()
}

/// When the last datagram of these streams, one after the other, is sent.
fn last_due(streams: &[Vec<u8>]) -> f64 {
    let (bytes, mut clock) = (streams.concat(), PcrClock::default());
    let dues: Vec<Duration> = bytes.chunks(7 * PACKET).map(|one| clock.due(one)).collect();
    assert!(dues.is_sorted());
    dues.last().map_or(0.0, |last| last.as_secs_f64())
}

#[test]
fn a_stream_after_another_is_sent_in_its_time_though_its_clock_is_on_another_pid() {
    let length = Duration::from_secs(10);
    let first = stream(256, Duration::from_secs(1), length);
    // Also where its clock shows what that of the first might.
    for clock in [100_000, 9_500, 12_000].map(Duration::from_millis) {
        let last = last_due(&[first.clone(), stream(4_096, clock, length)]);
        assert!((19.5..20.5).contains(&last), "{clock}: {last} s");
    }
}

#[test]
fn of_two_programs_the_clock_of_the_first_counts() {
    let length = Duration::from_secs(10);
    let of_both = [(256, 1), (4_096, 50)];
    let of_both = of_both.map(|(pid, from)| stream(pid, Duration::from_secs(from), length));
    let [first, second] = of_both.each_ref().map(|bytes| bytes.chunks(BETWEEN));
    let both: Vec<u8> = first.zip(second).flat_map(|(one, other)| [one, other].concat()).collect();
    let last = last_due(&[both]);
    assert!((9.5..10.5).contains(&last), "{last} s");
}

#[test]
fn an_arrival_that_nobody_can_know_yet_keeps_nothing_back() {
    let (delay, grace) = (Duration::from_millis(120), Duration::from_millis(50));
    let release = Release::AsArrived { delay, grace };
    let options = DepacketizerOptions { release, ..DepacketizerOptions::default() };
    let mut depacketizer = Depacketizer::new(options);
    let second = Duration::from_secs(1);
    let forged = Time::from_nanos(1_000_000_000_000_000_000);
    // The difference of the clocks that the first shows is forgotten after 30 s.
    for (number, came, arrived) in
        [(1, 1, forged), (2, 17, at(17_000_000)), (3, 33, at(33_000_000))]
    {
        let spans = vec![Span { offset: 0, length: 1 }];
        let part = Part { datagram: number, length: 1, arrived, spans, stuffing: vec![] };
        let unit = Unit {
            id: number,
            kind: Kind::Datagram,
            media_time: None,
            slack: None,
            continues: None,
            dependencies: vec![],
            parts: vec![part],
            data: vec![0],
        };
        depacketizer.push(Time::ZERO + second * came, &unit);
    }
    assert!(depacketizer.next_timeout() <= Time::ZERO + second + delay + grace);
    let end = Time::ZERO + second * 33 + delay + grace;
    let left: Vec<u64> =
        std::iter::from_fn(|| depacketizer.poll(end)).map(|one| one.datagram).collect();
    assert_eq!(left, [1, 2, 3]);
}

#[test]
fn a_stream_with_parity_is_cut_at_its_packets_and_sent_by_its_clock() {
    // Each packet has a clock reference, 1 ms after the one before.
    let packet = |number: u64, parity: usize| {
        let base = number * 90;
        let mut adaptation = vec![0x10];
        adaptation.extend(((base >> 1) as u32).to_be_bytes());
        adaptation.extend([(base as u8) << 7 | 0x7e, 0]);
        [packet(VIDEO, false, &adaptation, &[]), vec![number as u8; parity]].concat()
    };
    for parity in [0, 16] {
        let size = PACKET + parity;
        let stream: Vec<u8> = (0..100).flat_map(|number| packet(number, parity)).collect();
        let (mut chunker, mut clock) = (Chunker::new(1_316), PcrClock::default());
        let (mut lengths, mut last) = (Vec::new(), Duration::ZERO);
        for some in stream.chunks(500) {
            chunker.push(some);
            while let Some(datagram) = chunker.poll() {
                lengths.push(datagram.len());
                last = clock.due(datagram);
            }
        }
        chunker.finish();
        while let Some(datagram) = chunker.poll() {
            lengths.push(datagram.len());
        }
        assert!(lengths[..14].iter().all(|length| *length == 7 * size), "{parity}: {lengths:?}");
        assert_eq!(lengths.iter().sum::<usize>(), stream.len());
        // What has come before the end of input, two packets before the last.
        assert!(last >= Duration::from_millis(90), "{parity}: {last}");
    }
}
