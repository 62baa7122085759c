//! The links of one flow of a scenario, both ways, without I/O.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};

use ontempo_elements::{Element, link};
use ontempo_foundation::{Bytes, Time};
use ontempo_network::{Departure, DropReason, Dropped as LinkDrop, Fate, Queued};
use ontempo_scenario::model::Scenario;

use crate::error::ImpairError;
use crate::histogram::Histogram;
use crate::report::{Dropped, WayReport};

/// What a datagram on the path counts beside its payload, bytes: its place, its events, its entry in a
/// queue, and what the allocator adds. Without it datagrams without payload would cost nothing.
pub const DATAGRAM_COST: u64 = 256;

/// A client's datagrams hold at most so many times what is left of the limit, without [`RESERVED`]: 9/16
/// of it for one alone.
const SHARE_OF_LEFT: u64 = 3;

/// The part of the limit that only clients with little use, as a divisor: what is little is this part shared by
/// as many clients as a relay has ([`Limits`](crate::Limits)). So each has that much, whatever others hold.
const RESERVED: u64 = 4;
const LITTLE: u64 = 1024;

/// What a datagram counts, bytes.
fn cost(payload: &[u8]) -> u64 {
    payload.len() as u64 + DATAGRAM_COST
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the flow's sender to its receiver.
    Forward,
    /// Back.
    Reverse,
}

/// A datagram at the end of its way.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Whose it is, as passed to [`Path::inject`].
    pub client: u64,
    /// Which way it came.
    pub way: Way,
    /// Its payload.
    pub bytes: &'a [u8],
    /// When it entered the path.
    pub entered: Time,
    /// When it was due.
    pub due: Time,
}

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The transmitter of this scheduled link can take a packet.
    Serve(usize),
    /// This datagram reaches its next link, or the end.
    Packet(u32),
}

/// A datagram on its way.
#[derive(Debug)]
struct InTransit {
    /// Given back when it leaves: a place that kept it would grow to the largest datagram it ever had.
    bytes: Vec<u8>,
    client: u64,
    way: Way,
    /// Links passed.
    step: usize,
    /// Whether a link gave it bit errors.
    corrupted: bool,
    entered: Time,
}

/// Counters of one way.
#[derive(Debug, Default)]
struct Counts {
    packets: u64,
    delivered: u64,
    delivered_bytes: u64,
    duplicated: u64,
    dropped: Dropped,
    delays: Histogram,
}

impl Counts {
    fn report(&self) -> WayReport {
        WayReport {
            packets: self.packets,
            delivered: self.delivered,
            delivered_bytes: self.delivered_bytes,
            duplicated: self.duplicated,
            dropped: self.dropped,
            delay_p50_s: self.delays.quantile(0.5),
            delay_p95_s: self.delays.quantile(0.95),
            delay_p99_s: self.delays.quantile(0.99),
        }
    }
}

/// The links of a flow, as a simulation or emulation of the scenario with the same seed builds
/// them. Other flows are not run.
#[derive(Debug)]
pub struct Path {
    /// By their place in the layout; those of the flow alone.
    elements: Vec<Option<Element>>,
    routes: [Vec<usize>; 2],
    address_changes: Vec<Time>,
    /// The flow's number and its group's, for links with reservations.
    flow: u32,
    group: u32,
    /// Clients are flows of their own to a fair queue, unless reservations are made for flows.
    separates_clients: bool,
    /// Bytes of the headers of each datagram, on the wire.
    header_bytes: u64,
    max_held_bytes: u64,
    held_bytes: u64,
    /// Of these, each client's, if it has any.
    held_of: HashMap<u64, u64>,
    packets: Vec<InTransit>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    pushed: u64,
    asked_at: Vec<Time>,
    drops: Vec<LinkDrop>,
    counts: [Counts; 2],
}

