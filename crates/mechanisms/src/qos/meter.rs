//! The quality that a flow's messages are delivered with: throughput, loss, delay, jitter.
//!
//! The measures of qosockets, equations (2) to (5). Each end of a flow has a [`Meter`] that
//! counts the messages passing it in sampling intervals; throughput (2) is a [`Count`]'s, loss
//! (3) compares those of both ends. The receiver's [`DelayMeter`] takes delay (4) and jitter (5)
//! of each message. An endpoint and the simulator use the same structs.

use ontempo_foundation::{Bytes, Duration, Rate, Time};

/// Counters of one end of a flow in one sampling interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// When the interval began.
    pub begins: Time,
    /// How long it was; the last one of a run may be cut short.
    pub span: Duration,
    /// Messages.
    pub messages: u64,
    /// Their payload.
    pub bytes: Bytes,
}

impl Count {
    /// Equation (2): payload over time.
    pub fn throughput(&self) -> Rate {
        Rate::of(self.bytes, self.span)
    }
}

/// Equation (3): the loss in an interval, in per cent of the messages sent in it; `None` where
/// none was sent. Negative where more arrived than was sent, which is what waited in the network
/// from the interval before; over many intervals that evens out.
pub fn loss_percent(sent: u64, received: u64) -> Option<f64> {
    (sent > 0).then(|| 100.0 * (1.0 - received as f64 / sent as f64))
}

/// Counts messages at one end, interval by interval.
///
/// What has ended is asked for before anything is counted, so that no interval is lost, empty
/// ones included:
///
/// ```
/// # use ontempo_foundation::{Bytes, Duration, Time};
/// # use ontempo_mechanisms::qos::Meter;
/// let mut meter = Meter::new(Time::ZERO, Duration::from_millis(500));
/// meter.count(Time::from_secs_f64(0.1), Bytes::new(1280));
/// let now = Time::from_secs_f64(1.2);
/// let mut ended = Vec::new();
/// while let Some(count) = meter.ended(now) {
///     ended.push(count.messages);
/// }
/// assert_eq!(ended, [1, 0]);
/// meter.count(now, Bytes::new(1280));
/// ```
#[derive(Clone, Debug)]
pub struct Meter {
    begins: Time,
    interval: Duration,
    messages: u64,
    bytes: Bytes,
}

impl Meter {
    /// A meter whose first interval begins at `begins`; an interval of zero is one nanosecond.
    pub fn new(begins: Time, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_nanos(1));
        Self { begins, interval, messages: 0, bytes: Bytes::ZERO }
    }

    /// The next interval that has ended by `now`; a message at its very end belongs to the next.
    pub fn ended(&mut self, now: Time) -> Option<Count> {
        (now >= self.begins + self.interval).then(|| self.close(self.interval))
    }

    /// The interval that was under way when the run ended at `now`; `None` where it had not
    /// begun.
    pub fn cut(&mut self, now: Time) -> Option<Count> {
        (now > self.begins).then(|| self.close(now.since(self.begins)))
    }

    /// A message of this payload passes at `now`; before the first interval it does not count.
    pub fn count(&mut self, now: Time, payload: Bytes) {
        if now >= self.begins {
            self.messages += 1;
            self.bytes += payload;
        }
    }

    fn close(&mut self, span: Duration) -> Count {
        let count = Count { begins: self.begins, span, messages: self.messages, bytes: self.bytes };
        *self = Self::new(self.begins + span, self.interval);
        count
    }
}

/// Delay and jitter of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Equation (4): from sending to arrival.
    pub delay: Duration,
    /// Equation (5): how far the delay is from that of the message received before; `None` for
    /// the first one.
    pub jitter: Option<Duration>,
}

/// Takes delay and jitter of a receiver's messages, in the order in which they arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayMeter {
    last: Option<Duration>,
}

impl DelayMeter {
    /// A message sent at `sent` has arrived at `received`, in the same clock.
    pub fn on_message(&mut self, sent: Time, received: Time) -> Timing {
        let delay = received.since(sent);
        let jitter = self.last.map(|last| if delay > last { delay - last } else { last - delay });
        self.last = Some(delay);
        Timing { delay, jitter }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn throughput_is_payload_over_the_interval() {
        let mut meter = Meter::new(at(0), Duration::from_millis(500));
        for message in 0..30 {
            meter.count(at(message * 16), Bytes::new(1280));
        }
        let count = meter.ended(at(500)).unwrap();
        assert_eq!(count.throughput(), Rate::from_bits_per_sec(614_400));
    }

    #[test]
    fn what_passes_before_the_first_interval_does_not_count() {
        let mut meter = Meter::new(at(1000), Duration::from_millis(500));
        meter.count(at(999), Bytes::new(1));
        assert_eq!(meter.ended(at(1499)), None);
        meter.count(at(1499), Bytes::new(2));
        assert_eq!(meter.ended(at(1500)).map(|count| count.bytes), Some(Bytes::new(2)));
    }

    #[test]
    fn loss_is_negative_where_an_interval_receives_what_the_one_before_sent() {
        assert_eq!(loss_percent(40, 30), Some(25.0));
        assert_eq!(loss_percent(40, 50), Some(-25.0));
        assert_eq!(loss_percent(0, 1), None);
    }

    #[test]
    fn jitter_is_the_change_of_delay_in_either_direction() {
        let mut meter = DelayMeter::default();
        let jitters: Vec<_> = [(0, 20), (10, 45), (20, 30)]
            .map(|(sent, received)| meter.on_message(at(sent), at(received)).jitter)
            .into();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(jitters, [None, millis(15), millis(25)]);
    }

    proptest! {
        #[test]
        fn every_message_counts_in_exactly_one_interval(
            gaps in proptest::collection::vec(0u64..900, 0..60), end in 0u64..1000,
        ) {
            let mut meter = Meter::new(at(0), Duration::from_millis(500));
            let (mut now, mut counts) = (0, Vec::new());
            for gap in &gaps {
                now += gap;
                while let Some(count) = meter.ended(at(now)) {
                    counts.push(count);
                }
                meter.count(at(now), Bytes::new(1));
            }
            now += end;
            while let Some(count) = meter.ended(at(now)) {
                counts.push(count);
            }
            counts.extend(meter.cut(at(now)));
            let messages: u64 = counts.iter().map(|count| count.messages).sum();
            // A message at the very end of the run belongs to an interval that never began.
            prop_assert!(messages == gaps.len() as u64 || now.is_multiple_of(500));
            for pair in counts.windows(2) {
                prop_assert_eq!(pair[0].begins + pair[0].span, pair[1].begins);
            }
        }
    }
}
