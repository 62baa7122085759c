use core::fmt;

use ontempo_foundation::RandomStream;

/// Losses on the wire, after a packet's transmission.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost independently.
    Bernoulli(Bernoulli),
    /// Losses come in bursts.
    Gilbert(Gilbert),
    /// The packets with given numbers are lost.
    Trace(LossTrace),
}

/// Independent loss of each packet with one probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bernoulli {
    loss: f64,
}

/// A good and a bad state, each with a probability of loss (Gilbert, "Capacity of a
/// burst-noise channel", 1960; Elliott, 1963). Before each packet the state may change; the
/// first packet is preceded by the good state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    /// Probability per packet of leaving the good state, and the bad one.
    leave: [f64; 2],
    /// Probability of loss in the good state, and in the bad one.
    loss: [f64; 2],
    bad: bool,
}

/// Numbers of lost packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossTrace {
    /// In ascending order, without duplicates.
    lost: Box<[u64]>,
    /// The trace repeats after this many packets; `None` if it never does.
    period: Option<u64>,
    /// Number of the next packet, within the period.
    packet: u64,
    /// Index in `lost` of the first number not below `packet`.
    next: usize,
}

/// Invalid parameters of a loss model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossModelError {
    /// A probability is outside 0 to 1.
    NotAProbability(f64),
    /// A trace's period is zero.
    EmptyPeriod,
    /// A trace names a packet beyond its period.
    BeyondPeriod(u64),
}

impl fmt::Display for LossModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAProbability(value) => {
                write!(f, "a probability of loss lies between 0 and 1, not at {value}")
            }
            Self::EmptyPeriod => f.write_str("a trace of losses cannot repeat every 0 packets"),
            Self::BeyondPeriod(packet) => {
                write!(f, "packet {packet} of a trace of losses lies beyond its period")
            }
        }
    }
}

impl core::error::Error for LossModelError {}

fn probability(value: f64) -> Result<f64, LossModelError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(LossModelError::NotAProbability(value))
    }
}

impl LossModel {
    /// Each packet is lost with probability `loss`, 0 to 1.
    ///
    /// # Errors
    /// `loss` is not a probability.
    pub fn bernoulli(loss: f64) -> Result<Self, LossModelError> {
        Ok(Self::Bernoulli(Bernoulli { loss: probability(loss)? }))
    }

    /// Every packet in the bad state is lost, none in the good: `p` is the probability of
    /// going from good to bad and `q` from bad to good, for each packet. In the long run
    /// p / (p + q) of all packets are lost, in bursts of 1 / q on average.
    ///
    /// # Errors
    /// `p` or `q` is not a probability.
    pub fn gilbert(p: f64, q: f64) -> Result<Self, LossModelError> {
        Self::gilbert_elliott(p, q, 0.0, 1.0)
    }

    /// As [`LossModel::gilbert`], but each state has its own loss probability.
    ///
    /// # Errors
    /// One of the four is not a probability.
    pub fn gilbert_elliott(
        p: f64,
        q: f64,
        loss_in_good: f64,
        loss_in_bad: f64,
    ) -> Result<Self, LossModelError> {
        Ok(Self::Gilbert(Gilbert {
            leave: [probability(p)?, probability(q)?],
            loss: [probability(loss_in_good)?, probability(loss_in_bad)?],
            bad: false,
        }))
    }

    /// The packets with these numbers (from 0, in any order) are lost; after `period` packets
    /// the trace repeats, or never if that is `None`.
    ///
    /// # Errors
    /// The period is zero or shorter than a packet number in the list.
    pub fn trace(
        lost: impl IntoIterator<Item = u64>,
        period: Option<u64>,
    ) -> Result<Self, LossModelError> {
        let mut lost: Vec<u64> = lost.into_iter().collect();
        lost.sort_unstable();
        lost.dedup();
        match (period, lost.last()) {
            (Some(0), _) => return Err(LossModelError::EmptyPeriod),
            (Some(period), Some(&last)) if last >= period => {
                return Err(LossModelError::BeyondPeriod(last));
            }
            _ => {}
        }
        let lost = lost.into_boxed_slice();
        Ok(Self::Trace(LossTrace { lost, period, packet: 0, next: 0 }))
    }

    /// Decides whether the next packet is lost; only the random models draw from `random`.
    #[inline]
    pub fn lost(&mut self, random: &mut RandomStream) -> bool {
        match self {
            Self::None => false,
            Self::Bernoulli(model) => random.chance(model.loss),
            Self::Gilbert(model) => model.lost(random),
            Self::Trace(trace) => trace.lost(),
        }
    }
}

