//! The latency of a stream: by the measured round trip, where none is given.
//!
//! The latency is counted from a datagram's arrival at the sender to its departure from the receiver,
//! without the fastest transit between them: the receiver releases a datagram one latency after the
//! time at which the fastest of the last 30 s would have been there. What is sent for the last time
//! one latency after its arrival is thus just in time, and the path takes none of the latency.

use std::fmt;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::Connection;
use ontempo_transport::{ConnectionStatistics, Reliability};

/// Round trips that the latency is chosen to have: three repairs, each 5/4 of a round trip after the
/// one before, and 1/4 for gaps between packets. SRT's makers advise the same number.
pub const ROUND_TRIPS: u64 = 4;

/// The least latency that is chosen: SRT's default. On short paths packets come late because of
/// hosts and links that pause, not because of the round trip.
pub const LEAST: Duration = Duration::from_millis(120);

/// How much longer than the latency a receiver waits for what is missing, by default: less than what a player
/// holds itself.
pub const GRACE: Duration = Duration::from_millis(50);

/// The longest latency that is chosen. A round trip above 1.25 s is mostly a queue, which goes away.
pub const MOST: Duration = Duration::from_secs(5);

/// Samples of the round trip after the handshake, where units are not sent before: the clock comparisons of the first
/// 150 ms.
pub const SAMPLES: u64 = 4;

/// How long samples are awaited, at most; with fewer, the median of those that came counts.
pub const MEASURED_FOR: Duration = Duration::from_secs(1);

/// Interval of asking for samples.
const STEP: Wall = Wall::from_millis(5);

/// The least latency that holds one repair: a packet is known to be lost 5/4 of a round trip after it
/// was sent (`time_threshold` of the transport's configuration), and at least 1 ms.
pub fn for_one_repair(round_trip: Duration) -> Duration {
    whole_millis(for_repair(round_trip)).max(Duration::from_millis(1))
}

fn for_repair(round_trip: Duration) -> Duration {
    round_trip + round_trip / 4
}

/// Visits further apart save little: of a stream of 1.3 Mbit/s each datagram is one.
const MAX_PATIENCE: Duration = Duration::from_millis(8);

/// How far visits may be apart that read for either end of a stream of this latency. What has arrived may lie unread for twice as
/// long at both, so that as many repairs fit, or six. A loss is found so much later; what follows it is read at once. Of the four
/// round trips of a latency that is [chosen](chosen) three repairs leave a quarter of one.
pub(crate) fn patience(latency: Duration, round_trip: Duration) -> Duration {
    if latency < round_trip * 5 / 2 {
        return Duration::ZERO;
    }
    let repair = for_repair(round_trip);
    let beside_six = (latency / 6).saturating_sub(repair) / 4;
    let left = Duration::from_nanos(latency.as_nanos() % repair.as_nanos().max(1));
    beside_six.max(left / 4).min(latency / 24).min(MAX_PATIENCE)
}

/// The grace of a flow: what is not sent again is not waited for.
pub(crate) fn grace_with(reliability: Reliability, grace: Duration) -> Duration {
    if reliability == Reliability::None { Duration::ZERO } else { grace }
}

/// How long a unit lives at the sender: as long as the receiver waits for it.
pub(crate) fn lifetime(reliability: Reliability, latency: Duration, grace: Duration) -> Duration {
    latency.saturating_add(grace_with(reliability, grace))
}

/// The latency for a path of this round trip, whole milliseconds.
pub fn chosen(round_trip: Duration) -> Duration {
    (whole_millis(round_trip) * ROUND_TRIPS).clamp(LEAST, MOST)
}

fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(span.as_nanos().div_ceil(1_000_000))
}

/// The latency of a stream, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLatency {
    /// The latency.
    pub latency: Duration,
    /// The round trip by which it was chosen; `None` if it was given.
    pub round_trip: Option<Duration>,
    /// What of it is for one path to take over from another, if it was chosen.
    pub takeover: Duration,
}

