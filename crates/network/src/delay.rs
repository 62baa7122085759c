use core::fmt;

use ontempo_foundation::{Duration, RandomStream, math};

/// The distribution of a link's propagation delay, drawn per packet.
#[derive(Clone, Debug, PartialEq)]
pub enum DelayLaw {
    /// Always the same.
    Constant(Duration),
    /// Uniform between two bounds.
    Uniform(Uniform),
    /// Exponential, with this mean.
    Exponential(Duration),
    /// A mixture of exponential distributions: more variable than one.
    HyperExponential(HyperExponential),
    /// The sum of exponential stages: less variable than one exponential.
    Erlang(Erlang),
    /// The sum of independent delays.
    Sum(DelaySum),
}

/// Bounds of a uniform law, the lower first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    low: Duration,
    high: Duration,
}

/// Branches of a hyper-exponential law.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperExponential {
    /// For each branch the cumulative probability, and its mean. The last
    /// branch absorbs rounding errors.
    branches: Box<[(f64, Duration)]>,
    mean: Duration,
}

/// Stages of an Erlang law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erlang {
    stages: u32,
    /// Mean of the sum, not of a stage.
    mean: Duration,
}

/// Terms of a sum of delays.
#[derive(Clone, Debug, PartialEq)]
pub struct DelaySum {
    terms: Box<[DelayLaw]>,
}

/// Parameters that make no delay law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DelayLawError {
    /// The lower bound is above the upper one.
    BoundsReversed(Duration, Duration),
    /// A branch's probability is outside 0 to 1.
    NotAProbability(f64),
    /// The branches' probabilities add up to this instead of 1.
    ProbabilitiesSumTo(f64),
    /// There is no branch, stage or term.
    Empty,
}

impl fmt::Display for DelayLawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BoundsReversed(low, high) => {
                write!(f, "the lower bound of a delay, {low}, lies above the upper one, {high}")
            }
            Self::NotAProbability(value) => {
                write!(f, "the probability of a branch lies between 0 and 1, not at {value}")
            }
            Self::ProbabilitiesSumTo(sum) => {
                write!(f, "the probabilities of the branches add up to {sum}, not to 1")
            }
            Self::Empty => f.write_str("a delay needs at least one branch, stage or term"),
        }
    }
}

impl core::error::Error for DelayLawError {}

impl DelayLaw {
    /// By how much the sum of the probabilities may differ from 1: a file has some digits of them, such as
    /// 0.3333333 of a third.
    pub const SUM_TOLERANCE: f64 = 1e-6;

    /// Uniform between `low` and `high`.
    ///
    /// # Errors
    /// `low` is above `high`.
    pub fn uniform(low: Duration, high: Duration) -> Result<Self, DelayLawError> {
        if low > high {
            return Err(DelayLawError::BoundsReversed(low, high));
        }
        Ok(Self::Uniform(Uniform { low, high }))
    }

    /// A mixture of exponential laws, from the probability (0 to 1, together 1) and the mean
    /// of each branch. The probabilities are divided by their sum.
    ///
    /// # Errors
    /// There is no branch, a probability is out of range, or their sum differs from 1 by more than
    /// [`SUM_TOLERANCE`](Self::SUM_TOLERANCE).
    pub fn hyper_exponential(
        branches: impl IntoIterator<Item = (f64, Duration)>,
    ) -> Result<Self, DelayLawError> {
        let given: Vec<(f64, Duration)> = branches.into_iter().collect();
        if let Some((wrong, _)) = given.iter().find(|(chance, _)| !(0.0..=1.0).contains(chance)) {
            return Err(DelayLawError::NotAProbability(*wrong));
        }
        if given.is_empty() {
            return Err(DelayLawError::Empty);
        }
        let sum: f64 = given.iter().map(|(probability, _)| probability).sum();
        if (sum - 1.0).abs() > Self::SUM_TOLERANCE {
            return Err(DelayLawError::ProbabilitiesSumTo(sum));
        }
        let (mut up_to, mut mean) = (0.0, Duration::ZERO);
        let branch = |(probability, branch_mean): (f64, Duration)| {
            let probability = probability / sum;
            up_to += probability;
            mean += branch_mean.mul_f64(probability);
            (up_to, branch_mean)
        };
        let branches = given.into_iter().map(branch).collect();
        Ok(Self::HyperExponential(HyperExponential { branches, mean }))
    }

