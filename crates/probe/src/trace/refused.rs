//! Which losses are those of packets that the bottleneck refused: a queue that drops packets before it
//! is full (CoDel, PIE), or a policer.
//!
//! What is lost behind the bottleneck took its time: the packets beside it are further apart. What is
//! refused takes none, and neither does what is lost before the bottleneck; but that is lost without a
//! queue, too, which scouts show.

use super::recorder::Recording;

/// Losses are refusals if that many standard errors speak for it.
const SURE: f64 = 3.0;

/// The same for losses of scouts that met no queue.
const SURE_OF_SCOUTS: f64 = 2.5;

/// Fewer of all losses than this are not looked at.
const MIN_REFUSED: f64 = 0.1;

/// A scout that met at most so many packets met no queue: PIE and CoDel drop none then
/// (RFC 8033, section 4.1, and RFC 8289, section 5.6).
const CLEAR: f64 = 1.5;

/// The bottleneck's time that losses took, and that these packets would have taken, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    time: f64,
    due: f64,
    /// Sums of squares: of the one, of the other, and of their products.
    squares: (f64, f64, f64),
}

impl Taken {
    pub(super) fn add(&mut self, time: f64, due: f64) {
        self.time += time;
        self.due += due;
        let (one, other, both) = &mut self.squares;
        (*one, *other, *both) = (*one + time * time, *other + due * due, *both + time * due);
    }

    /// The share of losses behind the bottleneck, 0 to 1; `None` without losses.
    pub(super) fn share(&self) -> Option<f64> {
        (self.due > 0.0).then(|| (self.time / self.due).clamp(0.0, 1.0))
    }

    /// Standard error of the share: as if losses were drawn independently.
    fn error(&self) -> f64 {
        let share = self.time / self.due;
        let (one, other, both) = self.squares;
        (one - 2.0 * share * both + share * share * other).max(0.0).sqrt() / self.due
    }

    /// The share of these losses, and its variance if one of them differs from their share as those of `all` do
    /// from theirs; `None` without losses.
    pub(super) fn seen(&self, all: &Self) -> Option<(f64, f64)> {
        let usual = all.time / all.due;
        let (one, other, both) = all.squares;
        let each = (one - 2.0 * usual * both + usual * usual * other) / other;
        let variance = each * self.squares.1 / (self.due * self.due);
        (self.due > 0.0 && variance > 0.0).then(|| (self.time / self.due, variance))
    }

    /// Whether any of these losses was behind the bottleneck.
    pub(super) fn is_some(&self) -> bool {
        self.due > 0.0 && self.time / self.due > SURE * self.error()
    }
}

/// Lost packets of full size by what is known of their bursts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    /// The path's.
    pub(super) placed: u64,
    /// Others behind a queue.
    pub(super) queued: u64,
    /// Where no queue waited.
    pub(super) alone: u64,
}

/// Values, each with its variance, that may be one value or may differ: what is known of one alone and what is known of all
/// are both uncertain, and count as far as they are not (DerSimonian and Laird, "Meta-analysis in clinical
/// trials", 1986).
pub(super) fn shrunk(values: &[Option<(f64, f64)>]) -> Vec<Option<f64>> {
    let known = || values.iter().flatten().filter(|(_, variance)| *variance > 0.0);
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        known().map(|(value, variance)| of(*value, 1.0 / variance)).sum::<f64>()
    };
    let (weights, squares) = (sum(&|_, weight| weight), sum(&|_, weight| weight * weight));
    let mean = sum(&|value, weight| value * weight) / weights;
    let apart = sum(&|value, weight| weight * (value - mean) * (value - mean));
    // How much they differ beyond what they are uncertain by.
    let beyond = f64::max(apart - (known().count() as f64 - 1.0), 0.0);
    let between = beyond / f64::max(weights - squares / weights, f64::MIN_POSITIVE);
    let one = |(value, variance): (f64, f64)| match variance > 0.0 {
        true => mean + (value - mean) * between / (between + variance),
        false => value,
    };
    values.iter().map(|value| value.map(one)).collect()
}

/// What refused packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Refusal {
    /// Nothing that differs from a full queue or from the path's own losses.
    None,
    /// The queue. The share that the path loses before it.
    Queue { before: f64 },
    /// Something without a queue, a policer. The share that the path loses.
    Policer { loss: f64 },
}

