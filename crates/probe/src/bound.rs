//! The most that a spaced flow sends, whatever its spacing: what the receiver's reports show that the
//! path bears.

use ontempo_foundation::{Duration, RandomStream, Time};

/// Packets of the first round trip, and the shortest time that they take.
const FIRST: f64 = 10.0;
const FIRST_SPAN: Duration = Duration::from_millis(20);

/// A report allows so many times the rate that arrived, until the rate has once been too high.
pub(super) const GROWTH: f64 = 2.0;

/// After a loss beyond the usual: so much of what arrived.
const BACK_OFF: f64 = 0.85;

/// Afterwards the rate grows by one packet in a round trip each round trip, at most by this share in
/// so many packets and seconds: a loss must show before much more is sent.
const STEP: f64 = 0.05;
const STEP_PACKETS: f64 = 25.0;
const STEP_SPAN: f64 = 0.2;

/// Reports without growth after which the path is full, and what counts as growth.
const FLAT: u32 = 3;
const GROWS: f64 = 1.25;

/// Packets that tell a loss rate, and what is usual until then.
const FEW: u64 = 100;
const USUAL: f64 = 0.1;

/// Share of packets lost beyond the usual that shows a full queue.
const BEYOND: f64 = 0.05;

/// Beside three intervals of reports, how long the last one counts; then the rate halves.
const PATIENCE: Duration = Duration::from_millis(100);

/// A number is left out before one packet in so many.
const LEFT_OUT: f64 = 1.0 / 32.0;

/// The bound of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Expected interval of reports.
    interval: Duration,
    /// Packets a second.
    limit: f64,
    is_growing: bool,
    flat: u32,
    best: f64,
    /// The last report that counted: when it came, its totals.
    last: (Time, u64, u64),
    /// Lost and sent of the present count of losses, and the least share of an earlier one.
    counted: (u64, u64),
    usual: f64,
}

impl Bound {
    pub(super) fn new(now: Time, interval: Duration) -> Self {
        Self {
            interval,
            limit: FIRST / interval.max(FIRST_SPAN).as_secs_f64(),
            is_growing: true,
            flat: 0,
            best: 0.0,
            last: (now, 0, 0),
            counted: (0, 0),
            usual: USUAL,
        }
    }

    /// The least time between two packets.
    pub(super) fn gap(&self, now: Time) -> Duration {
        let patience = self.interval * 3 + PATIENCE;
        let missed = now.since(self.last.0).as_secs_f64() / patience.as_secs_f64();
        let halved = self.limit * 0.5_f64.powi(missed.min(30.0) as i32);
        Duration::from_secs_f64(1.0 / halved).min(Duration::from_secs(1))
    }

    /// Takes a report: packets sent until the newest that arrived, and how many of them arrived.
    pub(super) fn on_report(&mut self, now: Time, next: u64, received: u64) {
        let (at, last_next, last_received) = self.last;
        let span = now.since(at);
        // Two that come at once say nothing of a rate.
        if span < self.interval / 2 {
            return;
        }
        self.last = (now, next, received);
        let sent = next.saturating_sub(last_next);
        let came = received.saturating_sub(last_received);
        let lost = sent.saturating_sub(came);
        let rate = came as f64 / span.as_secs_f64();
        let least = 2.0 / self.interval.max(FIRST_SPAN).as_secs_f64();
        if self.is_beyond(sent, lost) {
            self.is_growing = false;
            self.limit = (rate * BACK_OFF).max(least).min(self.limit.max(least));
        } else if self.is_growing {
            self.flat = if rate > self.best * GROWS { 0 } else { self.flat + 1 };
            self.best = self.best.max(rate);
            self.limit = self.limit.max(rate * GROWTH);
            // Only if it is the bound that limits: half of it does not arrive.
            if self.flat >= FLAT && sent > 0 && rate * GROWTH <= self.limit {
                (self.is_growing, self.limit) = (false, rate.max(least));
            }
        } else {
            let share = (sent as f64 / STEP_PACKETS).min(span.as_secs_f64() / STEP_SPAN).min(1.0);
            let step = (1.0 / self.interval.as_secs_f64()).min(self.limit * STEP * share);
            self.limit = (self.limit + step).min((rate * GROWTH).max(least * 2.0));
        }
    }

