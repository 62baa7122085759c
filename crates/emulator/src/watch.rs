//! Watching a link: the queue length at each arrival, and every packet that passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ontempo_foundation::Time;
use ontempo_network::{DropReason, Fate};

use crate::network::Packet;

/// One packet offered to a watched link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketRecord {
    pub(crate) offered: Time,
    /// When its transmission began; `None` if it was dropped before.
    pub(crate) started: Option<Time>,
    pub(crate) dropped: Option<DropReason>,
    pub(crate) flow: u32,
    pub(crate) is_data: bool,
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) retransmission: bool,
}

impl PacketRecord {
    fn of(packet: &Packet, started: Option<Time>, dropped: Option<DropReason>) -> Self {
        Self {
            offered: packet.entered,
            started,
            dropped,
            flow: packet.flow,
            is_data: packet.is_data,
            number: packet.number,
            size: packet.bytes.len() as u64,
            retransmission: packet.retransmission,
        }
    }
}

/// Arrivals and drops at one queue length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) arrivals: u64,
    pub(crate) drops: u64,
}

/// The records of one link.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Group of each flow.
    groups: Arc<[u32]>,
    /// Arrivals and drops of each group, by queue length; `None` if not recorded.
    lengths: Option<Vec<Vec<Seen>>>,
    records: Option<Vec<PacketRecord>>,
    /// Of a scheduled link whose packets are recorded, those that wait, by handle, with the number of their
    /// arrival. They have a record when they leave.
    waiting: BTreeMap<u32, (u64, PacketRecord)>,
    enqueued: u64,
}

impl Watch {
    pub(crate) fn new(
        groups: Arc<[u32]>,
        group_count: usize,
        count_lengths: bool,
        record_packets: bool,
    ) -> Self {
        let lengths = count_lengths.then(|| vec![Vec::new(); group_count]);
        let records = record_packets.then(Vec::new);
        Self { groups, lengths, records, waiting: BTreeMap::new(), enqueued: 0 }
    }

    /// A packet was offered to a link that returns its fate at once.
    pub(crate) fn offered(&mut self, packet: &Packet, found: u64, fate: Fate) {
        if let Some(seen) = self.seen(packet, found) {
            seen.arrivals += 1;
            seen.drops += u64::from(matches!(fate, Fate::Dropped(_)));
        }
        let (started, dropped) = match fate {
            Fate::Arrives { starts, .. } => (Some(starts), None),
            Fate::Dropped(reason) => (None, Some(reason)),
        };
        self.record(packet, started, dropped);
    }

    /// A packet is enqueued at a scheduled link.
    pub(crate) fn enqueued(&mut self, handle: u32, packet: &Packet, waiting: u64) {
        if let Some(seen) = self.seen(packet, waiting) {
            seen.arrivals += 1;
        }
        if self.records.is_some() {
            self.waiting.insert(handle, (self.enqueued, PacketRecord::of(packet, None, None)));
            self.enqueued += 1;
        }
    }

    /// A scheduled link drops a packet; `waiting` packets remain.
    pub(crate) fn dropped(
        &mut self,
        handle: u32,
        packet: &Packet,
        waiting: u64,
        reason: DropReason,
    ) {
        self.waiting.remove(&handle);
        if let Some(seen) = self.seen(packet, waiting) {
            seen.drops += 1;
        }
        self.record(packet, None, Some(reason));
    }

    /// A packet leaves a scheduled link; the wire may still lose it.
    pub(crate) fn departed(&mut self, handle: u32, packet: &Packet, starts: Time, is_lost: bool) {
        self.waiting.remove(&handle);
        let lost = is_lost.then_some(DropReason::Loss);
        self.record(packet, (!is_lost).then_some(starts), lost);
    }

    fn seen(&mut self, packet: &Packet, waiting: u64) -> Option<&mut Seen> {
        let group = *self.groups.get(packet.flow as usize)? as usize;
        let lengths = self.lengths.as_mut()?.get_mut(group)?;
        let waiting = usize::try_from(waiting).ok()?;
        if lengths.len() <= waiting {
            lengths.resize(waiting + 1, Seen::default());
        }
        lengths.get_mut(waiting)
    }

    fn record(&mut self, packet: &Packet, started: Option<Time>, dropped: Option<DropReason>) {
        if let Some(records) = &mut self.records {
            records.push(PacketRecord::of(packet, started, dropped));
        }
    }

    /// The run ends: what still waits at a scheduled link has a record, too, in the order of arrival.
    pub(crate) fn end(&mut self) {
        let mut waiting: Vec<_> = std::mem::take(&mut self.waiting).into_values().collect();
        waiting.sort_by_key(|(number, _)| *number);
        if let Some(records) = &mut self.records {
            records.extend(waiting.into_iter().map(|(_, record)| record));
        }
    }

    /// Resets the counters, as the measured span begins.
    pub(crate) fn restart(&mut self) {
        self.lengths.iter_mut().flatten().for_each(Vec::clear);
    }

    pub(crate) fn counts_lengths(&self) -> bool {
        self.lengths.is_some()
    }

    pub(crate) fn lengths(&self) -> &[Vec<Seen>] {
        self.lengths.as_deref().unwrap_or_default()
    }

    pub(crate) fn records(&self) -> &[PacketRecord] {
        self.records.as_deref().unwrap_or_default()
    }
}