impl Path {
    /// The path of the flow `GROUP.INDEX` of the scenario, or of its only one. Each datagram takes
    /// `header_bytes` more on the wire than its payload; no more than `max_held_bytes`
    /// are on the path: of payload, and [`DATAGRAM_COST`] for each datagram. One client has at most
    /// 9/16 of them, and less where others hold some; 1/1,024 of them is there for each of 256.
    ///
    /// # Errors
    /// If the scenario has no such flow, or several and none is named, or a link refuses its
    /// parameters.
    pub fn of(
        scenario: &Scenario,
        flow: Option<&str>,
        seed: u64,
        header_bytes: u64,
        max_held_bytes: u64,
    ) -> Result<Self, ImpairError> {
        let layout = scenario.layout(seed)?;
        let name = |flow: &ontempo_scenario::LaidFlow| {
            format!("{}.{}", layout.groups[flow.group], flow.index)
        };
        let names = || layout.flows.iter().map(name).collect::<Vec<_>>();
        let number = match flow {
            None if layout.flows.len() == 1 => 0,
            None => return Err(ImpairError::WhichFlow(names())),
            Some(asked) => layout
                .flows
                .iter()
                .position(|flow| name(flow) == asked)
                .ok_or_else(|| ImpairError::NoFlow(asked.to_owned(), names()))?,
        };
        let flow = &layout.flows[number];
        let mut elements: Vec<Option<Element>> = Vec::new();
        elements.resize_with(layout.links.len(), || None);
        for place in flow.forward.iter().chain(&flow.reverse) {
            elements[*place] = Some(link(&layout, *place, seed)?);
        }
        Ok(Self {
            asked_at: vec![Time::NEVER; elements.len()],
            elements,
            routes: [flow.forward.clone(), flow.reverse.clone()],
            address_changes: flow.address_changes.clone(),
            flow: number as u32,
            group: flow.group as u32,
            separates_clients: layout.reservations.is_empty(),
            header_bytes,
            max_held_bytes,
            held_bytes: 0,
            held_of: HashMap::new(),
            packets: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            pushed: 0,
            drops: Vec::new(),
            counts: Default::default(),
        })
    }

    /// When something is next due.
    #[must_use]
    pub fn next(&self) -> Time {
        self.events.peek().map_or(Time::NEVER, |Reverse((time, _, _))| *time)
    }

    /// When the flow's sender has another address; in order.
    #[must_use]
    pub fn address_changes(&self) -> &[Time] {
        &self.address_changes
    }

    /// The counters of one way so far.
    #[must_use]
    pub fn report(&self, way: Way) -> WayReport {
        self.counts[way as usize].report()
    }

    /// A datagram enters the path at `now`, which must not decrease from call to call.
    pub fn inject(&mut self, now: Time, client: u64, way: Way, bytes: &[u8]) {
        self.counts[way as usize].packets += 1;
        if !self.hold(client, cost(bytes)) {
            self.counts[way as usize].dropped.limit += 1;
            return;
        }
        let handle = self.place();
        let packet = &mut self.packets[handle as usize];
        packet.bytes = bytes.to_vec();
        (packet.client, packet.way, packet.step, packet.entered) = (client, way, 0, now);
        packet.corrupted = false;
        self.push(now, Event::Packet(handle));
    }

    /// Takes so many bytes for a datagram of this client; false if they are not left for it.
    fn hold(&mut self, client: u64, cost: u64) -> bool {
        let left = self.max_held_bytes.saturating_sub(self.held_bytes);
        let of_all = left.saturating_sub(self.max_held_bytes / RESERVED);
        let of_client = self.held_of.get(&client).copied().unwrap_or(0) + cost;
        let is_little = cost <= left && of_client <= self.max_held_bytes / LITTLE;
        let is_shared = cost <= of_all && of_client <= SHARE_OF_LEFT.saturating_mul(of_all);
        if !is_little && !is_shared {
            return false;
        }
        self.held_bytes += cost;
        self.held_of.insert(client, of_client);
        true
    }

