//! Counters of received packets.

use ontempo_foundation::{Duration, Packets, Time};
use ontempo_mechanisms::spacing::ReportCounter;

/// Counters since a step began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// One more than the highest packet number received; 0 before the first packet.
    pub next: u64,
    /// Packets received, each counted once.
    pub received: u64,
    /// Bytes of their UDP payload, header included.
    pub bytes: u64,
    /// Packets received after one with a higher number.
    pub late: u64,
    /// Duplicates, and packets older than the duplicate window.
    pub duplicates: u64,
    /// Packets marked CE (ECN).
    pub marked: u64,
    /// From the first arrival to the last, ns.
    pub span_ns: u64,
    /// Standard deviation of the time between arrivals, ns.
    pub gap_deviation_ns: u64,
    /// Mean queueing delay: one-way delay over the smallest one, ns.
    pub queueing_ns: u64,
}

impl Totals {
    /// From the first arrival to the last.
    pub const fn span(&self) -> Duration {
        Duration::from_nanos(self.span_ns)
    }

    /// Mean time between arrivals; `None` for fewer than two.
    pub fn mean_gap(&self) -> Option<Duration> {
        (self.received > 1).then(|| self.span() / (self.received - 1))
    }
}

/// Window of packet numbers, below the highest, in which duplicates are detected.
const WINDOW: u64 = 4_096;

/// Counters in bounded memory.
#[derive(Debug)]
pub(super) struct Arrivals {
    counter: ReportCounter,
    /// Bitmap of the last [`WINDOW`] numbers, each at its remainder.
    seen: [u64; (WINDOW / 64) as usize],
    totals: Totals,
    first: Option<Time>,
    last: Time,
    /// Sum of the squares of the times between arrivals, s^2.
    gap_squares: f64,
    /// One-way delay of the first packet by both clocks, ns; others are relative to it.
    first_transit: i64,
    least_transit: i64,
    /// Sum of relative one-way delays, s.
    transits: f64,
    /// Time stamp of the newest packet.
    pub(super) stamp: u64,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            counter: ReportCounter::default(),
            seen: [0; (WINDOW / 64) as usize],
            totals: Totals::default(),
            first: None,
            last: Time::ZERO,
            gap_squares: 0.0,
            first_transit: 0,
            least_transit: 0,
            transits: 0.0,
            stamp: 0,
        }
    }

    /// Counts a packet; false for a duplicate.
    pub(super) fn on_packet(
        &mut self,
        received: Time,
        number: u64,
        stamp: u64,
        bytes: usize,
        marked: bool,
    ) -> bool {
        if !self.note(number) {
            self.totals.duplicates += 1;
            return false;
        }
        self.counter.on_packet(number);
        self.totals.bytes += bytes as u64;
        self.totals.marked += u64::from(marked);
        self.stamp = stamp;
        // The clocks have arbitrary zeros: only differences of this are meaningful.
        let transit = received.as_nanos().wrapping_sub(stamp) as i64;
        match self.first {
            None => (self.first, self.first_transit) = (Some(received), transit),
            Some(_) => {
                let gap = received.since(self.last).as_secs_f64();
                self.gap_squares += gap * gap;
            }
        }
        self.last = self.last.max(received);
        let transit = transit.wrapping_sub(self.first_transit);
        self.least_transit = self.least_transit.min(transit);
        self.transits += transit as f64 / 1e9;
        true
    }

    /// Notes a number; false if it is a duplicate, or too old to decide.
    fn note(&mut self, number: u64) -> bool {
        let next = self.totals.next;
        if number >= next {
            // Skipped numbers have not been received.
            if number - next >= WINDOW {
                self.seen.fill(0);
            } else {
                (next..=number).for_each(|passed| *self.word(passed) &= !bit(passed));
            }
            self.totals.next = number.saturating_add(1);
        } else if next - number > WINDOW || *self.word(number) & bit(number) != 0 {
            return false;
        } else {
            self.totals.late += 1;
        }
        *self.word(number) |= bit(number);
        true
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.seen[(number % WINDOW / 64) as usize]
    }

    /// Time of the last arrival.
    pub(super) fn last(&self) -> Time {
        self.last
    }

    pub(super) fn totals(&self) -> Totals {
        let Some(first) = self.first else { return self.totals };
        let received = self.counter.report().received;
        let span = self.last.since(first);
        let gaps = (received.get() - 1) as f64;
        let mean = if gaps > 0.0 { span.as_secs_f64() / gaps } else { 0.0 };
        let variance = if gaps > 0.0 { self.gap_squares / gaps - mean * mean } else { 0.0 };
        let queueing = self.transits / received.get() as f64 - self.least_transit as f64 / 1e9;
        Totals {
            received: received.get(),
            span_ns: span.as_nanos(),
            gap_deviation_ns: Duration::from_secs_f64(variance.max(0.0).sqrt()).as_nanos(),
            queueing_ns: Duration::from_secs_f64(queueing).as_nanos(),
            ..self.totals
        }
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

impl Totals {
    /// The report for the spacing mechanism.
    pub(super) const fn report(&self) -> ontempo_mechanisms::spacing::Report {
        ontempo_mechanisms::spacing::Report {
            next: self.next,
            received: Packets::new(self.received),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn arrive(arrivals: &mut Arrivals, number: u64) -> bool {
        arrivals.on_packet(Time::from_nanos(number), number, 0, 100, false)
    }

    proptest! {
        #[test]
        fn each_number_counts_once_whatever_the_order(
            numbers in proptest::collection::vec(0u64..3_000, 1..400)
        ) {
            let (mut arrivals, mut known) = (Arrivals::new(), BTreeSet::new());
            for &number in &numbers {
                prop_assert_eq!(arrive(&mut arrivals, number), known.insert(number));
            }
            let totals = arrivals.totals();
            prop_assert_eq!(totals.received, known.len() as u64);
            prop_assert_eq!(totals.duplicates as usize, numbers.len() - known.len());
            prop_assert_eq!(totals.next, known.last().map_or(0, |last| last + 1));
        }

        #[test]
        fn any_numbers_and_times_are_taken(
            packets in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..60)
        ) {
            let mut arrivals = Arrivals::new();
            for (number, received, stamp) in packets {
                arrivals.on_packet(Time::from_nanos(received), number, stamp, 1, true);
                let totals = arrivals.totals();
                prop_assert!(totals.received <= totals.next);
            }
        }
    }

    #[test]
    fn what_is_further_back_than_the_window_counts_as_come_before() {
        let mut arrivals = Arrivals::new();
        assert!(arrive(&mut arrivals, 5));
        assert!(arrive(&mut arrivals, 5 + WINDOW));
        assert!(!arrive(&mut arrivals, 5));
        assert!(arrive(&mut arrivals, 6), "just within");
        assert_eq!(arrivals.totals().late, 1);
    }

    #[test]
    fn gaps_have_their_mean_and_deviation_and_queueing_is_over_the_fastest() {
        let mut arrivals = Arrivals::new();
        for (number, (received, stamp)) in
            [(1_000, 0), (2_000, 900), (5_000, 4_000)].iter().enumerate()
        {
            arrivals.on_packet(Time::from_nanos(*received), number as u64, *stamp, 1, false);
        }
        let totals = arrivals.totals();
        assert_eq!(totals.mean_gap(), Some(Duration::from_nanos(2_000)));
        assert_eq!(totals.gap_deviation_ns, 1_000);
        // Under way for 1000, 1100 and 1000.
        assert_eq!(totals.queueing_ns, 33);
    }
}
