//! The sender: what to send next, and when.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ontempo_foundation::{Duration, Packets, Time};

use super::{AduAck, REPORTED, WindowRule};
use crate::rtt::{RtoParameters, RttEstimator};

/// When a lost ADU is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retransmission {
    /// In its turn, before new ADUs: rate control holds for all (rr3216, fig. 1).
    #[default]
    Paced,
    /// As soon as it is known to be lost.
    AtOnce,
}

/// Parameters of a sender.
#[derive(Clone, Copy, Debug)]
pub struct AduSenderParameters {
    /// R: from one emission to the next; zero for as fast as the window allows.
    pub interval: Duration,
    /// W: the most ADUs in the window, at least 1.
    pub window: Packets,
    /// What the window limits.
    pub rule: WindowRule,
    /// When a lost ADU is sent again.
    pub retransmission: Retransmission,
    /// How many later transmissions must have arrived before one is held to be lost: 1 where
    /// the network keeps the order, 3 where it may not (RFC 9002, section 6.1.1).
    pub reordering: u64,
    /// The retransmission timer.
    pub rto: RtoParameters,
    /// Whether the timeout doubles with each that follows another (RFC 6298, section 5.5). Rr3216
    /// has a loss known after the same time however often the ADU was lost before.
    pub back_off: bool,
    /// Losses are told by [`AduSender::on_lost`], and neither acknowledgements nor the timer reveal
    /// any (rr3216, section 3.1.3). The timer is then for a shut window alone.
    pub told_losses: bool,
}

impl Default for AduSenderParameters {
    /// Rr3216's defaults: R 10 ms, W 32, a network that keeps the order.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(10),
            window: Packets::new(32),
            rule: WindowRule::default(),
            retransmission: Retransmission::default(),
            reordering: 1,
            rto: RtoParameters::default(),
            back_off: true,
            told_losses: false,
        }
    }
}

/// An ADU to be put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// The transmission's own number.
    pub number: u64,
    /// The ADU that it carries.
    pub adu: u64,
    /// True where the ADU was sent before.
    pub again: bool,
    /// True if it requests an immediate acknowledgement.
    pub asks: bool,
}

/// The sender's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It sends this now.
    Send(Transmission),
    /// It waits for its turn until then.
    At(Time),
    /// It waits for an acknowledgement, its timer, or the application.
    Blocked,
}

/// A transmission and its fate.
#[derive(Clone, Copy, Debug)]
struct Flight {
    adu: u64,
    sent: Time,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// Held to be lost. Where the network reorders, it may be reported all the same.
    GivenUp,
    Arrived,
}

/// An ADU that was sent, and of which it is not known that it and all before it arrived.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    acknowledged: bool,
    last_transmission: u64,
}

/// Sends ADUs and retransmits lost ones.
#[derive(Clone, Debug)]
pub struct AduSender {
    parameters: AduSenderParameters,
    /// ADUs below this number are there to be sent.
    offered: u64,
    next_adu: u64,
    /// Number of ADUs taken by the receiving application, by the last acknowledgement.
    freed: u64,
    /// The lowest unacknowledged ADU, and the state of those from it on.
    lowest: u64,
    outstanding: VecDeque<Outstanding>,
    /// The lowest transmission that may still be reported, and those from it on.
    first: u64,
    flights: VecDeque<Flight>,
    /// How many of them are open.
    open: u64,
    lost: BinaryHeap<Reverse<u64>>,
    /// The timer has expired and its probe is not sent yet.
    probe: bool,
    /// Rate control: nothing is sent before this.
    earliest: Time,
    /// When something was last sent or acknowledged.
    active: Time,
    rtt: RttEstimator,
    retransmitted: u64,
    timeouts: u64,
}

