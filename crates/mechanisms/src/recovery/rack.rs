//! Loss detection by time: RACK and the tail loss probe (RFC 8985).

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

/// In the log: a transmission that is not the latest one of a packet in flight.
const NO_PACKET: u64 = u64::MAX;

/// The latest transmission of an outstanding packet.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Its index among all transmissions.
    index: u64,
    at: Time,
    /// Whether the packet has been sent more than once.
    again: bool,
    /// Whether it is in flight: neither delivered nor found lost.
    in_flight: bool,
}

/// A loss probe whose result is not known (RFC 8985, section 7.4).
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The next new packet when it was sent.
    end: u64,
    /// Whether it was a packet sent before.
    again: bool,
}

/// RTT samples of one acknowledgement, from packets that were sent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Of the lowest packet newly acknowledged: with the time for which the ACK was delayed. For the
    /// retransmission timeout.
    pub first: Duration,
    /// Of the highest one. For congestion control.
    pub last: Duration,
}

/// The state of RACK: when each outstanding packet was sent.
///
/// 32 bytes for each outstanding packet and 8 for each transmission. Work is constant per packet,
/// except that finding the deadline of the reordering timer skips packets delivered out of order.
#[derive(Clone, Debug, Default)]
pub(super) struct Rack {
    /// The number of the packet at the front of `sent`.
    first: u64,
    sent: VecDeque<Sent>,
    /// The packets of all transmissions from the oldest that may be in flight, in the order of
    /// sending.
    log: VecDeque<u64>,
    /// The index of the transmission at the front of `log`.
    log_start: u64,
    /// The transmission of the delivered packet that was sent last (RACK.segment).
    delivered: Option<u64>,
    /// The RTT of the packet last delivered (RACK.rtt).
    rtt: Duration,
    /// The smallest RTT of a packet sent once (RACK.min_RTT).
    minimum: Option<Duration>,
    /// The packet above the highest one delivered (RACK.fack).
    highest: u64,
    reordering_seen: bool,
    deadline: Option<Time>,
    probe: Option<Probe>,
    samples: Option<Samples>,
}

impl Rack {
    /// RFC 8985, section 6.1: `packet` was sent, or sent again.
    pub(super) fn on_sent(&mut self, now: Time, packet: u64) {
        let index = self.log_start + self.log.len() as u64;
        self.log.push_back(packet);
        let place = (packet - self.first) as usize;
        let sent = Sent { index, at: now, again: place < self.sent.len(), in_flight: true };
        match self.sent.get_mut(place) {
            Some(before) => *before = sent,
            None => self.sent.push_back(sent),
        }
    }

    /// The handshake took `rtt`: a sample of the smallest RTT.
    pub(super) fn on_handshake(&mut self, rtt: Duration) {
        self.minimum = Some(self.minimum.map_or(rtt, |minimum| minimum.min(rtt)));
    }

    /// An acknowledgement begins: its samples are those of the packets delivered from now on.
    pub(super) fn begin_ack(&mut self) {
        self.samples = None;
    }

    /// `packet` is newly acknowledged (RFC 8985, section 6.2, steps 1 to 3).
    pub(super) fn on_delivered(&mut self, now: Time, packet: u64) {
        let place = packet.wrapping_sub(self.first) as usize;
        let Some(slot) = self.sent.get_mut(place) else { return };
        slot.in_flight = false;
        let sent = *slot;
        let rtt = now.since(sent.at);
        if packet >= self.highest {
            self.highest = packet + 1;
        } else if !sent.again {
            self.reordering_seen = true;
        }
        if sent.again {
            // It may be the acknowledgement of an earlier copy.
            if self.minimum.is_none_or(|minimum| rtt < minimum) {
                return;
            }
        } else {
            self.minimum = Some(self.minimum.map_or(rtt, |minimum| minimum.min(rtt)));
            let first = self.samples.map_or(rtt, |samples| samples.first);
            self.samples = Some(Samples { first, last: rtt });
        }
        self.rtt = rtt;
        self.delivered = self.delivered.max(Some(sent.index));
    }

    /// The cumulative acknowledgement is `first` now.
    pub(super) fn advance(&mut self, first: u64) {
        let gone = (first - self.first).min(self.sent.len() as u64) as usize;
        self.sent.drain(..gone);
        self.first = first;
    }

