//! Round-trip time: the retransmission timeout (RFC 6298) and the delay that a packet train
//! causes to itself (thesis, ch. V).

mod linux;

use ontempo_foundation::{Duration, Time};

pub use linux::LinuxVariation;

/// The clock with which round-trip times are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// As exact as the samples are.
    Exact,
    /// In whole ticks of the granularity, as BSD's stack and ns-2 do: a sample is rounded to
    /// the nearest tick, at least one, and the averages are kept in eighths and quarters of a
    /// tick.
    Ticks,
}

/// Parameters of the retransmission timer.
#[derive(Clone, Copy, Debug)]
pub struct RtoParameters {
    /// Timeout before the first sample (RFC 6298, section 2.1: 1 s).
    pub initial: Duration,
    /// Minimum timeout. 1 s in RFC 6298, section 2.4; 200 ms in Linux and ns-2 2.35.
    pub minimum: Duration,
    /// The greatest timeout (RFC 6298, section 2.5: at least 60 s).
    pub maximum: Duration,
    /// Clock granularity G (RFC 6298, section 2), which bounds the variation's term below.
    pub granularity: Duration,
    /// How samples are taken.
    pub sampling: Sampling,
}

impl Default for RtoParameters {
    /// RFC 6298, but for the minimum of 200 ms (Linux, ns-2); a clock of 1 ms.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            minimum: Duration::from_millis(200),
            maximum: Duration::from_secs(60),
            granularity: Duration::from_millis(1),
            sampling: Sampling::Exact,
        }
    }
}

impl RtoParameters {
    /// Linux: the initial timeout of RFC 6298 and at most 120 s (`TCP_RTO_MAX`); the variation's
    /// term is [`LinuxVariation`]'s.
    pub fn linux() -> Self {
        Self { maximum: Duration::from_secs(120), ..Self::default() }
    }

    /// ns-2 2.35's `Agent/TCP`: `rtxcur_init_` 3 s, `minrto_` 200 ms, `maxrto_` 60 s,
    /// `tcpTick_` 10 ms.
    pub fn ns2() -> Self {
        Self {
            initial: Duration::from_secs(3),
            minimum: Duration::from_millis(200),
            maximum: Duration::from_secs(60),
            granularity: Duration::from_millis(10),
            sampling: Sampling::Ticks,
        }
    }
}

/// Smoothed round-trip time, its variation and the retransmission timeout (RFC 6298).
///
/// Jacobson's integer form: SRTT is kept times 8 and RTTVAR times 4, in nanoseconds or in
/// ticks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RttEstimator {
    /// The unit of the averages in nanoseconds: 1, or a tick's length.
    unit: u64,
    /// The granularity in units, at least 1: the least 4 RTTVAR in the timeout.
    granules: u64,
    /// 8 SRTT in units; zero before the first sample.
    srtt8: u64,
    /// 4 RTTVAR in units.
    rttvar4: u64,
    /// Set after repeated back-off: the next sample starts the averages anew.
    stale: bool,
    /// How often the timeout is doubled.
    doublings: u32,
    /// The smallest raw sample.
    minimum: Option<Duration>,
    parameters: RtoParameters,
}

impl RttEstimator {
    /// Back-offs after which the averages are held to be worthless (RFC 6298, section 5, last
    /// paragraph; ns-2 and BSD: beyond a factor of 8).
    const STALE_AFTER: u32 = 4;

    /// The timeout after a handshake that took more than one SYN (RFC 6298, section 5.7).
    const AFTER_REPEATED_SYN: Duration = Duration::from_secs(3);

    /// An estimator without a sample.
    pub fn new(parameters: RtoParameters) -> Self {
        let unit = match parameters.sampling {
            Sampling::Exact => 1,
            Sampling::Ticks => parameters.granularity.as_nanos().max(1),
        };
        Self {
            parameters,
            unit,
            granules: (parameters.granularity.as_nanos() / unit).max(1),
            srtt8: 0,
            rttvar4: 0,
            stale: false,
            doublings: 0,
            minimum: None,
        }
    }

