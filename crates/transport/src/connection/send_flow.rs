//! A sending flow: units queued, in flight, and dropped.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use noq_proto::StreamId;
use ontempo_foundation::{Duration, Rate, Time};

use super::Violation;
use super::bearing::Path;
use super::frames::{self, Frames, Waiting};
use super::statistics::SendStatistics;
use crate::config::Configuration;
use crate::flow::{DeliveryOrder, FlowConfig, Outgoing, Reliability};
use crate::wire::{DroppedUnit, Limits, MAX_DEPENDENCIES, MAX_DROPPED, Sent, UnitHeader};

/// Why a unit was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no such sending flow, or it is finished.
    NoFlow,
    /// The flow's send queue is full; an event `Writable` follows when it has space.
    Full,
    /// The unit exceeds the peer's limit.
    TooLong {
        /// The limit, in bytes.
        most: u64,
    },
    /// It depends on too many units, or on one that does not precede it.
    Dependencies,
    /// It has a deadline, but the flow's reliability is full, which drops no unit.
    Deadline,
    /// The connection is not open.
    NotOpen,
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoFlow => f.write_str("there is no such flow, or it is finished"),
            Self::Full => f.write_str("the flow has as much waiting as it may"),
            Self::TooLong { most } => {
                write!(f, "the unit is longer than the {most} bytes that the peer takes")
            }
            Self::Dependencies => write!(
                f,
                "a unit may depend on at most {MAX_DEPENDENCIES} units, each sent before it"
            ),
            Self::Deadline => f.write_str(
                "a unit has a deadline, but the flow's reliability is full, which ignores it: \
                 open the flow with reliability until-deadline or none, or send without a deadline",
            ),
            Self::NotOpen => f.write_str("the connection is not open"),
        }
    }
}

impl std::error::Error for SendError {}

/// Maximum size of a unit that the peer and this side accept, in bytes.
pub(super) fn longest_unit(peer: &Limits, config: &Configuration) -> u64 {
    // The peer may withhold up to an eighth of its credit, because less is not worth a frame.
    let leave = peer.bytes - peer.bytes / 8;
    peer.unit_bytes.min(leave).min(config.send_bytes.get())
}

/// Queued units up to which every new frame is followed by a plan; with more, one follows only
/// after a pause.
const FEW: usize = 256;
const PAUSE: Duration = Duration::from_millis(5);

/// Data of units for a stream, which the stack has not accepted yet.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) stream: StreamId,
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) priority: u8,
}

/// State of a unit.
#[derive(Clone, Debug)]
enum Place {
    /// Queued, with its data.
    Queued(Box<Outgoing>),
    /// On a stream, or all of it sent as datagrams.
    Written(StreamId),
    /// Dropped; the peer has not yet answered whether it had arrived.
    Dropping,
    /// Acknowledged, or dropped for good.
    Resolved,
}

#[derive(Clone, Debug)]
struct Slot {
    place: Place,
    size: u64,
    /// Its effective priority: no unit is sent before one that it depends on.
    priority: u8,
    /// That of the stream that it goes on.
    among: u8,
    deadline: Option<Time>,
    sent: Time,
}

/// What became of a unit, for the trace: each has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The peer has it.
    Arrived,
    /// Dropped at its deadline.
    Dropped,
    /// Sent without acknowledgement, or not resolved when the connection ended.
    Unknown,
}

impl Fate {
    /// Its name in the trace.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arrived => "arrived",
            Self::Dropped => "dropped",
            Self::Unknown => "unknown",
        }
    }
}

/// Result of [`SendFlow::give_up`] for a unit on a stream.
pub(super) struct GivenUp {
    pub(super) stream: StreamId,
}

