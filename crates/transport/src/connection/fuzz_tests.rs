//! A peer that has the token and then does anything, over many seeds.
//!
//! `ONTEMPO_HOSTILE_SEEDS=100000` runs as many, in place of a few hundred.

use bytes::Bytes as Buffer;
use noq_proto::{Dir, StreamId, VarInt};
use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_testing::hostile::seeds;

use super::hostile_tests::{VICTIM, VILLAIN, World, address};
use super::*;
use crate::flow::{DeliveryOrder, Reliability};
use crate::identity::Identity;
use crate::simulated::Path;
use crate::wire::{
    AckRequest, DatagramHeader, DroppedUnit, FlowOpened, Limits, Message, Missing, Range,
    ReceiverReport, Sent, UnitHeader,
};
use crate::{Endpoint, Event};

/// Seeds of an ordinary run.
const SEEDS: u64 = 300;

/// Things that the villain does with one seed.
const ACTIONS: usize = 120;

/// Both ends and what they know of each other.
struct Fuzz {
    world: World,
    random: RandomStream,
    /// Streams of the villain that are not finished.
    streams: Vec<StreamId>,
    opened: u64,
    /// Of each flow that it has opened: its reliability, its next unit, whether it is finished.
    flows: Vec<(Reliability, u64, bool)>,
    limits: Limits,
    /// How often it breaks the rules.
    rude: f64,
    /// The address that the villain has.
    host: u8,
}

impl Fuzz {
    fn new(seed: u64, identity: &Identity) -> Self {
        let mut random = RandomStream::new(seed, "fuzz");
        let small = Limits { flows: 4, units: 40, bytes: 50_000, unit_bytes: 20_000 };
        let limits = [small, Configuration::default().limits][random.next_u64() as usize % 2];
        // A tenth have a budget that the peer alone exceeds.
        let tight = random.chance(0.1);
        let config = Configuration {
            limits,
            streams: 1 + random.next_u64() as u32 % 60,
            receive_memory: Bytes::new(if tight { 120 << 10 } else { 8 << 20 }),
            ..Configuration::default()
        };
        let rate = Rate::from_bits_per_sec(1_000_000 << (random.next_u64() % 8));
        let mut paths = [0, 1].map(|_| {
            let mut path = Path::clean(rate, Duration::from_millis(1 + random.next_u64() % 40));
            path.mishaps.repeated = 0.02 * (random.next_u64() % 3) as f64;
            path.mishaps.damaged = 0.02 * (random.next_u64() % 3) as f64;
            path.reordering = random.chance(0.5);
            path
        });
        // What does not arrive is not acknowledged.
        for path in &mut paths {
            if random.chance(0.4) {
                let begins = Time::from_secs_f64(0.3 + (random.next_u64() % 1000) as f64 / 1000.0);
                let ends = begins + Duration::from_millis(random.next_u64() % 3000);
                path.mishaps.stalls.push((begins, ends));
            }
        }
        let [there, back] = &paths;
        let world = World::with(seed, identity, config, [there, back]);
        let rude = [0.0, 0.002, 0.02, 0.2][random.next_u64() as usize % 4];
        let (streams, flows) = (Vec::new(), Vec::new());
        let mut fuzz = Self { world, random, streams, opened: 0, flows, limits, rude, host: 1 };
        let is_deaf = fuzz.below(5) > 0;
        if let Some(villain) = fuzz.world.villain() {
            villain.control.is_deaf = is_deaf;
        }
        fuzz
    }

    fn is_rude(&mut self) -> bool {
        self.random.chance(self.rude)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.next_u64() % most.max(1)
    }

    /// A number that is often small, and sometimes impossible.
    fn number(&mut self) -> u64 {
        if !self.is_rude() {
            return self.below(self.opened);
        }
        match self.below(8) {
            0 => self.random.next_u64() >> 2,
            1 => self.below(1 << 20),
            _ => self.below(self.opened + 3),
        }
    }

