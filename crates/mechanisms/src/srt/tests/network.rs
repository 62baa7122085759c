//! Both ends and a path between them, for tests.

use std::collections::BTreeMap;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};

use super::super::{SrtPacket, SrtParameters, SrtReceiver, SrtSender};

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn at(span: Duration) -> Time {
    Time::ZERO + span
}

/// What a way does to packets.
pub(super) struct Way {
    pub(super) delay: Duration,
    /// Added, uniformly distributed; packets overtake each other.
    pub(super) jitter: Duration,
    /// Probability that a packet is lost in the good state.
    pub(super) loss: f64,
    /// Probabilities to enter and to leave a state in which all is lost.
    pub(super) burst: (f64, f64),
    /// All is lost from the first to the second.
    pub(super) outage: (Time, Time),
    /// The rate, with a queue of 100 ms before it.
    pub(super) rate: Rate,
    /// Packets for which this is true are lost.
    pub(super) filter: Box<dyn FnMut(&SrtPacket) -> bool>,
    pub(super) wire: Bytes,
    pub(super) packets: Packets,
    stream: RandomStream,
    is_bad: bool,
    free_at: Time,
}

impl Way {
    pub(super) fn new(delay: Duration, seed: u64, name: &str) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: (0.0, 1.0),
            outage: (Time::NEVER, Time::NEVER),
            rate: Rate::UNLIMITED,
            filter: Box::new(|_| false),
            wire: Bytes::ZERO,
            packets: Packets::default(),
            stream: RandomStream::new(seed, name),
            is_bad: false,
            free_at: Time::ZERO,
        }
    }

    /// When a packet arrives; `None` if it is lost.
    fn cross(&mut self, now: Time, packet: &SrtPacket) -> Option<Time> {
        self.wire += packet.wire_size();
        self.packets += Packets::new(1);
        let (enter, leave) = self.burst;
        self.is_bad = self.stream.chance(if self.is_bad { 1.0 - leave } else { enter });
        let is_lost = self.stream.chance(self.loss);
        let jitter = self.stream.duration_between(Duration::ZERO, self.jitter);
        if (self.filter)(packet) || (self.outage.0 <= now && now < self.outage.1) {
            return None;
        }
        let sent = self.free_at.max(now) + self.rate.time_to_send(packet.wire_size());
        if self.is_bad || is_lost || sent > now + ms(100) {
            return None;
        }
        self.free_at = sent;
        Some(sent + self.delay + jitter)
    }
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) sender: SrtSender,
    pub(super) receiver: SrtReceiver,
    pub(super) forward: Way,
    pub(super) back: Way,
    on_way: BTreeMap<(Time, u64), (bool, SrtPacket)>,
    order: u64,
    /// Size of a datagram, distance between them, and from when on they come.
    pub(super) payload: Bytes,
    pub(super) interval: Duration,
    pub(super) next_push: Time,
    /// The application is late by up to this.
    pub(super) spread: Duration,
    schedule: RandomStream,
    planned: Time,
    /// When each was offered, and whether it was taken.
    pub(super) pushed: Vec<(Time, bool)>,
    pub(super) delivered: Vec<(Time, u64)>,
    /// Each packet sent, in order.
    pub(super) log: Vec<(Time, bool, SrtPacket)>,
    pub(super) keeps_log: bool,
}

impl World {
    /// A path with this round trip, and 2.1 Mbit/s of media after 1 s.
    pub(super) fn new(parameters: SrtParameters, rtt: Duration, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            sender: SrtSender::new(parameters, Time::ZERO),
            receiver: SrtReceiver::new(parameters),
            forward: Way::new(rtt / 2, seed, "forward"),
            back: Way::new(rtt / 2, seed, "back"),
            on_way: BTreeMap::new(),
            order: 0,
            payload: Bytes::new(1_316),
            interval: ms(5),
            next_push: at(ms(1_000)),
            spread: Duration::ZERO,
            schedule: RandomStream::new(seed, "application"),
            planned: Time::ZERO,
            pushed: Vec::new(),
            delivered: Vec::new(),
            log: Vec::new(),
            keeps_log: false,
        }
    }

    pub(super) fn run(&mut self, until: Time) {
        loop {
            self.flush();
            let packet = self.on_way.keys().next().map_or(Time::NEVER, |key| key.0);
            let timers = self.sender.next_timeout().min(self.receiver.next_timeout());
            let next = packet.min(timers).min(self.next_push).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            self.sender.handle_timeout(next);
            self.receiver.handle_timeout(next);
            while let Some(message) = self.receiver.poll_delivery(next) {
                self.delivered.push((next, message));
            }
            if packet <= next
                && let Some((_, (is_forward, packet))) = self.on_way.pop_first()
            {
                if is_forward {
                    self.receiver.on_packet(next, &packet);
                } else {
                    self.sender.on_packet(next, &packet);
                }
            }
            if self.next_push <= next {
                let taken = self.sender.push(next, self.payload);
                self.pushed.push((next, taken));
                let planned = if self.pushed.len() == 1 { next } else { self.planned };
                self.planned = planned + self.interval;
                let late = self.schedule.duration_between(Duration::ZERO, self.spread);
                self.next_push = self.planned + late;
            }
        }
    }

    fn flush(&mut self) {
        let now = self.now;
        while let Some(packet) = self.sender.poll_transmit(now) {
            let arrival = self.forward.cross(now, &packet);
            self.carry(arrival, true, packet);
        }
        while let Some(packet) = self.receiver.poll_transmit(now) {
            let arrival = self.back.cross(now, &packet);
            self.carry(arrival, false, packet);
        }
    }

    fn carry(&mut self, arrival: Option<Time>, is_forward: bool, packet: SrtPacket) {
        if self.keeps_log {
            self.log.push((self.now, is_forward, packet.clone()));
        }
        if let Some(arrival) = arrival {
            self.order += 1;
            self.on_way.insert((arrival, self.order), (is_forward, packet));
        }
    }

    /// Share of the datagrams offered that was not delivered.
    pub(super) fn loss(&self) -> f64 {
        1.0 - self.delivered.len() as f64 / self.pushed.len() as f64
    }

    /// From the application to the application.
    pub(super) fn delays(&self) -> impl Iterator<Item = Duration> + '_ {
        self.delivered.iter().map(|&(time, message)| time.since(self.pushed[message as usize].0))
    }

    /// Stops the media and lets all that is under way arrive.
    pub(super) fn finish(&mut self) {
        self.next_push = Time::NEVER;
        self.run(self.now + ms(10_000));
    }
}
