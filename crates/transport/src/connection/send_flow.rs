//! A sending flow: units queued, in flight, and dropped.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use noq_proto::StreamId;
use ontempo_foundation::{Duration, Time};

use super::Violation;
use super::statistics::SendStatistics;
use crate::config::Configuration;
use crate::flow::{DeliveryOrder, FlowConfig, Outgoing, Reliability};
use crate::wire::{DroppedUnit, Limits, MAX_DEPENDENCIES, MAX_DROPPED, UnitHeader};

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

/// State of a unit.
#[derive(Clone, Debug)]
enum Place {
    /// Queued, with its data.
    Queued(Box<Outgoing>),
    /// On a stream.
    Written(StreamId),
    /// In pieces that we repair.
    Carried,
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
    deadline: Option<Time>,
    sent: Time,
}

/// Result of [`SendFlow::give_up`] for a unit that was sent, at least in part.
pub(super) enum GivenUp {
    /// It was on this stream.
    Stream(StreamId),
    /// It was sent in pieces that we repair; its number.
    Carried(u64),
}

/// How a unit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// On a stream, which the stack repairs.
    Stream(StreamId),
    /// In pieces that we repair.
    Carried,
    /// In datagrams that are not repaired.
    Unrepaired,
}

/// A sending flow.
#[derive(Debug)]
pub(super) struct SendFlow {
    pub(super) number: u64,
    pub(super) config: FlowConfig,
    /// Number of the unit in the first slot.
    first: u64,
    slots: VecDeque<Slot>,
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
    /// The stream being written, and what is left to write.
    pub(super) writing: Option<(StreamId, VecDeque<Bytes>)>,
    /// The application has finished the flow.
    pub(super) finished: bool,
    pub(super) finish_sent: bool,
    /// The application got `Full` and waits for `Writable`.
    starved: bool,
    pub(super) statistics: SendStatistics,
}

impl SendFlow {
    pub(super) fn new(number: u64, config: FlowConfig, units: u64, bytes: u64) -> Self {
        Self {
            number,
            config,
            first: 0,
            slots: VecDeque::new(),
            queue: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            held: 0,
            credit_units: units,
            credit_bytes: bytes,
            charged: 0,
            unreported: Vec::new(),
            unsettled: VecDeque::new(),
            writing: None,
            finished: false,
            finish_sent: false,
            starved: false,
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
        if unit.depends_on.len() > MAX_DEPENDENCIES || unit.depends_on.iter().any(|on| *on >= id) {
            return Err(SendError::Dependencies);
        }
        if unit.deadline.is_some() && !self.config.reliability.allows_deadlines() {
            return Err(SendError::Deadline);
        }
        // Numbers never run farther ahead of the oldest unresolved unit than the peer can
        // distinguish.
        let units = config.send_units.min(peer.units);
        if self.held + size > config.send_bytes.get() || self.slots.len() as u64 >= units {
            self.starved = true;
            self.statistics.refused += 1;
            return Err(SendError::Full);
        }
        let priority = self.send_priority(&unit);
        let deadline = unit.deadline;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        self.held += size;
        self.statistics.on_push(size);
        self.queue.insert((Reverse(priority), id));
        let place = Place::Queued(Box::new(unit));
        self.slots.push_back(Slot { place, size, priority, deadline, sent: now });
        Ok(id)
    }

    /// In order, priorities have no effect; otherwise a unit has at most the priority of the queued
    /// units that it depends on.
    fn send_priority(&mut self, unit: &Outgoing) -> u8 {
        if self.config.order == DeliveryOrder::InOrder {
            return 0;
        }
        let mut priority = unit.priority;
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
        let Place::Queued(unit) = &slot.place else { return None };
        Some((id, unit.priority))
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

    /// Whether the next unit has a deadline, and that is when.
    pub(super) fn head_deadline(&self) -> Option<Time> {
        let (_, id) = self.next_unit()?;
        self.slots.get((id - self.first) as usize)?.deadline
    }

    /// Removes the next unit from the queue, to send it.
    pub(super) fn pop(&mut self, way: Way) -> Option<(UnitHeader, Bytes)> {
        let (priority, id) = self.next_unit()?;
        self.queue.remove(&(priority, id));
        let flow = self.number;
        let slot = self.slot(id)?;
        let written = match way {
            Way::Stream(stream) => Place::Written(stream),
            Way::Carried => Place::Carried,
            Way::Unrepaired => Place::Resolved,
        };
        let Place::Queued(unit) = std::mem::replace(&mut slot.place, written) else { return None };
        let sent = slot.sent;
        let lifetime = unit.deadline.map(|deadline| deadline.since(sent));
        let header = UnitHeader {
            flow,
            id,
            length: slot.size,
            sent,
            lifetime,
            priority: unit.priority,
            depends_on: unit.depends_on,
        };
        let (size, deadline) = (slot.size, slot.deadline);
        self.statistics.on_written(size);
        if way == Way::Unrepaired {
            self.forget(id, size, deadline);
        } else {
            self.charged += size;
        }
        Some((header, unit.data))
    }

    /// All of the unit was acknowledged.
    pub(super) fn on_arrived(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        if !matches!(slot.place, Place::Written(_) | Place::Carried) {
            return;
        }
        slot.place = Place::Resolved;
        let (size, deadline) = (slot.size, slot.deadline);
        self.statistics.arrived += 1;
        self.forget(id, size, deadline);
    }

    fn forget(&mut self, id: u64, size: u64, deadline: Option<Time>) {
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
                    self.forget(id, size, None);
                } else {
                    self.unreported.push(DroppedUnit { id, bytes: 0 });
                }
                Some(None)
            }
            Place::Written(stream) => {
                self.unreported.push(DroppedUnit { id, bytes: size });
                Some(Some(GivenUp::Stream(stream)))
            }
            Place::Carried => {
                self.unreported.push(DroppedUnit { id, bytes: size });
                Some(Some(GivenUp::Carried(id)))
            }
            before => {
                if let Some(slot) = self.slot(id) {
                    slot.place = before;
                }
                Some(None)
            }
        }
    }

    /// A unit in pieces can no longer be sent: it is dropped before its deadline.
    pub(super) fn give_up_carried(&mut self, id: u64) {
        let Some(slot) = self.slot(id).filter(|slot| matches!(slot.place, Place::Carried)) else {
            return;
        };
        slot.place = Place::Dropping;
        let (size, deadline) = (slot.size, slot.deadline);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.unreported.push(DroppedUnit { id, bytes: size });
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
            if arrived.contains(&id) {
                self.statistics.arrived += 1;
            } else {
                self.statistics.dropped += 1;
                dropped.push(id);
            }
            if let Some(slot) = self.slot(id) {
                slot.place = Place::Resolved;
                let size = slot.size;
                self.forget(id, size, None);
            }
        }
        Ok(dropped)
    }

    pub(super) fn on_credit(&mut self, units: u64, bytes: u64) {
        self.credit_units = self.credit_units.max(units);
        self.credit_bytes = self.credit_bytes.max(bytes);
    }

    /// Returns true once after `Full` when there is space again.
    pub(super) fn has_room_again(&mut self, peer: &Limits, config: &Configuration) -> bool {
        let units = config.send_units.min(peer.units);
        let room = self.held / 3 <= config.send_bytes.get() / 4
            && self.slots.len() as u64 / 3 <= units / 4;
        room && std::mem::take(&mut self.starved)
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
