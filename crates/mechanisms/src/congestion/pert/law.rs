//! PERT's arithmetic: pure functions of delays and rates, without time or state.
//!
//! Sources, named at each number: (T) is the thesis (B. Qian, Texas A&M, 2011, ch. II), (P) a
//! public ns-3 port of the authors' ns-2 agent, (D) our decision where both are silent.

use ontempo_foundation::Duration;

use super::super::AckCounting;

/// Which round trips count, and from which packet each is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PertSamples {
    /// That of each packet that is acknowledged for the first time, cumulatively or selectively.
    #[default]
    All,
    /// Those that the queue can have made ([`Pert`](super::Pert); D).
    Confirmed,
    /// That of every ACK, duplicates included, against the time stamp that it echoes. A duplicate's is
    /// as old as the last packet in order (RFC 7323, section 4.3), so that it contains the episode.
    EveryAck,
    /// That of every ACK that advances, against the last sending of the highest packet that it covers,
    /// which contains the wait for a retransmission.
    Cumulative,
}

impl PertSamples {
    const ALL: [Self; 4] = [Self::All, Self::Confirmed, Self::EveryAck, Self::Cumulative];

    /// Its name in files and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Confirmed => "confirmed",
            Self::EveryAck => "every-ack",
            Self::Cumulative => "cumulative",
        }
    }

    /// True if only a TCP can give such samples that keeps each packet's time of sending, or whose
    /// receiver echoes time stamps, as the simulated one does.
    pub const fn needs_simulated_tcp(self) -> bool {
        matches!(self, Self::EveryAck | Self::Cumulative)
    }

    pub(super) fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }

    pub(super) fn at(place: usize) -> Self {
        Self::ALL.get(place).copied().unwrap_or_default()
    }
}

/// What of PERT may be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PertParameters {
    /// How often an ACK of several packets counts: in slow start, in PERT's own SRTT, and in the draws
    /// for an early response; once, as Reno's (P).
    pub counting: AckCounting,
    /// Which round trips count: all (T, P).
    pub samples: PertSamples,
    /// True if a loss takes one half, as chapter II says that it does (T); false if it takes `beta`,
    /// as an early response (T, P).
    pub half_at_a_loss: bool,
    /// Weight of the old value in PERT's own SRTT, 0 to 1: 0.99 (P).
    pub srtt_weight: f64,
    /// Minimum of the maximum queueing delay: 10 ms (P).
    pub maxq_floor: Duration,
    /// `T_min`: below it no early response, and the high-speed mode. Named by (T), 5 ms (P).
    pub t_min: Duration,
    /// `T_max`: the response probability reaches `p_max` here. Named by (T), 10 ms (P).
    pub t_max: Duration,
    /// `P_max`: response probability at `t_max`, 0 to 1. Named by (T), 0.05 (P).
    pub p_max: f64,
    /// `T_3` as a share of the maximum queueing delay, where the probability reaches 1: 0.65
    /// (P), and at least twice `t_max` (P).
    pub t3_share: f64,
    /// Initial additive increase, in packets per round trip: 32 (P); where the window is to
    /// be increased "linearly until" 32 (T), 1 (D).
    pub alpha_initial: f64,
    /// Minimum additive increase, in packets per round trip: 1 (T).
    pub alpha_minimum: f64,
    /// `alpha_max`, the maximum additive increase, in packets per round trip: 32 (T).
    pub alpha_maximum: f64,
    /// Increment of alpha per update in high-speed mode: 0.5 (P); (T) says "linearly".
    pub high_speed_step: f64,
    /// Factor on alpha per update in safe mode: 0.9 (P).
    pub safe_factor: f64,
    /// Maximum increment of alpha per update in compete mode: 0.1 (P).
    pub compete_step: f64,
    /// The compete mode begins at this share of the maximum queueing delay: 0.65 (T), 0.5 (P).
    pub compete_from: f64,
    /// Alpha's target reaches `1 + p'/p` at this share: 0.65 (T, P).
    pub compete_full: f64,
    /// How far before `compete_from` the pole of the ramp's hyperbola lies: 0.01 (P).
    pub ramp_pole: f64,
    /// Smoothed round trips between updates of alpha: 5 (P).
    pub alpha_period: f64,
    /// True if alpha takes its value in safe and compete mode at once, as (T) reads; false
    /// if it moves in steps and only after a whole window in one mode (P).
    pub immediate: bool,
    /// True if a flow is Reno while its early responses do not shorten the queue (D); false if only a
    /// larger alpha compensates for them (T, P).
    pub as_reno: bool,
    /// Minimum window after a response or a loss, in packets: 2 (P).
    pub window_floor: f64,
}

impl PertParameters {
    /// The thesis as written: compete mode from 0.65, alpha set at once. Where the thesis
    /// gives no number, the port's.
    pub fn thesis() -> Self {
        Self { alpha_initial: 1.0, compete_from: 0.65, immediate: true, ..Self::reference() }
    }

