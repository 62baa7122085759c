//! What the path bears, measured from acknowledgements, and the rate that an encoder is told.

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use crate::quic::Account;

/// Least span of a measurement: shorter ones count bursts of acknowledgements.
const SPAN: Duration = Duration::from_millis(50);

/// Measurements of which the largest counts.
const KEPT: usize = 3;

/// Pauses of the queue that end no measurement.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a measurement holds: the path may bear more by now.
const STALE: Duration = Duration::from_secs(4);

/// What an encoder may use of what the path bears, percent: the rest keeps queues short.
const USED: u64 = 95;

/// A rise of the target, percent a second.
const RISE: f64 = 5.0;

/// What the path bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Rate at which bytes are acknowledged while the connection has more to send.
    pub(super) bears: Rate,
    /// The same as measured: without what the congestion control would let go.
    pub(super) measured: Rate,
    /// Smoothed round trip, and the least.
    pub(super) round_trip: Duration,
    pub(super) least: Duration,
}

impl Path {
    /// 0.95 of what it bears.
    pub(super) fn usable(&self) -> Rate {
        share(self.bears)
    }

    /// When bytes arrive of which `before`, with them, are not acknowledged: they leave at the rate
    /// that the path bears, and none arrives sooner than a round trip less half of the least.
    pub(super) fn arrival(&self, now: Time, before: Bytes) -> Time {
        let sent = self.usable().time_to_send(before).max(self.round_trip);
        now + sent.saturating_sub(self.least / 2)
    }
}

/// The rate that the congestion control lets go: what it sets, and its window a round trip.
fn allowed(account: &Account) -> Option<Rate> {
    let window = account.srtt.map(|srtt| Rate::of(account.window, srtt));
    let rates = account.rate.into_iter().chain(window).filter(|rate| rate.as_bits_per_sec() > 0);
    rates.min()
}

fn share(rate: Rate) -> Rate {
    Rate::from_bits_per_sec((rate.as_bits_per_sec() / 100 * USED).max(1))
}

/// Measures it.
#[derive(Debug, Default)]
pub(super) struct Bearing {
    /// Since when the connection has had more to send, and when it last had.
    filled: Option<(Time, Time)>,
    /// Where the current measurement began: time, and bytes acknowledged.
    from: Option<(Time, Bytes)>,
    /// The last measurements, and when they ended.
    rates: [Option<(Time, Rate)>; KEPT],
    next: usize,
    least: Option<Duration>,
    path: Option<Path>,
    target: Target,
}

impl Bearing {
    /// What the path bears; `None` if the connection has lately had no more to send than it could.
    pub(super) fn path(&self) -> Option<Path> {
        self.path
    }

    /// The rate that an encoder may have; `None` before it is known.
    pub(super) fn target(&self) -> Option<Rate> {
        self.target.rate
    }

    /// Notes the state of the congestion control, and whether more waits than it lets go.
    pub(super) fn update(&mut self, now: Time, account: &Account, is_filled: bool) {
        let Some(round_trip) = account.srtt else { return };
        let least = self.least.map_or(round_trip, |least| least.min(round_trip));
        self.least = Some(least);
        self.follow(now, account.delivered, round_trip, is_filled);
        let rates = self.rates.into_iter().flatten();
        let rates = rates.filter(|(at, _)| now.since(*at) <= STALE).map(|(_, rate)| rate);
        // While the congestion control still grows, the next round trip delivers more than the last.
        self.path = rates.max().map(|measured| {
            let bears = allowed(account).map_or(measured, |more| measured.max(more));
            Path { bears, measured, round_trip, least }
        });
        self.target.update(now, account, self.path);
    }

    fn follow(&mut self, now: Time, delivered: Bytes, round_trip: Duration, is_filled: bool) {
        let (since, last) = match self.filled {
            Some((since, last)) if now.since(last) <= PAUSE => (since, last),
            Some(_) if !is_filled => {
                self.from = None;
                return;
            }
            _ => {
                self.from = None;
                (now, now)
            }
        };
        self.filled = match (self.filled, is_filled) {
            (None, false) => return,
            (_, true) => Some((since, now)),
            (_, false) => Some((since, last)),
        };
        // What was sent before the queue filled is acknowledged within a round trip.
        if now.since(since) < round_trip {
            return;
        }
        let Some((begun, before)) = self.from else {
            self.from = Some((now, delivered));
            return;
        };
        let span = now.since(begun);
        if span >= round_trip.max(SPAN) {
            let bytes = delivered - before;
            self.from = Some((now, delivered));
            // An outage says nothing of what the path bears when it is over.
            if bytes == Bytes::ZERO {
                return;
            }
            let rate = Rate::of(bytes, span).max(Rate::from_bits_per_sec(1));
            self.rates[self.next] = Some((now, rate));
            self.next = (self.next + 1) % KEPT;
        }
    }
}