    /// A round trip was measured, on a packet that was sent once (Karn's rule). The timeout is
    /// computed anew and thereby no longer backed off (RFC 6298, end of section 5).
    #[inline]
    pub fn on_sample(&mut self, rtt: Duration) {
        self.minimum = Some(self.minimum.map_or(rtt, |least| least.min(rtt)));
        let sample = (rtt.as_nanos().saturating_add(self.unit / 2) / self.unit).max(1);
        if self.srtt8 == 0 || self.stale {
            self.srtt8 = sample * 8;
            self.rttvar4 = sample * 2;
            self.stale = false;
        } else {
            let deviation = sample.abs_diff(self.srtt8 / 8);
            self.srtt8 = self.srtt8 + sample - self.srtt8 / 8;
            self.rttvar4 = self.rttvar4 + deviation - self.rttvar4 / 4;
        }
        self.doublings = 0;
    }

    /// The retransmission timeout, back-off included.
    #[inline]
    pub fn rto(&self) -> Duration {
        let base = self.base_rto().max(self.parameters.minimum);
        if self.doublings == 0 {
            return base.min(self.parameters.maximum);
        }
        let factor = 1u64.checked_shl(self.doublings).unwrap_or(u64::MAX);
        (base * factor).min(self.parameters.maximum)
    }

    /// The retransmission timeout with another term of variation than 4 RTTVAR, back-off included:
    /// `SRTT + variation`. The minimum is the term's own.
    #[inline]
    pub fn rto_with(&self, variation: Duration) -> Duration {
        let base = self.srtt().map_or(self.parameters.initial, |srtt| srtt + variation);
        let factor = 1u64.checked_shl(self.doublings).unwrap_or(u64::MAX);
        (base * factor).min(self.parameters.maximum)
    }

    #[inline]
    fn base_rto(&self) -> Duration {
        if self.srtt8 == 0 {
            return self.parameters.initial;
        }
        let variation = self.rttvar4.max(self.granules);
        Duration::from_nanos(self.unit) * ((self.srtt8 + 8 * variation) / 8)
    }

    /// The timer expired: double the timeout (RFC 6298, section 5.5).
    pub fn back_off(&mut self) {
        if self.rto() < self.parameters.maximum {
            self.doublings += 1;
        }
        if self.doublings >= Self::STALE_AFTER {
            self.stale = true;
        }
    }

    /// The handshake is done, and its SYN was sent more than once. Without a sample of it, the timeout is at
    /// least 3 s until there is one (RFC 6298, section 5.7; Linux, `tcp_init_metrics`): the initial one was
    /// perhaps too short for this path.
    pub fn on_handshake_repeated(&mut self) {
        if self.srtt8 == 0 {
            self.parameters.initial = self.parameters.initial.max(Self::AFTER_REPEATED_SYN);
            self.doublings = 0;
        }
    }

    /// Takes the back-off away without a sample, as Linux does where new data is acknowledged.
    pub fn reset_back_off(&mut self) {
        self.doublings = 0;
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub fn srtt(&self) -> Option<Duration> {
        (self.srtt8 > 0).then(|| Duration::from_nanos(self.srtt8 * self.unit / 8))
    }

    /// The round-trip time's smoothed mean deviation; zero before the first sample.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar4 * self.unit / 4)
    }

    /// The smallest sample, never rounded to ticks; `None` before the first.
    #[inline]
    pub fn minimum_rtt(&self) -> Option<Duration> {
        self.minimum
    }
}

/// The packets that one acknowledgement covers: a train, sent together.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// How many packets it covers; `k` of the thesis.
    pub packets: u64,
    /// When the first of them was sent.
    pub first_sent: Time,
    /// When the last of them was sent.
    pub last_sent: Time,
}

/// Estimates how long the last packet of a train waited for the others (thesis, ch. V).
///
/// With `k` packets in a train, the acknowledgements of this and of the last train `D2` apart,
/// and the first packet of this train sent `s` after the last packet of the last train, the
/// self-induced delay is `D1 = (k-1)/k * (D2 - s)` (equation 5.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct SelfInducedDelay {
    /// When the last train was acknowledged and when its last packet had been sent.
    previous: Option<(Time, Time)>,
}

impl SelfInducedDelay {
    /// Before the first train.
    pub fn new() -> Self {
        Self::default()
    }

