//! When a Linux receiver acknowledges (Linux 6.18, `net/ipv4/tcp_input.c`).
//!
//! It delays ACKs, but not always: each of the first segments is acknowledged at once, and each
//! segment by which the receive window grows. The window is tuned once a round trip to what the
//! application read in it (`tcp_rcv_space_adjust`), so it grows while the sender speeds up: in
//! slow start most segments are acknowledged at once, with delayed ACKs in between.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use super::{AckDecision, MAX_HOLD, Segment};

/// Segments acknowledged at once at the beginning (`TCP_MAX_QUICKACKS`).
const QUICK: u64 = 16;
/// The receiver's least retransmission timeout (`TCP_RTO_MIN`). After a longer silence the sender is taken
/// to begin a slow start, and segments are acknowledged at once again.
const MIN_RTO: Duration = Duration::from_millis(200);
/// The window at the beginning, in bytes: 65,535, and whole segments of it (`tcp_select_initial_window`).
const FIRST_WINDOW: u64 = 65_535;
/// The receive buffer at the beginning, in bytes (`net.ipv4.tcp_rmem`, the second number).
const FIRST_BUFFER: u64 = 131_072;
/// The largest receive buffer, in bytes (`net.ipv4.tcp_rmem`, the third number).
const LARGEST_BUFFER: u64 = 33_554_432;
/// Memory of a full-sized segment of an Ethernet (`skb->truesize`: half a page of 4,096 bytes and
/// the `sk_buff`).
const SEGMENT_MEMORY: u64 = 2_304;
/// The initial measure of what the application reads in a round trip, in segments (`TCP_INIT_CWND`).
const FIRST_READ: u64 = 10;

/// Delayed acknowledgements as Linux has them.
///
/// An application that reads at once is assumed. Not modelled are the adaptation of the timeout
/// to the packets' distance (`icsk_ack.ato`), the compression of duplicate ACKs
/// (`tcp_comp_sack_delay_ns`), quick ACKs after a duplicate, and the window's effect on the sender.
#[derive(Clone, Debug)]
pub struct LinuxAck {
    /// Payload of a full segment in bytes, at least 1.
    payload: u64,
    timeout: Duration,
    /// How many more segments are acknowledged at once (`icsk_ack.quick`).
    quick: u64,
    /// When the last segment arrived.
    last: Time,
    /// A segment waits for its ACK.
    holds: bool,
    /// When it must be acknowledged; meaningless if none waits.
    deadline: Time,
    /// The window that is offered, in bytes (`rcv_ssthresh`).
    window: u64,
    /// The window that the receive buffer allows, in bytes (`window_clamp`).
    allowed: u64,
    /// The most that was read in a round trip, in bytes (`rcvq_space.space`).
    read_before: u64,
    /// What was read in this one, in bytes.
    read: u64,
    /// When this round trip began.
    since: Time,
    round_trip: RoundTrip,
}

/// The round-trip time as the receiver measures it: by the echo of its ACKs' times in the data sent
/// in answer to them. A lower sample is taken at once, a higher one counts an eighth
/// (`tcp_rcv_rtt_measure_ts`, `tcp_rcv_rtt_update`).
#[derive(Clone, Debug, Default)]
struct RoundTrip {
    /// ACKs that may be echoed, oldest first: the cumulative number and when it was sent.
    sent: VecDeque<(u64, Time)>,
    /// The first of them has given its sample.
    is_sampled: bool,
    estimate: Option<Duration>,
}

impl RoundTrip {
    fn on_sent(&mut self, now: Time, number: u64) {
        if self.sent.back().is_none_or(|(latest, _)| *latest < number) {
            self.sent.push_back((number, now));
        }
    }

    fn on_echo(&mut self, now: Time, number: u64) {
        while self.sent.get(1).is_some_and(|(next, _)| *next <= number) {
            self.sent.pop_front();
            self.is_sampled = false;
        }
        let Some(&(first, sent)) = self.sent.front() else { return };
        if first > number || std::mem::replace(&mut self.is_sampled, true) {
            return;
        }
        let sample = now.since(sent);
        self.estimate = Some(match self.estimate {
            Some(old) if old < sample => old - old / 8 + sample / 8,
            _ => sample,
        });
    }
}

