//! A maximum over the last rounds.

/// How many rounds are kept: the current one and the ten before it (`bbr_bw_rtts` of Linux;
/// BBR.ExtraAckedFilterLen of the draft).
const KEPT: u64 = 11;

/// The largest value of each of the last rounds. A round in which nothing was seen makes nothing old, so
/// that a time without valid samples leaves the maximum as it was (as `minmax_running_max` of Linux).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundMaximum {
    values: [f64; KEPT as usize],
    /// The last round of which something was seen.
    round: u64,
}

impl RoundMaximum {
    /// `value` was seen in `round`, which never falls.
    pub(super) fn add(&mut self, round: u64, value: f64) {
        let skipped = round.saturating_sub(self.round).min(KEPT);
        self.round = self.round.max(round);
        for back in 0..skipped {
            *self.slot(self.round - back) = 0.0;
        }
        let slot = self.slot(self.round);
        *slot = slot.max(value);
    }

    /// The largest value of the last round of which something was seen and of the `before` rounds before
    /// it, at most ten; 0 if there was none.
    pub(super) fn largest(&self, before: u64) -> f64 {
        let first = self.round.saturating_sub(before.min(KEPT - 1));
        (first..=self.round).map(|round| self.values[(round % KEPT) as usize]).fold(0.0, f64::max)
    }

    fn slot(&mut self, round: u64) -> &mut f64 {
        &mut self.values[(round % KEPT) as usize]
    }
}
