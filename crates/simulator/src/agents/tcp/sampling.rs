//! Round trips as PERT is given them with `samples = "every-ack"` and `"cumulative"`
//! ([`PertSamples`]): the two ways in which an agent of ns-2 comes to samples that contain the repair of
//! a loss.
//!
//! ns-2.35's receiver echoes, with its defaults, the time stamp of the last packet that was not beyond
//! what it had acknowledged (`Acker::update_ts`: `ts_echo_bugfix_` is on, `ts_echo_rfc1323_` off; the rule
//! of RFC 1323, section 3.4, kept in RFC 7323, section 4.3). A packet beyond a gap changes nothing, so
//! that all duplicates of an episode echo the stamp of the packet before the gap. The retransmission
//! timer of ns-2 is not told of them: it samples ACKs that advance. A controller that samples where the
//! agent receives an ACK, before it looks whether it is a duplicate, takes them for round trips.
//!
//! Without time stamps ns-2's sender knows only when it last sent each packet (`tss`). The ACK that a
//! retransmission fills the gap for covers all that arrived behind it; measured from the highest of them,
//! the sample contains the wait for the retransmission, by the timer if that was lost as well.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::congestion::PertSamples;
use ontempo_mechanisms::recovery::AckOutcome;
use ontempo_mechanisms::rtt::SelfInducedDelay;

use super::Tcp;
use crate::agents::trains::Measured;
use crate::packet::Packet;

/// What both ends of a flow keep for these rules.
#[derive(Debug)]
pub(super) struct Sampling {
    every_ack: bool,
    // The sender's end.
    /// When each packet was last sent, from the lowest outstanding one on.
    sent: VecDeque<Time>,
    // The receiver's end.
    /// The time stamp to echo (RFC 7323: TS.Recent); `None` before a packet arrived in order.
    recent: Option<Time>,
    /// The number in the last ACK: the lowest packet that had not arrived.
    acknowledged: u64,
}

impl Sampling {
    /// `None` where the samples are those that TCP takes anyway.
    pub(super) fn new(samples: PertSamples) -> Option<Box<Self>> {
        samples.needs_simulated_tcp().then(|| {
            Box::new(Self {
                every_ack: samples == PertSamples::EveryAck,
                sent: VecDeque::new(),
                recent: None,
                acknowledged: 0,
            })
        })
    }

    /// Whether each ACK gives a sample, against the stamp that it echoes.
    pub(super) fn is_every_ack(&self) -> bool {
        self.every_ack
    }

    /// Packet `number` is sent; `first` is the lowest outstanding one.
    pub(super) fn on_sent(&mut self, now: Time, number: u64, first: u64) {
        match self.sent.get_mut(number.saturating_sub(first) as usize) {
            Some(sent) => *sent = now,
            None => self.sent.push_back(now),
        }
    }

    /// The first `covered` outstanding packets were acknowledged; when the highest of them was last
    /// sent, `None` for a duplicate.
    pub(super) fn on_ack(&mut self, covered: u64) -> Option<Time> {
        let count = (covered as usize).min(self.sent.len());
        self.sent.drain(..count).next_back()
    }

    /// A packet arrived; returns the stamp that an ACK now echoes.
    pub(super) fn on_arrival(&mut self, number: u64, stamp: Time) -> Time {
        if !self.every_ack {
            return stamp;
        }
        if number <= self.acknowledged && self.recent.is_none_or(|recent| stamp >= recent) {
            self.recent = Some(stamp);
        }
        // If the first packet of all was lost there is nothing older to echo.
        self.recent.unwrap_or(stamp)
    }

    /// The receiver acknowledges all below `number`.
    pub(super) fn on_acknowledged(&mut self, number: u64) {
        self.acknowledged = number;
    }
}

impl Tcp {
    /// The round trip that TCP takes for its timer.
    #[inline]
    pub(super) fn sample(&mut self, now: Time, ack: &Packet) -> Option<Duration> {
        if self.settings.timestamps {
            return Some(now.since(ack.stamp));
        }
        let (number, sent) = self.timed?;
        (ack.number > number).then(|| {
            self.timed = None;
            now.since(sent)
        })
    }