/// A sending flow.
#[derive(Debug)]
pub(super) struct SendFlow {
    pub(super) number: u64,
    pub(super) config: FlowConfig,
    /// The time of the last call with one.
    now: Time,
    /// Number of the unit in the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    frames: Frames,
    /// When the queue was last laid out, and for which rate.
    planned: Option<(Time, Rate)>,
    /// Bytes of units on streams that are not acknowledged.
    on_streams: u64,
    /// Queued units, the next one first.
    queue: BTreeSet<(Reverse<u8>, u64)>,
    deadlines: BTreeSet<(Time, u64)>,
    /// Bytes of unresolved units.
    held: u64,
    /// Credit: units below this number may be sent.
    credit_units: u64,
    /// Credit: bytes that may be sent since the beginning, and bytes sent.
    credit_bytes: u64,
    charged: u64,
    /// Dropped and not yet reported to the peer.
    unreported: Vec<DroppedUnit>,
    /// Reported as dropped and not yet answered.
    unsettled: VecDeque<Vec<u64>>,
    /// The streams being written, the last one first: each was begun for units of a higher priority
    /// than those of the one before it.
    pub(super) writing: Vec<Writing>,
    /// The application has finished the flow.
    pub(super) finished: bool,
    pub(super) finish_sent: bool,
    /// Size of the unit for which the application last got `Full`; it waits for `Writable`.
    refused: Option<u64>,
    /// Units resolved since the trace was last written.
    fates: Vec<(u64, Fate)>,
    pub(super) statistics: SendStatistics,
}

impl SendFlow {
    pub(super) fn new(number: u64, config: FlowConfig, units: u64, bytes: u64) -> Self {
        Self {
            number,
            config,
            now: Time::ZERO,
            first: 0,
            slots: VecDeque::new(),
            frames: Frames::default(),
            planned: None,
            on_streams: 0,
            queue: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            held: 0,
            credit_units: units,
            credit_bytes: bytes,
            charged: 0,
            unreported: Vec::new(),
            unsettled: VecDeque::new(),
            writing: Vec::new(),
            finished: false,
            finish_sent: false,
            refused: None,
            fates: Vec::new(),
            statistics: SendStatistics::default(),
        }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let place = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(place)
    }

    /// Queues a unit.
    pub(super) fn push(
        &mut self,
        now: Time,
        unit: Outgoing,
        peer: &Limits,
        config: &Configuration,
    ) -> Result<u64, SendError> {
        let most = longest_unit(peer, config);
        let (id, size) = (self.next_id(), unit.data.len() as u64);
        if self.finished {
            return Err(SendError::NoFlow);
        }
        if size > most {
            return Err(SendError::TooLong { most });
        }
        let mut named = unit.depends_on.iter().chain(&unit.continues);
        if unit.depends_on.len() > MAX_DEPENDENCIES || named.any(|on| *on >= id) {
            return Err(SendError::Dependencies);
        }
        if unit.deadline.is_some() && !self.config.reliability.allows_deadlines() {
            return Err(SendError::Deadline);
        }
        if !self.has_room(size, peer, config) {
            self.refused = Some(size);
            self.statistics.refused += 1;
            return Err(SendError::Full);
        }
        let fate = self.fate(now, id, &unit);
        self.held += size;
        self.statistics.on_push(size);
        let Some((is_begun, among)) = fate else {
            self.statistics.shed += 1;
            self.unreported.push(DroppedUnit { id, bytes: 0 });
            let place = Place::Dropping;
            let slot = Slot { place, size, priority: 0, among: 0, deadline: None, sent: now };
            self.slots.push_back(slot);
            return Ok(id);
        };
        let priority = self.send_priority(&unit, among, is_begun);
        let deadline = unit.deadline;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        self.queue.insert((Reverse(priority), id));
        let place = Place::Queued(Box::new(unit));
        self.slots.push_back(Slot { place, size, priority, among, deadline, sent: now });
        Ok(id)
    }

    /// Whether a new unit's frame is begun, and the priority among which it goes; `None` if the unit is dropped
    /// with its frame, or with one that it depends on.
    fn fate(&mut self, now: Time, id: u64, unit: &Outgoing) -> Option<(bool, u8)> {
        if self.config.reliability != Reliability::Deadline || unit.deadline.is_none() {
            return Some((false, unit.priority));
        }
        match self.frames.on_push(now, id, unit) {
            frames::Fate::Queued { is_begun, among } => {
                Some((is_begun, among.unwrap_or(unit.priority)))
            }
            frames::Fate::Gone => None,
        }
    }