impl fmt::Display for StreamLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latency, round_trip, takeover } = self;
        write!(f, "latency {latency}")?;
        let Some(round_trip) = round_trip else { return Ok(()) };
        let round_trip = whole_millis(*round_trip);
        let by_rule = round_trip * ROUND_TRIPS;
        let chosen = latency.saturating_sub(*takeover);
        if *takeover > Duration::ZERO {
            write!(f, ", {takeover} of it for a takeover, {chosen}")?;
        }
        match chosen {
            chosen if chosen == by_rule => write!(f, ": {ROUND_TRIPS} round trips of {round_trip}"),
            LEAST => write!(f, ", the least: the round trip is {round_trip}"),
            _ => write!(f, ", the most: the round trip is {round_trip}"),
        }
    }
}

/// A latency that is too short for one repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortLatency {
    /// The latency.
    pub latency: Duration,
    /// The measured round trip.
    pub round_trip: Duration,
}

impl ShortLatency {
    /// The least that holds one repair.
    pub fn needed(&self) -> Duration {
        for_one_repair(self.round_trip)
    }

    /// What would be chosen for this path.
    pub fn advised(&self) -> Duration {
        chosen(self.round_trip)
    }
}

/// The round trip of a path: the median of the clock comparisons, or else what the handshake has shown.
pub(crate) fn round_trip(statistics: &ConnectionStatistics) -> Option<Duration> {
    statistics.clock_round_trip.or(statistics.round_trip)
}

/// Whether the round trip is known well enough, or has been awaited for long enough. Where units may be sent before
/// the Welcome, the handshake has measured it, and a loss has not lengthened it: what lets them be sent is never
/// repeated.
pub(crate) fn is_measured(
    began_early: bool,
    statistics: &ConnectionStatistics,
    waited: Duration,
) -> bool {
    began_early || statistics.clock_comparisons >= SAMPLES || waited >= MEASURED_FOR
}

/// The latency by what a connection has measured; [`LEAST`] if it has measured nothing.
pub(crate) fn of(statistics: Option<&ConnectionStatistics>) -> StreamLatency {
    let round_trip = statistics.and_then(round_trip);
    let latency = round_trip.map_or(LEAST, chosen);
    StreamLatency { latency, round_trip, takeover: Duration::ZERO }
}

/// Of a latency and a path, that no lost packet can be repaired in time.
pub(crate) fn too_short(
    latency: Duration,
    statistics: &ConnectionStatistics,
) -> Option<ShortLatency> {
    let round_trip = round_trip(statistics)?;
    let is_known = statistics.clock_comparisons >= SAMPLES;
    (is_known && latency < for_one_repair(round_trip))
        .then_some(ShortLatency { latency, round_trip })
}

/// The latency of a sender: fixed when its first connection is set up, and checked on each.
#[derive(Debug)]
pub(crate) struct Latency {
    fixed: Option<StreamLatency>,
    reliability: Reliability,
    /// That it is too short for this connection was reported.
    is_reported: bool,
}

impl Latency {
    /// `asked`: what was given.
    pub(crate) fn new(asked: Option<Duration>, reliability: Reliability) -> Self {
        let given = |latency| StreamLatency { latency, round_trip: None, takeover: Duration::ZERO };
        let fixed = asked.map(given);
        Self { fixed, reliability, is_reported: false }
    }

    pub(crate) fn get(&self) -> Duration {
        self.fixed.map_or(LEAST, |fixed| fixed.latency)
    }

    /// The latency, if the stream has one that matters: with full reliability nothing is timed.
    pub(crate) fn stream(&self) -> Option<StreamLatency> {
        self.fixed.filter(|_| self.reliability != Reliability::Full)
    }