impl Refusal {
    pub(super) const fn refused(self) -> Refused {
        match self {
            Self::None => Refused::Nothing,
            Self::Queue { .. } => Refused::ByQueue,
            Self::Policer { .. } => Refused::ByPolicer,
        }
    }
}

/// What refused packets of a recording, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refused {
    /// Nothing, or a queue that was full, as far as is known.
    #[default]
    Nothing,
    /// A queue: one that drops packets before it is full, or a short one that was full often.
    ByQueue,
    /// A policer.
    ByPolicer,
}

/// What refused packets, and how much it is in doubt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) refusal: Refusal,
    /// The share of packets that may be the path's losses and do not count as such, or the other way round: two
    /// standard errors.
    pub(super) doubt: f64,
}

/// Of packets: all, and those lost.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    all: f64,
    lost: f64,
}

impl Counted {
    fn add(&mut self, is_lost: bool) {
        self.all += 1.0;
        self.lost += f64::from(u8::from(is_lost));
    }

    fn share(&self) -> f64 {
        self.lost / self.all.max(1.0)
    }

    /// Two standard errors of the share. None lost of a few does not say that none is lost ever: as if one more were, and
    /// one more not (Laplace's rule of succession).
    fn doubt(&self) -> f64 {
        let share = (self.lost + 1.0) / (self.all + 2.0);
        2.0 * (share * (1.0 - share) / (self.all + 2.0)).sqrt()
    }

    /// How much more often they are lost than with this probability, if that is certain.
    fn beyond(&self, expected: f64) -> f64 {
        let share = self.share();
        let error = (share * (1.0 - share) / self.all.max(1.0)).sqrt();
        let is_certain = share - expected > SURE_OF_SCOUTS * error;
        if is_certain { (share - expected) / (1.0 - expected) } else { 0.0 }
    }
}

impl Recording {
    /// What refused packets. `fate` answers of a packet: whether it was lost, and the bits that waited
    /// before it; `None` of those of an outage.
    pub(super) fn refusal(
        &self,
        fate: impl Fn(usize) -> Option<(bool, f64)>,
        kinds: Kinds,
        taken: &Taken,
    ) -> Judged {
        let (mut loads, mut scouts, mut runs) = (Counted::default(), Counted::default(), 0.0);
        let is_scout = |number: usize| self.packets[number].is_scout;
        for number in 2..self.packets.len() {
            let Some((is_lost, ahead)) = fate(number) else { continue };
            if !is_scout(number) {
                loads.add(is_lost);
            } else if is_scout(number - 1) && ahead <= CLEAR * self.bits.0 {
                scouts.add(is_lost);
                runs += f64::from(u8::from(!is_scout(number - 2)));
            }
        }
        let Kinds { placed, queued, alone } = kinds;
        let [placed, queued, alone] = [placed, queued, alone].map(|count| count as f64);
        let (lost, without) = (loads.share(), scouts.share());
        // Losses come in bursts: a run of scouts counts once.
        let error = (lost * (1.0 - lost) / f64::max(runs, 1.0)).sqrt();
        let is_alone = alone > placed + queued;
        if is_alone && without + SURE * error < lost {
            return Judged { refusal: Refusal::Policer { loss: without }, doubt: scouts.doubt() };
        }
        // A policer that drops too little to be seen.
        let mut doubt = if is_alone { f64::max(lost - without, 0.0) + 2.0 * error } else { 0.0 };
        let all = loads.all.max(1.0);
        let Some(share) = taken.share() else { return Judged { refusal: Refusal::None, doubt } };
        let refused = queued * (1.0 - share);
        let unclear = 2.0 * queued * taken.error();
        let is_certain = 1.0 - share > SURE * taken.error();
        // Of those that were not refused.
        let behind = (placed + share * queued) / (loads.all - refused).max(1.0);
        let before = scouts.beyond(behind);
        let is_queue = is_certain
            && refused >= MIN_REFUSED * (placed + queued + alone)
            && before * loads.all * 2.0 < refused;
        if is_queue {
            let doubt = f64::max(unclear / all, scouts.doubt()).min(lost);
            return Judged { refusal: Refusal::Queue { before }, doubt };
        }
        doubt = f64::max(doubt, (refused + unclear) / all).min(lost);
        Judged { refusal: Refusal::None, doubt }
    }
}
