//! Schedules that vary at random: draws of their parts, and the steps of rate, delay and loss that
//! the parts make together.

use ontempo_foundation::{Duration, RandomStream, Rate, Time, math};

use crate::model::{DelayVariation, Episode, RateVariation};

/// A value that holds from each time to the next.
type Course<T> = Vec<(Time, T)>;

/// What a random schedule consists of.
pub(crate) struct Parts<'a> {
    pub(crate) rate: &'a [RateVariation],
    /// What the factors of the rate do not go below and above.
    pub(crate) bounds: (Option<Rate>, Option<Rate>),
    pub(crate) delay: &'a [DelayVariation],
    pub(crate) episodes: &'a [Episode],
}

/// Rate, delay and loss over a run; `None` is the link's own.
pub(crate) struct Values {
    pub(crate) rate: Course<Rate>,
    pub(crate) delay: Course<Option<Duration>>,
    pub(crate) loss: Course<Option<f64>>,
}

impl Parts<'_> {
    /// Draws the parts for a run of this duration. `stream` answers the random stream of a part.
    pub(crate) fn draw(
        &self,
        nominal: Rate,
        own_delay: Duration,
        duration: Duration,
        stream: impl Fn(&str) -> RandomStream,
    ) -> Values {
        let factors = self.rate.iter().enumerate().map(|(place, part)| {
            let mut stream = stream(&format!("rate {place}"));
            vary(part.every, part.deviation, part.correlation_time, duration, &mut stream)
        });
        let factors: Vec<Course<f64>> = factors.collect();
        let delays = self.delay.iter().enumerate().map(|(place, part)| {
            let mut stream = stream(&format!("delay {place}"));
            let factors =
                vary(part.every, part.deviation, part.correlation_time, duration, &mut stream);
            let median = part.median.as_secs_f64();
            factors.into_iter().map(|(time, factor)| (time, median * factor)).collect()
        });
        let mut delays: Vec<Course<f64>> = delays.collect();
        let episodes = self.episodes.iter().enumerate();
        let episodes: Vec<Course<bool>> = episodes
            .map(|(place, part)| {
                take_place(part, duration, &mut stream(&format!("episode {place}")))
            })
            .collect();
        let while_on = |course: &Course<bool>, on: f64, off: f64| -> Course<f64> {
            course.iter().map(|(time, is_on)| (*time, if *is_on { on } else { off })).collect()
        };
        let with_parts = || self.episodes.iter().zip(&episodes);
        let slowing: Vec<Course<f64>> = with_parts()
            .filter(|(part, _)| part.rate < 1.0)
            .map(|(part, course)| while_on(course, part.rate, 1.0))
            .collect();
        let losing: Vec<Course<f64>> = with_parts()
            .filter_map(|(part, course)| Some(while_on(course, part.loss?, -1.0)))
            .collect();
        delays.extend(
            with_parts()
                .filter(|(part, _)| part.delay > Duration::ZERO)
                .map(|(part, course)| while_on(course, part.delay.as_secs_f64(), 0.0)),
        );
        Values {
            rate: self.rates(nominal, factors, slowing),
            delay: match delays.is_empty() {
                true => vec![(Time::ZERO, None)],
                false => together(&delays, |extra| {
                    Some(own_delay + Duration::from_secs_f64(extra.iter().sum()))
                }),
            },
            loss: together(&losing, |losses| {
                let on = || losses.iter().filter(|loss| **loss >= 0.0);
                let passes: f64 = on().map(|loss| 1.0 - loss).product();
                (on().count() > 0).then_some(1.0 - passes)
            }),
        }
    }

    fn rates(
        &self,
        nominal: Rate,
        mut factors: Vec<Course<f64>>,
        slowing: Vec<Course<f64>>,
    ) -> Course<Rate> {
        let count = factors.len();
        factors.extend(slowing);
        let bits = |rate: Option<Rate>, otherwise| {
            rate.map_or(otherwise, |rate: Rate| rate.as_bits_per_sec() as f64)
        };
        let (low, high) = (bits(self.bounds.0, 0.0), bits(self.bounds.1, f64::INFINITY));
        together(&factors, |factors| {
            if factors.iter().all(|factor| *factor == 1.0) && count == 0 {
                return nominal;
            }
            let (varied, slowed) = factors.split_at(count);
            let varied = nominal.as_bits_per_sec() as f64 * varied.iter().product::<f64>();
            let rate = varied.min(high).max(low) * slowed.iter().product::<f64>();
            Rate::from_bits_per_sec(rate.round() as u64)
        })
    }
}

