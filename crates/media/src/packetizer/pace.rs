//! How regularly datagrams come.

use ontempo_foundation::Duration;

/// How many more datagrams in step than out of it make a pace known, and at most count.
const STEADY: u8 = 8;
const MAX_STEADY: u8 = 16;

/// What a datagram out of step takes from these: a thread that is kept from the processor sends two or three.
const OUT_OF_STEP: u8 = 2;

/// The time between datagrams of a source that paces them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The mean gap, of which single gaps count as half to twice as much at most.
    gap: Option<Duration>,
    steady: u8,
}

impl Pace {
    /// A datagram came so long after the one before it.
    pub(super) fn note(&mut self, gap: Duration) {
        let Some(mean) = self.gap else {
            self.gap = Some(gap.max(Duration::from_nanos(1)));
            return;
        };
        let (least, most) = (mean / 2, mean * 2);
        if gap >= least && gap <= most {
            self.steady = (self.steady + 1).min(MAX_STEADY);
        } else {
            self.steady = self.steady.saturating_sub(OUT_OF_STEP);
        }
        let counted = gap.clamp(least, most);
        self.gap = Some((mean * 7 + counted) / 8);
    }

    /// Nothing is known of what comes.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The time between datagrams, if they come evenly, and no closer together than those of a burst may: at least `least`.
    pub(super) fn known(&self, least: Duration) -> Option<Duration> {
        self.gap.filter(|gap| self.steady >= STEADY && *gap >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_micros(100);

    fn known(micros: &[u64]) -> Option<u64> {
        let mut pace = Pace::default();
        micros.iter().cycle().take(400).for_each(|gap| pace.note(Duration::from_micros(*gap)));
        pace.known(LEAST).map(|gap| gap.as_nanos() / 1_000)
    }

    #[test]
    fn even_gaps_make_a_pace_and_bursts_do_not() {
        assert_eq!(known(&[1_316]), Some(1_316));
        assert!(
            known(&[900, 1_500, 1_400, 1_464]).is_some_and(|gap| (1_200..1_450).contains(&gap))
        );
        // Bursts of two to forty datagrams.
        for of in 2..40 {
            let burst: Vec<u64> = std::iter::repeat_n(20, of - 1).chain([40_000]).collect();
            assert_eq!(known(&burst), None, "{of}");
        }
    }

    #[test]
    fn a_pause_and_what_comes_at_once_after_it_do_not_end_a_pace_and_a_new_one_is_found() {
        let mut pace = Pace::default();
        let mut note = |micros, count| {
            (0..count).for_each(|_| pace.note(Duration::from_micros(micros)));
            pace.known(LEAST).map(|gap| gap.as_nanos() / 1_000)
        };
        assert_eq!(note(1_300, 40), Some(1_300));
        note(5_300, 1);
        assert!(note(20, 3).is_some());
        assert!(note(1_300, 30).is_some_and(|gap| (1_200..1_400).contains(&gap)));
        assert!(note(400, 60).is_some_and(|gap| (390..420).contains(&gap)));
    }
}