    /// The sum of `stages` exponential delays that together have this `mean`.
    ///
    /// # Errors
    /// There is no stage.
    pub fn erlang(stages: u32, mean: Duration) -> Result<Self, DelayLawError> {
        if stages == 0 {
            return Err(DelayLawError::Empty);
        }
        Ok(Self::Erlang(Erlang { stages, mean }))
    }

    /// The sum of independent delays, for example a constant and an exponential one.
    ///
    /// # Errors
    /// There is no term.
    pub fn sum(terms: impl IntoIterator<Item = DelayLaw>) -> Result<Self, DelayLawError> {
        let terms: Box<[DelayLaw]> = terms.into_iter().collect();
        if terms.is_empty() {
            return Err(DelayLawError::Empty);
        }
        Ok(Self::Sum(DelaySum { terms }))
    }

    /// The delay of one packet; a constant law draws nothing from `random`.
    #[inline]
    pub fn sample(&self, random: &mut RandomStream) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            _ => self.draw(random),
        }
    }

    fn draw(&self, random: &mut RandomStream) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Uniform(Uniform { low, high }) => random.duration_between(*low, *high),
            Self::Exponential(mean) => mean.mul_f64(random.exponential(1.0)),
            Self::HyperExponential(law) => {
                law.branch(random.uniform()).mul_f64(random.exponential(1.0))
            }
            Self::Erlang(Erlang { stages, mean }) => {
                mean.mul_f64(stages_total(*stages, random) / f64::from(*stages))
            }
            Self::Sum(DelaySum { terms }) => terms.iter().map(|term| term.sample(random)).sum(),
        }
    }

    /// The mean delay, rounded to a nanosecond.
    pub fn mean(&self) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Uniform(Uniform { low, high }) => *low + (*high - *low) / 2,
            Self::Exponential(mean) => *mean,
            Self::HyperExponential(law) => law.mean,
            Self::Erlang(Erlang { mean, .. }) => *mean,
            Self::Sum(DelaySum { terms }) => terms.iter().map(Self::mean).sum(),
        }
    }

    /// The smallest possible delay.
    pub fn minimum(&self) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Uniform(Uniform { low, .. }) => *low,
            Self::Exponential(_) | Self::HyperExponential(_) | Self::Erlang(_) => Duration::ZERO,
            Self::Sum(DelaySum { terms }) => terms.iter().map(Self::minimum).sum(),
        }
    }
}

impl HyperExponential {
    /// Mean of the branch that contains `point`, uniform in `[0, 1)`.
    fn branch(&self, point: f64) -> Duration {
        let (earlier, last) = self.branches.split_at(self.branches.len() - 1);
        earlier.iter().find(|(until, _)| point < *until).map_or(last[0].1, |branch| branch.1)
    }
}

