//! A receiving flow: partial units, units that wait for others, units ready for delivery.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::delivery::{ArrivalError, Resequencer};

use super::Violation;
use super::clocks::Clocks;
use super::statistics::{Delays, ReceiveStatistics, Throughput};
use crate::flow::{Delivery, DeliveryOrder, FlowConfig, Reliability, Unit};
use crate::wire::{DroppedUnit, Limits, ReceiverReport, UnitHeader};

/// Dropped units remembered, to report them as missing dependencies.
const MAX_DROPPED: usize = 4096;

/// How long datagrams may arrive after the control stream has signalled the flow's end.
const GRACE: Duration = Duration::from_millis(500);

/// Initial buffer of a unit: a header alone must not allocate more.
const FIRST_ROOM: usize = 16 << 10;

/// Memory of a unit beside its data, at most, bytes.
const UNIT_COST: u64 = 256;

/// Memory of a number in a set, bytes.
const NUMBER_COST: u64 = 24;

/// Overhead of a fragment beside its data.
pub(super) const FRAGMENT_COST: u64 = 128;

/// A partially received unit.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) header: UnitHeader,
    /// The received data, copied: a chunk would keep its whole packet and its
    /// neighbours in memory.
    data: BytesMut,
    got: u64,
    /// True if it is to be discarded: a duplicate, or dropped.
    discarded: bool,
}

impl Held {
    fn cost(&self) -> u64 {
        match self {
            Self::Unit { unit, depends_on } => {
                UNIT_COST + unit.data.len() as u64 + numbers(depends_on)
            }
            Self::Dropped => UNIT_COST,
        }
    }
}

impl Partial {
    /// A unit to be discarded.
    pub(super) fn discarded(header: UnitHeader) -> Self {
        Self { header, data: BytesMut::new(), got: 0, discarded: true }
    }

    /// A unit that is complete.
    fn whole(header: UnitHeader, data: BytesMut) -> Self {
        Self { header, got: data.len() as u64, data, discarded: false }
    }

    pub(super) fn is_discarded(&self) -> bool {
        self.discarded
    }

    pub(super) fn missing(&self) -> u64 {
        self.header.length - self.got
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.data.capacity() as u64 + numbers(&self.header.depends_on)
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        if !self.discarded {
            let room = self.data.capacity() - self.data.len();
            if room < chunk.len() {
                // Twice as much each time, but not more than the unit needs.
                let more = self.data.len().max(FIRST_ROOM) as u64;
                let more = usize::try_from(more.min(self.missing())).unwrap_or(FIRST_ROOM);
                self.data.reserve(more.max(chunk.len()));
            }
            self.data.extend_from_slice(chunk);
        }
        self.got += chunk.len() as u64;
    }

    fn data(self) -> Bytes {
        self.data.freeze()
    }
}

/// Memory of a list of numbers, in bytes.
fn numbers(list: &[u64]) -> u64 {
    size_of_val(list) as u64
}

/// Memory that a delivery takes, in bytes: its data and what belongs to it.
pub(crate) fn cost(delivery: &Delivery) -> u64 {
    match delivery {
        Delivery::Unit(unit) => {
            let lists = numbers(&unit.depends_on) + numbers(&unit.missing);
            UNIT_COST + unit.data.len() as u64 + lists
        }
        Delivery::Dropped(_) => UNIT_COST,
    }
}

/// State of the resequencing.
#[derive(Debug)]
enum Held {
    Unit { unit: Box<Unit>, depends_on: Vec<u64> },
    Dropped,
}

