//! The test vectors: inputs, and the results of PERT in Rust.

use std::fmt::Write;

use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_kernel::Settings;
use ontempo_mechanisms::congestion::{
    Ack, CongestionControl, IntervalHistory, Loss, Mode, Pert, PertParameters, Queueing, Start,
    Timeout, Window,
};

/// Encodes "no loss yet".
const NO_LOSS: u64 = u64::MAX;

/// The whole file.
pub(crate) fn generate() -> String {
    let mut csv = "kind,inputs in fixed point,the Rust PERT's answer\n".to_owned();
    for assignments in [
        &["counting=acks", "samples=all", "compete=alpha"][..],
        &["variant=thesis", "counting=acks", "samples=all", "compete=alpha"],
        &[
            "t-min=1 ms",
            "t-max=30 ms",
            "p-max=0.2",
            "alpha-max=8",
            "alpha-initial=2",
            "counting=acks",
            "samples=all",
            "compete=alpha",
        ],
        &["counting=acks", "compete=as-reno"],
        &["counting=acks", "samples=confirmed", "compete=alpha"],
    ] {
        let settings = Settings::parse(assignments.iter().copied()).expect("settings");
        let numbers: Vec<String> = settings.fixed_point().iter().map(ToString::to_string).collect();
        row(&mut csv, "P", &numbers.join(" "), "");
        laws(&mut csv, &settings.pert);
        connection(&mut csv, settings.pert);
    }
    powers(&mut csv);
    intervals(&mut csv);
    felt(&mut csv);
    csv
}

fn row(csv: &mut String, kind: &str, inputs: &str, answer: &str) {
    writeln!(csv, "{kind},{inputs},{answer}").expect("memory");
}

fn microseconds(delay: Duration) -> f64 {
    delay.as_nanos() as f64 / 1e3
}

const fn packets(number: u64) -> u64 {
    number << 20
}

fn code(mode: Mode) -> u32 {
    match mode {
        Mode::HighSpeed => 0,
        Mode::Safe => 1,
        Mode::Compete => 2,
    }
}

/// The pure functions over a grid that includes the limits.
fn laws(csv: &mut String, pert: &PertParameters) {
    let mut random = RandomStream::new(1, "laws");
    let mut cases: Vec<(u64, u64)> = Vec::new();
    for current in [0, 1, 999, 4_999, 5_000, 5_001, 7_500, 9_999, 10_000, 15_000, 20_000, 29_999] {
        cases.extend([(current, 10_000), (current, 45_000), (current, 100_000)]);
    }
    cases.extend([
        (60_000, 100_000),
        (65_001, 100_000),
        (99_999, 100_000),
        (90_000_000, 99_000_000),
    ]);
    cases.extend((0..60).map(|_| {
        let maximum = 10_000.0 + 500_000.0 * random.uniform().powi(2);
        ((maximum * random.uniform()) as u64, maximum as u64)
    }));
    for (place, (current, maximum)) in cases.into_iter().filter(|(a, b)| a <= b).enumerate() {
        let queueing = Queueing {
            current: Duration::from_micros(current),
            maximum: Duration::from_micros(maximum),
        };
        // p'/p in quarters of a packet, and alpha in halves: exact in fixed point.
        let quarters = (random.uniform() * 200.0) as u64;
        let halves = 2 + (random.uniform() * 60.0) as u64;
        let ratio = (place % 5 != 0).then_some(quarters as f64 / 4.0);
        let alpha = (halves as f64 / 2.0).min(pert.alpha_maximum);
        let mode = [Mode::HighSpeed, Mode::Safe, Mode::Compete, Mode::Compete][place % 4];
        let inputs = format!(
            "{} {} {} {} {}",
            current << 12,
            maximum << 12,
            ratio.map_or(NO_LOSS, |_| packets(quarters) / 4),
            (alpha * 2.0) as u64 * packets(1) / 2,
            code(mode)
        );
        let answer = format!(
            "{} {} {} {} {} {} {}",
            microseconds(pert.t3(queueing)),
            pert.response_probability(queueing),
            pert.decrease(queueing),
            code(pert.mode(queueing)),
            ratio.map_or(0.0, |ratio| pert.compete_target(queueing, ratio)),
            pert.stepped_alpha(alpha, mode, queueing, ratio),
            pert.immediate_alpha(mode, queueing, ratio).unwrap_or(0.0),
        );
        row(csv, "L", &inputs, &answer);
    }
}

