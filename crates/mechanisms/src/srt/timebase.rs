use ontempo_foundation::{Duration, Time};

/// Samples after which the drift is corrected (TSBPD_DRIFT_MAX_SAMPLES in `tsbpd_time.h`).
const DRIFT_SAMPLES: i128 = 1_000;
/// The largest drift that is not moved into the base (TSBPD_DRIFT_MAX_VALUE: 5 ms).
const MAX_DRIFT: i128 = 5_000_000;

/// When packets are due: the sender's timestamps in the receiver's time (`tsbpd_time.cpp`; the
/// draft, section 4.5). Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeBase {
    base: i128,
    drift: i128,
    sum: i128,
    samples: i128,
    first_rtt: Option<i128>,
}

impl TimeBase {
    /// The base is the arrival of the caller's conclusion, less its timestamp: it contains the time
    /// on the path at that moment (`processSrtMsg_HSREQ`; the draft, section 4.5.1.1).
    pub(super) fn new(now: Time, timestamp: Duration) -> Self {
        let base = nanos(now) - span(timestamp);
        Self { base, drift: 0, sum: 0, samples: 0, first_rtt: None }
    }

    /// When a packet with this timestamp is delivered.
    pub(super) fn delivery(&self, timestamp: Duration, latency: Duration) -> Time {
        let at = self.base + self.drift + span(timestamp) + span(latency);
        Time::from_nanos(u64::try_from(at.max(0)).unwrap_or(u64::MAX))
    }

    /// A control packet with this timestamp came; `rtt` if it also gave a sample of the RTT. Half of
    /// the change of the RTT is taken for a change of the path (`addDriftSample`).
    pub(super) fn on_sample(&mut self, now: Time, timestamp: Duration, rtt: Option<Duration>) {
        let rtt = rtt.map(span);
        self.first_rtt = self.first_rtt.or(rtt);
        let path = match (rtt, self.first_rtt) {
            (Some(rtt), Some(first)) => (rtt - first) / 2,
            _ => 0,
        };
        self.sum += nanos(now) - self.base - span(timestamp) - path;
        self.samples += 1;
        if self.samples < DRIFT_SAMPLES {
            return;
        }
        // `DriftTracer::update` in `utilities.h`.
        self.drift = self.sum / self.samples;
        (self.sum, self.samples) = (0, 0);
        if self.drift.abs() > MAX_DRIFT {
            let excess = MAX_DRIFT * self.drift.signum();
            self.drift -= excess;
            self.base += excess;
        }
    }
}

fn nanos(time: Time) -> i128 {
    i128::from(time.as_nanos())
}

fn span(duration: Duration) -> i128 {
    i128::from(duration.as_nanos())
}
