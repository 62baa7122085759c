//! Send times of the packets of a train, for an RTT without the train's self-induced delay.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::rtt::{RtoParameters, RttEstimator, SelfInducedDelay, Train};

/// The RTT sample of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    /// From the first packet acknowledged. The retransmission timer must allow for this time
    /// (RFC 7323, section 4.3).
    pub(crate) whole: Duration,
    /// The sample for the congestion controller, before the subtraction.
    pub(crate) seen: Duration,
    /// The self-induced delay to subtract.
    pub(crate) self_induced: Duration,
}

impl Measured {
    /// An ordinary sample.
    pub(crate) fn of(rtt: Duration) -> Self {
        Self { whole: rtt, seen: rtt, self_induced: Duration::ZERO }
    }
}

/// Send times of the outstanding packets, recorded if ACKs are coalesced or self-induced delay
/// is removed.
#[derive(Debug)]
pub(crate) struct TrainClock {
    /// Send time of each packet from the lowest outstanding one; `None` if sent more than once,
    /// since its acknowledgement is then ambiguous (Karn's rule).
    sent: VecDeque<Option<Time>>,
    /// Present if self-induced delay is removed.
    estimate: Option<SelfInducedDelay>,
    /// The round trips of the last packets acknowledged.
    last: RttEstimator,
}

impl TrainClock {
    pub(crate) fn new(correct_self_induced_delay: bool) -> Self {
        Self {
            sent: VecDeque::new(),
            estimate: correct_self_induced_delay.then(SelfInducedDelay::new),
            last: RttEstimator::new(RtoParameters::default()),
        }
    }

    /// The smoothed round trip of the last packets acknowledged.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.last.srtt()
    }

    /// The next new packet is sent.
    pub(crate) fn on_sent(&mut self, now: Time) {
        self.sent.push_back(Some(now));
    }

    /// Packet `number` is retransmitted; `first` is the lowest outstanding one.
    pub(crate) fn on_sent_again(&mut self, number: u64, first: u64) {
        if let Some(sent) = self.sent.get_mut((number - first) as usize) {
            *sent = None;
        }
    }

    /// The next `packets` packets were acknowledged, `rtt` after the last of them was sent. They
    /// are not a train if one of them was retransmitted or during a loss episode (`steady` is
    /// false), whose acknowledgements do not cover trains.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        packets: u64,
        rtt: Duration,
        steady: bool,
    ) -> Measured {
        self.last.on_sample(rtt);
        let Some(train) = self.take(packets).filter(|_| steady) else {
            self.estimate.iter_mut().for_each(SelfInducedDelay::reset);
            return Measured::of(rtt);
        };
        let whole = now.since(train.first_sent);
        match &mut self.estimate {
            // Equation 5.1: "R" is measured from the first packet.
            Some(estimate) => {
                let self_induced = estimate.on_ack(now, train);
                Measured { whole, seen: whole, self_induced }
            }
            None => Measured { whole, ..Measured::of(rtt) },
        }
    }

    fn take(&mut self, packets: u64) -> Option<Train> {
        let first_sent = self.sent.front().copied().flatten();
        let count = (packets as usize).min(self.sent.len());
        let last_sent = self.sent.drain(..count).fold(first_sent, Option::and);
        Some(Train { packets, first_sent: first_sent?, last_sent: last_sent? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(after: u64) -> Time {
        Time::ZERO + millis(after)
    }

    /// Two trains of four leave at 0 and 100 ms.
    fn two_trains(correct: bool) -> TrainClock {
        let mut clock = TrainClock::new(correct);
        for after in [0, 100] {
            (0..4).for_each(|_| clock.on_sent(at(after)));
        }
        clock
    }

    #[test]
    fn the_timer_sees_a_round_trip_from_the_first_packet_and_the_controller_from_the_last() {
        let mut clock = TrainClock::new(false);
        for after in [0, 10, 20, 30] {
            clock.on_sent(at(after));
        }
        let measured = clock.on_ack(at(80), 4, millis(50), true);
        assert_eq!((measured.whole, measured.seen), (millis(80), millis(50)));
        assert_eq!(clock.srtt(), Some(millis(50)));
    }

    #[test]
    fn three_quarters_of_what_a_train_of_four_was_stretched_are_its_own_doing() {
        let mut clock = two_trains(true);
        let first = clock.on_ack(at(50), 4, millis(50), true);
        assert_eq!(first.self_induced, Duration::ZERO);
        // D2 - s = 112 - 100 ms.
        let second = clock.on_ack(at(162), 4, millis(62), true);
        assert_eq!((second.seen, second.self_induced), (millis(62), millis(9)));
    }

    #[test]
    fn packets_sent_again_are_no_train_and_nor_is_there_one_before_the_next() {
        let mut clock = two_trains(true);
        clock.on_sent_again(2, 0);
        assert_eq!(clock.on_ack(at(400), 4, millis(60), true), Measured::of(millis(60)));
        assert_eq!(clock.on_ack(at(412), 4, millis(62), true).self_induced, Duration::ZERO);
    }

    #[test]
    fn a_loss_episode_has_no_trains() {
        let mut clock = two_trains(true);
        assert_eq!(clock.on_ack(at(50), 4, millis(50), false), Measured::of(millis(50)));
    }
}