/// Factors whose logarithm is an autoregressive process of order 1, from its stationary law on.
fn vary(
    every: Duration,
    deviation: f64,
    correlation_time: Duration,
    duration: Duration,
    stream: &mut RandomStream,
) -> Course<f64> {
    let kept = match correlation_time {
        Duration::ZERO => 0.0,
        time => math::exp(-every.as_secs_f64() / time.as_secs_f64()),
    };
    let renewed = deviation * math::sqrt(1.0 - kept * kept);
    let mut logarithm = deviation * normal(stream);
    let (mut course, mut time) = (Vec::new(), Time::ZERO);
    while time.since(Time::ZERO) < duration {
        course.push((time, math::exp(logarithm)));
        logarithm = kept * logarithm + renewed * normal(stream);
        time += every;
    }
    course
}

/// A normally distributed number of mean 0 and deviation 1.
fn normal(stream: &mut RandomStream) -> f64 {
    math::ln(stream.log_normal(0.0, 1.0))
}

/// When an episode is on, before the end of a run.
fn take_place(part: &Episode, duration: Duration, stream: &mut RandomStream) -> Course<bool> {
    let tick = Duration::from_nanos(1);
    let mut course = vec![(Time::ZERO, false)];
    let mut put = |time: Time, is_on: bool| match course.last_mut() {
        Some(last) if last.0 == time => last.1 = is_on,
        _ => course.push((time, is_on)),
    };
    let length = |stream: &mut RandomStream| match part.fixed_length {
        true => part.length,
        false => part.length.mul_f64(stream.exponential(1.0)).max(tick),
    };
    let mut time = Time::ZERO;
    while time.since(Time::ZERO) < duration {
        match (part.gap, part.every) {
            (Some(gap), _) => {
                time += gap.mul_f64(stream.exponential(1.0)).max(tick);
                put(time, true);
                time += length(stream);
                put(time, false);
            }
            (None, Some(every)) => {
                // Both are drawn each time, so that a probability does not shift the lengths.
                let (takes_place, lasts) = (stream.chance(part.probability), length(stream));
                if takes_place {
                    put(time, true);
                    put(time + lasts.min(every), false);
                }
                time += every;
            }
            (None, None) => break,
        }
    }
    course.retain(|(time, _)| time.since(Time::ZERO) < duration);
    course
}