    /// In order, priorities have no effect; otherwise a unit has at most the priority of the queued
    /// units that it depends on. The rest of a frame that is begun goes before frames that are not.
    fn send_priority(&mut self, unit: &Outgoing, among: u8, is_begun: bool) -> u8 {
        if self.config.order == DeliveryOrder::InOrder {
            return 0;
        }
        let mut priority = among.saturating_add(is_begun.into());
        for id in &unit.depends_on {
            if let Some(slot) = self.slot(*id)
                && matches!(slot.place, Place::Queued(_))
            {
                priority = priority.min(slot.priority);
            }
        }
        priority
    }

    /// The unit of the highest priority within the peer's credit: the peer accepts none far
    /// beyond a missing one, whatever its priority.
    fn next_unit(&self) -> Option<(Reverse<u8>, u64)> {
        let free = self.config.reliability == Reliability::None;
        self.queue.iter().find(|(_, id)| free || *id < self.credit_units).copied()
    }

    /// The next queued unit: its number and its priority among flows.
    pub(super) fn head(&self) -> Option<(u64, u8)> {
        let (_, id) = self.next_unit()?;
        let slot = self.slots.get((id - self.first) as usize)?;
        Some((id, slot.among))
    }

    /// True if the peer's credit allows the next unit.
    pub(super) fn has_credit(&self) -> bool {
        self.head_size().is_some_and(|size| self.charged + size <= self.credit_bytes)
    }

    /// Size of the next unit's data.
    pub(super) fn head_size(&self) -> Option<u64> {
        let (_, id) = self.next_unit()?;
        self.slots.get((id - self.first) as usize).map(|slot| slot.size)
    }

    /// Removes the next unit from the queue, to write it on `stream` (`None`: as datagrams).
    pub(super) fn pop(&mut self, stream: Option<StreamId>) -> Option<(UnitHeader, Bytes)> {
        let (priority, id) = self.next_unit()?;
        self.queue.remove(&(priority, id));
        for rest in self.frames.on_sent(id) {
            self.raise(rest);
        }
        let (flow, now) = (self.number, self.now);
        let slot = self.slot(id)?;
        let written = stream.map_or(Place::Resolved, Place::Written);
        let Place::Queued(unit) = std::mem::replace(&mut slot.place, written) else { return None };
        let sent = slot.sent;
        let lifetime = unit.deadline.map(|deadline| deadline.since(sent));
        let header = UnitHeader {
            flow,
            id,
            length: slot.size,
            sent: Sent::of(sent, now),
            lifetime,
            priority: unit.priority,
            continues: unit.continues,
            depends_on: unit.depends_on,
        };
        let (size, deadline) = (slot.size, slot.deadline);
        self.statistics.on_written(size);
        if stream.is_some() {
            self.charged += size;
            self.on_streams += size;
        } else {
            self.forget(id, size, deadline, Fate::Unknown);
        }
        Some((header, unit.data))
    }

    /// All of the unit was acknowledged.
    pub(super) fn on_arrived(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        if !matches!(slot.place, Place::Written(_)) {
            return;
        }
        slot.place = Place::Resolved;
        let (size, deadline) = (slot.size, slot.deadline);
        self.on_streams -= size;
        self.statistics.arrived += 1;
        self.forget(id, size, deadline, Fate::Arrived);
    }

