//! What flows send: sources that tell how many packets they have offered so far.
//!
//! A source is asked, not run: a constant bit rate costs no event for each packet while its
//! transport lags behind, since what it has offered by now is a division.

use ontempo_foundation::{Duration, RandomStream, Time};

/// Where a flow's packets come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// As many as the transport takes.
    Ftp,
    /// So many and no more.
    File { packets: u64 },
    /// One each interval.
    Cbr(Cbr),
    /// One each interval while on.
    OnOff(Box<OnOff>),
    /// A web user.
    Http(Box<Http>),
}

impl Source {
    /// Packets offered until `now`, since the start.
    #[inline]
    pub(crate) fn offered(&mut self, now: Time) -> u64 {
        match self {
            Self::Ftp => u64::MAX,
            Self::File { packets } => *packets,
            Self::Cbr(cbr) => cbr.offered(now),
            Self::OnOff(on_off) => on_off.offered(now),
            Self::Http(http) => http.offered(now),
        }
    }

    /// When there will be more than [`offered`](Self::offered) said at `now`; never, where that
    /// depends on what is acknowledged.
    pub(crate) fn next_offer(&self, now: Time) -> Time {
        match self {
            Self::Ftp | Self::File { .. } => Time::NEVER,
            Self::Cbr(cbr) => cbr.next_offer(now),
            Self::OnOff(on_off) => on_off.next,
            Self::Http(http) => http.page_begins.unwrap_or(Time::NEVER),
        }
    }

    /// Packets below `acknowledged` have arrived; true where a transfer ended with them.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, now: Time, acknowledged: u64) -> bool {
        match self {
            Self::File { packets } => acknowledged == *packets,
            Self::Http(http) => http.on_acknowledged(now, acknowledged),
            _ => false,
        }
    }

    /// When unit `number` of a constant bit rate is due to be sent.
    pub(crate) fn due(&self, number: u64) -> Option<Time> {
        match self {
            Self::Cbr(cbr) => Some(cbr.start + cbr.interval * number),
            _ => None,
        }
    }
}

/// A constant bit rate: unit `i` is offered at `start + i * interval`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cbr {
    pub(crate) start: Time,
    pub(crate) interval: Duration,
}

impl Cbr {
    fn offered(&self, now: Time) -> u64 {
        if now < self.start {
            return 0;
        }
        now.since(self.start).as_nanos() / self.interval.as_nanos() + 1
    }

    fn next_offer(&self, now: Time) -> Time {
        self.start + self.interval * self.offered(now)
    }
}

/// A constant bit rate while on, nothing while off; times on and off are exponential, or Pareto
/// where a tail exponent is given (Willinger et al., 1997: heavy tails add up to self-similar
/// traffic).
#[derive(Clone, Debug)]
pub(crate) struct OnOff {
    interval: Duration,
    on: Duration,
    off: Duration,
    shape: Option<f64>,
    random: RandomStream,
    offered: u64,
    next: Time,
    on_until: Time,
}

impl OnOff {
    pub(crate) fn new(
        start: Time,
        interval: Duration,
        (on, off): (Duration, Duration),
        shape: Option<f64>,
        random: RandomStream,
    ) -> Self {
        let mut source =
            Self { interval, on, off, shape, random, offered: 0, next: start, on_until: start };
        source.on_until = start + source.draw(on);
        source
    }

    fn draw(&mut self, mean: Duration) -> Duration {
        let seconds = mean.as_secs_f64();
        Duration::from_secs_f64(match self.shape {
            Some(shape) => self.random.pareto(seconds * (shape - 1.0) / shape, shape),
            None => self.random.exponential(seconds),
        })
    }

    fn offered(&mut self, now: Time) -> u64 {
        while self.next <= now {
            self.offered += 1;
            self.next += self.interval;
            if self.next >= self.on_until {
                let pause = self.draw(self.off);
                self.next = self.on_until + pause;
                self.on_until = self.next + self.draw(self.on);
            }
        }
        self.offered
    }
}

