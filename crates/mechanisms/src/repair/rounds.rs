//! How many repairs still fit, and in how many copies a piece is sent.

use ontempo_foundation::{Duration, Time};

/// Copies of one piece in one round, at most.
const MOST_COPIES: u32 = 3;

/// Copies are so many packets apart: bursts of losses are shorter as a rule.
const PACKETS_APART: u64 = 10;

/// The share of the time left within which all copies leave.
const SHARE_OF_TIME: f64 = 0.7;

/// The weight of a packet in the measured share of losses.
const LOSS_WEIGHT: f64 = 1.0 / 256.0;

/// The least share of losses that copies reckon with: a path that has lost nothing for a while.
const LEAST_LOSS: f64 = 0.002;

/// The weight of a distance between packets in its mean.
const INTERVAL_WEIGHT: f64 = 1.0 / 16.0;

/// A distance between packets counts as at most this: a source that pauses.
const LONGEST_INTERVAL: Duration = Duration::from_millis(10);

/// The round trip before the first sample (RFC 9002, section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);

/// What a unit is worth: which share of its pieces may stay lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Worth {
    /// Nothing depends on it: one piece of a thousand.
    #[default]
    Alone,
    /// Other units depend on it: one piece of a hundred thousand.
    Needed,
}

impl Worth {
    fn residual(self) -> f64 {
        match self {
            Self::Alone => 1e-3,
            Self::Needed => 1e-5,
        }
    }
}

/// In how many copies a piece is sent that has been sent `sent` times in vain, where `later` repairs
/// would still fit after this one: the fewest with which, losses being independent, all of them are lost
/// as rarely as the unit is worth. One where a later repair can follow: it costs the fewest bytes.
pub(super) fn copies(loss: f64, sent: u32, later: u64, worth: Worth) -> u32 {
    if later > 0 {
        return 1;
    }
    // In a loop: the platform's power may differ in its last bit.
    let stays_lost = |copies: u32| (0..sent.saturating_add(copies).min(64)).fold(1.0, |p, _| p * loss);
    (1..MOST_COPIES).find(|copies| stays_lost(*copies) <= worth.residual()).unwrap_or(MOST_COPIES)
}

/// The time between copies.
pub(super) fn gap(copies: u32, left: Duration, packet_interval: Duration) -> Duration {
    let most = left.as_secs_f64() * SHARE_OF_TIME / f64::from(copies.max(2) - 1);
    (packet_interval * PACKETS_APART).min(Duration::from_secs_f64(most))
}

/// What repairs go by: round trip, losses, distance of packets.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    rtt: Option<Duration>,
    loss: f64,
    interval: Duration,
    last: Option<Time>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { rtt: None, loss: 0.0, interval: LONGEST_INTERVAL, last: None }
    }
}

impl Rounds {
    pub(super) fn on_rtt(&mut self, smoothed: Duration) {
        self.rtt = Some(smoothed);
    }

    pub(super) fn rtt(&self) -> Duration {
        self.rtt.unwrap_or(INITIAL_RTT)
    }

    pub(super) fn on_packet(&mut self, now: Time) {
        if let Some(last) = self.last.replace(now) {
            let distance = now.since(last).min(LONGEST_INTERVAL).as_secs_f64();
            let mean = self.interval.as_secs_f64();
            let mean = mean + INTERVAL_WEIGHT * (distance - mean);
            self.interval = Duration::from_secs_f64(mean.max(0.0));
        }
    }

    pub(super) fn packet_interval(&self) -> Duration {
        self.interval
    }

    /// It is known what became of a packet.
    pub(super) fn on_fate(&mut self, is_lost: bool) {
        self.loss += LOSS_WEIGHT * (f64::from(u8::from(is_lost)) - self.loss);
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss.max(LEAST_LOSS)
    }

    /// Repairs that fit after one that is sent now: each is sent a round trip and the time of detection
    /// after the one before, until the deadline.
    pub(super) fn later(&self, now: Time, deadline: Time, patience: Duration) -> u64 {
        if deadline == Time::NEVER {
            return u64::MAX;
        }
        let each = patience.max(self.rtt()).as_nanos().max(1);
        deadline.since(now).as_nanos() / each
    }
}