impl AduSender {
    /// A sender that has nothing to send yet.
    pub fn new(parameters: AduSenderParameters) -> Self {
        Self {
            rtt: RttEstimator::new(parameters.rto),
            parameters,
            offered: 0,
            next_adu: 0,
            freed: 0,
            lowest: 0,
            outstanding: VecDeque::new(),
            first: 0,
            flights: VecDeque::new(),
            open: 0,
            lost: BinaryHeap::new(),
            probe: false,
            earliest: Time::ZERO,
            active: Time::ZERO,
            retransmitted: 0,
            timeouts: 0,
        }
    }

    /// The application has offered `adus` ADUs since the start.
    pub fn offer(&mut self, adus: u64) {
        self.offered = self.offered.max(adus);
    }

    /// The next action; call it again after each [`Next::Send`].
    pub fn next(&mut self, now: Time) -> Next {
        if std::mem::take(&mut self.probe)
            && let Some(adu) = self.probed()
        {
            return self.send(now, adu, true);
        }
        while self.lost.peek().is_some_and(|Reverse(adu)| self.is_acknowledged(*adu)) {
            self.lost.pop();
        }
        let again = !self.lost.is_empty();
        let at_once = again && self.parameters.retransmission == Retransmission::AtOnce;
        if !again && (self.next_adu >= self.offered || !self.is_open()) {
            return Next::Blocked;
        }
        if now < self.earliest && !at_once {
            return Next::At(self.earliest);
        }
        if !at_once {
            self.earliest = now + self.parameters.interval;
        }
        let adu = self.lost.pop().map_or(self.next_adu, |Reverse(adu)| adu);
        self.send(now, adu, false)
    }

    /// Takes an acknowledgement; one of an ADU never sent is ignored.
    pub fn on_ack(&mut self, now: Time, ack: &AduAck) {
        if ack.largest >= self.first + self.flights.len() as u64 {
            return;
        }
        let freed = ack.freed.min(self.next_adu);
        let mut is_news = freed > self.freed;
        self.freed = self.freed.max(freed);
        for place in 0..self.flights.len() {
            let number = self.first + place as u64;
            if number > ack.largest {
                break;
            }
            let flight = self.flights[place];
            if flight.fate == Fate::Arrived {
                continue;
            }
            if ack.reports(number) {
                self.settle(place, Fate::Arrived);
                // A probe of an ADU that had arrived brings nothing new: the timer stays backed off.
                if self.is_acknowledged(flight.adu) {
                    continue;
                }
                is_news = true;
                self.acknowledge(flight.adu);
                if number == ack.largest {
                    self.rtt.on_sample(now.since(flight.sent));
                }
            } else if !self.parameters.told_losses
                && flight.fate == Fate::Open
                && self.is_given_up(ack.largest - number)
            {
                self.settle(place, Fate::GivenUp);
                self.lose(number, flight.adu);
            }
        }
        while self.flights.front().is_some_and(|flight| {
            let is_beyond_reports = self.first + REPORTED <= ack.largest;
            flight.fate == Fate::Arrived || (flight.fate == Fate::GivenUp && is_beyond_reports)
        }) {
            self.flights.pop_front();
            self.first += 1;
        }
        if is_news {
            self.rtt.reset_back_off();
            self.active = now;
        }
    }

    /// A transmission was lost: its ADU is sent again. One that was never made is ignored, as is
    /// one that has arrived.
    pub fn on_lost(&mut self, transmission: u64) {
        let place = transmission.checked_sub(self.first).map(usize::try_from);
        let Some(Ok(place)) = place else { return };
        if let Some(Flight { adu, fate: Fate::Open, .. }) = self.flights.get(place).copied() {
            self.settle(place, Fate::GivenUp);
            self.lose(transmission, adu);
        }
    }

    /// When [`on_timer`](Self::on_timer) is due, if nothing is sent or acknowledged before.
    pub fn deadline(&self) -> Time {
        let is_shut = self.next_adu < self.offered && !self.is_open();
        let waits = self.open > 0 && !self.parameters.told_losses;
        if !waits && !is_shut {
            return Time::NEVER;
        }
        self.active + self.rtt.rto()
    }

