use ontempo_foundation::Duration;

/// The round-trip time before the first sample (INITIAL_RTT in `core.h`; the draft, section 4.10).
pub(super) const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Its variance before the first sample (INITIAL_RTTVAR).
pub(super) const INITIAL_VARIANCE: Duration = Duration::from_millis(50);

/// Smoothed round-trip time and its variance (the draft, section 4.10).
#[derive(Clone, Copy, Debug)]
pub(super) struct SrtRtt {
    pub(super) smoothed: Duration,
    pub(super) variance: Duration,
    measured: bool,
}

impl SrtRtt {
    /// Before the first sample: the default, or what a connection before it to the same host found
    /// (`postConnect`, `acceptAndRespond`).
    pub(super) fn new(cached: Option<Duration>) -> Self {
        match cached {
            Some(rtt) => Self { smoothed: rtt, variance: rtt / 2, measured: false },
            None => Self { smoothed: INITIAL_RTT, variance: INITIAL_VARIANCE, measured: false },
        }
    }

    /// A sample of the receiver: the time from an ACK to its ACKACK (`processCtrlAckAck`).
    pub(super) fn on_sample(&mut self, rtt: Duration) {
        if self.measured {
            let error = rtt.saturating_sub(self.smoothed) + self.smoothed.saturating_sub(rtt);
            self.variance = (self.variance * 3 + error) / 4;
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        } else {
            *self = Self { smoothed: rtt, variance: rtt / 2, measured: true };
        }
    }

    /// The sender takes over what the receiver has, once that is measured (`processCtrlAck`). libsrt
    /// does not if one of both is the initial value; then a path of exactly 100 ms, which only a
    /// simulation has, would never be measured.
    pub(super) fn adopt(&mut self, rtt: Duration, variance: Duration) {
        if self.measured || rtt != INITIAL_RTT || variance != INITIAL_VARIANCE {
            *self = Self { smoothed: rtt, variance, measured: true };
        }
    }

    /// SRTT + 4 variances.
    pub(super) fn upper(&self) -> Duration {
        self.smoothed + self.variance * 4
    }

    /// SRTT - 4 variances, at least zero.
    pub(super) fn lower(&self) -> Duration {
        self.smoothed - self.variance * 4
    }
}
