//! Links that send in aggregates: packets wait for an opportunity to transmit and leave as a burst.

use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Time};

use crate::{Limit, Occupancy};

/// When a link may transmit, and how much at a time: 802.11 frame aggregation (A-MPDU), or grants
/// as of DOCSIS and LTE.
///
/// After each aggregate, and for the first packet of an idle link, the transmitter waits: until
/// the next multiple of `every`, then for `access` and a random part of `contention`. Then all
/// packets that wait leave back to back at the link's rate, up to the limit. A packet that arrives
/// at the time at which an aggregate begins, or later, waits for the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AggregationParameters {
    /// Opportunities come at multiples of this time since the start of the run; at any time if
    /// `None`.
    pub every: Option<Duration>,
    /// What each aggregate waits beyond that: interframe spaces, preamble and acknowledgement.
    pub access: Duration,
    /// The longest random wait of an aggregate, drawn uniformly: a contention window.
    pub contention: Duration,
    /// An aggregate that has reached it takes no more packets.
    pub limit: Limit,
}

/// The aggregates of one link.
#[derive(Clone, Debug)]
pub(crate) struct Aggregator {
    parameters: AggregationParameters,
    random: RandomStream,
    /// When the last aggregate begins, or began.
    opens: Time,
    /// What it has so far.
    content: Occupancy,
    /// On a link that knows departures in advance: transmissions that had not ended at the last
    /// packet's arrival.
    sending: VecDeque<(Time, Time)>,
    /// On a link whose discipline decides later.
    grant: Grant,
}

/// What a link whose discipline decides later may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    /// Nothing waits.
    None,
    /// An aggregate will begin.
    Awaited,
    /// It has begun; so many packets that waited then have not left.
    Begun(u64),
}

impl Aggregator {
    pub(crate) fn new(parameters: AggregationParameters, random: RandomStream) -> Self {
        Self {
            parameters,
            random,
            opens: Time::ZERO,
            content: Occupancy::default(),
            sending: VecDeque::new(),
            grant: Grant::None,
        }
    }

    /// Begins another aggregate as soon as possible after `from`.
    fn open(&mut self, from: Time) {
        let AggregationParameters { every, access, contention, .. } = self.parameters;
        let from = match every.map(Duration::as_nanos).filter(|every| *every > 0) {
            // The next multiple, so that a packet of this very time waits, too.
            Some(every) => {
                let next = (from.as_nanos() / every).saturating_add(1);
                Time::from_nanos(next.saturating_mul(every))
            }
            None => from,
        };
        let contention = match contention {
            Duration::ZERO => Duration::ZERO,
            longest => self.random.duration_between(Duration::ZERO, longest),
        };
        self.opens = from + access + contention;
        self.content = Occupancy::default();
    }

    fn add(&mut self, size: Bytes) {
        self.content.packets += Packets::new(1);
        self.content.bytes += size;
    }

    /// When the transmission of a packet starts that is offered at `now` to a link that sends
    /// packets in order and will have sent all others at `busy_until`.
    pub(crate) fn place(&mut self, now: Time, busy_until: Time, size: Bytes) -> Time {
        let is_open = now < self.opens && !self.parameters.limit.is_reached(self.content);
        let starts = if is_open {
            busy_until
        } else {
            self.open(now.max(busy_until));
            self.opens
        };
        self.add(size);
        starts
    }

    /// A packet offered at `now` is transmitted from `starts` to `ends`.
    pub(crate) fn transmits(&mut self, now: Time, starts: Time, ends: Time) {
        while self.sending.front().is_some_and(|(_, ends)| *ends <= now) {
            self.sending.pop_front();
        }
        self.sending.push_back((starts, ends));
    }

    /// The time after `until` that transmissions of packets offered before will take.
    pub(crate) fn busy_after(&self, until: Time) -> Duration {
        let rest = |(starts, ends): &(Time, Time)| ends.since(until.max(*starts));
        self.sending.iter().map(rest).sum()
    }

    /// When the last aggregate begins, on a link whose discipline decides later.
    pub(crate) fn opens(&self) -> Time {
        self.opens
    }

    /// A packet waits at such a link, which may transmit from `from` on.
    pub(crate) fn on_enqueued(&mut self, from: Time) {
        if self.grant == Grant::None {
            self.open(from);
            self.grant = Grant::Awaited;
        }
    }

    /// Such a link is about to send the next of `waiting` packets.
    pub(crate) fn on_dequeue(&mut self, waiting: Packets) {
        if self.grant == Grant::Awaited {
            self.grant = Grant::Begun(waiting.get());
        }
    }

    /// It has sent a packet of `size`, or none; `waiting` are left, and it is free from `free` on.
    pub(crate) fn on_sent(&mut self, size: Option<Bytes>, waiting: Packets, free: Time) {
        let Grant::Begun(left) = self.grant else { return };
        let left = left.saturating_sub(1).min(waiting.get());
        size.into_iter().for_each(|size| self.add(size));
        let is_full = self.parameters.limit.is_reached(self.content);
        self.grant = if size.is_some() && left > 0 && !is_full {
            Grant::Begun(left)
        } else if waiting > Packets::new(0) {
            self.open(free);
            Grant::Awaited
        } else {
            Grant::None
        };
    }
}