impl LinuxAck {
    /// For segments of `payload` bytes (0 counts as 1). `timeout` is the longest wait of an
    /// acknowledgement, at most [`MAX_HOLD`]; Linux: 40 ms (`TCP_DELACK_MIN`).
    pub fn new(payload: u64, timeout: Duration) -> Self {
        let payload = payload.max(1);
        Self {
            payload,
            timeout: timeout.min(MAX_HOLD),
            quick: QUICK,
            last: Time::ZERO,
            holds: false,
            deadline: Time::ZERO,
            window: FIRST_WINDOW - FIRST_WINDOW % payload,
            allowed: Self::of_buffer(FIRST_BUFFER, payload),
            read_before: FIRST_READ * payload,
            read: 0,
            since: Time::ZERO,
            round_trip: RoundTrip::default(),
        }
    }

    /// The window that a receive buffer of `buffer` bytes allows (`tcp_win_from_space`).
    fn of_buffer(buffer: u64, payload: u64) -> u64 {
        buffer * payload.min(SEGMENT_MEMORY) / SEGMENT_MEMORY
    }

    /// See [`super::AckPolicy::on_segment`].
    pub fn on_segment(&mut self, now: Time, segment: Segment) -> AckDecision {
        let is_second = std::mem::replace(&mut self.holds, true);
        if !is_second {
            self.deadline = now + self.timeout;
        }
        let idle = now.since(std::mem::replace(&mut self.last, now));
        self.round_trip.on_echo(now, segment.acknowledged);
        if idle > MIN_RTO + self.round_trip.estimate.unwrap_or_default() {
            self.quick = self.quick.max(QUICK);
        }
        if segment.in_order {
            self.grow();
            self.read(now);
        }
        let is_quick = self.quick > 0;
        if !(segment.in_order && !is_quick && !is_second && !segment.ends_write) {
            self.quick = self.quick.saturating_sub(1);
            self.holds = false;
            return AckDecision::SendNow;
        }
        AckDecision::HoldUntil(self.deadline)
    }

    /// See [`super::AckPolicy::on_sent`].
    pub fn on_sent(&mut self, now: Time, number: u64) {
        self.round_trip.on_sent(now, number);
    }

    /// See [`super::AckPolicy::on_timer`].
    pub fn on_timer(&mut self, _now: Time) {
        self.holds = false;
    }

    /// The offered window grows by two segments with each that arrives, and asks for an ACK at
    /// once (`tcp_grow_window`, where `quick |= 1`).
    fn grow(&mut self) {
        if self.window < self.allowed {
            self.window = self.allowed.min(self.window + 2 * self.payload);
            self.quick |= 1;
        }
    }