/// One ACK that covers n packets: the old value's weight, and the probability of no response.
fn powers(csv: &mut String) {
    for base in [0, 1 << 20, 8_388_608, 15_938_355, 16_609_444, 16_777_000, 16_777_216_u64] {
        for n in [1, 2, 3, 8, 17, 44, 1000] {
            let share = base as f64 / f64::from(1 << 24);
            row(csv, "K", &format!("{base} {n}"), &share.powi(n).to_string());
        }
    }
}

fn intervals(csv: &mut String) {
    let mut random = RandomStream::new(1, "intervals");
    for count in 0..24 {
        let mut draw = || (10.0_f64.powf(6.0 * random.uniform())) as u64;
        let open = draw();
        let closed: Vec<u64> = (0..count % 12).map(|_| draw()).collect();
        let mut history = IntervalHistory::default();
        for &length in &closed {
            history.on_packets(length as f64);
            history.close();
        }
        history.on_packets(open as f64);
        let all: Vec<String> =
            std::iter::once(open).chain(closed).map(|length| length.to_string()).collect();
        row(csv, "I", &all.join(" "), &history.mean().unwrap_or(0.0).to_string());
    }
}

/// ACKs of 12 GiB, with a response in the beginning and one after 9 GiB: sequence numbers pass round three
/// times, and both distances that a signed comparison of them takes for the past and the future.
fn felt(csv: &mut String) {
    const STEP: u64 = 97 << 20;
    const FLIGHT: u64 = 3 * STEP;
    let mut responded_until = 0;
    for place in 0..(12 << 30) / STEP {
        let acked = place * STEP;
        let felt = acked > responded_until;
        let responds = place == 1 || (felt && acked > 9 << 30 && responded_until < 9 << 30);
        if responds {
            responded_until = acked + FLIGHT;
        }
        let sequence = |bytes: u64| bytes & u64::from(u32::MAX);
        let inputs = [sequence(acked), sequence(acked + FLIGHT), u64::from(responds)];
        row(
            csv,
            "F",
            &inputs.map(|number| number.to_string()).join(" "),
            &u8::from(felt).to_string(),
        );
    }
}

/// Queueing delay over the course of a connection, in microseconds: the value that each phase of
/// ACKs approaches, so that each mode is entered, left, and entered again.
const PHASES: [u64; 10] =
    [500, 3_000, 8_000, 30_000, 90_000, 120_000, 70_000, 12_000, 2_000, 110_000];
const ACKS_OF_A_PHASE: u64 = 90;

/// Phases that end with a loss or a timeout.
const LOST_AFTER: [usize; 3] = [4, 5, 8];
const TIMEOUT_AFTER: usize = 6;