impl Gilbert {
    fn lost(&mut self, random: &mut RandomStream) -> bool {
        self.bad ^= random.chance(self.leave[usize::from(self.bad)]);
        let loss = self.loss[usize::from(self.bad)];
        // The classic model needs no second draw.
        loss > 0.0 && (loss >= 1.0 || random.chance(loss))
    }
}

impl LossTrace {
    fn lost(&mut self) -> bool {
        let lost = self.lost.get(self.next) == Some(&self.packet);
        self.next += usize::from(lost);
        self.packet += 1;
        if Some(self.packet) == self.period {
            (self.packet, self.next) = (0, 0);
        }
        lost
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fates(mut model: LossModel, packets: usize) -> Vec<bool> {
        let mut random = RandomStream::new(11, "loss");
        (0..packets).map(|_| model.lost(&mut random)).collect()
    }

    fn share(fates: &[bool]) -> f64 {
        fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
    }

    #[test]
    fn no_model_loses_nothing_and_certain_loss_loses_all() {
        assert_eq!(share(&fates(LossModel::None, 1000)), 0.0);
        assert_eq!(share(&fates(LossModel::bernoulli(0.0).unwrap(), 1000)), 0.0);
        assert_eq!(share(&fates(LossModel::bernoulli(1.0).unwrap(), 1000)), 1.0);
    }

    #[test]
    fn independent_losses_come_at_their_rate() {
        let share = share(&fates(LossModel::bernoulli(0.02).unwrap(), 500_000));
        assert!((share - 0.02).abs() < 0.001, "{share}");
    }

    #[test]
    fn bursts_last_as_long_as_the_bad_state() {
        let fates = fates(LossModel::gilbert(0.01, 0.25).unwrap(), 500_000);
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let lost = fates.iter().filter(|lost| **lost).count();
        let mean = lost as f64 / bursts as f64;
        assert!((mean - 4.0).abs() < 0.15, "{mean}");
    }

    #[test]
    fn each_state_may_lose_with_a_probability_of_its_own() {
        let model = LossModel::gilbert_elliott(0.1, 0.3, 0.01, 0.5).unwrap();
        let expected = 0.75 * 0.01 + 0.25 * 0.5;
        let share = share(&fates(model, 500_000));
        assert!((share - expected).abs() < 0.005, "{share}");
    }

    #[test]
    fn a_trace_loses_the_packets_it_names_and_begins_again_after_its_period() {
        let once = fates(LossModel::trace([4, 1, 1], None).unwrap(), 8);
        assert_eq!(once, [false, true, false, false, true, false, false, false]);
        let cyclic = fates(LossModel::trace([0, 2], Some(3)).unwrap(), 7);
        assert_eq!(cyclic, [true, false, true, true, false, true, true]);
        assert_eq!(share(&fates(LossModel::trace([], Some(3)).unwrap(), 9)), 0.0);
    }

    #[test]
    fn impossible_parameters_are_refused() {
        use LossModelError::*;
        assert_eq!(LossModel::bernoulli(1.1), Err(NotAProbability(1.1)));
        assert_eq!(LossModel::gilbert(0.5, -0.1), Err(NotAProbability(-0.1)));
        assert!(LossModel::bernoulli(f64::NAN).is_err());
        assert_eq!(LossModel::trace([], Some(0)), Err(EmptyPeriod));
        assert_eq!(LossModel::trace([3], Some(3)), Err(BeyondPeriod(3)));
    }

    #[test]
    fn errors_read_as_sentences() {
        let error = LossModelError::NotAProbability(2.0);
        assert_eq!(error.to_string(), "a probability of loss lies between 0 and 1, not at 2");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn in_the_long_run_gilbert_loses_p_of_p_plus_q(p in 0.02f64..1.0, q in 0.02f64..1.0) {
            let packets = 200_000;
            let share = share(&fates(LossModel::gilbert(p, q).unwrap(), packets));
            let expected = p / (p + q);
            // Six deviations: neighbours are correlated by 1 - p - q.
            let correlation = (2.0 - p - q) / (p + q);
            let variance = expected * (1.0 - expected) * correlation / packets as f64;
            prop_assert!((share - expected).abs() < 6.0 * variance.sqrt() + 1e-4);
        }
    }
}