/// A receiving flow.
#[derive(Debug)]
pub(super) struct ReceiveFlow {
    pub(super) config: FlowConfig,
    limits: Limits,
    order: Resequencer,
    held: BTreeMap<u64, Held>,
    ready: VecDeque<Delivery>,
    /// Bytes of units received in part or whole and not yet taken; a unit counts with its full
    /// length from its header on.
    buffered: u64,
    /// Units received in part that count in `buffered`, and their lengths. One that its sender drops
    /// no longer counts: its sender uses the credit again before the end of its stream has come.
    begun: BTreeMap<u64, u64>,
    /// Memory of what is in `held` and `ready`, in bytes.
    kept: u64,
    /// The application is done with the flow: everything is discarded.
    is_released: bool,
    /// Bytes that count as consumed: taken, or dropped.
    done: u64,
    granted_units: u64,
    granted_bytes: u64,
    dropped: BTreeSet<u64>,
    /// Without retransmission: the units taken, and the number below which no more are accepted.
    seen: BTreeSet<u64>,
    floor: u64,
    /// Number of units, once known.
    units: Option<u64>,
    /// When a flow without retransmission ends, after its end was signalled.
    end: Time,
    pub(super) end_reported: bool,
    throughput: Throughput,
    delays: Delays,
    statistics: ReceiveStatistics,
    /// The last receiver report.
    reported: ReceiverReport,
}

impl ReceiveFlow {
    pub(super) fn new(now: Time, config: FlowConfig, limits: Limits) -> Self {
        let order = Resequencer::new(config.order, limits.units.saturating_mul(2));
        Self {
            config,
            limits,
            order,
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            buffered: 0,
            begun: BTreeMap::new(),
            kept: 0,
            is_released: false,
            done: 0,
            granted_units: limits.units,
            granted_bytes: limits.bytes,
            dropped: BTreeSet::new(),
            seen: BTreeSet::new(),
            floor: 0,
            units: None,
            end: Time::NEVER,
            end_reported: false,
            throughput: Throughput::starting(now),
            delays: Delays::default(),
            statistics: ReceiveStatistics {
                units: 0,
                bytes: 0,
                late: 0,
                dropped: 0,
                unwanted: 0,
                waiting: 0,
                ready: 0,
                held_bytes: 0,
                most_held_bytes: 0,
                blocked: Duration::ZERO,
                throughput: ontempo_foundation::Rate::from_bits_per_sec(0),
                delay: super::statistics::DelayStatistics::default(),
            },
            reported: ReceiverReport::default(),
        }
    }

    fn is_repaired(&self) -> bool {
        self.config.reliability != Reliability::None
    }

    /// A unit begins on a stream.
    pub(super) fn begin(&mut self, header: UnitHeader) -> Result<Partial, Violation> {
        if !self.is_repaired() || header.length > self.limits.unit_bytes {
            return Err(Violation::Absurd);
        }
        // A second stream with the same unit is a peer's mistake.
        let discarded = self.order.has_arrived(header.id) || self.begun.contains_key(&header.id);
        if !discarded {
            if header.id >= self.granted_units
                || self.buffered + header.length > self.limits.bytes
                || self.units.is_some_and(|units| header.id >= units)
            {
                return Err(Violation::Credit);
            }
            self.reserve(header.length);
            self.begun.insert(header.id, header.length);
        }
        Ok(Partial { discarded, ..Partial::discarded(header) })
    }

    fn reserve(&mut self, bytes: u64) {
        self.buffered += bytes;
        self.statistics.most_held_bytes = self.statistics.most_held_bytes.max(self.buffered);
    }

    /// A partial unit will not be completed on this stream.
    pub(super) fn abandon(&mut self, partial: &Partial) {
        if !partial.discarded {
            self.release_begun(partial.header.id);
        }
    }

    /// What is left of a unit received in part no longer counts.
    fn release_begun(&mut self, id: u64) {
        self.buffered -= self.begun.remove(&id).unwrap_or(0);
    }

    /// A unit is complete.
    pub(super) fn complete(
        &mut self,
        now: Time,
        partial: Partial,
        clocks: &Clocks,
    ) -> Result<(), Violation> {
        let id = partial.header.id;
        if partial.discarded || self.order.has_arrived(id) {
            // It may have been dropped, or completed on another stream, since it began.
            self.abandon(&partial);
            self.statistics.unwanted += 1;
            return Ok(());
        }
        // From now on it counts as a whole one.
        self.begun.remove(&id);
        let depends_on = partial.header.depends_on.clone();
        let unit = self.unit(now, partial, clocks);
        self.arrive(id, &depends_on)?;
        self.hold(id, Held::Unit { unit: Box::new(unit), depends_on });
        self.release(now);
        Ok(())
    }