    /// Fixes it for a new connection, unless it is: as soon as the round trip is [measured](is_measured).
    pub(crate) fn fix(&mut self, connection: &Connection) -> Duration {
        self.is_reported = false;
        if self.fixed.is_none() {
            let begun = Instant::now();
            let mut statistics = connection.statistics();
            let is_measured = |statistics: ConnectionStatistics| {
                is_measured(connection.began_early(), &statistics, since(begun))
            };
            let is_awaited = self.reliability != Reliability::Full;
            while is_awaited && statistics.is_some_and(|statistics| !is_measured(statistics)) {
                std::thread::sleep(STEP);
                statistics = connection.statistics();
            }
            self.fixed = Some(of(statistics.as_ref()));
        }
        self.get()
    }

    /// Once a connection: the latency is too short for its path.
    pub(crate) fn check(&mut self, statistics: &ConnectionStatistics) -> Option<ShortLatency> {
        if self.is_reported || self.reliability != Reliability::Deadline {
            return None;
        }
        let short = too_short(self.fixed?.latency, statistics)?;
        self.is_reported = true;
        Some(short)
    }
}

fn since(begun: Instant) -> Duration {
    Duration::from_nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_sentence_says_by_what_the_latency_was_chosen() {
        let with = |round_trip: Duration, takeover: Duration| {
            let latency = chosen(round_trip) + takeover;
            StreamLatency { latency, round_trip: Some(round_trip), takeover }.to_string()
        };
        let of = |round_trip: Duration| with(round_trip, Duration::ZERO);
        assert_eq!(of(Duration::from_micros(99_400)), "latency 400 ms: 4 round trips of 100 ms");
        assert_eq!(of(millis(3)), "latency 120 ms, the least: the round trip is 3 ms");
        assert_eq!(of(millis(2_000)), "latency 5 s, the most: the round trip is 2 s");
        assert_eq!(
            with(millis(3), millis(200)),
            "latency 320 ms, 200 ms of it for a takeover, 120 ms, the least: the round trip is 3 ms"
        );
        assert_eq!(
            with(millis(50), millis(200)),
            "latency 400 ms, 200 ms of it for a takeover, 200 ms: 4 round trips of 50 ms"
        );
        let given = Latency::new(Some(millis(7)), Reliability::Deadline).stream();
        assert_eq!(given.map(|given| given.to_string()).as_deref(), Some("latency 7 ms"));
    }

    proptest! {
        #[test]
        fn a_chosen_latency_holds_three_repairs_unless_it_is_the_most(nanos in 0u64..10_000_000_000) {
            let round_trip = Duration::from_nanos(nanos);
            let latency = chosen(round_trip);
            prop_assert!((LEAST..=MOST).contains(&latency));
            let repairs = (round_trip + round_trip / 4) * 3;
            prop_assert!(latency >= repairs || latency == MOST);
            prop_assert_eq!(latency.as_nanos() % 1_000_000, 0);
            prop_assert!(for_one_repair(round_trip) >= round_trip);
        }
    }

    #[test]
    fn what_has_arrived_lies_unread_where_repairs_have_the_time() {
        let of = |latency, round_trip| patience(millis(latency), millis(round_trip));
        assert_eq!(
            of(400, 100),
            millis(25) / 4,
            "three repairs fit, and a quarter of a round trip"
        );
        assert_eq!(of(1_200, 300), millis(8));
        assert_eq!(of(400, 20), millis(8), "more than six repairs fit");
        assert_eq!(of(110, 20), millis(10) / 4, "four repairs fit, and half of one");
        assert_eq!(of(240, 100), Duration::ZERO, "one repair fits, and not two");
        assert_eq!([of(250, 100), of(375, 100)], [Duration::ZERO; 2], "just two, and three");
    }

    proptest! {
        #[test]
        fn lying_unread_costs_no_repair_of_six(latency in 1u64..5_000, round_trip in 1u64..2_000) {
            let repair = millis(round_trip) * 5 / 4;
            let repairs = |latency: Duration| latency.as_nanos() / repair.as_nanos();
            let latency = millis(latency);
            let lain = patience(latency, millis(round_trip));
            prop_assert!(lain <= millis(8) && lain <= latency / 24);
            prop_assert!(repairs(latency.saturating_sub(lain * 4)) >= repairs(latency).min(6));
        }
    }
}