    /// The controller's sample where it is not the one that TCP takes for its timer ([`Sampling`]).
    pub(super) fn sample_otherwise(
        &mut self,
        now: Time,
        ack: &Packet,
        (outcome, covered): (&AckOutcome, u64),
    ) -> Option<Duration> {
        let sampling = self.sampling.as_mut()?;
        let every_ack = sampling.is_every_ack();
        let sent = sampling.on_ack(covered);
        let by_time = self.recovery.samples().is_some() && self.trains.is_none();
        // A duplicate's stamp is that of a packet acknowledged before: nothing for the timer.
        if !by_time && outcome.newly_acknowledged > 0 && (outcome.advanced || !every_ack) {
            let last = match sent {
                // The stamp is of a train's first packet.
                Some(sent) if every_ack && self.trains.is_some() => Some(now.since(sent)),
                _ => self.sample(now, ack),
            };
            if let Some(rtt) = last {
                self.measure(now, rtt, covered);
            }
        }
        if every_ack { Some(now.since(ack.stamp)) } else { sent.map(|sent| now.since(sent)) }
    }

    /// An ACK for `covered` packets gave the sample `rtt`; returns the RTT for the controller.
    #[inline(always)]
    pub(super) fn measure(&mut self, now: Time, rtt: Duration, covered: u64) -> Duration {
        let steady = !self.recovery.in_recovery();
        let measured = match &mut self.trains {
            Some(trains) if covered > 0 => trains.on_ack(now, covered, rtt, steady),
            _ => Measured::of(rtt),
        };
        self.on_sample(measured.whole);
        let minimum = self.rtt.minimum_rtt().unwrap_or(rtt);
        SelfInducedDelay::correct(measured.seen, measured.self_induced, minimum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn sampling(samples: PertSamples) -> Sampling {
        *Sampling::new(samples).expect("a rule of its own")
    }

    #[test]
    fn ordinary_samples_keep_nothing() {
        assert!(Sampling::new(PertSamples::All).is_none());
        assert!(Sampling::new(PertSamples::Confirmed).is_none());
    }

    #[test]
    fn a_packet_beyond_a_gap_leaves_the_echoed_stamp_as_it_is_and_what_fills_it_does_not() {
        let mut receiver = sampling(PertSamples::EveryAck);
        let mut arrives = |number, sent, next| {
            let echoed = receiver.on_arrival(number, at(sent));
            receiver.on_acknowledged(next);
            echoed
        };
        assert_eq!(arrives(0, 10, 1), at(10));
        // Packet 1 is lost.
        assert_eq!(arrives(2, 12, 1), at(10));
        assert_eq!(arrives(3, 13, 1), at(10));
        // It comes again, then one below the window that was sent before it.
        assert_eq!(arrives(1, 90, 4), at(90));
        assert_eq!(arrives(1, 80, 4), at(90));
        assert_eq!(arrives(4, 100, 5), at(100));
    }

    #[test]
    fn a_held_ack_echoes_the_first_packet_of_those_that_it_covers() {
        let mut receiver = sampling(PertSamples::EveryAck);
        receiver.on_arrival(0, at(10));
        receiver.on_acknowledged(1);
        assert_eq!(receiver.on_arrival(1, at(20)), at(20));
        assert_eq!(receiver.on_arrival(2, at(21)), at(20));
    }

    #[test]
    fn a_cumulative_sample_begins_at_the_last_sending_of_the_highest_packet_covered() {
        let mut sender = sampling(PertSamples::Cumulative);
        for number in 0..4 {
            sender.on_sent(at(number), number, 0);
        }
        assert_eq!(sender.on_ack(1), Some(at(0)));
        sender.on_sent(at(50), 1, 1);
        assert_eq!(sender.on_ack(0), None);
        // Packet 1 was sent again; what it covers was sent before.
        assert_eq!(sender.on_ack(2), Some(at(2)));
        sender.on_sent(at(200), 3, 3);
        assert_eq!(sender.on_ack(1), Some(at(200)));
        assert_eq!(sender.on_arrival(9, at(7)), at(7));
    }
}