    /// RFC 8985, section 6.2, step 5: calls `lose` with each packet found lost. `is_certain`: a
    /// loss episode lasts or three packets are selectively acknowledged, so that a sender that has
    /// seen no reordering does not wait for it (step 4).
    pub(super) fn find_losses(
        &mut self,
        now: Time,
        is_certain: bool,
        mut lose: impl FnMut(u64),
    ) -> Option<u64> {
        self.deadline = None;
        self.forget_settled();
        let delivered = self.delivered?;
        let wait = self.rtt + self.reordering_window(is_certain);
        let (mut lowest, mut place) = (None::<u64>, 0);
        while let Some(&packet) = self.log.get(place)
            && self.log_start + (place as u64) < delivered
        {
            if let Some(sent) = self.in_flight(place, packet) {
                if sent.at + wait > now {
                    self.deadline = self.last_before(delivered).map(|at| at + wait);
                    break;
                }
                sent.in_flight = false;
                lowest = Some(lowest.map_or(packet, |lowest| lowest.min(packet)));
                lose(packet);
            }
            place += 1;
        }
        lowest
    }

    /// When the last of the packets in flight that were sent before `delivered` was sent.
    fn last_before(&mut self, delivered: u64) -> Option<Time> {
        let count = delivered.saturating_sub(self.log_start) as usize;
        (0..count.min(self.log.len())).rev().find_map(|place| {
            let packet = self.log[place];
            self.in_flight(place, packet).map(|sent| sent.at)
        })
    }

    /// The transmission at `place` of the log, if it is the packet's latest and in flight.
    fn in_flight(&mut self, place: usize, packet: u64) -> Option<&mut Sent> {
        let index = self.log_start + place as u64;
        let at = packet.checked_sub(self.first)? as usize;
        self.sent.get_mut(at).filter(|sent| sent.in_flight && sent.index == index)
    }

    fn forget_settled(&mut self) {
        while let Some(&packet) = self.log.front()
            && self.in_flight(0, packet).is_none()
        {
            self.log.pop_front();
            self.log_start += 1;
        }
    }

    /// RFC 8985, section 6.2, step 4, without DSACK: the multiplier stays 1, so that the bound of
    /// one SRTT never applies.
    fn reordering_window(&self, is_certain: bool) -> Duration {
        if is_certain && !self.reordering_seen {
            return Duration::ZERO;
        }
        self.minimum.unwrap_or(Duration::ZERO) / 4
    }

    /// RFC 8985, section 6.3: the retransmission timer expired. The first packet is lost, and so is
    /// each that was sent more than a round trip and a reordering window ago.
    pub(super) fn on_timeout(&mut self, now: Time, mut lose: impl FnMut(u64)) {
        let wait = self.rtt + self.reordering_window(false);
        let first = self.first;
        for (packet, sent) in (first..).zip(&mut self.sent) {
            if sent.in_flight && (packet == first || sent.at + wait <= now) {
                sent.in_flight = false;
                lose(packet);
            }
        }
        self.deadline = None;
        self.probe = None;
    }

    /// `packet` was not lost; [`relist`](Self::relist) follows the last one.
    pub(super) fn undo_loss(&mut self, packet: u64) {
        let index = packet.checked_sub(self.first).map(|index| index as usize);
        if let Some(sent) = index.and_then(|index| self.sent.get_mut(index)) {
            sent.in_flight = true;
        }
    }

    /// Puts what is in flight again back into the log: the transmissions of what was lost have been
    /// forgotten, and without them the same packets could never be found lost.
    pub(super) fn relist(&mut self) {
        let end = self.log_start + self.log.len() as u64;
        let in_flight = || (self.first..).zip(&self.sent).filter(|(_, sent)| sent.in_flight);
        let start = in_flight().map(|(_, sent)| sent.index).min().unwrap_or(end);
        let mut log = VecDeque::from(vec![NO_PACKET; (end - start) as usize]);
        for (packet, sent) in in_flight() {
            log[(sent.index - start) as usize] = packet;
        }
        (self.log, self.log_start) = (log, start);
    }

    /// When losses must be looked for again (the reordering timer).
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    pub(super) fn samples(&self) -> Option<Samples> {
        self.samples
    }

    /// Whether a loss probe is under way.
    pub(super) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    pub(super) fn on_probe(&mut self, end: u64, again: bool) {
        self.probe = Some(Probe { end, again });
    }

    /// A loss episode began: it answers all losses, that of a probed packet too.
    pub(super) fn end_probe(&mut self) {
        self.probe = None;
    }

    /// RFC 8985, section 7.4.2: true if the probe repaired a loss, which the congestion controller
    /// must answer. An acknowledgement beyond what was sent by the probe says so; a duplicate says
    /// that both copies have arrived.
    pub(super) fn probe_repaired(&mut self, cumulative: u64, is_duplicate: bool) -> bool {
        let Some(probe) = self.probe.filter(|probe| cumulative >= probe.end) else { return false };
        let repaired = probe.again && cumulative > probe.end;
        if repaired || !probe.again || is_duplicate {
            self.probe = None;
        }
        repaired
    }
}
