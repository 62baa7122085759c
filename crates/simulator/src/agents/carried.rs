//! A film, carried by a transport that makes datagrams of its own: both of its ends, and what is under
//! way between them.

mod adus;
mod ontempo;
mod plain;
mod rist;
mod srt;

use std::collections::VecDeque;
use std::sync::Arc;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::adu::{AduAck, Transmission};
use ontempo_mechanisms::rist::RistPacket;
use ontempo_mechanisms::srt::SrtPacket;
use ontempo_media::{Film, Sent};
use ontempo_runtime::{AddressChanges, Arrivals, FlowTotals, Showing};

use super::receiver::Receiver;
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;
use crate::timer::LazyTimer;

pub(crate) use adus::Adus;
pub(crate) use ontempo::Ontempo;
pub(crate) use plain::Plain;
pub(crate) use rist::Rist;
pub(crate) use srt::Srt;

/// What a packet carries is kept for so long after it was sent. What the network holds longer, or makes
/// a copy of later, is lost.
const KEPT: Duration = Duration::from_secs(60);

/// IPv4 and UDP headers in bytes.
pub(crate) const HEADERS: u32 = 28;

/// The ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// A datagram of the film.
    Film(u64),
    /// Bytes of UDP.
    Bytes(Vec<u8>),
    Srt(Box<SrtPacket>),
    Rist(Box<RistPacket>),
    Adu(Transmission),
    AduAck(AduAck),
}

/// What a packet of a sender is for its flow's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Data, called so among all that the flow has: of several packets with it, the first to arrive counts.
    Data {
        number: u64,
        /// Whether it was sent before; `None` if only both ends can tell.
        again: Option<bool>,
    },
    /// Of the connection, such as a report.
    Control,
}

impl Payload {
    /// What it is, as packet `number` of its way.
    fn content(&self, number: u64) -> Content {
        let (number, again) = match self {
            Self::Film(datagram) => (*datagram, Some(false)),
            // Encrypted: all of the sender's packets.
            Self::Bytes(_) => (number, None),
            Self::Srt(packet) => match **packet {
                SrtPacket::Data { message, is_retransmission, .. } => {
                    (message, Some(is_retransmission))
                }
                _ => return Content::Control,
            },
            Self::Rist(packet) => match **packet {
                RistPacket::Data { datagram, is_retransmission, .. } => {
                    (datagram, Some(is_retransmission))
                }
                _ => return Content::Control,
            },
            Self::Adu(transmission) => (transmission.adu, Some(transmission.again)),
            Self::AduAck(_) => return Content::Control,
        };
        Content::Data { number, again }
    }
}

/// A packet that an end sends.
pub(crate) struct Outgoing {
    pub(crate) payload: Payload,
    /// Bytes on the wire, headers counted.
    pub(crate) size: u32,
    pub(crate) is_ecn_capable: bool,
    /// Of a packet of the receiver: to which address of the sender, as the number of changes before it.
    pub(crate) to: u8,
}

/// Both ends of a transport. After each call the other methods are polled until they have nothing more.
pub(crate) trait Ends {
    /// The application gives the sender a datagram of its film.
    fn push(&mut self, now: Time, number: u64, datagram: &Sent, film: &Film);
    /// A packet arrives at an end. `address`: of the sender, as the number of changes before it; the
    /// packet comes from there, or was sent to it.
    fn receive(&mut self, now: Time, end: (End, u8), payload: Payload, is_marked: bool);
    /// The network tells the sender that a packet of its own was lost.
    fn on_lost(&mut self, _: Payload) {}
    /// When [`handle_timeout`](Self::handle_timeout) is called next; [`Time::NEVER`] if not at all.
    fn next_timeout(&self) -> Time;
    fn handle_timeout(&mut self, now: Time);
    /// The next packet that an end sends.
    fn poll_transmit(&mut self, now: Time) -> Option<(End, Outgoing)>;
    /// A datagram that the receiver gives to its application, and a bit for each of its transport packets
    /// that is there.
    fn poll_delivery(&mut self, now: Time) -> Option<(u64, u64)>;
    /// As the table of flows has it.
    fn name(&self) -> &'static str;
    /// Its congestion controller.
    fn congestion(&self) -> Option<&str> {
        None
    }
}