    fn garbage(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.random.next_u64() as u8).collect()
    }

    fn some_message(&mut self) -> Message {
        let flow = self.number();
        let (limits, acknowledge) = (self.limits, AckRequest::Immediate);
        match self.below(11) {
            0 => Message::Hello { token: self.garbage(250), limits, acknowledge },
            1 => Message::Welcome { limits, acknowledge },
            2 => Message::FlowFinished { flow, units: self.number() },
            3 | 4 => {
                let count = self.below(128);
                let units =
                    (0..count).map(|_| DroppedUnit { id: self.number(), bytes: self.number() });
                Message::Dropped { flow, units: units.collect() }
            }
            5 => {
                let count = self.below(128);
                Message::Settled { flow, arrived: (0..count).map(|_| self.number()).collect() }
            }
            6 => Message::Credit { flow, units: self.number(), bytes: self.number() },
            7 => Message::Clock { asked: Time::from_nanos(self.number() % (1 << 50) * 1000) },
            8 => {
                let mut time = || Time::from_nanos(self.number() % (1 << 50) * 1000);
                Message::ClockAnswer { asked: time(), came: time(), left: time() }
            }
            9 => Message::FlowCredit { flows: self.number() },
            _ => {
                let (units, bytes, late) = (self.number(), self.number(), self.number());
                let delay = Duration::from_micros(self.number() % (1 << 50));
                Message::ReceiverReport {
                    flow,
                    report: ReceiverReport { units, bytes, late, delay },
                }
            }
        }
    }

    fn open_flow(&mut self) {
        let is_rude = self.is_rude();
        let flow = if is_rude { self.number() } else { self.opened };
        let (id, limits) = (self.world.ids[VICTIM], self.limits);
        let victim = self.world.network.endpoint(VICTIM).connection(id);
        let credit = victim.map_or(0, |victim| victim.receiving.flow_credit(&limits));
        if flow >= credit && !is_rude {
            return;
        }
        let order = DeliveryOrder::ALL[self.below(3) as usize];
        let reliability = Reliability::ALL[self.below(3) as usize];
        let label = "x".repeat(self.below(257) as usize);
        if flow == self.opened {
            self.opened += 1;
            self.flows.push((reliability, 0, false));
        }
        self.world.message(&Message::FlowOpened(FlowOpened { flow, order, reliability, label }));
    }

    fn finish_flow(&mut self) {
        let place = self.below(self.opened);
        let is_rude = self.is_rude();
        let Some((_, next, is_finished)) = self.flows.get_mut(place as usize) else { return };
        if !std::mem::replace(is_finished, true) || is_rude {
            let units = *next;
            self.world.message(&Message::FlowFinished { flow: place, units });
        }
    }

    /// Units of a flow with deadlines that the villain drops, all within its numbers.
    fn drop_units(&mut self) {
        let (place, count) = (self.below(self.opened), 1 + self.below(40));
        let Some((reliability, next, is_finished)) = self.flows.get_mut(place as usize) else {
            return;
        };
        if *reliability == Reliability::Deadline && !*is_finished {
            let units = (*next..*next + count).map(|id| DroppedUnit { id, bytes: 0 }).collect();
            *next += count;
            self.world.message(&Message::Dropped { flow: place, units });
        }
    }

    /// The header of a unit: the next of a flow or, now and then, a later one or anything.
    fn header(&mut self, wants_repair: bool) -> Option<UnitHeader> {
        let sent = self.below(1 << 40);
        let sent = match self.below(2) {
            0 => Sent::At(Time::from_nanos(sent * 1000)),
            _ => Sent::Low(sent as u32),
        };
        let lifetime = (self.below(2) == 0).then(|| Duration::from_micros(self.below(1 << 30)));
        let priority = self.below(256) as u8;
        if self.is_rude() {
            let (flow, id, length) = (self.number(), self.number(), self.number());
            let count = self.below(33);
            let depends_on = (0..count.min(id)).map(|back| id - 1 - back).collect();
            let continues = (self.below(2) == 0).then(|| id.checked_sub(1)).flatten();
            return Some(UnitHeader {
                flow,
                id,
                length,
                sent,
                lifetime,
                priority,
                continues,
                depends_on,
            });
        }
        let (flow, skip, count) = (self.below(self.opened), self.below(12) / 10, self.below(33));
        let length = self.below(2_500);
        let (reliability, next, is_finished) = self.flows.get_mut(flow as usize)?;
        if *is_finished || (*reliability != Reliability::None) != wants_repair {
            return None;
        }
        let id = *next + skip;
        *next = id + 1;
        let count = if count > 24 { count } else { 0 };
        let depends_on = (0..count.min(id)).map(|back| id - 1 - back).collect();
        let continues = id.checked_sub(1).filter(|_| length.is_multiple_of(2));
        Some(UnitHeader { flow, id, length, sent, lifetime, priority, continues, depends_on })
    }

    /// Writes to a stream of the villain: a new one, or one that it has.
    fn stream(&mut self) {
        let mut bytes = Vec::new();
        let mut is_whole = true;
        if self.is_rude() {
            bytes = self.garbage(2_000);
        } else if let Some(header) = self.header(true) {
            header.write(&mut bytes);
            bytes.resize(bytes.len() + header.length.min(30_000) as usize, 7);
            if self.below(4) == 0 {
                // The rest does not come.
                let cut = self.below(bytes.len() as u64 + 1) as usize;
                bytes.truncate(cut);
                is_whole = false;
            }
        }
        let is_new = self.streams.is_empty() || self.below(2) == 0;
        let (place, mut end) = (self.below(self.streams.len() as u64) as usize, self.below(4));
        if !is_whole && end == 0 && !self.is_rude() {
            end = 1;
        }
        let known = self.streams.get(place).copied();
        let Some(villain) = self.world.villain() else { return };
        let stream = if is_new { villain.stack.streams().open(Dir::Uni) } else { known };
        let Some(stream) = stream else { return };
        let mut send = villain.stack.send_stream(stream);
        let _ = send.write(&bytes);
        match end {
            0 => drop(send.finish()),
            1 => drop(send.reset(VarInt::from_u32(1))),
            _ => {}
        }
        villain.urgent = true;
        self.streams.retain(|known| *known != stream);
        if end > 1 && is_whole {
            self.streams.push(stream);
        }
        self.world.network.flush(VILLAIN);
    }

    fn datagram(&mut self) {
        let mut bytes = Vec::new();
        let mut more = self.below(900) as usize;
        if self.is_rude() {
            bytes = self.garbage(1_000);
        } else if self.below(3) == 0 {
            let header = self.repair();
            if matches!(header, DatagramHeader::Request(_)) {
                more = 0;
            }
            header.write(&mut bytes);
        } else {
            let Some(header) = self.header(false) else { return };
            let UnitHeader { flow, id, length, .. } = header;
            let offset = 1 + self.below(length);
            if self.below(2) == 0 || offset >= length {
                DatagramHeader::First(header).write(&mut bytes);
            } else {
                DatagramHeader::Later { flow, id, length, offset }.write(&mut bytes);
            }
        }
        bytes.resize(bytes.len() + more, 7);
        let Some(villain) = self.world.villain() else { return };
        let _ = villain.stack.datagrams().send(bytes.into(), true);
        villain.urgent = true;
        self.world.network.flush(VILLAIN);
    }

    /// A request, or the repair of something else than what is missing.
    fn repair(&mut self) -> DatagramHeader {
        let stream = self.below(60);
        let offset = self.below(30_000);
        if self.is_rude() {
            return DatagramHeader::Repair { stream, offset };
        }
        let to = (self.below(2) == 0).then(|| offset + 1 + self.below(9_000));
        let missing = |stream| Missing { stream, ranges: vec![Range { from: offset, to }] };
        DatagramHeader::Request((stream..stream + 1 + self.below(9)).map(missing).collect())
    }

    /// What the villain does next.
    fn attack(&mut self) {
        match self.below(64) {
            0..12 => self.open_flow(),
            12..18 => self.finish_flow(),
            18..24 => self.drop_units(),
            24 | 25 if self.is_rude() => {
                let message = self.some_message();
                self.world.message(&message);
            }
            26 if self.is_rude() => {
                let garbage = self.garbage(100);
                self.world.send(&garbage);
            }
            27..48 => self.stream(),
            48..56 => self.datagram(),
            56..59 => {
                let bytes = self.garbage(1_400);
                self.world.network.inject(VICTIM, address(self.host), &bytes);
            }
            59 | 60 => {
                self.host = 10 + self.below(3) as u8;
                self.world.network.rebind(VILLAIN, address(self.host));
            }
            61 => {
                let Some(villain) = self.world.villain() else { return };
                villain.update_keys();
            }
            62 => {
                let asked = self.world.network.now();
                (0..300).for_each(|_| self.world.message(&Message::Clock { asked }));
            }
            _ if self.below(10) == 0 => {
                let code = self.number() as u32;
                let now = self.world.network.now();
                let Some(villain) = self.world.villain() else { return };
                let instant = villain.epoch.instant(now);
                villain.stack.close(instant, VarInt::from_u32(code), Buffer::from_static(b"\xff"));
                self.world.network.flush(VILLAIN);
            }
            _ => {}
        }
    }

    /// What the victim's program does next.
    fn use_victim(&mut self) {
        let (now, id) = (self.world.network.now(), self.world.ids[VICTIM]);
        let (what, flow) = (self.below(8), FlowId::incoming(self.below(self.opened + 1)));
        let own = FlowId::outgoing(self.below(4));
        let size = self.below(3_000) as usize;
        let reliability = Reliability::ALL[self.below(3) as usize];
        let Some(victim) = self.world.network.endpoint(VICTIM).connection(id) else { return };
        match what {
            0..3 => drop((0..20).map_while(|_| victim.receive(flow)).count()),
            3 => victim.release_flow(flow),
            4 => drop(victim.open_flow(FlowConfig { reliability, ..FlowConfig::default() })),
            5 => {
                let lifetime = Duration::from_millis(50);
                let deadline = (reliability == Reliability::Deadline).then_some(now + lifetime);
                let unit = Outgoing { data: vec![1; size].into(), deadline, ..Outgoing::default() };
                let _ = victim.send(now, own, unit);
            }
            6 => victim.finish_flow(own),
            _ => {
                let _ = (victim.receive_statistics(now, flow), victim.statistics());
            }
        }
        self.world.network.flush(VICTIM);
    }

    /// Runs one seed; returns the reason for which the victim closed, if it did.
    fn run(mut self, seed: u64) -> Option<CloseReason> {
        let budget = self.world.network.endpoint(VICTIM).configuration().receive_memory.get();
        for _ in 0..ACTIONS {
            self.attack();
            if self.below(3) == 0 {
                self.use_victim();
            }
            let pause = Duration::from_micros(self.below(20_000));
            self.world.run(pause);
            let held = self.world.network.endpoint(VICTIM).memory();
            assert!(held <= budget, "seed {seed}: {held} bytes");
            let open = |event: &Event| matches!(event, Event::FlowOpened { .. });
            let ended = |event: &Event| matches!(event, Event::FlowEnded { .. });
            let count = |which: &dyn Fn(&Event) -> bool| {
                self.world.events.iter().filter(|event| which(event)).count() as u64
            };
            assert!(count(&ended) <= count(&open), "seed {seed}");
        }
        // Silence: nothing is left of it.
        *self.world.network.endpoint(VILLAIN) = Endpoint::new(Configuration::default(), [1; 32]);
        self.world.run(Duration::from_secs(120));
        let victim = self.world.network.endpoint(VICTIM);
        assert_eq!((victim.connections(), victim.memory()), (0, 0), "seed {seed}");
        self.world.closed.map(|closed| closed.reason)
    }
}

/// With `--nocapture` it prints how the connections ended.
#[test]
fn whatever_a_peer_does_the_endpoint_keeps_its_limits_and_goes_on() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let seeds = seeds(SEEDS);
    for seed in seeds.clone() {
        let reason = Fuzz::new(seed, &identity).run(seed);
        *reasons.entry(reason.map_or("none", CloseReason::name)).or_default() += 1;
        if seed % 10_000 == 9_999 {
            println!("to seed {seed}: {reasons:?}");
        }
    }
    println!("seeds {seeds:?}: {reasons:?}");
}