/// What of a web user may be set (Barford and Crovella, SIGMETRICS 1998).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLaws {
    pub(crate) think: Duration,
    pub(crate) think_shape: f64,
    pub(crate) objects: f64,
    pub(crate) objects_shape: f64,
    /// Mean size of an object in packets.
    pub(crate) size: f64,
    pub(crate) size_shape: f64,
}

/// A web user: thinks, fetches the objects of a page one after the other, thinks again.
///
/// All three laws are Pareto. A heavy tail is cut at 100 times its mean, so that one draw
/// cannot outweigh a whole run; the mean of what is left is a little below the one given.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    laws: HttpLaws,
    random: RandomStream,
    offered: u64,
    objects_left: u64,
    page_begins: Option<Time>,
}

impl Http {
    pub(crate) fn new(start: Time, laws: HttpLaws, random: RandomStream) -> Self {
        let mut user = Self { laws, random, offered: 0, objects_left: 0, page_begins: None };
        user.page_begins = Some(start + user.think());
        user
    }

    fn draw(&mut self, mean: f64, shape: f64) -> f64 {
        self.random.pareto(mean * (shape - 1.0) / shape, shape).min(100.0 * mean)
    }

    fn think(&mut self) -> Duration {
        Duration::from_secs_f64(self.draw(self.laws.think.as_secs_f64(), self.laws.think_shape))
    }

    fn begin_object(&mut self) {
        let packets = self.draw(self.laws.size, self.laws.size_shape).ceil() as u64;
        self.offered += packets.max(1);
        self.objects_left -= 1;
    }

    fn offered(&mut self, now: Time) -> u64 {
        if self.page_begins.is_some_and(|begins| begins <= now) {
            self.page_begins = None;
            let objects = self.draw(self.laws.objects, self.laws.objects_shape).round() as u64;
            self.objects_left = objects.max(1);
            self.begin_object();
        }
        self.offered
    }

    fn on_acknowledged(&mut self, now: Time, acknowledged: u64) -> bool {
        if acknowledged < self.offered || self.page_begins.is_some() {
            return false;
        }
        if self.objects_left > 0 {
            self.begin_object();
            return false;
        }
        self.page_begins = Some(now + self.think());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_bit_rate_offers_one_unit_each_interval_and_says_when_the_next_is_due() {
        let start = Time::from_secs_f64(1.0);
        let mut source = Source::Cbr(Cbr { start, interval: Duration::from_millis(20) });
        assert_eq!(source.offered(Time::from_secs_f64(0.9)), 0);
        assert_eq!(source.next_offer(Time::ZERO), start);
        assert_eq!(source.offered(Time::from_secs_f64(1.05)), 3);
        assert_eq!(source.next_offer(Time::from_secs_f64(1.05)), Time::from_secs_f64(1.06));
        assert_eq!(source.due(3), Some(Time::from_secs_f64(1.06)));
    }

    #[test]
    fn an_on_off_source_is_on_for_its_share_of_the_time() {
        let random = RandomStream::new(3, "on-off");
        let (on, off) = (Duration::from_millis(500), Duration::from_millis(1500));
        let mut source = OnOff::new(Time::ZERO, Duration::from_millis(10), (on, off), None, random);
        let offered = source.offered(Time::from_secs_f64(20_000.0));
        let share = offered as f64 / 2_000_000.0;
        assert!((share - 0.25).abs() < 0.01, "on for {share} of the time");
    }

    #[test]
    fn a_web_user_thinks_between_pages_and_fetches_objects_one_by_one() {
        let laws = HttpLaws {
            think: Duration::from_secs(10),
            think_shape: 1.4,
            objects: 1.7,
            objects_shape: 2.43,
            size: 12.0,
            size_shape: 1.2,
        };
        let mut user = Http::new(Time::ZERO, laws, RandomStream::new(1, "user"));
        let mut now = Time::ZERO;
        for _page in 0..200 {
            now = user.page_begins.expect("a page is due");
            let mut acknowledged = user.offered(now);
            while !user.on_acknowledged(now, acknowledged) {
                let more = user.offered(now);
                assert!(more > acknowledged, "the next object begins when one has arrived");
                acknowledged = more;
            }
            assert!(user.page_begins.expect("it thinks") > now);
        }
        assert!(now.as_secs_f64() > 200.0 * 2.0);
    }
}