    /// The deadline has passed: a probe is sent next.
    pub fn on_timer(&mut self, now: Time) {
        if now < self.deadline() {
            return;
        }
        self.timeouts += 1;
        if self.parameters.back_off {
            self.rtt.back_off();
        }
        self.probe = true;
        self.active = now;
    }

    /// True where all that was offered is known to have arrived.
    pub fn is_done(&self) -> bool {
        self.lowest == self.offered
    }

    /// Transmissions whose fate is open.
    pub fn in_flight(&self) -> u64 {
        self.open
    }

    /// Transmissions made so far.
    pub fn transmissions(&self) -> u64 {
        self.first + self.flights.len() as u64
    }

    /// Those of them that carried an ADU sent before.
    pub fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// How often the timer has expired.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// The round-trip time as measured.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    fn is_open(&self) -> bool {
        let from = match self.parameters.rule {
            WindowRule::Buffers => self.freed,
            WindowRule::Sequence => self.lowest,
        };
        self.next_adu - from < self.parameters.window.get().max(1)
    }

    /// What a probe carries: what is most likely lost, or, where all has arrived and only the
    /// window is shut, the last ADU once more.
    fn probed(&mut self) -> Option<u64> {
        if self.parameters.told_losses {
            return self.next_adu.checked_sub(1);
        }
        while let Some(Reverse(adu)) = self.lost.pop() {
            if !self.is_acknowledged(adu) {
                return Some(adu);
            }
        }
        let open = self
            .flights
            .iter()
            .find(|flight| flight.fate == Fate::Open && !self.is_acknowledged(flight.adu));
        open.map(|flight| flight.adu).or(self.next_adu.checked_sub(1))
    }

    fn send(&mut self, now: Time, adu: u64, asks: bool) -> Next {
        let number = self.transmissions();
        let again = adu < self.next_adu;
        if again {
            self.retransmitted += 1;
        } else {
            self.next_adu += 1;
            let fresh = Outstanding { acknowledged: false, last_transmission: number };
            self.outstanding.push_back(fresh);
        }
        if let Some(outstanding) = self.outstanding_mut(adu) {
            outstanding.last_transmission = number;
        }
        self.flights.push_back(Flight { adu, sent: now, fate: Fate::Open });
        self.open += 1;
        self.active = now;
        Next::Send(Transmission { number, adu, again, asks })
    }

    fn settle(&mut self, place: usize, fate: Fate) {
        let flight = &mut self.flights[place];
        if flight.fate == Fate::Open {
            self.open -= 1;
        }
        flight.fate = fate;
    }

    /// Whether a transmission that is not reported is lost, with one so far after it arrived.
    fn is_given_up(&self, back: u64) -> bool {
        back >= self.parameters.reordering.clamp(1, REPORTED)
    }

    fn acknowledge(&mut self, adu: u64) {
        if let Some(outstanding) = self.outstanding_mut(adu) {
            outstanding.acknowledged = true;
        }
        while self.outstanding.front().is_some_and(|first| first.acknowledged) {
            self.outstanding.pop_front();
            self.lowest += 1;
        }
    }

    fn lose(&mut self, transmission: u64, adu: u64) {
        // A later transmission of the same ADU, where there is one, may still arrive.
        let is_last = self.outstanding_mut(adu).is_some_and(|outstanding| {
            !outstanding.acknowledged && outstanding.last_transmission == transmission
        });
        if is_last {
            self.lost.push(Reverse(adu));
        }
    }

    fn is_acknowledged(&self, adu: u64) -> bool {
        let Some(place) = adu.checked_sub(self.lowest) else { return true };
        let found = usize::try_from(place).ok().and_then(|place| self.outstanding.get(place));
        found.is_some_and(|outstanding| outstanding.acknowledged)
    }

    fn outstanding_mut(&mut self, adu: u64) -> Option<&mut Outstanding> {
        let place = usize::try_from(adu.checked_sub(self.lowest)?).ok()?;
        self.outstanding.get_mut(place)
    }
}