    fn forget(&mut self, id: u64, size: u64, deadline: Option<Time>, fate: Fate) {
        self.fates.push((id, fate));
        self.held -= size;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, id));
        }
        while self.slots.front().is_some_and(|slot| matches!(slot.place, Place::Resolved)) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// The earliest deadline of a unit that is not dropped.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Drops the next unit whose deadline has passed. Returns its state, or
    /// `None` if there is none.
    pub(super) fn give_up(&mut self, now: Time) -> Option<Option<GivenUp>> {
        self.now = now;
        let (deadline, id) = *self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.remove(&(deadline, id));
        let unreliable = self.config.reliability == Reliability::None;
        let slot = self.slot(id)?;
        let (size, priority) = (slot.size, slot.priority);
        let next = if unreliable { Place::Resolved } else { Place::Dropping };
        match std::mem::replace(&mut slot.place, next) {
            Place::Queued(_) => {
                self.queue.remove(&(Reverse(priority), id));
                if unreliable {
                    self.statistics.dropped += 1;
                    self.forget(id, size, None, Fate::Dropped);
                } else {
                    self.unreported.push(DroppedUnit { id, bytes: 0 });
                    // Its frame cannot be whole any more.
                    for rest in self.frames.drop_frame_of(id) {
                        self.drop_queued(rest);
                    }
                }
                Some(None)
            }
            Place::Written(stream) => {
                self.on_streams -= size;
                self.unreported.push(DroppedUnit { id, bytes: size });
                Some(Some(GivenUp { stream }))
            }
            before => {
                if let Some(slot) = self.slot(id) {
                    slot.place = before;
                }
                Some(None)
            }
        }
    }

    /// A queued unit goes before others of its priority.
    fn raise(&mut self, id: u64) {
        if self.config.order == DeliveryOrder::InOrder {
            return;
        }
        let Some(slot) = self.slot(id) else { return };
        let before = slot.priority;
        slot.priority = before.saturating_add(1);
        let after = slot.priority;
        if self.queue.remove(&(Reverse(before), id)) {
            self.queue.insert((Reverse(after), id));
        }
    }

    /// Drops a unit if it is queued.
    fn drop_queued(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        if !matches!(slot.place, Place::Queued(_)) {
            return;
        }
        slot.place = Place::Dropping;
        let (priority, deadline) = (slot.priority, slot.deadline.take());
        self.queue.remove(&(Reverse(priority), id));
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.statistics.shed += 1;
        self.unreported.push(DroppedUnit { id, bytes: 0 });
    }

    /// The path bears all that is asked of it.
    pub(super) fn on_wide_path(&mut self) {
        self.frames.is_narrow = false;
    }

    /// What it has [asked of the path lately](Frames::lately), with deadlines.
    pub(super) fn need(&self, now: Time) -> Option<Rate> {
        self.frames.lately(now)
    }

    /// Lays the queue out for what the path bears, if frames or the rate are new, and drops whole
    /// frames if not all arrive by their deadlines. `buffered`: bytes that the stack holds at most.
    pub(super) fn plan(&mut self, now: Time, path: &Path, buffered: u64) {
        let is_due = self.planned.is_none_or(|(at, rate)| {
            (self.frames.is_new || rate != path.bears)
                && (self.queue.len() <= FEW || now.since(at) >= PAUSE)
        });
        if self.queue.is_empty() || self.config.reliability != Reliability::Deadline || !is_due {
            return;
        }
        self.planned = Some((now, path.bears));
        if !self.frames.note_path(now, path) {
            return;
        }
        let waiting = |(_, id): &(Reverse<u8>, u64)| {
            let slot = self.slots.get((id - self.first) as usize)?;
            let (id, frame) = (*id, self.frames.frame_of(*id)?);
            Some(Waiting { id, frame, size: slot.size, sent: slot.sent, deadline: slot.deadline })
        };
        let queue: Vec<Waiting> = self.queue.iter().filter_map(waiting).collect();
        for id in self.frames.plan(now, path, self.on_streams.min(buffered), &queue) {
            self.drop_queued(id);
        }
    }

    /// True if more waits than the stack accepts.
    pub(super) fn is_filled(&self) -> bool {
        !self.queue.is_empty() || !self.writing.is_empty()
    }

    /// True if all units of a stream have been dropped.
    pub(super) fn are_given_up(&mut self, units: &[u64]) -> bool {
        units
            .iter()
            .all(|id| self.slot(*id).is_none_or(|slot| !matches!(slot.place, Place::Written(_))))
    }

    /// Dropped units not yet reported to the peer; those of one message.
    pub(super) fn tell_dropped(&mut self) -> Option<Vec<DroppedUnit>> {
        if self.unreported.is_empty() {
            return None;
        }
        let count = self.unreported.len().min(MAX_DROPPED);
        let reported: Vec<_> = self.unreported.drain(..count).collect();
        self.unsettled.push_back(reported.iter().map(|unit| unit.id).collect());
        Some(reported)
    }

    /// The peer answered the oldest report: these had arrived. Returns the others.
    pub(super) fn on_settled(&mut self, arrived: &[u64]) -> Result<Vec<u64>, Violation> {
        let reported = self.unsettled.pop_front().ok_or(Violation::Unasked)?;
        if !arrived.iter().all(|id| reported.contains(id)) {
            return Err(Violation::Unasked);
        }
        let mut dropped = Vec::new();
        for id in reported {
            let fate = if arrived.contains(&id) {
                self.statistics.arrived += 1;
                Fate::Arrived
            } else {
                self.statistics.dropped += 1;
                dropped.push(id);
                Fate::Dropped
            };
            if let Some(slot) = self.slot(id) {
                slot.place = Place::Resolved;
                let size = slot.size;
                self.forget(id, size, None, fate);
            }
        }
        Ok(dropped)
    }

    /// Units resolved since the last call.
    pub(super) fn fates(&mut self) -> std::vec::Drain<'_, (u64, Fate)> {
        self.fates.drain(..)
    }

    /// The connection has ended: nothing more is heard of units that are not resolved.
    pub(super) fn end(&mut self) {
        let is_open = |slot: &Slot| !matches!(slot.place, Place::Resolved);
        let open = self.slots.iter().enumerate().filter(|(_, slot)| is_open(slot));
        self.fates.extend(open.map(|(place, _)| (self.first + place as u64, Fate::Unknown)));
        self.slots.clear();
    }

    pub(super) fn on_credit(&mut self, units: u64, bytes: u64) {
        self.credit_units = self.credit_units.max(units);
        self.credit_bytes = self.credit_bytes.max(bytes);
    }

    /// True if a unit of this size can be queued. Numbers never run farther ahead of the oldest
    /// unresolved unit than the peer can distinguish.
    fn has_room(&self, size: u64, peer: &Limits, config: &Configuration) -> bool {
        let units = config.send_units.min(peer.units);
        self.held + size <= config.send_bytes.get() && (self.slots.len() as u64) < units
    }

    /// Returns true once after `Full` when there is space again: a quarter, and what the refused unit
    /// takes.
    pub(super) fn has_room_again(&mut self, peer: &Limits, config: &Configuration) -> bool {
        let Some(size) = self.refused else { return false };
        let units = config.send_units.min(peer.units);
        let has_quarter = self.held / 3 <= config.send_bytes.get() / 4
            && self.slots.len() as u64 / 3 <= units / 4;
        let has_room = has_quarter && self.has_room(size, peer, config);
        if has_room {
            self.refused = None;
        }
        has_room
    }

    /// Counts the time during which units waited for credit.
    pub(super) fn count_blocked(&mut self, now: Time) {
        let blocked = !self.queue.is_empty()
            && !self.has_credit()
            && self.config.reliability != Reliability::None;
        self.statistics.on_blocked(now, blocked);
    }

    /// True if nothing of it is queued or in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.unreported.is_empty()
    }

    /// True if everything is resolved.
    pub(super) fn is_over(&self) -> bool {
        self.finish_sent && self.is_idle()
    }

    /// Statistics of the flow.
    pub(super) fn statistics(&mut self, now: Time) -> SendStatistics {
        self.count_blocked(now);
        let mut statistics = self.statistics;
        statistics.held_units = self.slots.len() as u64;
        statistics.held_bytes = self.held;
        statistics.oldest = self.slots.front().map_or(Duration::ZERO, |slot| now.since(slot.sent));
        statistics.settled = self.first;
        statistics
    }
}

#[cfg(test)]
mod tests;