/// What one direction has sent and not yet lost sight of, by number.
#[derive(Default)]
struct UnderWay {
    first: u64,
    packets: VecDeque<(Time, Option<(Payload, u8)>)>,
}

impl UnderWay {
    /// `address`: of the sender.
    fn add(&mut self, now: Time, payload: Payload, address: u8) -> u64 {
        let is_over = |(sent, payload): &(Time, Option<(Payload, u8)>)| {
            payload.is_none() || *sent + KEPT < now
        };
        while self.packets.front().is_some_and(is_over) {
            self.packets.pop_front();
            self.first += 1;
        }
        let number = self.next();
        self.packets.push_back((now, Some((payload, address))));
        number
    }

    /// The number of the packet that is added next.
    fn next(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// What the packet carries, and the sender's address; with `copies`, it may arrive again.
    fn take(&mut self, number: u64, copies: bool) -> Option<(Payload, u8)> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let (_, payload) = self.packets.get_mut(place)?;
        if copies { payload.clone() } else { payload.take() }
    }
}

/// A film and both ends of its transport.
pub(crate) struct Carried {
    flow: u32,
    /// The routes there and back.
    routes: [u32; 2],
    film: Arc<Film>,
    start: Time,
    stop: Time,
    /// The next datagram of the film.
    next: u64,
    ends: Box<dyn Ends + Send>,
    under_way: [UnderWay; 2],
    copies: bool,
    /// When the sender's address changes.
    address_changes: AddressChanges,
    timer: LazyTimer,
    sent: u64,
    /// Bytes on the wire of what was sent.
    sent_bytes: u64,
    /// Of what was sent, what was sent before; `None` if it cannot be told.
    retransmitted: Option<u64>,
    /// The data that has arrived.
    arrived: Arrivals,
    delivered: u64,
    wire: [u64; 2],
    receiver: Receiver,
}

impl Carried {
    pub(crate) fn new(
        (flow, route, back): (u32, u32, u32),
        film: Arc<Film>,
        (start, stop): (Time, Time),
        ends: Box<dyn Ends + Send>,
    ) -> Self {
        let receiver = Receiver::of_film(Showing::new(Arc::clone(&film), start));
        Self {
            flow,
            routes: [route, back],
            film,
            start,
            stop,
            next: 0,
            ends,
            under_way: Default::default(),
            copies: false,
            address_changes: AddressChanges::default(),
            timer: LazyTimer::unset(),
            sent: 0,
            sent_bytes: 0,
            retransmitted: Some(0),
            arrived: Arrivals::default(),
            delivered: 0,
            wire: [0; 2],
            receiver,
        }
    }

    /// The sender's address changes at these times.
    pub(crate) fn with_address_changes(mut self, changes: AddressChanges) -> Self {
        self.address_changes = changes;
        self
    }

    pub(crate) fn expect_copies(&mut self) {
        self.copies = true;
    }

    pub(crate) fn on_wake(&mut self, now: Time, fabric: &mut Fabric) {
        self.timer.expires(now, Event::Wake(self.flow), fabric);
        self.work(now, fabric);
    }

    pub(crate) fn on_packet(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        let way = usize::from(packet.marks.ack);
        let taken = self.under_way[way].take(packet.number, self.copies);
        let Some((payload, address)) = taken else { return };
        if way == 0
            && let Content::Data { number, .. } = payload.content(packet.number)
            && self.arrived.add(number)
        {
            self.delivered += 1;
        }
        let end = if way == 0 { End::Receiver } else { End::Sender };
        if end == End::Sender && address != self.address_changes.before(now) {
            return;
        }
        self.ends.receive(now, (end, address), payload, packet.marks.congestion);
        self.work(now, fabric);
    }