    /// The ns-3 port: compete mode from 0.5, ramping to 0.65, alpha moved by steps.
    pub fn reference() -> Self {
        Self {
            counting: AckCounting::Acks,
            samples: PertSamples::All,
            half_at_a_loss: false,
            srtt_weight: 0.99,
            maxq_floor: Duration::from_millis(10),
            t_min: Duration::from_millis(5),
            t_max: Duration::from_millis(10),
            p_max: 0.05,
            t3_share: 0.65,
            alpha_initial: 32.0,
            alpha_minimum: 1.0,
            alpha_maximum: 32.0,
            high_speed_step: 0.5,
            safe_factor: 0.9,
            compete_step: 0.1,
            compete_from: 0.5,
            compete_full: 0.65,
            ramp_pole: 0.01,
            alpha_period: 5.0,
            immediate: false,
            as_reno: false,
            window_floor: 2.0,
        }
    }
}

impl Default for PertParameters {
    /// [`reference`](Self::reference): the reading that reproduces more of the
    /// thesis' figures.
    fn default() -> Self {
        Self::reference()
    }
}

/// PERT's estimate of the queueing delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// `curq`: SRTT minus smallest RTT.
    pub current: Duration,
    /// `maxq`: largest minus smallest RTT, at least
    /// [`maxq_floor`](PertParameters::maxq_floor).
    pub maximum: Duration,
}

/// The state of the network, derived from the queueing delay (T).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The queue is almost empty: use the free capacity.
    HighSpeed,
    /// There is a queue, but smaller than loss-based flows would build.
    #[default]
    Safe,
    /// Loss-based flows fill the queue: compensate for the early responses.
    Compete,
}

impl PertParameters {
    /// `T_3`, where the response probability reaches 1.
    pub fn t3(&self, queueing: Queueing) -> Duration {
        queueing.maximum.mul_f64(self.t3_share).max(self.t_max * 2)
    }

    /// The probability of an early response to one acknowledgement, 0 to 1 (P): 0 below
    /// `T_min`, `P_max` at `T_max`, 1 from `T_3`, linear between.
    pub fn response_probability(&self, queueing: Queueing) -> f64 {
        let (curq, t3) = (queueing.current, self.t3(queueing));
        if curq < self.t_min {
            0.0
        } else if curq < self.t_max {
            self.p_max * (curq - self.t_min).ratio(self.t_max - self.t_min)
        } else if curq < t3 {
            self.p_max + (1.0 - self.p_max) * (curq - self.t_max).ratio(t3 - self.t_max)
        } else {
            1.0
        }
    }

    /// `beta`, the fraction by which a response or a loss reduces the window, 0 to one half:
    /// `curq / (curq + maxq)` (T, P).
    pub fn decrease(&self, queueing: Queueing) -> f64 {
        queueing.current.ratio(queueing.current + queueing.maximum)
    }

    /// The mode for the queueing delay (T).
    pub fn mode(&self, queueing: Queueing) -> Mode {
        if queueing.current <= self.t_min {
            Mode::HighSpeed
        } else if queueing.current >= queueing.maximum.mul_f64(self.compete_from) {
            Mode::Compete
        } else {
            Mode::Safe
        }
    }

    /// Where a queue is full, under early responses, by loss-based flows: in the range of compete mode and
    /// long enough for responses. Before a loss `maxq` is not the whole queue yet, so that only the delay
    /// counts at which responses are certain (D).
    pub fn full_from(&self, queueing: Queueing, has_lost: bool) -> Duration {
        if has_lost {
            queueing.maximum.mul_f64(self.compete_from).max(self.t_max)
        } else {
            self.t3(queueing)
        }
    }

    /// Alpha's target in compete mode, `early_to_loss` being `p'/p`: `1 + p'/p` (T), reached
    /// between [`compete_from`](Self::compete_from) and [`compete_full`](Self::compete_full)
    /// along a hyperbola (P), and within alpha's bounds.
    pub fn compete_target(&self, queueing: Queueing, early_to_loss: f64) -> f64 {
        let share = queueing.current.ratio(queueing.maximum);
        let span = self.compete_full - self.compete_from;
        let reached = if share >= self.compete_full || span <= 0.0 {
            1.0
        } else {
            let beyond = (share - self.compete_from).max(0.0);
            (1.0 - self.ramp_pole / (beyond + self.ramp_pole)) * (span + self.ramp_pole) / span
        };
        self.bounded(1.0 + early_to_loss * reached)
    }

    /// Alpha after one periodic update in `mode` (P). `early_to_loss` is `p'/p`, `None` if
    /// there was no loss yet.
    pub fn stepped_alpha(
        &self,
        alpha: f64,
        mode: Mode,
        queueing: Queueing,
        early_to_loss: Option<f64>,
    ) -> f64 {
        self.bounded(match (mode, early_to_loss) {
            (Mode::HighSpeed, _) => alpha + self.high_speed_step,
            (Mode::Safe, _) => alpha * self.safe_factor,
            (Mode::Compete, None) => alpha + self.compete_step,
            (Mode::Compete, Some(ratio)) => {
                (alpha + self.compete_step).min(self.compete_target(queueing, ratio))
            }
        })
    }

