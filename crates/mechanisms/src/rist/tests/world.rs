//! Both ends and a path between them.

use std::collections::{BTreeMap, VecDeque};

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};

use crate::rist::{RistEnd, RistPacket, RistParameters, RistReceiver, RistSender};

/// The payload of seven transport packets.
pub(super) const DATAGRAM: Bytes = Bytes::new(7 * 188);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// One way of a path: a bottleneck, a delay, and losses, alone or in bursts.
pub(super) struct Way {
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    pub(super) loss: f64,
    /// The mean length of bursts of losses, in packets.
    pub(super) burst: f64,
    pub(super) rate: Option<(Rate, Duration)>,
    pub(super) outages: Vec<(Time, Time)>,
    random: RandomStream,
    is_bursting: bool,
    free: Time,
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

impl Way {
    fn new(seed: u64, name: &str, delay: Duration) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: 1.0,
            rate: None,
            outages: Vec::new(),
            random: RandomStream::new(seed, name),
            is_bursting: false,
            free: Time::ZERO,
            bytes: 0,
            packets: 0,
        }
    }

    /// When a packet arrives, if it does.
    fn carry(&mut self, now: Time, size: Bytes) -> Option<Time> {
        self.bytes += size.get();
        self.packets += 1;
        // Gilbert: the share of time in the lossy state is `loss`.
        let leave = 1.0 / self.burst;
        let enter = self.loss * leave / (1.0 - self.loss);
        self.is_bursting = if self.burst <= 1.0 {
            self.random.chance(self.loss)
        } else {
            self.random.chance(if self.is_bursting { 1.0 - leave } else { enter })
        };
        if self.is_bursting || self.outages.iter().any(|(from, to)| (*from..*to).contains(&now)) {
            return None;
        }
        let mut sent = now;
        if let Some((rate, queue)) = self.rate {
            if self.free.since(now) > queue {
                return None;
            }
            self.free = self.free.max(now) + rate.time_to_send(size);
            sent = self.free;
        }
        Some(sent + self.delay + self.random.duration_between(Duration::ZERO, self.jitter))
    }
}

/// Whether a packet is lost by choice.
type Drops = Box<dyn FnMut(Time, &RistPacket) -> bool>;

/// What happened to a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) given: Time,
    pub(super) delivered: Option<Time>,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) sender: RistSender,
    pub(super) receiver: RistReceiver,
    pub(super) forward: Way,
    pub(super) reverse: Way,
    under_way: BTreeMap<(Time, u64), (RistEnd, RistPacket)>,
    packets: u64,
    /// From one datagram to the next.
    pub(super) interval: Duration,
    next_push: Time,
    pub(super) fates: Vec<Fate>,
    /// The order of delivery.
    pub(super) delivered: Vec<u64>,
    /// Packets that the receiver sent, and when.
    pub(super) answers: VecDeque<(Time, RistPacket)>,
    /// Packets of either end that are lost by choice.
    pub(super) drops: Drops,
    pub(super) null_packets: u8,
}

impl World {
    pub(super) fn new(parameters: RistParameters, one_way: Duration, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            sender: RistSender::new(parameters, Time::ZERO),
            receiver: RistReceiver::new(parameters, Time::ZERO),
            forward: Way::new(seed, "forward", one_way),
            reverse: Way::new(seed, "reverse", one_way),
            under_way: BTreeMap::new(),
            packets: 0,
            interval: ms(2),
            next_push: at(1000),
            fates: Vec::new(),
            delivered: Vec::new(),
            answers: VecDeque::new(),
            drops: Box::new(|_, _| false),
            null_packets: 0,
        }
    }

    /// Runs until then; the application gives datagrams from the first second to `media_ends`.
    pub(super) fn run(&mut self, media_ends: Time, end: Time) {
        loop {
            self.exchange();
            let arrival = self.under_way.first_key_value().map_or(Time::NEVER, |(key, _)| key.0);
            let push = if self.next_push < media_ends { self.next_push } else { Time::NEVER };
            let timeout = self.sender.next_timeout().min(self.receiver.next_timeout());
            let next = arrival.min(push).min(timeout);
            if next > end {
                return;
            }
            assert!(next >= self.now, "time goes back");
            self.now = next;
            if next == arrival {
                let (_, (to, packet)) = self.under_way.pop_first().expect("there is one");
                match to {
                    RistEnd::Sender => self.sender.on_packet(self.now, &packet),
                    RistEnd::Receiver => self.receiver.on_packet(self.now, &packet),
                }
            } else if next == push {
                self.next_push += self.interval;
                self.sender.push(self.now, DATAGRAM, self.null_packets);
                self.fates.push(Fate { given: self.now, delivered: None });
            } else {
                self.sender.handle_timeout(self.now);
                self.receiver.handle_timeout(self.now);
            }
        }
    }

    fn exchange(&mut self) {
        while let Some(packet) = self.sender.poll_transmit(self.now) {
            self.put(RistEnd::Receiver, packet);
        }
        while let Some(packet) = self.receiver.poll_transmit(self.now) {
            self.answers.push_back((self.now, packet.clone()));
            self.put(RistEnd::Sender, packet);
        }
        while let Some(datagram) = self.receiver.poll_delivery(self.now) {
            self.delivered.push(datagram);
            let fate = self.fates.get_mut(datagram as usize).expect("it was given");
            assert!(fate.delivered.replace(self.now).is_none(), "{datagram} is delivered twice");
        }
    }

    fn put(&mut self, to: RistEnd, packet: RistPacket) {
        let way = match to {
            RistEnd::Receiver => &mut self.forward,
            RistEnd::Sender => &mut self.reverse,
        };
        let arrival = way.carry(self.now, packet.wire_size());
        if let Some(arrival) = arrival
            && !(self.drops)(self.now, &packet)
        {
            self.packets += 1;
            self.under_way.insert((arrival, self.packets), (to, packet));
        }
    }

    /// How many datagrams that were given in this time were not delivered.
    pub(super) fn lost_between(&self, from: Time, to: Time) -> usize {
        let lost = |fate: &&Fate| (from..to).contains(&fate.given) && fate.delivered.is_none();
        self.fates.iter().filter(lost).count()
    }

    pub(super) fn lost(&self) -> usize {
        self.lost_between(Time::ZERO, Time::NEVER)
    }

    /// From giving a datagram to its delivery: least and most.
    pub(super) fn latency(&self) -> (Duration, Duration) {
        let taken = self.fates.iter().filter_map(|fate| Some(fate.delivered?.since(fate.given)));
        taken.fold((Duration::MAX, Duration::ZERO), |(least, most), latency| {
            (least.min(latency), most.max(latency))
        })
    }

    pub(super) fn is_in_order(&self) -> bool {
        self.delivered.is_sorted_by(|a, b| a < b)
    }

    /// When the receiver asked for a sequence number.
    pub(super) fn requests(&self, sequence: u16) -> Vec<Time> {
        let asks = |packet: &RistPacket| {
            let RistPacket::Nack { ranges } = packet else { return false };
            ranges.iter().any(|range| sequence.wrapping_sub(range.first) <= range.additional)
        };
        self.answers.iter().filter(|(_, packet)| asks(packet)).map(|(time, _)| *time).collect()
    }
}