    fn unit(&mut self, now: Time, partial: Partial, clocks: &Clocks) -> Unit {
        let header = &partial.header;
        let sent = clocks.ours_of(header.sent, now);
        let (id, lifetime, priority) = (header.id, header.lifetime, header.priority);
        let length = header.length;
        if let Some(sent) = sent {
            self.delays.on_unit(sent, now);
            self.delays.statistics.uncertainty = clocks.uncertainty();
            if lifetime.is_some_and(|lifetime| now > sent + lifetime) {
                self.statistics.late += 1;
            }
        }
        self.statistics.units += 1;
        self.statistics.bytes += length;
        self.throughput.count(now, length);
        let (depends_on, missing) = (Vec::new(), Vec::new());
        let continues = partial.header.continues;
        let data = partial.data();
        Unit { id, data, sent, arrived: now, lifetime, priority, continues, depends_on, missing }
    }

    fn arrive(&mut self, id: u64, depends_on: &[u64]) -> Result<(), Violation> {
        self.order.arrive(id, depends_on).map_err(|error| match error {
            ArrivalError::TooFar { .. } => Violation::Credit,
            ArrivalError::Duplicate | ArrivalError::DependsOnLater { .. } => Violation::Absurd,
        })
    }

    fn hold(&mut self, id: u64, held: Held) {
        self.kept += held.cost();
        self.held.insert(id, held);
    }

    /// Queues a delivery for the application.
    fn make_ready(&mut self, delivery: Delivery) {
        self.kept += cost(&delivery);
        self.ready.push_back(delivery);
        if self.is_released {
            self.take();
        }
    }

    fn release(&mut self, now: Time) {
        while let Some(id) = self.order.deliver() {
            let held = self.held.remove(&id);
            self.kept -= held.as_ref().map_or(0, Held::cost);
            match held {
                Some(Held::Unit { mut unit, depends_on }) => {
                    self.statistics.blocked += now.since(unit.arrived);
                    let dropped = |on: &u64| self.dropped.contains(on);
                    unit.missing = depends_on.iter().copied().filter(dropped).collect();
                    unit.depends_on = depends_on;
                    self.make_ready(Delivery::Unit(*unit));
                }
                // An application that takes nothing must not make this grow without bound.
                Some(Held::Dropped) | None => {
                    if self.ready.len() < MAX_DROPPED {
                        self.make_ready(Delivery::Dropped(id));
                    }
                }
            }
        }
    }

    /// The sender dropped units. Returns those that had arrived completely.
    pub(super) fn on_dropped(
        &mut self,
        now: Time,
        units: &[DroppedUnit],
    ) -> Result<Vec<u64>, Violation> {
        let mut arrived = Vec::new();
        for unit in units {
            if self.order.has_arrived(unit.id) {
                arrived.push(unit.id);
                continue;
            }
            self.arrive(unit.id, &[])?;
            self.hold(unit.id, Held::Dropped);
            self.note_dropped(unit.id);
            self.release_begun(unit.id);
            self.done = self.done.saturating_add(unit.bytes);
        }
        self.release(now);
        Ok(arrived)
    }

    /// A unit will not be delivered.
    pub(super) fn note_dropped(&mut self, id: u64) {
        if self.dropped.insert(id) {
            self.statistics.dropped += 1;
        }
        if self.dropped.len() > MAX_DROPPED {
            self.dropped.pop_first();
        }
    }