    /// The application reads the segment. Once a round trip the buffer follows what it read, so
    /// that a sender in slow start finds twice its window (`tcp_rcv_space_adjust`, `tcp_rcvbuf_grow`).
    fn read(&mut self, now: Time) {
        self.read += self.payload;
        let Some(round_trip) = self.round_trip.estimate else { return };
        if now.since(self.since) < round_trip {
            return;
        }
        if self.read > self.read_before {
            let twice = 2 * self.read;
            let faster = twice * (self.read - self.read_before) / self.read_before;
            let wanted = twice + 2 * faster;
            let largest = Self::of_buffer(LARGEST_BUFFER, self.payload);
            self.allowed = self.allowed.max(wanted.min(largest));
            self.read_before = self.read;
        }
        self.read = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: u64 = 1_448;

    fn at_millis(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn policy() -> LinuxAck {
        LinuxAck::new(PAYLOAD, Duration::from_millis(40))
    }

    /// One that acknowledges nothing at once.
    fn steady() -> LinuxAck {
        let mut policy = policy();
        (policy.quick, policy.window) = (0, policy.allowed);
        policy
    }

    /// A sender in slow start, 40 ms and 10 Mbit/s away: it has sent 10 segments, and sends for
    /// each that is acknowledged two more. How many segments the first `acks` ACKs cover.
    fn slow_start(acks: usize) -> Vec<u64> {
        let mut policy = policy();
        let one_way = Duration::from_millis(20);
        let packet = Duration::from_micros(1_200);
        policy.on_sent(Time::ZERO, 0);
        // Segments on their way: when they arrive, and what had been acknowledged when they were sent.
        let first = Time::ZERO + one_way * 2;
        let mut arriving: VecDeque<(Time, u64)> =
            (1..=10).map(|place| (first + packet * place, 0)).collect();
        let (mut covered, mut received, mut acknowledged) = (Vec::new(), 0, 0);
        while covered.len() < acks {
            let Some((now, echo)) = arriving.pop_front() else { break };
            received += 1;
            let segment = Segment { acknowledged: echo, ..Segment::in_order() };
            if policy.on_segment(now, segment) != AckDecision::SendNow {
                continue;
            }
            policy.on_sent(now, received);
            let new = received - std::mem::replace(&mut acknowledged, received);
            covered.push(new);
            let mut last = arriving.back().map_or(now, |(at, _)| *at);
            for _ in 0..2 * new {
                last = (now + one_way * 2).max(last) + packet;
                arriving.push_back((last, received));
            }
        }
        covered
    }

    /// Lengths of runs of equal numbers.
    fn runs(numbers: &[u64]) -> Vec<(u64, usize)> {
        numbers.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
    }

    /// Captured from Linux 6.18 over an emulated path of 10 Mbit/s and 40 ms: 22 segments are
    /// acknowledged at once, of which 6 grow the window; then 10 in pairs; then 32 at once, as the
    /// window grows to what the second round asked for; 8 in pairs; and 55 at once.
    #[test]
    fn slow_start_is_acknowledged_as_captured_from_linux() {
        let runs = runs(&slow_start(118));
        assert_eq!(runs[..2], [(1, 22), (2, 5)], "{runs:?}");
        assert_eq!(runs[3], (2, 4), "{runs:?}");
        assert!((31..=33).contains(&runs[2].1) && (54..=56).contains(&runs[4].1), "{runs:?}");
    }

    #[test]
    fn after_a_silence_segments_are_acknowledged_at_once_again() {
        let mut policy = steady();
        policy.last = at_millis(1_000);
        let mut at_once = |millis| {
            policy.on_segment(at_millis(millis), Segment::in_order()) == AckDecision::SendNow
        };
        assert_eq!([1_200, 1_401].map(&mut at_once), [false, true]);
        assert!((1_402..1_417).all(&mut at_once));
        assert!(!at_once(1_417));
    }

    #[test]
    fn without_a_reason_to_hurry_two_segments_share_an_ack() {
        let mut policy = steady();
        let sends = |millis| {
            policy.on_segment(at_millis(millis), Segment::in_order()) == AckDecision::SendNow
        };
        assert_eq!((1..=6).map(sends).collect::<Vec<_>>(), [false, true].repeat(3));
    }

    #[test]
    fn the_end_of_a_write_and_a_gap_are_acknowledged_at_once() {
        let mut policy = steady();
        let now = at_millis(5);
        let hold = AckDecision::HoldUntil(now + Duration::from_millis(40));
        let end = Segment { ends_write: true, ..Segment::in_order() };
        assert_eq!(policy.on_segment(now, end), AckDecision::SendNow);
        assert_eq!(policy.on_segment(now, Segment::in_order()), hold);
        let gap = Segment { in_order: false, ..Segment::in_order() };
        assert_eq!(policy.on_segment(now, gap), AckDecision::SendNow);
        assert_eq!(policy.on_segment(now, Segment::in_order()), hold);
        policy.on_timer(now + Duration::from_millis(40));
        assert!(matches!(policy.on_segment(now, Segment::in_order()), AckDecision::HoldUntil(_)));
    }

    #[test]
    fn a_lower_round_trip_is_taken_at_once_and_a_higher_one_slowly() {
        let mut round_trip = RoundTrip::default();
        for (number, sent, echoed) in [(0, 0, 48), (2, 50, 130), (4, 140, 180)] {
            round_trip.on_sent(at_millis(sent), number);
            round_trip.on_echo(at_millis(echoed), number);
            // Further data with the same echo gives no sample.
            round_trip.on_echo(at_millis(echoed + 500), number);
            let expected = [48, 52, 40][number as usize / 2];
            assert_eq!(round_trip.estimate, Some(Duration::from_millis(expected)));
        }
        assert_eq!(round_trip.sent.len(), 1);
    }

    #[test]
    fn the_window_is_bounded_whatever_arrives() {
        for payload in [0, 1, 948, 1_448, 65_535, 10_000_000] {
            let mut policy = LinuxAck::new(payload, Duration::from_millis(40));
            let mut now = Time::ZERO;
            policy.on_sent(now, 0);
            for _ in 0..5_000 {
                now += Duration::from_micros(1);
                policy.on_segment(now, Segment::in_order());
            }
            assert!(policy.allowed <= LARGEST_BUFFER, "{payload}");
        }
    }
}
