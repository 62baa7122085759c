//! The network between the agents: links, routes, packets on their way, and the event queue.

mod losses;
mod serving;

use std::sync::Arc;

use ontempo_elements::Element;
use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_network::{Ahead, Fate, Link, LinkStatistics};
use serde::Serialize;

use crate::hosts::Hosts;
use crate::packet::{Packet, Pool};
use crate::routes::{Hop, Step, links_fed_by_one};
use crate::scheduled::Scheduled;
use crate::trace::Tap;
use crate::watch::Watch;
use crate::wheel::{FAR_SIGHT, NEAR_SIGHT, Wheel};

/// An event, handled at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The packet of this handle reaches its next step.
    Packet(u32),
    /// A flow's sender may send again after waiting for its application or its pacer.
    Wake(u32),
    /// A message has arrived that prompts this flow's application to send.
    Prompt(u32),
    /// A flow's retransmission timer.
    Retransmit(u32),
    /// A flow's reordering timer, or that of its tail loss probe.
    Probe(u32),
    /// A flow's delayed acknowledgement, or its receiver's next report.
    Acknowledge(u32),
    /// The transmitter of this scheduled link can send a packet.
    Serve(u32),
    /// A flow's receiving application takes its next ADU.
    Take(u32),
    /// The packet of this handle was lost, and its sender comes to know.
    Lost(u32),
    /// The next sample of the probes.
    Sample,
    /// The measured span begins.
    BeginMeasuring,
}

/// State that a packet's next step will read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) flow: u32,
    pub(crate) ack: bool,
    step: u32,
}

/// The result of a packet's event.
pub(crate) enum Transit {
    /// It has arrived, and is still held.
    Arrived,
    /// It will arrive at this time without another event: the caller schedules it.
    Arriving(Time),
    /// It is on its way to its next link, or lost.
    Underway,
}

/// The work of a run, the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Events handled.
    pub events: u64,
    /// Largest number of packets, including ACKs, in the network at a time.
    pub most_packets_under_way: u64,
}

/// Everything between the agents.
pub(crate) struct Fabric {
    wheel: Wheel<Event>,
    packets: Pool,
    /// Each link; an idle placeholder for a scheduled one.
    links: Vec<Link>,
    scheduled: Vec<Option<Box<Scheduled>>>,
    steps: Vec<Step>,
    /// For each step.
    hops: Vec<Hop>,
    watches: Vec<Option<Box<Watch>>>,
    /// Group of each flow, which is the class of its packets.
    groups: Arc<[u32]>,
    /// Whether the measured span has begun.
    is_measuring: bool,
    /// Of the packets that each flow counts as sent in the present span, those lost in the network.
    dropped: Vec<u64>,
    /// How long after a packet of the flow is lost its sender comes to know; `None`: never. Empty if
    /// no flow does.
    known_after: Vec<Option<Duration>>,
    /// Absent if hosts send without delay.
    hosts: Option<Hosts>,
    events: u64,
}

impl Fabric {
    /// `routes` are lists of links, `groups` the group of each flow; returns the fabric and
    /// where each route begins.
    pub(crate) fn new(
        elements: Vec<Element>,
        routes: &[&[usize]],
        watches: Vec<Option<Box<Watch>>>,
        groups: Arc<[u32]>,
        hosts: Option<Hosts>,
    ) -> (Self, Vec<u32>) {
        let ahead = links_fed_by_one(&elements, routes, &watches, hosts.is_some());
        let mut steps = Vec::new();
        let mut starts = Vec::with_capacity(routes.len());
        for route in routes {
            starts.push(steps.len() as u32);
            let mut previous_ahead = false;
            for link in *route {
                // A link behind one that is offered ahead has an event again: the single
                // `entered` time per packet covers one link ahead, not two.
                previous_ahead = ahead[*link] && !previous_ahead;
                let ahead = if previous_ahead { Step::AHEAD } else { 0 };
                let watched = if watches[*link].is_some() { Step::WATCHED } else { 0 };
                let scheduled = if matches!(elements[*link], Element::Scheduled(_)) {
                    Step::SCHEDULED
                } else {
                    0
                };
                steps.push(Step(*link as u32 | ahead | watched | scheduled));
            }
            steps.push(Step::ARRIVED);
        }
        let mut links = Vec::with_capacity(elements.len());
        let mut scheduled = Vec::with_capacity(elements.len());
        for element in elements {
            let (link, served) = match element {
                Element::Link(link) => (link, None),
                Element::Scheduled(link) => (Link::idle(), Some(Box::new(Scheduled::new(link)))),
            };
            links.push(link);
            scheduled.push(served);
        }
        let hops = Hop::all(&steps, &links);
        let fabric = Self {
            wheel: Wheel::new(),
            packets: Pool::default(),
            links,
            scheduled,
            steps,
            hops,
            watches,
            is_measuring: false,
            dropped: vec![0; groups.len()],
            known_after: Vec::new(),
            hosts,
            groups,
            // The end of the run.
            events: 1,
        };
        (fabric, starts)
    }