    /// A free place for a datagram.
    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let (bytes, entered) = (Vec::new(), Time::ZERO);
            let way = Way::Forward;
            self.packets.push(InTransit {
                bytes,
                client: 0,
                way,
                step: 0,
                corrupted: false,
                entered,
            });
            (self.packets.len() - 1) as u32
        })
    }

    /// Does all that is due by `now`; datagrams at the end of their way are passed to `deliver`,
    /// which answers why one could not be sent on, if it could not.
    pub fn advance(
        &mut self,
        now: Time,
        deliver: &mut impl FnMut(Delivery<'_>) -> Result<(), Undelivered>,
    ) {
        while let Some(Reverse((time, _, event))) = self.events.peek().copied()
            && time <= now
        {
            self.events.pop();
            match event {
                Event::Packet(handle) => self.step(time, handle, deliver),
                // Of several that wait, the one that is awaited counts.
                Event::Serve(link) if time == self.asked_at[link] => {
                    self.asked_at[link] = Time::NEVER;
                    self.serve(time, link);
                }
                Event::Serve(_) => {}
            }
        }
    }

    fn push(&mut self, time: Time, event: Event) {
        self.events.push(Reverse((time, self.pushed, event)));
        self.pushed += 1;
    }

    fn step(
        &mut self,
        now: Time,
        handle: u32,
        deliver: &mut impl FnMut(Delivery<'_>) -> Result<(), Undelivered>,
    ) {
        let packet = &mut self.packets[handle as usize];
        let Some(&link) = self.routes[packet.way as usize].get(packet.step) else {
            let (client, way, bytes) = (packet.client, packet.way, &*packet.bytes);
            let counts = &mut self.counts[way as usize];
            if packet.corrupted {
                counts.dropped.corrupt += 1;
                return self.release(handle);
            }
            let entered = packet.entered;
            counts.delays.add(now.since(entered));
            match deliver(Delivery { client, way, bytes, entered, due: now }) {
                Ok(()) => {
                    counts.delivered += 1;
                    counts.delivered_bytes += bytes.len() as u64;
                }
                Err(Undelivered::Gone) => counts.dropped.gone += 1,
                Err(Undelivered::Unsent) => counts.dropped.unsent += 1,
            }
            return self.release(handle);
        };
        packet.step += 1;
        let size = Bytes::new(packet.bytes.len() as u64 + self.header_bytes);
        match &mut self.elements[link] {
            Some(Element::Link(element)) => match element.offer(now, size, false) {
                Fate::Arrives { at, corrupted, duplicated, .. } => {
                    self.arrives(at, handle, corrupted, duplicated);
                }
                Fate::Dropped(reason) => self.lose(handle, reason),
            },
            Some(Element::Scheduled(_)) => self.enqueue(now, link, handle, size),
            None => unreachable!("every link of the route was built"),
        }
    }

    /// A link of rate zero never lets a packet arrive: it is dropped.
    fn arrives(&mut self, at: Time, handle: u32, corrupted: bool, duplicated: bool) {
        if at == Time::NEVER {
            return self.lose(handle, DropReason::QueueFull);
        }
        self.packets[handle as usize].corrupted |= corrupted;
        self.push(at, Event::Packet(handle));
        if duplicated {
            self.copy(at, handle);
        }
    }

    /// A copy of a datagram arrives right behind it.
    fn copy(&mut self, at: Time, handle: u32) {
        let original = &self.packets[handle as usize];
        let InTransit { client, way, step, corrupted, entered, .. } = *original;
        let bytes = original.bytes.clone();
        self.counts[way as usize].duplicated += 1;
        if !self.hold(client, cost(&bytes)) {
            self.counts[way as usize].dropped.limit += 1;
            return;
        }
        let copy = self.place();
        self.packets[copy as usize] = InTransit { bytes, client, way, step, corrupted, entered };
        self.push(at, Event::Packet(copy));
    }

    fn enqueue(&mut self, now: Time, link: usize, handle: u32, size: Bytes) {
        // What may leave now leaves before this one comes.
        self.serve(now, link);
        let Some(Element::Scheduled(element)) = &mut self.elements[link] else { return };
        let client = self.packets[handle as usize].client as u32;
        let queued = Queued {
            handle,
            flow: if self.separates_clients { client } else { self.flow },
            class: self.group,
            size,
            ecn_capable: false,
            l4s: false,
            enqueued: now,
        };
        element.enqueue(now, queued, &mut self.drops);
        self.settle_drops();
        self.serve(now, link);
    }

    /// Lets a scheduled link send what it may at `now`, and asks it again when it can send more.
    fn serve(&mut self, now: Time, link: usize) {
        loop {
            let Some(Element::Scheduled(element)) = &mut self.elements[link] else { return };
            let ready = element.next_dequeue(now);
            if ready > now {
                if ready < self.asked_at[link] {
                    self.asked_at[link] = ready;
                    self.push(ready, Event::Serve(link));
                }
                return;
            }
            let departure = element.dequeue(now, &mut self.drops);
            self.settle_drops();
            let Some(departure) = departure else { continue };
            match departure.arrives {
                Some(at) => {
                    let Departure { packet, corrupted, duplicated, .. } = departure;
                    self.arrives(at, packet.handle, corrupted, duplicated);
                }
                None => self.lose(departure.packet.handle, DropReason::Loss),
            }
        }
    }

    fn settle_drops(&mut self) {
        while let Some(dropped) = self.drops.pop() {
            self.lose(dropped.packet.handle, dropped.reason);
        }
    }

    fn lose(&mut self, handle: u32, reason: DropReason) {
        let way = self.packets[handle as usize].way;
        let dropped = &mut self.counts[way as usize].dropped;
        match reason {
            DropReason::QueueFull => dropped.full += 1,
            DropReason::Early => dropped.early += 1,
            DropReason::Loss => dropped.loss += 1,
            DropReason::TooLarge => dropped.too_large += 1,
            DropReason::Policer => dropped.policer += 1,
        }
        self.release(handle);
    }

    fn release(&mut self, handle: u32) {
        let packet = &mut self.packets[handle as usize];
        let cost = cost(&std::mem::take(&mut packet.bytes));
        self.held_bytes -= cost;
        if let Entry::Occupied(mut held) = self.held_of.entry(packet.client) {
            *held.get_mut() -= cost;
            if *held.get() == 0 {
                held.remove();
            }
        }
        self.free.push(handle);
    }
}

/// Why a datagram at the end of its way was not sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// Its client was forgotten, or has another address.
    Gone,
    /// The system did not take it.
    Unsent,
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;

    use super::*;

    const LINE: &str = r#"
duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "8 Mbit/s", delay = "20 ms", QUEUE, loss = { kind = "bernoulli", rate = 0.1 } }
reverse = { rate = "1 Mbit/s", delay = "5 ms" }
access = { rate = "1 Gbit/s", delay = "0 s" }
[flows.one]
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;

    fn path(queue: &str, seed: u64) -> Path {
        let text = LINE.replace("QUEUE", queue);
        let scenario = ontempo_scenario::parse(&text, "s.toml").expect("a scenario");
        Path::of(&scenario, None, seed, 28, 1 << 20).expect("a path")
    }

    /// Injects a packet of 972 bytes each `gap`, and returns which arrived, and when.
    fn arrivals(path: &mut Path, gap: Duration, count: u32) -> Vec<(u32, Time)> {
        let mut arrived = Vec::new();
        let mut now = Time::ZERO;
        for number in 0..count {
            let mut bytes = [0; 972];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            let mut take = |delivery: Delivery<'_>| {
                let number: [u8; 4] = delivery.bytes[..4].try_into().expect("four");
                arrived.push((u32::from_be_bytes(number), delivery.due));
                Ok(())
            };
            path.advance(now, &mut take);
            path.inject(now, 0, Way::Forward, &bytes);
            path.advance(now, &mut take);
            now += gap;
        }
        path.advance(now + Duration::from_secs(100), &mut |delivery| {
            let number: [u8; 4] = delivery.bytes[..4].try_into().expect("four");
            arrived.push((u32::from_be_bytes(number), delivery.due));
            Ok(())
        });
        arrived
    }

    #[test]
    fn the_same_seed_and_arrivals_give_the_same_drops_and_times() {
        for queue in [
            "queue = { kind = \"drop-tail\", limit = \"10 packets\" }",
            "queue = { kind = \"codel\" }",
        ] {
            let run = |seed| arrivals(&mut path(queue, seed), Duration::from_micros(900), 2_000);
            assert_eq!(run(1), run(1), "{queue}");
            assert_ne!(run(1), run(2), "{queue}");
        }
    }

    #[test]
    fn datagrams_take_the_links_time_and_are_counted_by_cause() {
        let mut path = path("queue = { kind = \"drop-tail\", limit = \"10 packets\" }", 7);
        // 1,000 bytes take 1 ms at 8 Mbit/s and 8 us on each access link.
        let arrived = arrivals(&mut path, Duration::from_micros(500), 4_000);
        let spacing: Vec<_> = arrived.windows(2).map(|pair| pair[1].1.since(pair[0].1)).collect();
        assert!(spacing.iter().all(|gap| *gap >= Duration::from_millis(1)), "{spacing:?}");
        // Those before the first that arrives are lost on the wire, after their transmission.
        let before = Duration::from_millis(1).mul_f64(f64::from(arrived[0].0));
        assert_eq!(arrived[0].1, Time::ZERO + before + Duration::from_micros(21_016));
        let report = path.report(Way::Forward);
        assert_eq!((report.packets, report.delivered), (4_000, arrived.len() as u64));
        assert_eq!(report.delivered + report.dropped.total(), 4_000);
        // Half of them find no place, and a tenth of the others is lost: within four deviations.
        let passed = (4_000 - report.dropped.full) as f64;
        assert!((passed - 2_000.0).abs() < 20.0, "{report:?}");
        let lost = report.dropped.loss as f64;
        assert!((lost - 0.1 * passed).abs() < 4.0 * (0.09 * passed).sqrt(), "{report:?}");
        assert_eq!(path.held_bytes, 0);
    }

    #[test]
    fn a_policer_drops_what_exceeds_its_rate_and_burst() {
        let queue = "queue = { kind = \"codel\" }, policer = { rate = \"4 Mbit/s\", \
                     burst-time = \"10 ms\" }";
        let mut path = path(queue, 1);
        // 1,000 bytes each millisecond: half of them conform, and five at first.
        arrivals(&mut path, Duration::from_millis(1), 2_000);
        let report = path.report(Way::Forward);
        assert_eq!(report.dropped.policer, 1_000 - 5 + 1, "{report:?}");
        assert_eq!(report.delivered + report.dropped.total(), 2_000);
    }

    #[test]
    fn copies_arrive_behind_their_originals_and_corrupted_datagrams_not_at_all() {
        for queue in ["drop-tail", "codel"] {
            let queue = format!("queue = {{ kind = \"{queue}\" }}, duplicate = 0.2, corrupt = 0.1");
            let mut path = path(&queue, 3);
            let arrived = arrivals(&mut path, Duration::from_millis(2), 2_000);
            let report = path.report(Way::Forward);
            let copies = arrived.windows(2).filter(|pair| pair[0].0 == pair[1].0);
            let behind = copies.clone().filter(|pair| pair[1].1.since(pair[0].1).as_nanos() > 0);
            // The second waits for the first on the last access link: 8 us.
            assert_eq!(behind.count(), copies.clone().count(), "{queue}");
            assert!(copies.count() > 200, "{queue}: {report:?}");
            let corrupted = report.dropped.corrupt as f64;
            // A tenth of what is not lost on the wire, and of its copies.
            let crossed = 2_000.0 * 0.9 * 1.2;
            assert!((corrupted - 0.1 * crossed).abs() < 70.0, "{queue}: {report:?}");
            let all = report.packets + report.duplicated;
            assert_eq!(report.delivered + report.dropped.total(), all, "{queue}");
            assert_eq!((report.delivered, path.held_bytes), (arrived.len() as u64, 0), "{queue}");
        }
    }

    #[test]
    fn datagrams_of_an_aggregate_arrive_as_a_burst() {
        for queue in ["drop-tail", "codel"] {
            let queue =
                format!("queue = {{ kind = \"{queue}\" }}, aggregation = {{ every = \"20 ms\" }}");
            let mut path = path(&queue, 3);
            let arrived = arrivals(&mut path, Duration::from_millis(4), 1_000);
            let gaps = arrived.windows(2).map(|pair| pair[1].1.since(pair[0].1));
            let waits = gaps.filter(|gap| *gap > Duration::from_millis(10)).count();
            // One each 20 ms.
            assert!((195..201).contains(&waits), "{queue}: {waits}");
        }
    }

    #[test]
    fn datagrams_leave_at_the_opportunities_of_a_pair_of_traces() {
        let mut path = path(
            "schedule = { kind = \"cellreplay\", timer = \"10 ms\", light-text = \"0 30 0 5 9\\n500 30 \
             0\\n1000 30 0\", heavy-text = \"4\" }",
            3,
        );
        // Six of 1,000 bytes at once. One of each opportunity of 1,400 bytes; the others enter the queue
        // with the third, at 39 ms, and share opportunities each 4 ms. 16 us are those of access links,
        // which send one behind the other in 8 us.
        let arrived = arrivals(&mut path, Duration::ZERO, 6);
        let millis = [30.0, 35.0, 39.0, 40.0, 44.0, 48.0];
        let lost = path.report(Way::Forward).dropped.loss as usize;
        assert_eq!(arrived.len(), 6 - lost);
        for (number, at) in arrived {
            let expected = millis[number as usize] * 1e-3;
            let late = at.as_secs_f64() - expected;
            assert!((0.0..0.000_05).contains(&late), "{number}: {at} for {expected}");
        }
    }

    #[test]
    fn datagrams_without_payload_count_and_places_keep_no_payload() {
        let mut line = path("queue = { kind = \"drop-tail\" }", 1);
        for _ in 0..10_000 {
            line.inject(Time::ZERO, 0, Way::Reverse, &[]);
        }
        let held = 10_000 - line.report(Way::Reverse).dropped.limit;
        assert_eq!(held, 9 * (1 << 20) / 16 / DATAGRAM_COST);
        line.advance(Time::ZERO + Duration::from_secs(100), &mut |_| Ok(()));
        assert_eq!((line.held_bytes, line.held_of.len()), (0, 0));
        // Each place had a large datagram once, or was free while others had: none keeps its bytes.
        for _ in 0..1_000 {
            line.inject(Time::ZERO + Duration::from_secs(100), 0, Way::Reverse, &[0; 10_000]);
        }
        line.advance(Time::ZERO + Duration::from_secs(200), &mut |_| Ok(()));
        let kept: usize = line.packets.iter().map(|packet| packet.bytes.capacity()).sum();
        assert_eq!((kept, line.held_bytes), (0, 0));
    }

    #[test]
    fn clients_that_hold_all_they_may_leave_something_for_another() {
        let mut line = path("queue = { kind = \"drop-tail\" }", 1);
        for client in 0..100 {
            for _ in 0..10_000 {
                line.inject(Time::ZERO, client, Way::Reverse, &[]);
            }
        }
        let before = line.report(Way::Reverse).dropped.limit;
        for client in 100..256 {
            line.inject(Time::ZERO, client, Way::Reverse, &[0; 700]);
        }
        assert_eq!(line.report(Way::Reverse).dropped.limit, before, "nothing is left");
        assert!(line.held_bytes <= 1 << 20);
    }

    #[test]
    fn more_bytes_than_are_held_are_dropped_and_the_flow_must_be_named_if_there_are_several() {
        let mut line = path("queue = { kind = \"drop-tail\" }", 1);
        for _ in 0..2_000 {
            line.inject(Time::ZERO, 0, Way::Reverse, &[0; 1_000]);
        }
        let report = line.report(Way::Reverse);
        assert_eq!(report.dropped.limit, 2_000 - (9_u64 * (1 << 20) / 4 / 1_256).div_ceil(4));
        let text = LINE.replace("QUEUE", "queue = { kind = \"drop-tail\" }") + "count = 2\n";
        let scenario = ontempo_scenario::parse(&text, "s.toml").expect("a scenario");
        let of = |flow| Path::of(&scenario, flow, 1, 28, 1 << 20).map(|_| ());
        assert!(of(Some("one.1")).is_ok());
        let several = of(None).expect_err("two flows").to_string();
        assert!(several.contains("2 flows") && several.contains("one.0, one.1"), "{several}");
        let none = of(Some("two.0")).expect_err("no such flow").to_string();
        assert!(none.contains("no flow `two.0`: it has one.0, one.1"), "{none}");
    }
}
