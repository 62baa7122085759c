//! CUBIC's growth as implemented in Linux 2.6.22, and thus in ns-2 2.35's `Agent/TCP/Linux`.
//!
//! The kernel has no fractions: the window gains one packet per `every` ACKs. The rules of
//! that counter follow, each with its integer rounding, since at windows of a few
//! packets rounding dominates the behaviour. One rule is left out: the kernel takes no sample for
//! its minimum RTT in the first second of an epoch.

use ontempo_foundation::{Duration, Time};

use super::super::Ack;
use super::{CubicParameters, Epoch};

/// The counters of the kernel's growth.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// ACKs per packet of growth; valid while the window is `counted_for` and for
    /// [`Self::COUNT_AGE`] after `counted_at`.
    every: f64,
    counted_for: f64,
    counted_at: Time,
    /// ACKs since the window last grew.
    acks: f64,
    /// ACKs not yet turned into growth of the Reno estimate.
    reno_acks: f64,
    /// Sixteenths of a packet per ACK, averaged.
    packets_per_ack: f64,
    /// Whether RTTs are measured (with timestamps).
    timestamps: bool,
    /// The minimum RTT since the last timeout.
    least_rtt: Option<Duration>,
    /// Whether a loss occurred since the last timeout.
    seen_loss: bool,
}

impl Kernel {
    /// How long a count is valid for an unchanged window: a 32nd of a second.
    const COUNT_AGE: Duration = Duration::from_micros(31_250);
    /// The count if the curve is not above the window, in windows.
    const HARDLY: f64 = 100.0;
    /// The count before the first loss.
    const BEFORE_LOSS: f64 = 50.0;
    /// Maximum growth beyond the plateau, in packets per second of the minimum RTT:
    /// `max_increment` of 16 per tenth of a second.
    const FASTEST: f64 = 16.0 / 0.1;
    /// Two packets per ACK, in sixteenths: the initial estimate.
    const DELAYED_ACKS: f64 = 2.0 * 16.0;
    /// Packets of window per ACK of Reno's growth, in eighths, from `beta` of 819 over 1024
    /// (a third of the sum over the difference, rounded down at each step): 23.
    const RENO_EIGHTHS: f64 = (8 * (1024 + 819) / 3 / (1024 - 819)) as f64;

    pub(super) fn new(timestamps: bool) -> Self {
        Self {
            every: 0.0,
            counted_for: 0.0,
            counted_at: Time::ZERO,
            acks: 0.0,
            reno_acks: 0.0,
            packets_per_ack: Self::DELAYED_ACKS,
            timestamps,
            least_rtt: None,
            seen_loss: false,
        }
    }

    /// Updates the minimum RTT and the packets per ACK. The average is of integers: for one
    /// packet an ACK it never falls below 31 sixteenths, so that ns-2's CUBIC without delayed
    /// ACKs grows nearly twice as fast as intended.
    pub(super) fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if !ack.in_recovery && ack.packets >= 1.0 {
            self.packets_per_ack += ack.packets.floor() - (self.packets_per_ack / 16.0).floor();
        }
    }

    /// The minimum RTT since the last timeout (`delay_min`).
    pub(super) fn least_rtt(&self) -> Option<Duration> {
        self.least_rtt
    }

    /// The epoch is over: the counts are reset.
    pub(super) fn on_reduction(&mut self) {
        self.seen_loss = true;
        self.acks = 0.0;
        self.reno_acks = 0.0;
        self.counted_for = 0.0;
    }

    /// A timeout resets everything, including earlier losses.
    pub(super) fn on_timeout(&mut self) {
        *self = Self::new(self.timestamps);
    }

    /// One ACK in congestion avoidance: the window and the Reno estimate after it, in packets.
    pub(super) fn grow(
        &mut self,
        now: Time,
        cwnd: f64,
        epoch: &Epoch,
        parameters: &CubicParameters,
    ) -> (f64, f64) {
        self.reno_acks += 1.0;
        let mut reno = epoch.reno;
        let fresh = self.counted_for == cwnd && now.since(self.counted_at) <= Self::COUNT_AGE;
        if !fresh {
            reno = self.grow_reno(cwnd, reno);
            self.every = self.count(now, cwnd, epoch, reno, parameters.c);
            self.counted_for = cwnd;
            self.counted_at = now;
        }
        if self.acks >= self.every {
            self.acks = 0.0;
            (cwnd + 1.0, reno)
        } else {
            self.acks += 1.0;
            (cwnd, reno)
        }
    }

    fn grow_reno(&mut self, cwnd: f64, reno: f64) -> f64 {
        let step = (cwnd * Self::RENO_EIGHTHS / 8.0).floor().max(1.0);
        let steps = ((self.reno_acks - 1.0) / step).floor().max(0.0);
        self.reno_acks -= steps * step;
        reno + steps
    }

    /// ACKs per packet of growth.
    fn count(&self, now: Time, cwnd: f64, epoch: &Epoch, reno: f64, c: f64) -> f64 {
        // That kernel knows it by timestamps alone.
        let least_rtt = self.least_rtt.filter(|_| self.timestamps).unwrap_or(Duration::ZERO);
        let elapsed = now.since(epoch.start) + least_rtt;
        let target = epoch.plateau + epoch.offset(elapsed, c).trunc();
        let mut every =
            if target > cwnd { (cwnd / (target - cwnd)).floor() } else { Self::HARDLY * cwnd };
        if elapsed.as_secs_f64() >= epoch.k && least_rtt > Duration::ZERO {
            every = every.max((cwnd / (Self::FASTEST * least_rtt.as_secs_f64())).floor());
        }
        if !self.seen_loss {
            every = Self::BEFORE_LOSS;
        }
        if reno > cwnd {
            every = every.min((cwnd / (reno - cwnd)).floor());
        }
        (every * 16.0 / self.packets_per_ack).floor().max(1.0)
    }
}