    /// The next event until `until`, if it is sorted already ([`refill`](Self::refill)).
    #[inline]
    pub(crate) fn next_sorted(&mut self, until: Time) -> Option<(Time, Event)> {
        let next = self.wheel.pop_near(until)?;
        self.events += 1;
        Some(next)
    }

    /// Whether as many events are sorted at once as are worth looking at ahead of their time.
    pub(crate) fn see_far(&mut self, far: bool) {
        self.wheel.set_sight(if far { FAR_SIGHT } else { NEAR_SIGHT });
    }

    /// Sorts the next events, if none are sorted.
    pub(crate) fn refill(&mut self, until: Time) {
        self.wheel.refill(until);
    }

    /// Sorts the next events and lists the agents that their packets need: which flow, and
    /// whether its sender or its receiver. Prefetches the packets and their next links; the
    /// returned number has no meaning, but keeps the compiler from removing the reads.
    pub(crate) fn look_ahead(&mut self, until: Time, needs: &mut Vec<Need>) -> u64 {
        self.wheel.refill(until);
        needs.clear();
        for (_, event) in self.wheel.near() {
            if let Event::Packet(handle) = *event {
                let packet = self.packets.get(handle);
                needs.push(Need { flow: packet.flow, ack: packet.marks.ack, step: packet.step });
            }
        }
        let sum = needs.iter().map(|need| self.touch_links(need.step)).fold(0, u64::wrapping_add);
        // An ACK still on its way does not concern its sender; data may be answered ahead.
        needs.retain(|need| !need.ack || self.hops[need.step as usize].has_arrived());
        sum
    }

    /// Prefetches the links to which a packet is offered at a step of its route.
    #[inline]
    pub(crate) fn touch_links(&self, step: u32) -> u64 {
        let hop = self.hops[step as usize];
        let touch = |place: u32| {
            self.links.get(place as usize).map_or(0, |link| link.busy_until().as_nanos())
        };
        if hop.has_arrived() {
            return 0;
        }
        touch(hop.first & !(Hop::ENDS | Hop::BY_STEPS)).wrapping_add(touch(hop.second))
    }

    #[inline]
    pub(crate) fn schedule(&mut self, time: Time, event: Event) {
        self.wheel.push(time, event);
    }

    /// Sends a packet on its route.
    #[inline(never)]
    pub(crate) fn send(&mut self, now: Time, packet: Packet) {
        let handle = self.packets.insert(packet);
        self.send_held(now, handle);
    }

    /// A packet that is held and not yet sent, whatever it is.
    #[inline(always)]
    pub(crate) fn hold_packet(&mut self) -> (u32, &mut Packet) {
        self.packets.hold()
    }

    /// As [`send`](Self::send), a packet that is held already.
    #[inline(always)]
    pub(crate) fn send_held(&mut self, now: Time, handle: u32) {
        if self.is_measuring {
            self.packets.get_mut(handle).marks.measure();
        }
        let mut leaves = now;
        if let Some(hosts) = &mut self.hosts {
            let packet = self.packets.get(handle);
            leaves = hosts.leaves(now, packet.flow, packet.marks.ack);
            let step = self.steps[packet.step as usize];
            if leaves > now && !step.may_be_offered_ahead() {
                return self.wheel.push(leaves, Event::Packet(handle));
            }
        }
        if let Some(at) = self.offer(leaves, handle) {
            self.wheel.push(at, Event::Packet(handle));
        }
    }