    /// Alpha if the mode sets it at once (T): 1 in safe mode, `1 + p'/p` in compete mode;
    /// `None` if it grows in steps, in high-speed mode and before the first loss.
    pub fn immediate_alpha(
        &self,
        mode: Mode,
        queueing: Queueing,
        early_to_loss: Option<f64>,
    ) -> Option<f64> {
        match (mode, early_to_loss) {
            (Mode::Safe, _) => Some(self.alpha_minimum),
            (Mode::Compete, Some(ratio)) => Some(self.compete_target(queueing, ratio)),
            _ => None,
        }
    }

    fn bounded(&self, alpha: f64) -> f64 {
        alpha.clamp(self.alpha_minimum, self.alpha_maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queueing(current_us: u64, maximum_us: u64) -> Queueing {
        Queueing {
            current: Duration::from_micros(current_us),
            maximum: Duration::from_micros(maximum_us),
        }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn the_response_curve_has_its_corners_at_the_three_thresholds() {
        let pert = PertParameters::default();
        let probability = |current_us| pert.response_probability(queueing(current_us, 100_000));
        close(probability(4_999), 0.0);
        close(probability(5_000), 0.0);
        close(probability(7_500), 0.025);
        close(probability(10_000), 0.05);
        // T_3 is 65 ms; half-way from 10 to 65 is 37.5 ms.
        close(probability(37_500), 0.05 + 0.95 / 2.0);
        close(probability(65_000), 1.0);
        close(probability(90_000), 1.0);
    }

    #[test]
    fn the_third_threshold_is_never_below_twice_the_second() {
        let pert = PertParameters::default();
        assert_eq!(pert.t3(queueing(0, 20_000)), Duration::from_millis(20));
        close(pert.response_probability(queueing(15_000, 20_000)), 0.525);
    }

    #[test]
    fn the_decrease_is_a_third_at_half_the_queue_and_one_half_at_the_full_queue() {
        let pert = PertParameters::default();
        close(pert.decrease(queueing(50_000, 100_000)), 1.0 / 3.0);
        close(pert.decrease(queueing(100_000, 100_000)), 0.5);
        close(pert.decrease(queueing(0, 10_000)), 0.0);
    }

    #[test]
    fn the_mode_follows_the_queueing_delay() {
        let thesis = PertParameters::thesis();
        assert_eq!(thesis.mode(queueing(5_000, 100_000)), Mode::HighSpeed);
        assert_eq!(thesis.mode(queueing(5_001, 100_000)), Mode::Safe);
        assert_eq!(thesis.mode(queueing(64_999, 100_000)), Mode::Safe);
        assert_eq!(thesis.mode(queueing(65_000, 100_000)), Mode::Compete);
        assert_eq!(PertParameters::reference().mode(queueing(50_000, 100_000)), Mode::Compete);
    }

    #[test]
    fn the_port_ramps_to_the_full_target_between_half_and_two_thirds_of_the_queue() {
        let port = PertParameters::reference();
        close(port.compete_target(queueing(50_000, 100_000), 3.0), 1.0);
        // 1 + 3 * 16/15 * (1 - 0.01/0.11)
        close(port.compete_target(queueing(60_000, 100_000), 3.0), 1.0 + 32.0 / 11.0);
        close(port.compete_target(queueing(65_000, 100_000), 3.0), 4.0);
        close(port.compete_target(queueing(99_000, 100_000), 99.0), 32.0);
    }

    #[test]
    fn a_step_adds_a_half_or_a_tenth_or_takes_a_tenth() {
        let port = PertParameters::reference();
        let full = queueing(80_000, 100_000);
        let stepped = |alpha, mode, ratio| port.stepped_alpha(alpha, mode, full, ratio);
        close(stepped(10.0, Mode::HighSpeed, None), 10.5);
        close(stepped(31.8, Mode::HighSpeed, Some(1.0)), 32.0);
        close(stepped(10.0, Mode::Safe, None), 9.0);
        close(stepped(1.05, Mode::Safe, None), 1.0);
        close(stepped(2.0, Mode::Compete, Some(5.0)), 2.1);
        close(stepped(9.0, Mode::Compete, Some(5.0)), 6.0);
        close(stepped(9.0, Mode::Compete, None), 9.1);
    }

    #[test]
    fn the_thesis_sets_alpha_at_once_where_it_names_a_value() {
        let thesis = PertParameters::thesis();
        let full = queueing(80_000, 100_000);
        assert_eq!(thesis.immediate_alpha(Mode::Safe, full, None), Some(1.0));
        assert_eq!(thesis.immediate_alpha(Mode::Compete, full, Some(2.5)), Some(3.5));
        assert_eq!(thesis.immediate_alpha(Mode::Compete, full, None), None);
        assert_eq!(thesis.immediate_alpha(Mode::HighSpeed, full, Some(2.5)), None);
    }
}