    /// A unit, or its rest, arrived in datagrams: delivered only if complete, and only once.
    pub(super) fn complete_unrepaired(&mut self, now: Time, partial: Partial, clocks: &Clocks) {
        let id = partial.header.id;
        if id < self.floor || !self.seen.insert(id) {
            self.statistics.unwanted += 1;
            return;
        }
        if self.config.order == DeliveryOrder::InOrder {
            self.floor = id + 1;
            self.seen.clear();
        } else if self.seen.len() as u64 > self.limits.units {
            self.floor = self.seen.pop_first().map_or(self.floor, |lowest| lowest + 1);
        }
        let length = partial.header.length;
        while !self.ready.is_empty()
            && (self.ready.len() as u64 >= self.limits.units
                || self.buffered + length > self.limits.bytes)
        {
            // The oldest is the least useful.
            self.statistics.dropped += 1;
            self.take();
        }
        let depends_on = partial.header.depends_on.clone();
        self.reserve(length);
        let mut unit = self.unit(now, partial, clocks);
        // In order, nothing is remembered of earlier units.
        if self.config.order != DeliveryOrder::InOrder {
            let unseen = |on: &u64| !self.seen.contains(on);
            unit.missing = depends_on.iter().copied().filter(unseen).collect();
        }
        unit.depends_on = depends_on;
        self.make_ready(Delivery::Unit(unit));
    }

    pub(super) fn wants(&self, id: u64) -> bool {
        id >= self.floor && !self.seen.contains(&id)
    }

    /// A fragment of a unit that it does not [want](Self::wants): of one that was overtaken, or again.
    pub(super) fn on_unwanted(&mut self, id: u64, offset: u64) {
        if id < self.floor {
            self.note_dropped(id);
        } else if offset == 0 {
            self.statistics.unwanted += 1;
        }
    }

    /// The next unit to deliver.
    pub(super) fn take(&mut self) -> Option<Delivery> {
        let delivery = self.ready.pop_front()?;
        self.kept -= cost(&delivery);
        if let Delivery::Unit(unit) = &delivery {
            let size = unit.data.len() as u64;
            self.buffered -= size;
            self.done = self.done.saturating_add(size);
        }
        Some(delivery)
    }

    /// The application is done with the flow: what is ready or still arrives is discarded.
    pub(super) fn discard(&mut self) {
        self.is_released = true;
        while self.take().is_some() {}
    }

    pub(super) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Memory of the flow beside its partial units, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let numbers = self.dropped.len() + self.seen.len() + 2 * self.begun.len();
        let numbers = numbers as u64 * NUMBER_COST;
        size_of::<Self>() as u64 + self.kept + numbers + self.order.memory() as u64
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// New credit for the peer, if it is at least an eighth of the limit.
    pub(super) fn more_credit(&mut self) -> Option<(u64, u64)> {
        if !self.is_repaired() || self.end_reported {
            return None;
        }
        let reach = self.order.lowest_missing().saturating_add(self.limits.units);
        let units = reach.saturating_sub(self.ready.len() as u64);
        let bytes = self.done.saturating_add(self.limits.bytes);
        let worth = units >= self.granted_units.saturating_add((self.limits.units / 8).max(1))
            || bytes >= self.granted_bytes.saturating_add((self.limits.bytes / 8).max(1));
        if !worth {
            return None;
        }
        self.granted_units = self.granted_units.max(units);
        self.granted_bytes = self.granted_bytes.max(bytes);
        Some((self.granted_units, self.granted_bytes))
    }

    /// The peer has signalled the number of units.
    pub(super) fn on_finished(&mut self, now: Time, units: u64) -> Result<(), Violation> {
        if self.units.is_some() || units < self.order.lowest_missing() {
            return Err(Violation::Absurd);
        }
        self.units = Some(units);
        self.end = now + GRACE;
        Ok(())
    }

    /// When a flow without retransmission ends, whatever is missing.
    pub(super) fn end(&self) -> Option<Time> {
        let waits = !self.is_repaired() && self.units.is_some() && self.ready.is_empty();
        waits.then_some(self.end)
    }