    pub(crate) fn on_lost(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        if let Some((payload, _)) = self.under_way[0].take(packet.number, self.copies) {
            self.ends.on_lost(payload);
            self.work(now, fabric);
        }
    }

    /// Does what is due, and asks to be woken for the rest.
    fn work(&mut self, now: Time, fabric: &mut Fabric) {
        let film_next = loop {
            let Some(datagram) = self.film.datagram(self.next) else { break Time::NEVER };
            let due = self.start + datagram.at;
            if due >= self.stop {
                break Time::NEVER;
            }
            if due > now {
                break due;
            }
            self.ends.push(now, self.next, &datagram, &self.film);
            self.next += 1;
            self.transmit(now, fabric);
        };
        if self.ends.next_timeout() <= now {
            self.ends.handle_timeout(now);
        }
        self.transmit(now, fabric);
        while let Some((number, packets)) = self.ends.poll_delivery(now) {
            self.receiver.show(now, number, packets);
        }
        let next = self.ends.next_timeout().min(film_next);
        if next < Time::NEVER {
            // What is due is done: an end that asks for now again would never let time pass.
            let next = next.max(now + Duration::from_nanos(1));
            self.timer.set(next, Event::Wake(self.flow), fabric);
        }
    }

    fn transmit(&mut self, now: Time, fabric: &mut Fabric) {
        while let Some((end, outgoing)) = self.ends.poll_transmit(now) {
            let way = usize::from(end == End::Receiver);
            let address = match end {
                End::Sender => self.address_changes.before(now),
                End::Receiver => outgoing.to,
            };
            let number = self.under_way[way].next();
            let content = outgoing.payload.content(number);
            self.under_way[way].add(now, outgoing.payload, address);
            let mut packet = Packet::data(self.flow, self.routes[way], number, now, outgoing.size);
            packet.marks.ack = way == 1;
            match content {
                Content::Data { again, .. } if way == 0 => {
                    self.sent += 1;
                    self.sent_bytes += u64::from(outgoing.size);
                    let sum = self.retransmitted.zip(again);
                    self.retransmitted = sum.map(|(sum, again)| sum + u64::from(again));
                }
                // Nor are those of them counted that are lost.
                _ => packet.marks.leave_out(),
            }
            packet.marks.set_ecn_capable(outgoing.is_ecn_capable);
            self.wire[way] += u64::from(outgoing.size);
            fabric.send(now, packet);
        }
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals {
            sent: self.sent,
            retransmitted: self.retransmitted,
            delivered: self.delivered,
            ..FlowTotals::default()
        }
    }

    /// Bytes sent there and back.
    pub(crate) fn wire_bytes(&self) -> [u64; 2] {
        self.wire
    }

    /// Mean bytes of a data packet.
    pub(crate) fn packet_size(&self) -> u64 {
        self.sent_bytes.checked_div(self.sent).unwrap_or(0)
    }

    pub(crate) fn transport(&self) -> (&'static str, Option<&str>) {
        (self.ends.name(), self.ends.congestion())
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_is_taken_once_and_what_is_lost_is_forgotten_after_a_minute() {
        let mut under_way = UnderWay::default();
        let second = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for number in 0..100 {
            assert_eq!(under_way.add(second(number), Payload::Film(number), 0), number);
        }
        assert!(matches!(under_way.take(50, false), Some((Payload::Film(50), 0))));
        assert!(under_way.take(50, false).is_none());
        assert!(under_way.take(3, false).is_none(), "forgotten");
        assert!(under_way.take(99, true).is_some() && under_way.take(99, true).is_some());
        assert!(under_way.take(100, false).is_none());
        assert!(under_way.packets.len() <= 62);
    }
}