    /// Whether more was lost than the path loses anyway: of these packets, or of the last hundred.
    fn is_beyond(&mut self, sent: u64, lost: u64) -> bool {
        self.counted = (self.counted.0 + lost, self.counted.1 + sent);
        let usual = self.usual;
        let is_beyond = |(lost, sent): (u64, u64)| {
            let packets = sent as f64;
            lost as f64 > packets * (usual + BEYOND) + 1.0 + 0.6 * packets.sqrt()
        };
        if is_beyond((lost, sent)) || is_beyond(self.counted) {
            self.counted = (0, 0);
            return true;
        }
        if self.counted.1 >= FEW {
            self.usual = self.usual.min(self.counted.0 as f64 / self.counted.1 as f64);
            self.counted = (0, 0);
        }
        false
    }
}

/// Numbers that no packet has, so that who reports packets as arrived that it does not know is found
/// out (RFC 9000, section 21.4).
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    random: RandomStream,
    /// In order, above the last report.
    numbers: std::collections::VecDeque<u64>,
    /// Below them.
    before: u64,
    all: u64,
}

impl LeftOut {
    pub(super) fn new(secret: u64, step: u16) -> Self {
        let random = RandomStream::new(secret, &format!("numbers left out of step {step}"));
        Self { random, numbers: std::collections::VecDeque::new(), before: 0, all: 0 }
    }

    /// The number of the next packet, of which `sent` were sent before.
    pub(super) fn number(&mut self, sent: u64) -> u64 {
        if self.random.chance(LEFT_OUT) {
            self.numbers.push_back(sent + self.all);
            self.all += 1;
        }
        sent + self.all
    }

    /// How many packets have a number below this; numbers never decrease.
    pub(super) fn sent_below(&mut self, number: u64) -> u64 {
        while self.numbers.front().is_some_and(|left_out| *left_out < number) {
            self.numbers.pop_front();
            self.before += 1;
        }
        number - self.before.min(number)
    }

    /// One more than the highest number.
    pub(super) fn next(&self, sent: u64) -> u64 {
        sent + self.all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_reported_no_more_leaves_than_twice_what_arrived_at_once(
            reports in proptest::collection::vec((0u64..200_000_000, any::<u64>(), any::<u64>()), 1..80),
            millis in 1u64..1_000,
        ) {
            let interval = Duration::from_millis(millis);
            let mut now = Time::from_secs_f64(1.0);
            let mut bound = Bound::new(now, interval);
            let first = 1.0 / bound.gap(now).as_secs_f64();
            let (mut sent, mut last) = (0.0_f64, (now, 0_u64, 0_u64));
            // The highest rate that any counted report showed.
            let mut most = 0.0_f64;
            for (wait, next, received) in reports {
                let rate = 1.0 / bound.gap(now).as_secs_f64();
                prop_assert!(rate <= first.max(GROWTH * most) * 1.001 + 1.0, "{rate} of {most}");
                now += Duration::from_nanos(wait);
                sent += rate * wait as f64 / 1e9;
                // Nothing that was not sent is believed, and totals do not shrink.
                let next = last.1 + next % (sent as u64 + 1 - last.1.min(sent as u64)).max(1);
                let received = last.2 + received % (next - last.2.min(next) + 1);
                if now.since(last.0) >= interval / 2 {
                    let span = now.since(last.0).as_secs_f64();
                    most = most.max((received - last.2) as f64 / span);
                    last = (now, next, received);
                }
                bound.on_report(now, next, received);
            }
        }
    }

    #[test]
    fn a_path_that_loses_a_tenth_anyway_bears_more_and_one_that_is_full_does_not() {
        let interval = Duration::from_millis(100);
        for (takes, survives) in [(1e9, 0.9), (1_000.0, 1.0), (50.0, 1.0)] {
            let mut now = Time::from_secs_f64(1.0);
            let mut bound = Bound::new(now, interval);
            let (mut next, mut received) = (0.0, 0.0);
            let mut worst = 0.0_f64;
            for round in 0..200 {
                let rate = 1.0 / bound.gap(now).as_secs_f64();
                now += interval;
                next += rate * 0.1;
                received += rate.min(takes) * 0.1 * survives;
                bound.on_report(now, next as u64, received as u64);
                let limit = 1.0 / bound.gap(now).as_secs_f64();
                if round > 20 {
                    worst = worst.max(limit);
                }
            }
            match takes {
                1e9 => assert!(worst > 1e5, "{worst}"),
                takes => assert!(worst < takes * 1.3 + 20.0, "{worst} of {takes}"),
            }
        }
    }

    #[test]
    fn numbers_left_out_are_not_counted_as_sent() {
        let mut left_out = LeftOut::new(5, 1);
        let numbers: Vec<u64> = (0..1_000).map(|sent| left_out.number(sent)).collect();
        assert!(left_out.next(1_000) > 1_010, "{}", left_out.next(1_000));
        for (sent, number) in (0..).zip(&numbers) {
            assert_eq!(left_out.sent_below(number + 1), sent + 1);
        }
    }
}
