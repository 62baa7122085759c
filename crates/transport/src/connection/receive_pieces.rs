//! Pieces of units with a deadline, which their sender repairs.

use std::collections::BTreeMap;

use bytes::Bytes;
use ontempo_foundation::Time;

use super::receive_flow::{Fragments, ReceiveFlow, cost_of_waiting};
use super::receiving::Receiving;
use super::{Connection, Violation};
use crate::wire::FragmentHeader;

/// A unit has at most one piece for so many bytes, and a few: those of a sender fill packets.
const LEAST_PIECE: u64 = 256;
const FEW_PIECES: u64 = 4;

/// Datagrams of flows that are not open yet: they may overtake the message that opens them.
#[derive(Debug, Default)]
pub(super) struct Early {
    flows: BTreeMap<u64, Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    datagrams: Vec<Bytes>,
    memory: u64,
    /// Some were discarded.
    overflows: bool,
}

impl Early {
    /// Keeps a datagram; those of a flow take at most `most` bytes.
    fn keep(&mut self, flow: u64, datagram: &Bytes, most: u64) {
        let waiting = self.flows.entry(flow).or_default();
        let cost = cost_of_waiting(datagram);
        if waiting.memory + cost > most {
            waiting.overflows = true;
            return;
        }
        waiting.memory += cost;
        // A copy: a slice would keep its whole packet in memory.
        waiting.datagrams.push(Bytes::copy_from_slice(datagram));
    }

    /// Those of the flows below this number.
    fn take(&mut self, open: u64) -> BTreeMap<u64, Waiting> {
        if self.flows.first_key_value().is_none_or(|(flow, _)| *flow >= open) {
            return BTreeMap::new();
        }
        let later = self.flows.split_off(&open);
        std::mem::replace(&mut self.flows, later)
    }

    pub(super) fn memory(&self) -> u64 {
        self.flows.values().map(|waiting| waiting.memory).sum()
    }
}

/// A piece: its flow, its unit, the unit's length and the piece's offset in it.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) flow: u64,
    pub(super) id: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
}

impl Receiving {
    /// Units in pieces that are dropped: what has come of them is discarded.
    pub(super) fn drop_pieces(&mut self, flow: u64, id: u64) {
        if let Some(length) = self.pieces.remove((flow, id))
            && let Some(flow) = self.flows.get_mut(&flow)
        {
            flow.unreserve(length);
        }
    }
}

impl Connection {
    /// Datagrams that came before their flow was opened, if one was.
    pub(super) fn read_early_datagrams(&mut self, now: Time) -> Result<(), Violation> {
        let open = self.receiving.opened();
        for (flow, waiting) in self.receiving.early.take(open) {
            let is_repaired = self.receiving.flows.get(&flow).is_some_and(ReceiveFlow::has_pieces);
            if waiting.overflows && is_repaired {
                // What was discarded counts as arrived at the sender, which has exceeded its credit.
                return Err(Violation::Credit);
            }
            for datagram in waiting.datagrams {
                self.read_datagram(now, datagram)?;
            }
        }
        Ok(())
    }

    /// Keeps a datagram of a flow that may still be opened.
    pub(super) fn keep_early(&mut self, flow: u64, datagram: &Bytes) -> Result<(), Violation> {
        let limits = self.config.limits;
        if flow >= self.receiving.flow_credit(&limits) {
            return Err(Violation::Credit);
        }
        // Twice the credit: a piece may be there twice, and takes more memory than its bytes.
        self.receiving.early.keep(flow, datagram, limits.bytes.saturating_mul(2));
        Ok(())
    }

    /// Takes a piece of a unit that its sender repairs.
    pub(super) fn read_piece(
        &mut self,
        now: Time,
        at: At,
        header: FragmentHeader,
        data: Bytes,
    ) -> Result<(), Violation> {
        let receiving = &mut self.receiving;
        let Some(flow) = receiving.flows.get_mut(&at.flow) else { return Ok(()) };
        let key = (at.flow, at.id);
        if flow.has_arrived(at.id) {
            flow.count_unwanted();
            return Ok(());
        }
        if !receiving.pieces.has(key) {
            flow.admit(at.id, at.length)?;
        }
        let most = FEW_PIECES + at.length / LEAST_PIECE;
        if receiving.pieces.count(key) >= most {
            return Err(Violation::Absurd);
        }
        let header = match header {
            FragmentHeader::First(header) => Some(header),
            FragmentHeader::Later { .. } => None,
        };
        let place = (at.length, at.offset);
        if let Some(partial) = Fragments::insert(&mut receiving.pieces, key, header, place, data) {
            flow.complete(now, partial, &self.clocks)?;
        }
        Ok(())
    }
}
