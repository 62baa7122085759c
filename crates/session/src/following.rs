//! The bit rate that an encoder is told, so that it follows the path.
//!
//! The transport's own estimate is of a connection that has more to send than it may. An encoder that follows
//! leaves nothing waiting, so here the path is read from what it does to packets: while a queue stands, what
//! arrives is what it bears. That is the idea of Google's congestion control (draft-ietf-rmcat-gcc-02), whose
//! filters are of one-way delays; here the smoothed round trip is known.

use std::collections::VecDeque;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Duration, Rate};
use ontempo_transport::ConnectionStatistics;

/// A round trip that is longer by this than the least shows a queue, if it is so for [`HOLD`]: a frame sent at
/// once makes a shorter one.
const QUEUE: Duration = Duration::from_millis(50);
const HOLD: Wall = Wall::from_millis(100);

/// Over what arrivals are counted.
const SPAN: Wall = Wall::from_millis(250);

/// For how long the least round trip counts.
const MEMORY: Wall = Wall::from_secs(20);

/// What an encoder may use of what the path bears; while a queue stands less by its length in seconds, so that
/// it is gone after about a second, but at least half.
const USED: f64 = 0.95;
const LEAST: f64 = 0.5;

/// Rises, of the rate a second: up to what the path is known to bear, and beyond.
const BACK: f64 = 1.0;
const BEYOND: f64 = 0.05;

/// How long it is known what the path bears, and how long a higher speed counts while a queue stands: what the
/// machines hold up is no narrower path.
const KNOWN: Wall = Wall::from_secs(10);
const RECENT: Wall = Wall::from_millis(1_500);

/// What the rate may exceed that at which packets arrive: nobody has tried more.
const UNTRIED: f64 = 1.5;

/// What is known of the path at a time.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// The transport's own estimate, bits a second.
    target: f64,
    round_trip: Duration,
    /// Bytes that have arrived.
    arrived: f64,
}

impl Path {
    fn of(over: &ConnectionStatistics) -> Option<Self> {
        Some(Self {
            target: over.target?.as_bits_per_sec() as f64,
            round_trip: over.round_trip?,
            arrived: over.bytes_acknowledged as f64,
        })
    }
}

/// What the path bears, by what arrived while a queue stood.
#[derive(Clone, Copy, Debug)]
struct Bears {
    rate: f64,
    at: Instant,
}

/// The rate, and what it follows.
#[derive(Debug, Default)]
pub(crate) struct Following {
    rate: Option<f64>,
    at: Option<Instant>,
    /// Speeds while a queue stood, lately.
    speeds: VecDeque<(Instant, f64)>,
    /// Bytes that had arrived at these times.
    arrived: VecDeque<(Instant, f64)>,
    /// Least round trips of halves of the memory, and when the newer began.
    least: [Option<Duration>; 2],
    least_since: Option<Instant>,
    /// Since when a queue has stood.
    queue_since: Option<Instant>,
    bears: Option<Bears>,
}

impl Following {
    /// The rate by the statistics of the connection now; `None` before anything is known.
    pub(crate) fn update(&mut self, now: Instant, over: &ConnectionStatistics) -> Option<Rate> {
        let rate = self.follow(now, Path::of(over)?);
        Some(Rate::from_bits_per_sec(rate.max(1.0) as u64))
    }

