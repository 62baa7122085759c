//! The emulated network without its I/O: packets on their way over links, in the order of time.
//!
//! It is driven as a simulation is: [`inject`](Network::inject) puts a packet at the beginning of
//! its route, [`advance`](Network::advance) does all that is due by a time. Between two links a
//! packet's time is the one that the link before answered, not the one at which somebody came to
//! look, so that lateness at one link does not add to that of the next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use ontempo_elements::Element;
use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_network::{Departure, DropReason, Dropped, Fate, LinkStatistics, Queued, Schedule};
use ontempo_runtime::{AddressChanges, LinkTotals};
use ontempo_scenario::Layout;

use crate::ip::{self, Ends, Which};
use crate::numbering::Numbering;
use crate::routes::Routes;
use crate::trace::Tap;
use crate::watch::Watch;

/// What happens when its time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The measured span begins.
    BeginMeasuring,
    /// Queues are sampled.
    Sample,
    /// The transmitter of this scheduled link can take a packet.
    Serve(u32),
    /// The packet of this handle reaches its next link, or its destination.
    Packet(u32),
}

/// A packet in transit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    /// The route, by its index in [`Routes`], and the number of links already passed.
    route: u32,
    step: u32,
    /// Index of the flow; the number of flows if it belongs to none.
    pub(crate) flow: u32,
    pub(crate) is_data: bool,
    /// Whether its flow counts it: it comes from the source and, over TCP, carries data.
    is_counted: bool,
    /// Whether it entered the network in the measured span.
    is_measured: bool,
    /// Whether a link made it.
    is_copy: bool,
    /// Whether the route ends at the packet's destination.
    is_arriving: bool,
    pub(crate) number: u64,
    pub(crate) retransmission: bool,
    /// Whether a link gave it bit errors.
    corrupted: bool,
    /// The same for a packet and the copies that links made of it; 0 without any.
    copies: u64,
    /// When it arrived at its present link.
    pub(crate) entered: Time,
}

impl Packet {
    /// Whether its flow has counted it as sent in the present span.
    fn counts_as_lost(&self, is_measuring: bool) -> bool {
        self.is_counted && !self.is_copy && self.is_measured == is_measuring
    }
}

/// Counters of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowCounts {
    /// Data packets sent by its source.
    pub(crate) sent: u64,
    /// Those of them that reached its sink, and their bytes.
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    /// Of the packets sent in the present span, those lost.
    pub(crate) dropped: u64,
    /// Bytes of all packets that its source, and that its sink, has sent.
    pub(crate) wire: [u64; 2],
}

/// A packet to be written to an interface.
pub(crate) struct Delivery<'a> {
    pub(crate) interface: usize,
    pub(crate) bytes: &'a [u8],
    /// When it was due.
    pub(crate) due: Time,
}

/// When and what to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    pub(crate) measured_from: Time,
    pub(crate) sample_every: Option<Duration>,
    pub(crate) end: Time,
}

/// Links, routes, and the packets between hosts.
pub(crate) struct Network {
    elements: Vec<Element>,
    /// When a scheduled link will be asked next; never for others.
    asked_at: Vec<Time>,
    routes: Routes,
    /// Group of each flow.
    groups: Vec<u32>,
    /// Of each flow's source.
    address_changes: Vec<AddressChanges>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    pushed: u64,
    packets: Vec<Packet>,
    free: Vec<u32>,
    drops: Vec<Dropped>,
    /// Packets that were copied.
    copied: u64,
    /// Those of them of which one has been delivered.
    delivered_once: HashSet<u64>,
    pub(crate) watches: Vec<Option<Watch>>,
    numbering: Vec<Numbering>,
    taps: Vec<Option<Tap>>,
    spans: Spans,
    is_measuring: bool,
    pub(crate) counts: Vec<FlowCounts>,
    pub(crate) counts_before: Vec<FlowCounts>,
    pub(crate) links_before: Vec<LinkTotals>,
    /// Time, link, and packets waiting.
    pub(crate) samples: Vec<(Time, usize, u64)>,
    /// Packets between addresses without a route.
    pub(crate) unroutable: u64,
    pub(crate) forwarded: u64,
}

