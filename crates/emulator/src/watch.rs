//! Watching a link: the queue length at each arrival, and every packet that passes.

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
}

impl Watch {
    pub(crate) fn new(
        groups: Arc<[u32]>,
        group_count: usize,
        count_lengths: bool,
        record_packets: bool,
    ) -> Self {
        let lengths = count_lengths.then(|| vec![Vec::new(); group_count]);
        Self { groups, lengths, records: record_packets.then(Vec::new) }
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
    pub(crate) fn enqueued(&mut self, packet: &Packet, waiting: u64) {
        if let Some(seen) = self.seen(packet, waiting) {
            seen.arrivals += 1;
        }
    }

    /// A scheduled link drops a packet; `waiting` packets remain.
    pub(crate) fn dropped(&mut self, packet: &Packet, waiting: u64, reason: DropReason) {
        if let Some(seen) = self.seen(packet, waiting) {
            seen.drops += 1;
        }
        self.record(packet, None, Some(reason));
    }

    /// A packet leaves a scheduled link; the wire may still lose it.
    pub(crate) fn departed(&mut self, starts: Time, packet: &Packet, is_lost: bool) {
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
        let Some(records) = &mut self.records else { return };
        records.push(PacketRecord {
            offered: packet.entered,
            started,
            dropped,
            flow: packet.flow,
            is_data: packet.is_data,
            number: packet.number,
            size: packet.bytes.len() as u64,
            retransmission: packet.retransmission,
        });
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
