//! Watching a link: the queue length at each arrival, and every packet that passes.

use std::collections::BTreeMap;

use ontempo_foundation::{Packets, Time};
use ontempo_network::{Departure, DropReason, Fate};

use crate::packet::Packet;
use crate::trace::Tap;

/// One packet offered to a watched link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketRecord {
    pub(crate) offered: Time,
    /// When its transmission began; `None` where it was dropped before.
    pub(crate) started: Option<Time>,
    pub(crate) dropped: Option<DropReason>,
    pub(crate) packet: Packet,
}

/// Arrivals and drops at one queue length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) arrivals: u64,
    pub(crate) drops: u64,
}

/// The records of one link.
pub(crate) struct Watch {
    /// Group of each flow.
    groups: std::sync::Arc<[u32]>,
    count_lengths: bool,
    record_packets: bool,
    /// Arrivals and drops of each group, by queue length.
    lengths: Vec<Vec<Seen>>,
    records: Vec<PacketRecord>,
    /// Of a scheduled link whose packets are recorded, those that wait, by handle, with the number of their
    /// arrival. They have a record when they leave.
    waiting: BTreeMap<u32, (u64, Packet)>,
    enqueued: u64,
    found: Packets,
    /// When the packet that is being offered would begin its transmission.
    starts: Time,
    tap: Option<Tap>,
}

impl Watch {
    pub(crate) fn new(
        groups: std::sync::Arc<[u32]>,
        group_count: usize,
        count_lengths: bool,
        record_packets: bool,
    ) -> Self {
        Self {
            groups,
            count_lengths,
            record_packets,
            lengths: vec![Vec::new(); group_count],
            records: Vec::new(),
            waiting: BTreeMap::new(),
            enqueued: 0,
            found: Packets::new(0),
            starts: Time::ZERO,
            tap: None,
        }
    }

    /// A watch that neither counts nor records.
    pub(crate) fn disabled() -> Self {
        Self::new(std::sync::Arc::new([]), 0, false, false)
    }

    /// Also traces every packet that leaves.
    pub(crate) fn set_tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    pub(crate) fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref()
    }

    pub(crate) fn before(&mut self, waiting: Packets, starts: Time) {
        self.found = waiting;
        self.starts = starts;
    }

    pub(crate) fn after(&mut self, packet: &Packet, fate: Fate) {
        if let Some(seen) = self.seen(packet, self.found) {
            seen.arrivals += 1;
            seen.drops += u64::from(matches!(fate, Fate::Dropped(_)));
        }
        let (started, dropped) = match fate {
            Fate::Arrives { starts, .. } => (Some(starts), None),
            Fate::Dropped(reason) => (None, Some(reason)),
        };
        self.record(packet, started, dropped);
        if let Some(tap) = &mut self.tap {
            match fate {
                Fate::Arrives { starts, marked, .. } => tap.departs(starts, packet, marked),
                // It is lost on the wire, after the queue: it has left.
                Fate::Dropped(DropReason::Loss) => tap.departs(self.starts, packet, false),
                Fate::Dropped(_) => {}
            }
        }
    }

    /// A packet is enqueued at a scheduled link.
    pub(crate) fn enqueued(&mut self, handle: u32, packet: &Packet, waiting: Packets) {
        if let Some(seen) = self.seen(packet, waiting) {
            seen.arrivals += 1;
        }
        if self.record_packets {
            self.waiting.insert(handle, (self.enqueued, *packet));
            self.enqueued += 1;
        }
    }

    /// A scheduled link drops a packet; `waiting` packets remain.
    pub(crate) fn dropped(
        &mut self,
        handle: u32,
        packet: &Packet,
        waiting: Packets,
        reason: DropReason,
    ) {
        self.waiting.remove(&handle);
        if let Some(seen) = self.seen(packet, waiting) {
            seen.drops += 1;
        }
        self.record(packet, None, Some(reason));
    }

    /// A packet leaves a scheduled link.
    pub(crate) fn departed(&mut self, now: Time, packet: &Packet, departure: &Departure) {
        self.waiting.remove(&departure.packet.handle);
        let lost = departure.arrives.is_none().then_some(DropReason::Loss);
        self.record(packet, lost.is_none().then_some(now), lost);
        if let Some(tap) = &mut self.tap {
            tap.departs(now, packet, departure.marked);
        }
    }

    fn seen(&mut self, packet: &Packet, waiting: Packets) -> Option<&mut Seen> {
        if !self.count_lengths {
            return None;
        }
        let lengths = &mut self.lengths[self.groups[packet.flow as usize] as usize];
        let waiting = waiting.get() as usize;
        if lengths.len() <= waiting {
            lengths.resize(waiting + 1, Seen::default());
        }
        lengths.get_mut(waiting)
    }

    fn record(&mut self, packet: &Packet, started: Option<Time>, dropped: Option<DropReason>) {
        if self.record_packets {
            let offered = packet.entered;
            self.records.push(PacketRecord { offered, started, dropped, packet: *packet });
        }
    }

    /// The run ends: what still waits at a scheduled link has a record, too, in the order of arrival, as it has
    /// at a link that knows beforehand when a packet leaves.
    pub(crate) fn end(&mut self) {
        let mut waiting: Vec<_> = std::mem::take(&mut self.waiting).into_values().collect();
        waiting.sort_by_key(|(number, _)| *number);
        for (_, packet) in waiting {
            self.record(&packet, None, None);
        }
    }

    /// Resets the counters, as the measured span begins.
    pub(crate) fn restart_counts(&mut self) {
        self.lengths.iter_mut().for_each(Vec::clear);
    }

    pub(crate) fn lengths(&self) -> Option<&[Vec<Seen>]> {
        self.count_lengths.then_some(&self.lengths)
    }

    pub(crate) fn records(&self) -> Option<&[PacketRecord]> {
        self.record_packets.then_some(&self.records)
    }
}
