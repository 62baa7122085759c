//! Resident memory of the longest recording, whose receiver lies.
//!
//! The recorder is in a process of its own, so that its memory is not that of other tests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Command;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_probe::wire::{self, Arrivals, Message};
use ontempo_probe::{Recorder, RecorderOptions, SenderOptions};
use ontempo_udp::{Datagram, Dscp, Ecn, Next, Protocol};

/// What the memory of a program with the defaults stays below, in kB.
const MAX_RESIDENT_KB: u64 = 300_000;
/// Names the process that records.
const ROLE: &str = "ONTEMPO_TEST_RECORDER";

/// From a packet to its report.
const ROUND_TRIP: Duration = Duration::from_millis(10);
const SESSION: u64 = 77;
/// The receiver's clock is so far ahead, ns.
const SKEW: u64 = 1 << 60;

/// A receiver of every packet that says at once so, with times that are wrong now and then.
struct Receiver {
    random: RandomStream,
    count: u64,
    /// When they arrive at the sender.
    answers: VecDeque<(Time, Vec<u8>)>,
}

impl Receiver {
    fn hear(&mut self, now: Time, bytes: &[u8]) {
        let Ok((SESSION, heard)) = wire::read(bytes) else { panic!("{bytes:?}") };
        let mut answer = Vec::new();
        match heard {
            Message::Hello { stamp } => {
                let challenge = Message::Challenge { stamp, cookie: [5; 16] };
                wire::write(SESSION, &challenge, &mut answer);
            }
            Message::Start { stamp, .. } => {
                wire::write(SESSION, &Message::Accept { stamp }, &mut answer);
            }
            Message::Load(load) => {
                let mut records = Vec::new();
                let at = SKEW + now.as_nanos();
                // Days later or earlier, which is believed.
                let lie = match self.random.uniform() {
                    lie if lie < 0.01 => 1 << 49,
                    _ => 0,
                };
                let clock = at.wrapping_add(lie);
                wire::push_record(load.number, clock, &mut records);
                let arrivals = Arrivals::new(self.count, clock, &records);
                self.count += 1;
                wire::write(SESSION, &Message::Arrivals(arrivals), &mut answer);
            }
            _ => return,
        }
        self.answers.push_back((now + ROUND_TRIP, answer));
    }
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Records in virtual time for as long as may be, and makes the trace.
fn record() {
    let destination = SocketAddr::from(([10, 0, 0, 2], 5_000));
    let mut options = RecorderOptions {
        duration: Duration::ZERO,
        max_rate: Rate::from_bits_per_sec(50_000_000),
        packet: Bytes::new(500),
        sender: SenderOptions::to(destination),
        silence: Duration::from_secs(10),
    };
    options.duration = options.longest();
    let mut recorder = Recorder::new(options, SESSION, |_| {});
    let recording = recorder.recording();
    let random = RandomStream::new(1, "lies");
    let mut receiver = Receiver { random, count: 0, answers: VecDeque::new() };
    let mut now = Time::ZERO;
    let mut bytes = Vec::new();
    while !recorder.is_finished() {
        if recorder.next_timeout() <= now {
            recorder.handle_timeout(now);
        }
        bytes.clear();
        let next = match recorder.poll_transmit(now, &mut bytes) {
            Next::Transmit(_) => {
                receiver.hear(now, &bytes);
                now
            }
            Next::WaitUntil(until) => until,
            Next::Idle => Time::NEVER,
        };
        let arrival = receiver.answers.front().map_or(Time::NEVER, |first| first.0);
        now = next.min(recorder.next_timeout()).min(arrival).max(now);
        while receiver.answers.front().is_some_and(|first| first.0 <= now) {
            let (at, answer) = receiver.answers.pop_front().expect("one");
            let (ecn, dscp) = (Ecn::default(), Dscp::default());
            let source = destination;
            let datagram = Datagram { source, local: None, received: at, ecn, dscp, data: &answer };
            recorder.handle(now, datagram);
        }
    }
    drop((recorder, receiver));
    let before = status("VmHWM:");
    // The shortest window of the command.
    let trace = recording.lock().expect("whole").trace(Duration::from_millis(20));
    let (sent, arrived) = trace.packets;
    let rows = trace.rows.len();
    let peak = status("VmHWM:");
    println!("{sent} packets sent, {arrived} arrived, {rows} rows: {before} kB, then {peak} kB");
    assert!(sent > 1_800_000 && arrived > 1_700_000, "{sent} sent, {arrived} arrived");
    assert!(peak < MAX_RESIDENT_KB, "{peak} kB");
}

#[test]
fn the_longest_recording_of_a_lying_receiver_does_not_fill_the_memory() {
    if std::env::var(ROLE).is_ok() {
        return record();
    }
    let name = "the_longest_recording_of_a_lying_receiver_does_not_fill_the_memory";
    let ran = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, "recorder")
        .output()
        .expect("the recorder starts");
    let text = String::from_utf8_lossy(&ran.stdout);
    println!("{text}");
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
}