    /// Handles a packet's event.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time, handle: u32) -> Transit {
        let packet = self.packets.get(handle);
        if self.hops[packet.step as usize].has_arrived() {
            if packet.marks.is_corrupted() {
                self.lose(now, handle);
                return Transit::Underway;
            }
            return Transit::Arrived;
        }
        match self.offer(now, handle) {
            Some(at) => Transit::Arriving(at),
            None => Transit::Underway,
        }
    }

    /// The packet of this handle.
    #[inline]
    pub(crate) fn packet(&self, handle: u32) -> &Packet {
        self.packets.get(handle)
    }

    /// The packet of this handle.
    #[inline]
    pub(crate) fn packet_mut(&mut self, handle: u32) -> &mut Packet {
        self.packets.get_mut(handle)
    }

    /// Removes a packet from the network.
    #[inline]
    pub(crate) fn release(&mut self, handle: u32) {
        self.packets.release(handle);
    }

    /// Removes a packet from the network and returns it.
    #[inline]
    pub(crate) fn take(&mut self, handle: u32) -> Packet {
        self.packets.remove(handle)
    }

    /// Offers a packet to the next link of its route, and to the one behind it that accepts packets
    /// ahead of time; returns its arrival time if no event comes before that.
    #[inline(always)]
    fn offer(&mut self, now: Time, handle: u32) -> Option<Time> {
        let packet = self.packets.get_mut(handle);
        let place = packet.step;
        let hop = self.hops[place as usize];
        if hop.first & Hop::BY_STEPS != 0 {
            return self.offer_by_steps(now, handle);
        }
        let size = Bytes::new(u64::from(packet.size));
        let first = &mut self.links[(hop.first & !Hop::ENDS) as usize];
        let (mut entered, mut after) = (now, place + 1);
        let mut arrives = first.offer_plain(now, size);
        if hop.second != Hop::NONE
            && let Some(at) = arrives
        {
            (entered, after) = (at, place + 2);
            arrives = self.links[hop.second as usize].offer_plain(at, size);
        }
        (packet.entered, packet.step) = (entered, after);
        let Some(at) = arrives else {
            self.lose(entered, handle);
            return None;
        };
        if hop.first & Hop::ENDS != 0 {
            return Some(at);
        }
        self.wheel.push(at, Event::Packet(handle));
        None
    }

    /// As [`offer`](Self::offer), one link after the other, of whatever kind.
    #[inline(never)]
    fn offer_by_steps(&mut self, now: Time, handle: u32) -> Option<Time> {
        let packet = self.packets.get_mut(handle);
        let (mut now, mut place) = (now, packet.step as usize);
        let mut step = self.steps[place];
        loop {
            place += 1;
            let next = self.steps[place];
            let size = Bytes::new(u64::from(packet.size));
            let link = &mut self.links[step.link()];
            if !step.is_simple() || !link.is_plain() {
                (packet.entered, packet.step) = (now, place as u32);
                return self.offer_to_any(now, handle, (step, next));
            }
            let Some(at) = link.offer_plain(now, size) else {
                (packet.entered, packet.step) = (now, place as u32);
                self.lose(now, handle);
                return None;
            };
            if !next.may_be_offered_ahead() {
                (packet.entered, packet.step) = (now, place as u32);
                self.wheel.push(at, Event::Packet(handle));
                return None;
            }
            if next.0 == Step::ARRIVED.0 {
                (packet.entered, packet.step) = (now, place as u32);
                return Some(at);
            }
            (now, step) = (at, next);
        }
    }

    /// As [`offer`](Self::offer), not on the way of most packets.
    #[inline(never)]
    fn offer_again(&mut self, now: Time, handle: u32) -> Option<Time> {
        self.offer(now, handle)
    }

    /// As [`offer`](Self::offer) to any link.
    #[inline(never)]
    fn offer_to_any(&mut self, now: Time, handle: u32, (step, next): (Step, Step)) -> Option<Time> {
        let packet = self.packets.get(handle);
        let link = step.link();
        let size = Bytes::new(u64::from(packet.size));
        let ecn_capable = packet.marks.is_ecn_capable();
        if step.is_scheduled() {
            self.enqueue(now, link, handle);
            return None;
        }
        if step.is_watched() {
            self.watch_before(link, now);
        }
        let fate = self.links[link].offer(now, size, ecn_capable);
        if step.is_watched() {
            self.watch_after(link, handle, fate);
        }
        let Fate::Arrives { at, marked, corrupted, duplicated, .. } = fate else {
            self.lose_at(now, link, handle, fate);
            return None;
        };
        if marked {
            self.packets.get_mut(handle).marks.congestion = true;
        }
        if corrupted | duplicated {
            self.harm(at, handle, corrupted, duplicated);
        }
        if next.0 == Step::ARRIVED.0 {
            return Some(at);
        }
        if next.may_be_offered_ahead() {
            return self.offer_again(at, handle);
        }
        self.wheel.push(at, Event::Packet(handle));
        None
    }

    #[cold]
    fn watch_before(&mut self, link: usize, now: Time) {
        let waiting = self.links[link].occupancy(now).packets;
        let starts = now.max(self.links[link].busy_until());
        if let Some(watch) = &mut self.watches[link] {
            watch.before(waiting, starts);
        }
    }

    #[cold]
    fn watch_after(&mut self, link: usize, handle: u32, fate: Fate) {
        if let Some(watch) = &mut self.watches[link] {
            watch.after(self.packets.get(handle), fate);
        }
    }

    /// True if a route's packets arrive in order, once and whole: arrivals that nothing answers can
    /// then be counted ahead.
    pub(crate) fn keeps_order(&self, route: &[usize]) -> bool {
        let reorders = |link: usize| match &self.scheduled[link] {
            Some(scheduled) => scheduled.link().reorders() || scheduled.link().harms(),
            None => self.links[link].reorders() || self.links[link].harms(),
        };
        route.iter().all(|link| !reorders(*link))
    }

    /// True if a route keeps its packets in order, and the first link of the return route carries
    /// nothing else: the receiver's answers can then be computed ahead.
    pub(crate) fn answers_can_be_computed_ahead(
        &self,
        forward: &[usize],
        back: &[usize],
        users: &[u32],
    ) -> bool {
        let alone = back.first().is_some_and(|link| users[*link] == 1);
        let plain = |link: &usize| {
            self.watches[*link].is_none()
                && self.scheduled[*link].is_none()
                && self.links[*link].may_be_offered_ahead()
        };
        self.keeps_order(forward) && alone && back.first().is_some_and(plain)
    }

    /// Sends what leaves a link to `tap`. A tap does not change the run: packets reach each link
    /// in the order of their times, computed ahead or not.
    pub(crate) fn set_tap(&mut self, link: usize, tap: Tap) {
        self.watches[link].get_or_insert_with(|| Box::new(Watch::disabled())).set_tap(tap);
        let steps = self.steps.iter_mut().filter(|step| step.0 != Step::ARRIVED.0);
        for step in steps.filter(|step| step.link() == link) {
            step.0 |= Step::WATCHED;
        }
        self.hops = Hop::all(&self.steps, &self.links);
    }

    /// True if the tap of `link` has failed.
    pub(crate) fn tap_has_failed(&self, link: usize) -> bool {
        let watch = self.watches[link].as_ref();
        watch.and_then(|watch| watch.tap()).is_some_and(Tap::has_failed)
    }

    /// Counters of each link until `now`, by place.
    pub(crate) fn link_statistics(&self, now: Time) -> impl Iterator<Item = LinkStatistics> + '_ {
        let ahead = self.offered_ahead(now);
        let (places, ahead): (Vec<_>, Vec<_>) = ahead.into_iter().unzip();
        let links = self.links.iter().zip(&self.scheduled).enumerate();
        links.map(move |(place, (link, scheduled))| match scheduled {
            Some(scheduled) => scheduled.link().statistics(now),
            None => {
                let first = places.partition_point(|other| *other < place);
                let count = places[first..].partition_point(|other| *other == place);
                link.statistics_without(now, &ahead[first..first + count])
            }
        })
    }

    /// Packets waiting at a link.
    pub(crate) fn waiting(&mut self, link: usize, now: Time) -> u64 {
        let occupancy = match &self.scheduled[link] {
            Some(scheduled) => scheduled.link().occupancy(),
            None => self.links[link].occupancy(now),
        };
        occupancy.packets.get()
    }

    /// The run ends.
    pub(crate) fn end(&mut self) {
        self.watches.iter_mut().flatten().for_each(|watch| watch.end());
    }

    /// Records of the watched links.
    pub(crate) fn watches(&self) -> &[Option<Box<Watch>>] {
        &self.watches
    }

    /// The measured span begins: watched links reset their counters, and only packets sent from now on
    /// count as dropped.
    pub(crate) fn begin_measuring(&mut self) {
        self.is_measuring = true;
        self.watches.iter_mut().flatten().for_each(|watch| watch.restart_counts());
    }

    /// Of the packets that a flow counts as sent, those lost in the network so far; from
    /// [`begin_measuring`](Self::begin_measuring) on, of those sent since.
    pub(crate) fn dropped(&self, flow: u32) -> u64 {
        self.dropped[flow as usize]
    }

    /// The work so far.
    pub(crate) fn work(&self) -> Work {
        Work { events: self.events, most_packets_under_way: self.packets.max_held() }
    }

    /// Packets offered ahead of time that reach their link only after `now`: the link's place and the
    /// packet, by place and time.
    fn offered_ahead(&self, now: Time) -> Vec<(usize, Ahead)> {
        let ahead = |(_, event): (Time, Event)| {
            let Event::Packet(handle) = event else { return None };
            let packet = self.packets.get(handle);
            if packet.entered <= now || packet.step == 0 {
                return None;
            }
            let size = Bytes::new(u64::from(packet.size));
            Some((self.steps[packet.step as usize - 1].link(), Ahead { at: packet.entered, size }))
        };
        let mut ahead: Vec<_> = self.wheel.iter().filter_map(ahead).collect();
        ahead.sort_by_key(|(place, packet)| (*place, packet.at));
        ahead
    }
}