/// A connection through every mode, with losses, a recovery and a timeout.
fn connection(csv: &mut String, parameters: PertParameters) {
    let mut random = RandomStream::new(1, "connection");
    let start = Start {
        initial_window: Window::of_packets(10.0),
        initial_ssthresh: Window::of_packets(60.0),
        ..Start::default()
    };
    let mut trace = Trace {
        pert: Pert::new(start, parameters, RandomStream::new(7, "pert")),
        now: 1_000_000,
        acked: 0,
        responded_until: 0,
        // Alpha's steps are 5 smoothed round trips apart: some 20 to 80 ACKs of 10 ms. A flow is Reno for
        // 256 round trips and more.
        between: if parameters.as_reno { 60_000 } else { 10_000 },
        window_limited: true,
    };
    row(csv, "S", &format!("{} {}", packets(10), packets(60)), &trace.answer());
    // Again, where the flow is Reno in the first course: it responds early again in the second, and what
    // its application limits in the third waits for a short queue.
    let courses = if parameters.as_reno { 4 } else { 1 };
    let phases = (0..courses)
        .flat_map(|course| PHASES.into_iter().enumerate().map(move |one| (course, one)));
    for (course, (phase, queue)) in phases {
        trace.window_limited = course < 2;
        for place in 0..ACKS_OF_A_PHASE {
            let noise = (random.uniform() * queue as f64 / 4.0) as u64;
            let count = 1 + (random.uniform() * 3.0) as u64;
            let in_recovery = phase == 5 && place < 20;
            trace.ack(csv, 40_000 + queue + noise, count, in_recovery);
        }
        if LOST_AFTER.contains(&phase) {
            trace.loss(csv);
        } else if phase == TIMEOUT_AFTER {
            trace.timeout(csv);
        }
    }
}

struct Trace {
    pert: Pert,
    now: u64,
    acked: u64,
    responded_until: u64,
    /// Microseconds between ACKs.
    between: u64,
    window_limited: bool,
}

impl Trace {
    fn ack(&mut self, csv: &mut String, rtt: u64, count: u64, in_recovery: bool) {
        self.now += self.between;
        self.acked += count;
        let next = self.acked + self.pert.window().whole_packets();
        let felt = self.acked >= self.responded_until;
        let before = self.pert.snapshot().early_responses;
        self.pert.on_ack(&Ack {
            now: Time::from_nanos(self.now * 1_000),
            packets: count as f64,
            rtt: Some(Duration::from_micros(rtt)),
            srtt: Duration::from_micros(rtt),
            acked: self.acked,
            next,
            in_flight: 0.0,
            in_recovery,
            repairs: in_recovery,
            window_limited: self.window_limited,
        });
        let responded = self.pert.snapshot().early_responses > before;
        if responded {
            self.responded_until = next;
        }
        // The smallest draw responds if the probability is above 0, and the largest does not.
        let draw = if responded { 0 } else { u32::MAX };
        let kind = if in_recovery { "R" } else { "A" };
        let flags = (u8::from(felt), u8::from(self.window_limited));
        let inputs = format!("{} {count} {rtt} {} {draw} {}", self.now, flags.0, flags.1);
        row(csv, kind, &inputs, &self.answer());
    }

    fn loss(&mut self, csv: &mut String) {
        // Both packets lost below were sent before the first loss was reported.
        let next = self.acked + self.pert.window().whole_packets().max(3);
        let now = Time::from_nanos(self.now * 1_000);
        self.pert.on_loss(&Loss { now, packet: self.acked + 1, next, in_flight: 0.0 });
        // A second loss in the same window: no reaction.
        self.pert.on_loss(&Loss { now, packet: self.acked + 2, next, in_flight: 0.0 });
        self.acked = next;
        row(csv, "O", "", &self.answer());
    }

    fn timeout(&mut self, csv: &mut String) {
        let next = self.acked + self.pert.window().whole_packets();
        let now = Time::from_nanos(self.now * 1_000);
        self.pert.on_timeout(&Timeout { now, next, in_flight: 0.0, repeated: false });
        self.acked = next;
        row(csv, "T", "", &self.answer());
    }

    fn answer(&self) -> String {
        let snapshot = self.pert.snapshot();
        format!(
            "{} {} {} {} {} {}",
            snapshot.cwnd.packets(),
            snapshot.ssthresh.packets(),
            snapshot.alpha.unwrap_or(0.0),
            code(self.pert.mode()),
            snapshot.queueing_delay.map_or(0.0, microseconds),
            snapshot.early_responses
        )
    }
}