impl Network {
    pub(crate) fn new(
        elements: Vec<Element>,
        layout: &Layout,
        routes: Routes,
        watches: Vec<Option<Watch>>,
        numbering: Vec<Numbering>,
        spans: Spans,
    ) -> Self {
        let mut network = Self {
            asked_at: vec![Time::NEVER; elements.len()],
            links_before: vec![LinkTotals::default(); elements.len()],
            taps: elements.iter().map(|_| None).collect(),
            elements,
            routes,
            groups: layout.flows.iter().map(|flow| flow.group as u32).collect(),
            address_changes: layout
                .flows
                .iter()
                .map(|flow| AddressChanges::new(&flow.address_changes))
                .collect(),
            events: BinaryHeap::new(),
            pushed: 0,
            packets: Vec::new(),
            free: Vec::new(),
            drops: Vec::new(),
            copied: 0,
            delivered_once: HashSet::new(),
            watches,
            numbering,
            spans,
            is_measuring: false,
            counts: vec![FlowCounts::default(); layout.flows.len()],
            counts_before: vec![FlowCounts::default(); layout.flows.len()],
            samples: Vec::new(),
            unroutable: 0,
            forwarded: 0,
        };
        if spans.measured_from > Time::ZERO {
            network.push(spans.measured_from, Event::BeginMeasuring);
        }
        if spans.sample_every.is_some() {
            network.push(Time::ZERO, Event::Sample);
        }
        network
    }

    /// Sends what leaves a link to `tap`.
    pub(crate) fn set_tap(&mut self, link: usize, tap: Tap) {
        self.taps[link] = Some(tap);
    }

    /// When something is next due.
    pub(crate) fn next(&self) -> Time {
        self.events.peek().map_or(Time::NEVER, |Reverse((time, _, _))| *time)
    }