    /// `train` was acknowledged at `now`: the delay that it caused to itself. Zero for the
    /// first train, for a train of one packet, and where the trains came back closer together
    /// than they were sent.
    pub fn on_ack(&mut self, now: Time, train: Train) -> Duration {
        let previous = self.previous.replace((now, train.last_sent));
        let (Some((acked, sent)), true) = (previous, train.packets > 1) else {
            return Duration::ZERO;
        };
        let stretch = now.since(acked) - train.first_sent.since(sent);
        let packets = train.packets as f64;
        stretch.mul_f64((packets - 1.0) / packets)
    }

    /// Forgets the last train, for example after a retransmission, whose acknowledgement covers no
    /// train.
    pub fn reset(&mut self) {
        self.previous = None;
    }

    /// The round-trip time `rtt` of a train without its self-induced delay (equation 5.4),
    /// never below `minimum`, the smallest round trip seen, and never above `rtt` (our
    /// decision; the thesis does not say). `rtt` runs from the sending of the train's first
    /// packet (equation 5.1).
    #[inline]
    pub fn correct(rtt: Duration, self_induced: Duration, minimum: Duration) -> Duration {
        rtt - self_induced.min(rtt - minimum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn before_a_sample_the_timeout_is_the_initial_one() {
        assert_eq!(RttEstimator::new(RtoParameters::default()).rto(), Duration::from_secs(1));
        assert_eq!(RttEstimator::new(RtoParameters::ns2()).rto(), Duration::from_secs(3));
    }

    #[test]
    fn a_handshake_that_was_repeated_and_gave_no_sample_makes_the_timeout_three_seconds() {
        let mut estimator = RttEstimator::new(RtoParameters::default());
        estimator.back_off();
        estimator.on_handshake_repeated();
        assert_eq!(estimator.rto(), Duration::from_secs(3));
        assert_eq!(estimator.rto_with(millis(200)), Duration::from_secs(3));
        estimator.back_off();
        assert_eq!(estimator.rto(), Duration::from_secs(6));
        estimator.on_sample(millis(100));
        assert_eq!(estimator.rto(), millis(300), "a sample takes its place");
        estimator.on_handshake_repeated();
        assert_eq!(estimator.rto(), millis(300), "there is one");
        // One that is longer stays, and none exceeds the greatest.
        let longer = RtoParameters { initial: Duration::from_secs(5), ..RtoParameters::default() };
        let least = RtoParameters { maximum: Duration::from_secs(2), ..RtoParameters::default() };
        for (parameters, seconds) in [(longer, 5), (least, 2)] {
            let mut estimator = RttEstimator::new(parameters);
            estimator.on_handshake_repeated();
            assert_eq!(estimator.rto(), Duration::from_secs(seconds));
        }
    }

    #[test]
    fn the_first_sample_counts_whole_and_varies_by_half() {
        let mut estimator = RttEstimator::new(RtoParameters::default());
        estimator.on_sample(millis(100));
        assert_eq!(estimator.srtt(), Some(millis(100)));
        assert_eq!(estimator.rttvar(), millis(50));
        assert_eq!(estimator.rto(), millis(300));
    }

    #[test]
    fn later_samples_count_an_eighth_and_a_quarter() {
        let mut estimator = RttEstimator::new(RtoParameters::default());
        estimator.on_sample(millis(100));
        estimator.on_sample(millis(180));
        assert_eq!(estimator.srtt(), Some(millis(110)));
        // 3/4 * 50 + 1/4 * 80
        assert_eq!(estimator.rttvar(), Duration::from_micros(57_500));
        assert_eq!(estimator.rto(), millis(340));
        assert_eq!(estimator.minimum_rtt(), Some(millis(100)));
    }

    #[test]
    fn ns2_counts_whole_ticks_of_ten_milliseconds() {
        let mut estimator = RttEstimator::new(RtoParameters::ns2());
        estimator.on_sample(millis(104));
        assert_eq!(estimator.srtt(), Some(millis(100)));
        // In ticks: srtt8 80, rttvar4 20; (80 + 160) / 8 = 30 ticks.
        assert_eq!(estimator.rto(), millis(300));
        estimator.on_sample(millis(146));
        // 15 ticks: srtt8 85, rttvar4 20 + 5 - 5; (85 + 160) / 8 = 30 ticks.
        assert_eq!(estimator.rto(), millis(300));
        assert_eq!(estimator.minimum_rtt(), Some(millis(104)));
    }

    #[test]
    fn a_steady_round_trip_ends_at_the_least_timeout() {
        let mut estimator = RttEstimator::new(RtoParameters::default());
        for _ in 0..200 {
            estimator.on_sample(millis(50));
        }
        assert_eq!(estimator.rto(), millis(200));
    }

    #[test]
    fn each_expiry_doubles_the_timeout_up_to_the_maximum_and_a_sample_ends_that() {
        let mut estimator = RttEstimator::new(RtoParameters::default());
        estimator.on_sample(millis(100));
        let timeouts: Vec<_> = (0..10)
            .map(|_| {
                estimator.back_off();
                estimator.rto()
            })
            .collect();
        assert_eq!(timeouts[..3], [600, 1200, 2400].map(millis));
        assert_eq!(timeouts[7..], [60_000; 3].map(millis));
        // The averages are obsolete: this counts as a first sample.
        estimator.on_sample(millis(200));
        assert_eq!(estimator.rto(), millis(600));
    }

    #[test]
    fn back_off_can_be_taken_away_without_a_sample() {
        let mut estimator = RttEstimator::new(RtoParameters::default());
        estimator.on_sample(millis(100));
        estimator.back_off();
        estimator.reset_back_off();
        assert_eq!(estimator.rto(), millis(300));
    }

    #[test]
    fn a_train_of_four_back_to_back_waits_for_three_of_its_own() {
        let mut delay = SelfInducedDelay::new();
        let train = |sent| Train { packets: 4, first_sent: at(sent), last_sent: at(sent) };
        assert_eq!(delay.on_ack(at(100), train(0)), Duration::ZERO);
        // Sent 100 ms after the last train, acknowledged 110.64 ms after it; by a bottleneck of
        // 2.66 ms a packet. D1 = 3/4 * 10.64 ms.
        let acked = at(100) + Duration::from_micros(110_640);
        assert_eq!(delay.on_ack(acked, train(100)), Duration::from_micros(7_980));
    }

    #[test]
    fn a_single_packet_induces_no_delay() {
        let mut delay = SelfInducedDelay::new();
        let train = |sent| Train { packets: 1, first_sent: at(sent), last_sent: at(sent) };
        delay.on_ack(at(100), train(0));
        assert_eq!(delay.on_ack(at(500), train(100)), Duration::ZERO);
    }

    #[test]
    fn trains_that_come_back_closer_than_sent_induce_no_delay() {
        let mut delay = SelfInducedDelay::new();
        let train = |sent| Train { packets: 2, first_sent: at(sent), last_sent: at(sent) };
        delay.on_ack(at(100), train(0));
        assert_eq!(delay.on_ack(at(150), train(80)), Duration::ZERO);
    }

    #[test]
    fn a_correction_never_goes_below_the_smallest_round_trip() {
        let correct = SelfInducedDelay::correct;
        assert_eq!(correct(millis(50), millis(8), millis(40)), millis(42));
        assert_eq!(correct(millis(50), millis(30), millis(40)), millis(40));
        assert_eq!(correct(millis(50), millis(30), millis(60)), millis(50));
    }

    proptest! {
        #[test]
        fn the_timeout_stays_within_its_bounds_and_above_the_smoothed_round_trip(
            ticks in any::<bool>(),
            samples in proptest::collection::vec(0u64..30_000_000_000, 1..100),
        ) {
            let parameters = if ticks { RtoParameters::ns2() } else { RtoParameters::default() };
            let mut estimator = RttEstimator::new(parameters);
            for sample in samples {
                estimator.on_sample(Duration::from_nanos(sample));
                let srtt = estimator.srtt().expect("sampled");
                let rto = estimator.rto();
                prop_assert!(rto >= parameters.minimum && rto <= parameters.maximum);
                prop_assert!(rto + parameters.granularity >= srtt.min(parameters.maximum));
            }
        }
    }
}