/// The value that `combine` makes of all courses, where it changes.
fn together<T: Copy + PartialEq>(
    courses: &[Course<f64>],
    combine: impl Fn(&[f64]) -> T,
) -> Course<T> {
    let mut places = vec![0; courses.len()];
    let mut values: Vec<f64> = courses.iter().map(|course| course[0].1).collect();
    let mut course = vec![(Time::ZERO, combine(&values))];
    loop {
        let next =
            courses.iter().zip(&places).filter_map(|(one, place)| Some(one.get(place + 1)?.0));
        let Some(time) = next.min() else { return course };
        for ((one, place), value) in courses.iter().zip(&mut places).zip(&mut values) {
            if let Some((_, next)) = one.get(*place + 1).filter(|(at, _)| *at == time) {
                (*place, *value) = (*place + 1, *next);
            }
        }
        let combined = combine(&values);
        if course.last().is_none_or(|(_, last)| *last != combined) {
            course.push((time, combined));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn stream(part: &str) -> RandomStream {
        RandomStream::new(3, part)
    }

    const RATE: Rate = Rate::from_bits_per_sec(10_000_000);

    const EPISODE: Episode = Episode {
        gap: None,
        every: None,
        probability: 1.0,
        length: Duration::from_millis(100),
        fixed_length: true,
        rate: 1.0,
        delay: Duration::ZERO,
        loss: None,
    };

    fn draw(rate: &[RateVariation], delay: &[DelayVariation], episodes: &[Episode]) -> Values {
        let parts = Parts { rate, bounds: (None, None), delay, episodes };
        parts.draw(RATE, Duration::from_millis(20), seconds(4000.0), stream)
    }

    #[test]
    fn the_logarithm_of_a_rate_has_the_deviation_and_the_correlation_of_its_variation() {
        let part =
            RateVariation { every: seconds(0.1), deviation: 0.5, correlation_time: seconds(1.0) };
        let values = draw(&[part], &[], &[]);
        let logs: Vec<f64> = values
            .rate
            .iter()
            .map(|(_, rate)| math::ln(rate.as_bits_per_sec() as f64 / 1e7))
            .collect();
        let mean = |values: &mut dyn Iterator<Item = f64>, count: usize| {
            values.sum::<f64>() / count as f64
        };
        let variance = mean(&mut logs.iter().map(|x| x * x), logs.len());
        assert!((variance.sqrt() - 0.5).abs() < 0.03, "{variance}");
        let lag = logs.len() - 10;
        let covariance = mean(&mut logs.iter().zip(&logs[10..]).map(|(a, b)| a * b), lag);
        assert!((covariance / variance - (-1.0f64).exp()).abs() < 0.06, "{covariance}");
        assert_eq!(
            (values.delay, values.loss),
            (vec![(Time::ZERO, None)], vec![(Time::ZERO, None)])
        );
    }

    #[test]
    fn a_longer_run_begins_as_a_shorter_one() {
        let part =
            RateVariation { every: seconds(1.0), deviation: 0.5, correlation_time: seconds(9.0) };
        let episode = Episode { gap: Some(seconds(5.0)), rate: 0.0, ..EPISODE };
        let of = |duration| {
            let parts =
                Parts { rate: &[part], bounds: (None, None), delay: &[], episodes: &[episode] };
            parts.draw(RATE, Duration::ZERO, seconds(duration), stream).rate
        };
        let (short, long) = (of(60.0), of(600.0));
        let before = |course: &Course<Rate>| -> Course<Rate> {
            let until = Time::ZERO + seconds(60.0);
            course.iter().copied().filter(|(time, _)| *time < until).collect()
        };
        assert_eq!(before(&short), before(&long));
    }

    #[test]
    fn episodes_slow_delay_and_lose_while_they_last() {
        let slow = Episode {
            every: Some(seconds(1.0)),
            rate: 0.5,
            delay: Duration::from_millis(7),
            loss: Some(0.5),
            ..EPISODE
        };
        let out = Episode { every: Some(seconds(2.0)), rate: 0.0, loss: Some(0.5), ..EPISODE };
        let values = draw(&[], &[], &[slow, out]);
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let nothing = Rate::from_bits_per_sec(0);
        let half = Rate::from_bits_per_sec(5_000_000);
        let expected = [(at(0), nothing), (at(100), RATE), (at(1000), half), (at(1100), RATE)];
        assert_eq!(values.rate[..4], expected);
        let delays =
            [(at(0), Some(Duration::from_millis(27))), (at(100), Some(Duration::from_millis(20)))];
        assert_eq!(values.delay[..2], delays);
        let losses = [(at(0), Some(0.75)), (at(100), None), (at(1000), Some(0.5))];
        assert_eq!(values.loss[..3], losses);
    }

    #[test]
    fn gaps_and_lengths_have_their_means_and_a_probability_is_kept() {
        let outage = Episode {
            gap: Some(seconds(2.0)),
            length: seconds(0.5),
            fixed_length: false,
            rate: 0.0,
            ..EPISODE
        };
        let course = take_place(&outage, seconds(20_000.0), &mut stream("a"));
        let lasts: f64 = course
            .windows(2)
            .filter(|pair| pair[0].1)
            .map(|pair| pair[1].0.since(pair[0].0).as_secs_f64())
            .sum();
        let count = course.iter().filter(|(_, is_on)| *is_on).count() as f64;
        assert!((lasts / count - 0.5).abs() < 0.03, "{}", lasts / count);
        assert!((20_000.0 / count - 2.5).abs() < 0.1, "{count}");
        let some = Episode { every: Some(seconds(1.0)), probability: 0.3, ..EPISODE };
        let course = take_place(&some, seconds(10_000.0), &mut stream("b"));
        let share = course.iter().filter(|(_, is_on)| *is_on).count() as f64 / 10_000.0;
        assert!((share - 0.3).abs() < 0.02, "{share}");
    }

    #[test]
    fn bounds_hold_for_the_factors_and_not_for_episodes() {
        let part =
            RateVariation { every: seconds(1.0), deviation: 2.0, correlation_time: Duration::ZERO };
        let outage = Episode { gap: Some(seconds(5.0)), rate: 0.0, ..EPISODE };
        let low = Rate::from_bits_per_sec(5_000_000);
        let high = Rate::from_bits_per_sec(20_000_000);
        let parts = Parts {
            rate: &[part],
            bounds: (Some(low), Some(high)),
            delay: &[],
            episodes: &[outage],
        };
        let values = parts.draw(RATE, Duration::ZERO, seconds(1000.0), stream);
        let nothing = Rate::from_bits_per_sec(0);
        assert!(
            values.rate.iter().all(|(_, rate)| *rate == nothing || (low..=high).contains(rate))
        );
        for rate in [nothing, low, high] {
            assert!(values.rate.iter().any(|(_, one)| *one == rate), "{rate}");
        }
    }
}