    /// A place for a packet.
    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.packets.push(Packet::default());
            (self.packets.len() - 1) as u32
        })
    }

    /// Reads a packet from `interface` by `read`, which returns false if there is none. True if a
    /// packet was read; it enters the network at `now`.
    pub(crate) fn inject<E>(
        &mut self,
        now: Time,
        interface: usize,
        read: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let handle = self.place();
        let packet = &mut self.packets[handle as usize];
        match read(&mut packet.bytes) {
            Ok(true) => {}
            none_or_error => {
                self.free.push(handle);
                return none_or_error;
            }
        }
        let seen = ip::ends(&packet.bytes);
        let ends = seen.map(|ends| Ends { from: ends.from, to: ends.to.changed(0) });
        match self.routes.of(interface, ends) {
            Some(route) => self.enter(now, handle, ends, route),
            None => {
                self.unroutable += 1;
                self.free.push(handle);
            }
        }
        Ok(true)
    }

    fn enter(&mut self, now: Time, handle: u32, ends: Option<Ends>, route: u32) {
        let packet = &mut self.packets[handle as usize];
        let flows = self.counts.len();
        let is_of_flow = |ends: &Ends| ends.to.flow() == ends.from.flow() && ends.to.flow() < flows;
        (packet.route, packet.step) = (route, 0);
        (packet.flow, packet.is_data, packet.is_arriving) = (flows as u32, false, false);
        (packet.number, packet.retransmission) = (0, false);
        (packet.corrupted, packet.copies, packet.is_copy) = (false, 0, false);
        (packet.is_counted, packet.is_measured) = (false, self.is_measuring);
        if let Some(ends) = ends.filter(is_of_flow) {
            let flow = ends.from.flow();
            let (is_leaving, is_arriving) = self.routes.joins(route, ends);
            (packet.flow, packet.is_data) = (flow as u32, !ends.from.is_sink());
            packet.is_arriving = is_arriving;
            packet.is_counted = packet.is_data
                && ip::segment(&packet.bytes).is_none_or(|segment| segment.payload > 0);
            self.counts[flow].sent += u64::from(packet.is_counted && is_leaving);
            if is_leaving {
                self.counts[flow].wire[usize::from(!packet.is_data)] += packet.bytes.len() as u64;
            }
            if let Some(numbering) = self.numbering.get_mut(flow) {
                let first = self.routes.get(route).links.first().copied().unwrap_or_default();
                (packet.number, packet.retransmission) =
                    numbering.number(first, &packet.bytes, packet.is_data);
            }
            let changes = self.address_changes[flow].before(now);
            if packet.is_data && changes > 0 {
                ip::set_address(&mut packet.bytes, Which::From, ends.from.changed(changes));
            }
        }
        self.push(now, Event::Packet(handle));
    }

    /// Gives a packet for a flow's source, which has arrived there, the address that the source itself
    /// knows; false if it was sent to an address that is no longer the source's.
    fn translate_back(&mut self, now: Time, handle: u32) -> bool {
        let packet = &mut self.packets[handle as usize];
        let changes = self.address_changes.get(packet.flow as usize);
        let Some(changes) = changes.filter(|all| !packet.is_data && !all.is_empty()) else {
            return true;
        };
        let Some(ends) = ip::ends(&packet.bytes) else { return true };
        if ends.to.changes() != changes.before(now) {
            return false;
        }
        ip::set_address(&mut packet.bytes, Which::To, ends.to.changed(0));
        true
    }

    /// Processes everything due by `now`; packets that reach a host are passed to `deliver`.
    pub(crate) fn advance(&mut self, now: Time, deliver: &mut impl FnMut(Delivery<'_>)) {
        while let Some(Reverse((time, _, event))) = self.events.peek().copied()
            && time <= now
        {
            self.events.pop();
            match event {
                Event::Packet(handle) => self.step(time, handle, deliver),
                Event::Serve(link) => {
                    let link = link as usize;
                    // Of several that wait, the one that is awaited counts.
                    if time == self.asked_at[link] {
                        self.asked_at[link] = Time::NEVER;
                        self.serve(time, link);
                    }
                }
                Event::Sample => self.sample(time),
                Event::BeginMeasuring => {
                    self.is_measuring = true;
                    self.counts_before.copy_from_slice(&self.counts);
                    self.links_before = self.link_totals(time);
                    self.watches.iter_mut().flatten().for_each(Watch::restart);
                }
            }
        }
    }

    fn push(&mut self, time: Time, event: Event) {
        if time < Time::NEVER {
            self.events.push(Reverse((time, self.pushed, event)));
            self.pushed += 1;
        }
    }

    fn step(&mut self, now: Time, handle: u32, deliver: &mut impl FnMut(Delivery<'_>)) {
        let packet = &mut self.packets[handle as usize];
        let route = self.routes.get(packet.route);
        let Some(&link) = route.links.get(packet.step as usize) else {
            if !self.translate_back(now, handle) {
                return self.lose(handle);
            }
            let packet = &self.packets[handle as usize];
            let route = self.routes.get(packet.route);
            if let Some(counts) = self.counts.get_mut(packet.flow as usize)
                && packet.is_arriving
            {
                if packet.corrupted {
                    counts.dropped += u64::from(packet.counts_as_lost(self.is_measuring));
                } else if packet.is_counted
                    && (packet.copies == 0 || self.delivered_once.insert(packet.copies))
                {
                    counts.delivered += 1;
                    counts.delivered_bytes += packet.bytes.len() as u64;
                }
            }
            self.forwarded += 1;
            deliver(Delivery { interface: route.interface, bytes: &packet.bytes, due: now });
            self.free.push(handle);
            return;
        };
        packet.step += 1;
        packet.entered = now;
        let size = Bytes::new(packet.bytes.len() as u64);
        let ecn_capable = ip::is_ecn_capable(&packet.bytes);
        let element = match &mut self.elements[link] {
            Element::Link(element) => element,
            Element::Scheduled(_) => return self.enqueue(now, link, handle, size, ecn_capable),
        };
        let watch = self.watches[link].as_mut();
        let found = watch.is_some().then(|| element.occupancy(now).packets.get());
        let begins = now.max(element.busy_until());
        let fate = element.offer(now, size, ecn_capable);
        if let (Some(watch), Some(found)) = (watch, found) {
            watch.offered(packet, found, fate);
        }
        match fate {
            Fate::Arrives { at, starts, marked, corrupted, duplicated } => {
                if marked {
                    ip::mark(&mut packet.bytes);
                }
                if let Some(tap) = &mut self.taps[link] {
                    tap.departs(starts, &packet.bytes);
                }
                self.push(at, Event::Packet(handle));
                self.harm((at, link), handle, corrupted, duplicated);
            }
            Fate::Dropped(reason) => {
                // What the wire loses has left the queue.
                if let Some(tap) = &mut self.taps[link]
                    && reason == DropReason::Loss
                {
                    tap.departs(begins, &packet.bytes);
                }
                self.lose(handle);
            }
        }
    }

    /// A packet that arrives at `at` from `link` may have bit errors, or a copy behind it.
    fn harm(&mut self, (at, link): (Time, usize), handle: u32, corrupted: bool, duplicated: bool) {
        let packet = &mut self.packets[handle as usize];
        if corrupted {
            packet.corrupted = true;
            ip::corrupt(&mut packet.bytes, link);
        }
        if !duplicated {
            return;
        }
        if packet.copies == 0 {
            self.copied += 1;
            packet.copies = self.copied;
        }
        let copy = Packet { is_copy: true, ..packet.clone() };
        let place = self.place();
        self.packets[place as usize] = copy;
        self.push(at, Event::Packet(place));
    }

    fn lose(&mut self, handle: u32) {
        let packet = &self.packets[handle as usize];
        if let Some(counts) = self.counts.get_mut(packet.flow as usize) {
            counts.dropped += u64::from(packet.counts_as_lost(self.is_measuring));
        }
        self.free.push(handle);
    }

    fn enqueue(&mut self, now: Time, link: usize, handle: u32, size: Bytes, ecn_capable: bool) {
        // What may leave now leaves before this one comes.
        self.serve(now, link);
        let Element::Scheduled(element) = &mut self.elements[link] else { return };
        let packet = &self.packets[handle as usize];
        let class = self.groups.get(packet.flow as usize).copied();
        let queued = Queued {
            handle,
            flow: packet.flow,
            class: class.unwrap_or(u32::MAX),
            size,
            ecn_capable,
            l4s: ip::is_l4s(&packet.bytes),
            enqueued: now,
        };
        if let Some(watch) = &mut self.watches[link] {
            watch.enqueued(handle, packet, element.occupancy().packets.get());
        }
        element.enqueue(now, queued, &mut self.drops);
        self.settle_drops(link);
        self.serve(now, link);
    }

    /// Lets a scheduled link send what it may at `now`, and asks it again when it can send more.
    fn serve(&mut self, now: Time, link: usize) {
        loop {
            let Element::Scheduled(element) = &mut self.elements[link] else { return };
            let ready = element.next_dequeue(now);
            if ready > now {
                if ready < self.asked_at[link] {
                    self.asked_at[link] = ready;
                    self.push(ready, Event::Serve(link as u32));
                }
                return;
            }
            let departure = element.dequeue(now, &mut self.drops);
            self.settle_drops(link);
            let Some(departure) = departure else { continue };
            let handle = departure.packet.handle;
            let packet = &mut self.packets[handle as usize];
            if let Some(watch) = &mut self.watches[link] {
                let is_lost = departure.arrives.is_none();
                watch.departed(handle, packet, departure.starts, is_lost);
            }
            if departure.marked {
                ip::mark(&mut packet.bytes);
            }
            if let Some(tap) = &mut self.taps[link] {
                tap.departs(departure.starts, &packet.bytes);
            }
            let Departure { corrupted, duplicated, .. } = departure;
            match departure.arrives {
                Some(at) => {
                    self.push(at, Event::Packet(handle));
                    self.harm((at, link), handle, corrupted, duplicated);
                }
                None => self.lose(handle),
            }
        }
    }

    /// Takes what a scheduled link dropped out of the network.
    fn settle_drops(&mut self, link: usize) {
        let Element::Scheduled(element) = &self.elements[link] else { return };
        let waiting = element.occupancy().packets.get();
        while let Some(dropped) = self.drops.pop() {
            let handle = dropped.packet.handle;
            if let Some(watch) = &mut self.watches[link] {
                let packet = &self.packets[handle as usize];
                watch.dropped(handle, packet, waiting, dropped.reason);
            }
            self.lose(handle);
        }
    }

    fn sample(&mut self, now: Time) {
        for (link, element) in self.elements.iter_mut().enumerate() {
            if self.watches[link].as_ref().is_none_or(|watch| !watch.counts_lengths()) {
                continue;
            }
            self.samples.push((now, link, waiting(element, now)));
        }
        if let Some(next) = self.spans.sample_every.map(|every| now + every)
            && next < self.spans.end
        {
            self.push(next, Event::Sample);
        }
    }

    /// Packets waiting at a link.
    pub(crate) fn waiting(&mut self, link: usize, now: Time) -> u64 {
        self.elements.get_mut(link).map_or(0, |element| waiting(element, now))
    }

    /// Replaces the schedule of a link, after everything due by `now` was processed; false if the link
    /// cannot be changed.
    pub(crate) fn change(&mut self, now: Time, link: usize, schedule: Arc<Schedule>) -> bool {
        let Some(Element::Scheduled(element)) = self.elements.get_mut(link) else { return false };
        let changed = element.set_schedule(schedule);
        // What is in transmission may end sooner now.
        self.serve(now, link);
        changed
    }

    /// The links' counters at `now`, after processing everything due.
    pub(crate) fn link_totals(&self, now: Time) -> Vec<LinkTotals> {
        let statistics = |element: &Element| -> LinkStatistics {
            match element {
                Element::Link(link) => link.statistics(now),
                Element::Scheduled(link) => link.statistics(now),
            }
        };
        self.elements.iter().map(|one| LinkTotals::at(now, &statistics(one))).collect()
    }
}

fn waiting(element: &mut Element, now: Time) -> u64 {
    let occupancy = match element {
        Element::Link(link) => link.occupancy(now),
        Element::Scheduled(link) => link.occupancy(),
    };
    occupancy.packets.get()
}

#[cfg(test)]
mod tests;