/// The sum of `stages` exponential numbers of mean 1: one logarithm of a product of uniform
/// numbers replaces several logarithms.
fn stages_total(stages: u32, random: &mut RandomStream) -> f64 {
    // Factors are at least 2^-53, and 2^(-53 * 16) is still a normal number.
    const STAGES_PER_LOGARITHM: u32 = 16;
    let (mut total, mut left) = (0.0, stages);
    while left > 0 {
        let now = left.min(STAGES_PER_LOGARITHM);
        let product: f64 = (0..now).map(|_| 1.0 - random.uniform()).product();
        total -= math::ln(product);
        left -= now;
    }
    total
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_millis(10);
    const THIRTY: Duration = Duration::from_millis(30);

    /// Mean and squared coefficient of variation of many samples, none below the minimum.
    fn moments(law: &DelayLaw) -> (f64, f64) {
        let mut random = RandomStream::new(3, "delay");
        let draws = 200_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..draws {
            let sample = law.sample(&mut random);
            assert!(sample >= law.minimum());
            sum += sample.as_secs_f64();
            squares += sample.as_secs_f64() * sample.as_secs_f64();
        }
        let mean = sum / f64::from(draws);
        (mean, squares / f64::from(draws) / (mean * mean) - 1.0)
    }

    #[track_caller]
    fn assert_moments(law: Result<DelayLaw, DelayLawError>, variation: f64) {
        let law = law.unwrap();
        let (mean, sampled_variation) = moments(&law);
        assert!((mean / law.mean().as_secs_f64() - 1.0).abs() < 0.01, "mean {mean}");
        let difference = (sampled_variation - variation).abs();
        assert!(difference < 0.03 * variation.max(0.1), "variation {sampled_variation}");
    }

    #[test]
    fn samples_have_the_mean_and_variation_of_their_law() {
        assert_moments(Ok(DelayLaw::Constant(TEN)), 0.0);
        assert_moments(DelayLaw::uniform(TEN, THIRTY), 1.0 / 12.0);
        assert_moments(Ok(DelayLaw::Exponential(TEN)), 1.0);
        assert_moments(DelayLaw::erlang(4, TEN), 1.0 / 4.0);
        assert_moments(DelayLaw::erlang(40, TEN), 1.0 / 40.0);
        // Mean 25 ms; the mean square is 2 (0.25 * 10^2 + 0.75 * 30^2) ms^2.
        let mixture = DelayLaw::hyper_exponential([(0.25, TEN), (0.75, THIRTY)]);
        assert_moments(mixture, 1400.0 / 625.0 - 1.0);
    }

    #[test]
    fn a_sum_adds_means_and_minima() {
        let sum = DelayLaw::sum([DelayLaw::Constant(THIRTY), DelayLaw::Exponential(TEN)]);
        let sum = sum.unwrap();
        assert_eq!(sum.mean(), Duration::from_millis(40));
        assert_eq!(sum.minimum(), THIRTY);
        assert_moments(Ok(sum), 1.0 / 16.0);
    }

    #[test]
    fn the_mean_of_a_mixture_weighs_its_branches() {
        let law = DelayLaw::hyper_exponential([(0.5, TEN), (0.5, THIRTY)]).unwrap();
        assert_eq!(law.mean(), Duration::from_millis(20));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        use DelayLawError::*;
        assert_eq!(DelayLaw::uniform(THIRTY, TEN), Err(BoundsReversed(THIRTY, TEN)));
        assert_eq!(DelayLaw::erlang(0, TEN), Err(Empty));
        assert_eq!(DelayLaw::sum([]), Err(Empty));
        assert_eq!(DelayLaw::hyper_exponential([]), Err(Empty));
        assert_eq!(DelayLaw::hyper_exponential([(1.5, TEN)]), Err(NotAProbability(1.5)));
        assert_eq!(DelayLaw::hyper_exponential([(0.5, TEN)]), Err(ProbabilitiesSumTo(0.5)));
        assert!(DelayLaw::hyper_exponential([(f64::NAN, TEN)]).is_err());
    }

    #[test]
    fn probabilities_need_not_add_up_to_the_last_bit() {
        let thirds = [(1.0 / 3.0, TEN), (1.0 / 3.0, TEN), (0.333_333_333_3, TEN)];
        assert!(DelayLaw::hyper_exponential(thirds).is_ok());
        // Of a file with a few digits, of which none is lost.
        let ten = Duration::from_secs(10);
        let law = DelayLaw::hyper_exponential([(0.333_333_3, ten); 3]).unwrap();
        assert!(ten.saturating_sub(law.mean()) < Duration::from_nanos(10), "{}", law.mean());
        assert!(DelayLaw::hyper_exponential([(0.333, TEN), (0.333, TEN), (0.333, TEN)]).is_err());
    }

    #[test]
    fn errors_read_as_sentences() {
        let reversed = DelayLawError::BoundsReversed(THIRTY, TEN).to_string();
        assert_eq!(reversed, "the lower bound of a delay, 30 ms, lies above the upper one, 10 ms");
    }
}