    /// True if every unit has been delivered or is known not to arrive.
    pub(super) fn is_over(&self, now: Time) -> bool {
        let Some(units) = self.units else { return false };
        let all = if self.is_repaired() {
            self.order.lowest_missing() >= units
        } else {
            self.statistics.units >= units || now >= self.end
        };
        all && self.ready.is_empty()
    }

    /// The receiver report, if anything changed.
    pub(super) fn report(&mut self) -> Option<ReceiverReport> {
        let report = ReceiverReport {
            units: self.statistics.units,
            bytes: self.statistics.bytes,
            late: self.statistics.late,
            delay: self.delays.statistics.last,
        };
        (std::mem::replace(&mut self.reported, report) != report).then_some(report)
    }

    pub(super) fn statistics(&mut self, now: Time) -> ReceiveStatistics {
        ReceiveStatistics {
            waiting: self.order.waiting(),
            ready: self.ready.len() as u64,
            held_bytes: self.buffered,
            throughput: self.throughput.read(now),
            delay: self.delays.statistics,
            ..self.statistics
        }
    }
}

/// Partial units of a flow without retransmission.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    units: BTreeMap<(u64, u64), Pieces>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Pieces {
    header: Option<UnitHeader>,
    length: u64,
    got: u64,
    /// By offset.
    pieces: BTreeMap<u64, Bytes>,
}

impl Pieces {
    fn cost(&self) -> u64 {
        self.got + self.pieces.len() as u64 * FRAGMENT_COST
    }
}

impl Fragments {
    /// Memory that they take, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.bytes + self.units.len() as u64 * UNIT_COST
    }

    /// Takes a fragment; returns the unit that it completes.
    pub(super) fn on_fragment(
        &mut self,
        (flow, id): (u64, u64),
        header: Option<UnitHeader>,
        (length, offset): (u64, u64),
        data: Bytes,
    ) -> Option<Partial> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= length)?;
        let pieces = self.units.entry((flow, id)).or_default();
        if pieces.pieces.is_empty() {
            pieces.length = length;
        }
        let before = pieces.pieces.range(..=offset).next_back();
        let overlaps = before
            .is_some_and(|(at, piece)| at + piece.len() as u64 > offset || *at == offset)
            || pieces.pieces.range(offset + 1..).next().is_some_and(|(at, _)| *at < end);
        if overlaps || pieces.length != length {
            return None;
        }
        pieces.header = header.or(pieces.header.take());
        pieces.got += data.len() as u64;
        let data = Bytes::copy_from_slice(&data);
        self.bytes += data.len() as u64 + FRAGMENT_COST;
        pieces.pieces.insert(offset, data);
        if pieces.got == length && pieces.header.is_some() {
            return self.whole((flow, id));
        }
        None
    }

    /// Discards the oldest unit if more than `most` bytes or 1,024 units are held; returns its flow and
    /// number.
    pub(super) fn discard_beyond(&mut self, most: u64) -> Option<(u64, u64)> {
        if self.bytes <= most && self.units.len() <= 1024 {
            return None;
        }
        let (key, oldest) = self.units.pop_first()?;
        self.bytes -= oldest.cost();
        Some(key)
    }

    fn whole(&mut self, key: (u64, u64)) -> Option<Partial> {
        let pieces = self.units.remove(&key)?;
        self.bytes -= pieces.cost();
        let mut data = BytesMut::with_capacity(usize::try_from(pieces.got).unwrap_or_default());
        pieces.pieces.values().for_each(|piece| data.extend_from_slice(piece));
        Some(Partial::whole(pieces.header?, data))
    }

    /// Discards partial units before unit `id`: they will not be completed in time. Returns their
    /// numbers.
    pub(super) fn forget_before(&mut self, flow: u64, id: u64) -> Vec<u64> {
        let range = self.units.range((flow, 0)..(flow, id));
        let numbers: Vec<u64> = range.map(|((_, number), _)| *number).collect();
        for number in &numbers {
            if let Some(gone) = self.units.remove(&(flow, *number)) {
                self.bytes -= gone.cost();
            }
        }
        numbers
    }
}