/// The rate told to an encoder: it falls at once, and rises by 5 % a second.
#[derive(Clone, Copy, Debug, Default)]
struct Target {
    rate: Option<Rate>,
    at: Time,
}

impl Target {
    fn update(&mut self, now: Time, account: &Account, path: Option<Path>) {
        // Where nothing waits, what the congestion control would let go is all that is known.
        let most = path.map(|path| path.usable()).or_else(|| allowed(account).map(share));
        let Some(most) = most else { return };
        let Some(rate) = self.rate else {
            (self.rate, self.at) = (Some(most), now);
            return;
        };
        let step = rate.as_bits_per_sec() as f64 * RISE / 100.0 * now.since(self.at).as_secs_f64();
        let risen = Rate::from_bits_per_sec(rate.as_bits_per_sec().saturating_add(step as u64));
        if most < rate {
            (self.rate, self.at) = (Some(most), now);
        } else if step >= 1.0 {
            (self.rate, self.at) = (Some(risen.min(most)), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A connection whose acknowledgements come at `mbit_s`, updated every 10 ms.
    fn run(
        bearing: &mut Bearing,
        (from, to): (u64, u64),
        mbit_s: u64,
        is_filled: bool,
        sum: &mut u64,
    ) {
        for at in (from..to).step_by(10) {
            *sum += mbit_s * 1_250;
            let account = Account {
                srtt: Some(Duration::from_millis(100)),
                delivered: Bytes::new(*sum),
                window: Bytes::new(mbit_s * 12_500),
                rate: Some(Rate::from_bits_per_sec(9_000_000)),
                ..Account::default()
            };
            bearing.update(ms(at), &account, is_filled);
        }
    }

    #[test]
    fn a_stream_below_the_path_s_rate_says_nothing_of_what_it_bears() {
        let (mut bearing, mut sum) = (Bearing::default(), 0);
        run(&mut bearing, (0, 10_000), 2, false, &mut sum);
        assert_eq!(bearing.path(), None);
        assert_eq!(bearing.target(), Some(share(Rate::from_bits_per_sec(2_000_000))));
    }

    #[test]
    fn what_is_acknowledged_while_more_waits_is_what_the_path_bears() {
        let (mut bearing, mut sum) = (Bearing::default(), 0);
        run(&mut bearing, (0, 1_000), 3, true, &mut sum);
        let bears = bearing.path().expect("measured").bears.as_bits_per_sec();
        assert!((2_900_000..=3_400_000).contains(&bears), "{bears}");
        run(&mut bearing, (1_000, 8_000), 2, false, &mut sum);
        assert_eq!(bearing.path(), None, "it may bear more by now");
    }

    #[test]
    fn an_outage_says_nothing_of_what_the_path_bears() {
        let (mut bearing, mut sum) = (Bearing::default(), 0);
        run(&mut bearing, (0, 1_000), 3, true, &mut sum);
        let before = bearing.path();
        run(&mut bearing, (1_000, 3_000), 0, true, &mut sum);
        let measured = |path: Option<Path>| path.map(|path| path.measured);
        assert_eq!(measured(bearing.path()), measured(before));
        run(&mut bearing, (3_000, 9_000), 0, true, &mut sum);
        assert_eq!(bearing.path(), None, "it was measured too long ago");
    }

    #[test]
    fn the_target_falls_at_once_and_rises_slowly() {
        let (mut bearing, mut sum) = (Bearing::default(), 0);
        run(&mut bearing, (0, 1_000), 4, true, &mut sum);
        let before = bearing.target().expect("known");
        run(&mut bearing, (1_000, 2_000), 2, true, &mut sum);
        let low = bearing.target().expect("known");
        assert!(low.as_bits_per_sec() < before.as_bits_per_sec() * 6 / 10);
        run(&mut bearing, (2_000, 4_000), 4, true, &mut sum);
        let later = bearing.target().expect("known");
        assert!(later > low && later.as_bits_per_sec() < low.as_bits_per_sec() * 12 / 10);
    }
}