    /// A connection begins anew, perhaps over another path.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    fn follow(&mut self, now: Instant, path: Path) -> f64 {
        let queue = path.round_trip.saturating_sub(self.least(now, path.round_trip));
        let speed = self.speed(now, path.arrived);
        let step = self.at.replace(now).map_or(0.0, |at| (now - at).as_secs_f64());
        let rate = *self.rate.get_or_insert(path.target);
        let rate = match speed {
            Some(speed) if queue > QUEUE => self.yielding(now, rate, speed, queue),
            _ => {
                self.queue_since = None;
                self.rising(now, rate, (path.target, speed.unwrap_or(0.0)), step)
            }
        };
        self.rate = Some(rate);
        rate
    }

    /// The rate while a queue stands.
    fn yielding(&mut self, now: Instant, rate: f64, speed: f64, queue: Duration) -> f64 {
        let stood = now - *self.queue_since.get_or_insert(now);
        if stood < HOLD {
            return rate;
        }
        // What arrives was sent before the queue stood, until a span is over.
        let is_known = stood >= HOLD + SPAN;
        self.speeds.retain(|(at, _)| is_known && now - *at < RECENT);
        self.speeds.push_back((now, speed));
        let bears = self.speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        self.bears = Some(Bears { rate: bears, at: now });
        let usable = bears * (USED - queue.as_secs_f64()).max(LEAST);
        if is_known { usable } else { rate.min(usable) }
    }

    /// The rate while there is no queue, by the transport's own estimate and what arrives: before a queue has been
    /// seen, the path is known to bear that.
    fn rising(&self, now: Instant, rate: f64, (target, speed): (f64, f64), step: f64) -> f64 {
        let known =
            self.bears.filter(|bears| now - bears.at < KNOWN).map(|bears| bears.rate * USED);
        let (rate, risen) = match known {
            Some(known) if rate < known => (rate, (rate * (1.0 + BACK * step)).min(known)),
            Some(_) => (rate, rate * (1.0 + BEYOND * step)),
            None => {
                let rate = rate.max(speed * USED);
                (rate, rate * (1.0 + BEYOND * step))
            }
        };
        risen.min(target.max(speed * UNTRIED).max(rate))
    }

    fn least(&mut self, now: Instant, round_trip: Duration) -> Duration {
        if now - *self.least_since.get_or_insert(now) > MEMORY / 2 {
            self.least_since = Some(now);
            self.least = [None, self.least[0]];
        }
        let newest = self.least[0].map_or(round_trip, |least| least.min(round_trip));
        self.least[0] = Some(newest);
        self.least[1].map_or(newest, |least| least.min(newest))
    }

    /// Bits a second that arrive: from one acknowledgement to another, since what comes between two is acknowledged
    /// by the second.
    fn speed(&mut self, now: Instant, arrived: f64) -> Option<f64> {
        if self.arrived.back().is_none_or(|(_, before)| arrived > *before) {
            self.arrived.push_back((now, arrived));
        }
        let (newest, _) = *self.arrived.back()?;
        while self.arrived.len() > 2 && newest - self.arrived[1].0 >= SPAN {
            self.arrived.pop_front();
        }
        let (from, before) = *self.arrived.front()?;
        // Longer than a span without one, and less arrives.
        let until = if now - newest > SPAN { now } else { newest };
        let span = until - from;
        (span >= SPAN).then(|| (arrived - before).max(0.0) * 8.0 / span.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interval of updates.
    const STEP: Wall = Wall::from_millis(50);

    /// A path of 40 ms with a queue of at most half a second, and an encoder that follows at once.
    struct World {
        following: Following,
        now: Instant,
        queued: f64,
        arrived: f64,
        round_trip: f64,
        rate: f64,
        /// Steps between acknowledgements.
        bunch: usize,
    }

    impl World {
        fn new() -> Self {
            let (now, following) = (Instant::now(), Following::default());
            Self {
                following,
                now,
                queued: 0.0,
                arrived: 0.0,
                round_trip: 0.04,
                rate: 1e6,
                bunch: 1,
            }
        }

        /// Runs for `seconds` over a path of `bears` bits a second; the least and the largest rate.
        fn run(&mut self, seconds: f64, bears: f64, encoder: f64) -> (f64, f64) {
            let step = STEP.as_secs_f64();
            let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
            let mut told = (self.arrived, self.round_trip);
            for number in 0..(seconds / step) as usize {
                self.now += STEP;
                let offered = self.queued + self.rate.min(encoder) * step;
                let gone = offered.min(bears * step);
                self.queued = (offered - gone).min(bears * 0.5);
                self.arrived += gone / 8.0;
                self.round_trip += (0.04 + self.queued / bears - self.round_trip) * 0.5;
                if number % self.bunch == 0 {
                    told = (self.arrived, self.round_trip);
                }
                let (arrived, round_trip) = (told.0, Duration::from_secs_f64(told.1));
                let path = Path { target: 2e6, round_trip, arrived };
                self.rate = self.following.follow(self.now, path);
                (least, most) = (least.min(self.rate), most.max(self.rate));
            }
            (least, most)
        }
    }

    #[test]
    fn three_seconds_after_the_path_has_fallen_the_rate_is_near_what_it_bears_and_stays_there() {
        let mut world = World::new();
        world.run(30.0, 6e6, 20e6);
        assert!((5e6..=6.4e6).contains(&world.rate), "{}", world.rate);
        let (least, _) = world.run(3.0, 1.5e6, 20e6);
        assert!(least >= LEAST * 1.5e6, "{least}");
        let (least, most) = world.run(30.0, 1.5e6, 20e6);
        assert!(1.5e6 * 0.8 <= least && most <= 1.5e6 * 1.2, "{least} {most}");
    }

    /// A receiver that is busy acknowledges after pauses, all at once.
    #[test]
    fn acknowledgements_that_come_together_do_not_make_the_path_wider() {
        for bunch in 2..=6 {
            let mut world = World { bunch, ..World::new() };
            world.run(30.0, 6e6, 20e6);
            world.run(3.0, 1.5e6, 20e6);
            let (least, most) = world.run(30.0, 1.5e6, 20e6);
            assert!(1.5e6 * 0.8 <= least && most <= 1.5e6 * 1.2, "{bunch}: {least} {most}");
        }
    }

    #[test]
    fn a_path_that_bears_more_again_is_found() {
        let mut world = World::new();
        world.run(10.0, 1.5e6, 20e6);
        world.run(30.0, 6e6, 20e6);
        assert!(world.rate > 4e6, "{}", world.rate);
    }

    /// The window of a connection that has begun says less than what it carries a second later.
    #[test]
    fn the_rate_is_not_less_than_what_arrives_without_a_queue() {
        let (mut following, mut now, mut arrived) = (Following::default(), Instant::now(), 0.0);
        let mut rate = 0.0;
        for _ in 0..40 {
            now += STEP;
            arrived += 2.2e6 / 8.0 * STEP.as_secs_f64();
            let path = Path { target: 1e6, round_trip: Duration::from_millis(104), arrived };
            rate = following.follow(now, path);
        }
        assert!((2.2e6 * USED..=2.2e6 * UNTRIED).contains(&rate), "{rate}");
    }

    #[test]
    fn the_rate_rises_beyond_what_was_tried_by_half_at_most() {
        let mut world = World::new();
        let (_, most) = world.run(120.0, 50e6, 3e6);
        assert!((4.4e6..=4.6e6).contains(&most), "{most}");
    }
}
