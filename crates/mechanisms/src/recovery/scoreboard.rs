//! What is in flight: the SACK scoreboard of RFC 6675.

use std::collections::VecDeque;

use super::Watch;

/// A run of packets that a receiver holds beyond its cumulative acknowledgement: `start`
/// inclusive, `end` exclusive (RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first packet of the run.
    pub start: u64,
    /// The first packet after it.
    pub end: u64,
}

/// Selectively acknowledged.
const SACKED: u8 = 1;
/// Found lost: the first copy no longer counts as in flight.
const LOST: u8 = 2;
/// Retransmitted: a second copy counts as in flight.
const RETRANSMITTED: u8 = 4;

/// Packets with as many selectively acknowledged above them count as lost (RFC 6675, DupThresh).
pub(super) const DUPLICATE_THRESHOLD: usize = 3;

/// The state of every packet between the cumulative acknowledgement and the next new packet.
///
/// Packets are numbered in the order of first transmission. As long as nothing is lost or
/// selectively acknowledged, two numbers are all there is; a byte a packet is kept from the
/// first gap until the cumulative acknowledgement has passed it. Work is constant per packet.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Scoreboard {
    /// The flags of packets `first..first + flags.len()`; those above have none.
    flags: VecDeque<u8>,
    /// The lowest packet not cumulatively acknowledged (HighACK + 1).
    first: u64,
    /// The next new packet (HighData + 1).
    next: u64,
    /// Packets estimated to be in the network (RFC 6675, SetPipe).
    pipe: u64,
    /// The highest packets selectively acknowledged, highest first: what lies below the third
    /// is lost.
    highest_sacked: [Option<u64>; DUPLICATE_THRESHOLD],
    /// Below it, every packet not selectively acknowledged has been found lost.
    lost_below: u64,
    /// No packet below it waits for retransmission.
    retransmit_from: u64,
    /// How often a packet was found lost.
    losses: u64,
    /// Blocks already entered, so that a repeated block costs nothing.
    entered: [SackBlock; 4],
    oldest_entered: usize,
}

impl Scoreboard {
    /// The lowest packet not cumulatively acknowledged.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The next new packet.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Packets sent and not cumulatively acknowledged.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.next - self.first
    }

    /// Whether no outstanding packet is lost, sent again or selectively acknowledged.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.flags.is_empty()
    }

    /// Packets estimated to be in the network (RFC 6675, section 4, SetPipe).
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.pipe
    }

    /// A new packet was sent; returns its number.
    #[inline]
    pub fn send_new(&mut self) -> u64 {
        self.next += 1;
        self.pipe += 1;
        self.next - 1
    }

    /// `packet` was sent again.
    pub fn retransmit(&mut self, packet: u64) {
        *self.flag(packet) |= RETRANSMITTED;
        self.pipe += 1;
        if packet == self.retransmit_from {
            self.retransmit_from += 1;
        }
    }

    /// Everything below `ack` has arrived; returns how many packets that newly acknowledges,
    /// those selectively acknowledged before not counted.
    #[inline]
    pub fn acknowledge(&mut self, ack: u64) -> u64 {
        self.acknowledge_watched(ack, &mut ())
    }

    /// As [`acknowledge`](Self::acknowledge) up to `next` of a [whole](Self::is_whole) board.
    #[inline]
    pub(super) fn acknowledge_whole(&mut self, ack: u64) -> u64 {
        let newly = ack - self.first;
        self.pipe -= newly;
        self.first = ack;
        newly
    }

    /// Like [`acknowledge`](Self::acknowledge); tells `watch` of each packet newly acknowledged.
    #[inline]
    pub fn acknowledge_watched(&mut self, ack: u64, watch: &mut impl Watch) -> u64 {
        let ack = ack.min(self.next);
        let mut newly = 0;
        while self.first < ack && !self.flags.is_empty() {
            let flags = self.flags.pop_front().unwrap_or_default();
            self.first += 1;
            if flags & SACKED == 0 {
                newly += 1;
                self.pipe -= copies_in_flight(flags);
                watch.delivered(self.first - 1);
            }
        }
        if self.first < ack {
            let plain = ack - self.first;
            newly += plain;
            self.pipe -= plain;
            (self.first..ack).for_each(|packet| watch.delivered(packet));
            self.first = ack;
        }
        newly
    }

    /// The receiver holds `block`; returns how many packets that newly acknowledges.
    pub fn sack(&mut self, block: SackBlock) -> u64 {
        self.sack_each(block, |_| {})
    }

    /// Like [`sack`](Self::sack); calls `newly` with each packet newly acknowledged, in order.
    pub fn sack_each(&mut self, block: SackBlock, mut each: impl FnMut(u64)) -> u64 {
        let mut fresh =
            SackBlock { start: block.start.max(self.first), end: block.end.min(self.next) };
        for known in &self.entered {
            if known.start <= fresh.start && fresh.start < known.end {
                fresh.start = known.end.min(fresh.end);
            }
            if known.start < fresh.end && fresh.end <= known.end {
                fresh.end = known.start.max(fresh.start);
            }
        }
        let mut newly = 0;
        for packet in fresh.start..fresh.end {
            if self.sack_one(packet) {
                newly += 1;
                each(packet);
            }
        }
        if fresh.start < fresh.end {
            self.remember(block);
        }
        newly
    }

    fn sack_one(&mut self, packet: u64) -> bool {
        let flags = self.flag(packet);
        if *flags & SACKED != 0 {
            return false;
        }
        let copies = copies_in_flight(*flags);
        *flags |= SACKED;
        self.pipe -= copies;
        self.note_highest(packet);
        true
    }

    fn note_highest(&mut self, packet: u64) {
        let mut rising = Some(packet);
        for slot in &mut self.highest_sacked {
            if rising > *slot {
                std::mem::swap(slot, &mut rising);
            }
        }
    }

    fn remember(&mut self, block: SackBlock) {
        let touches = |known: &&mut SackBlock| {
            known.start <= block.end && block.start <= known.end && known.end > 0
        };
        if let Some(known) = self.entered.iter_mut().find(touches) {
            known.start = known.start.min(block.start);
            known.end = known.end.max(block.end);
        } else {
            self.entered[self.oldest_entered] = block;
            self.oldest_entered = (self.oldest_entered + 1) % self.entered.len();
        }
    }

    /// Marks lost what RFC 6675's IsLost says is lost: every packet with three selectively
    /// acknowledged above it.
    #[inline]
    pub fn find_losses(&mut self) {
        self.find_losses_watched(&mut ());
    }

    /// Like [`find_losses`](Self::find_losses); tells `watch` of each packet found lost.
    #[inline]
    pub fn find_losses_watched(&mut self, watch: &mut impl Watch) {
        let Some(Some(below)) = self.highest_sacked.last().copied() else { return };
        for packet in self.lost_below.max(self.first)..below {
            if self.mark_lost(packet) {
                watch.lost(packet);
            }
        }
        self.lost_below = self.lost_below.max(below);
    }

    /// The lowest outstanding packet is lost, whatever the receiver said; false if it was found lost
    /// before.
    pub fn lose_first(&mut self) -> bool {
        self.first < self.next && self.mark_lost(self.first)
    }

    /// The retransmission timer expired: all outstanding packets are lost, and what the
    /// receiver said of them is forgotten, since it may have discarded it (RFC 2018, section 8).
    pub fn lose_all(&mut self) {
        self.flags.clear();
        self.flags.resize(self.outstanding() as usize, LOST);
        self.pipe = 0;
        self.highest_sacked = [None; DUPLICATE_THRESHOLD];
        self.lost_below = self.next;
        self.retransmit_from = self.first;
        self.entered = [SackBlock::default(); 4];
    }

    /// Every copy of `packet` that was sent is lost, retransmissions too; nothing happens to one that
    /// has arrived, and false is returned.
    pub fn lose_copies(&mut self, packet: u64) -> bool {
        if !(self.first..self.next).contains(&packet) {
            return false;
        }
        let flags = self.flag(packet);
        if *flags & SACKED != 0 {
            return false;
        }
        let copies = copies_in_flight(*flags);
        *flags = LOST;
        self.pipe -= copies;
        self.losses += 1;
        self.retransmit_from = self.retransmit_from.min(packet);
        true
    }

    /// What was found lost was not: each such packet counts as in flight again; `each` is called with
    /// its number.
    pub fn undo_losses(&mut self, mut each: impl FnMut(u64)) {
        // What is lost after all is found by the next acknowledgement.
        self.lost_below = self.first;
        for (packet, flags) in (self.first..).zip(&mut self.flags) {
            if *flags & (LOST | SACKED) == LOST {
                *flags &= !LOST;
                self.pipe += 1;
                each(packet);
            }
        }
    }

    /// Whether the receiver holds `packet` beyond its cumulative acknowledgement.
    pub fn is_sacked(&self, packet: u64) -> bool {
        let index = packet.checked_sub(self.first).map(|index| index as usize);
        index.and_then(|index| self.flags.get(index)).is_some_and(|flags| flags & SACKED != 0)
    }

    /// Whether at least `count` (1 to 3) outstanding packets are selectively acknowledged.
    pub fn has_sacked(&self, count: usize) -> bool {
        let place = count.clamp(1, DUPLICATE_THRESHOLD) - 1;
        self.highest_sacked[place].is_some_and(|packet| packet >= self.first)
    }

    /// How often a packet was found lost since the start, retransmissions counted.
    #[inline]
    pub fn losses(&self) -> u64 {
        self.losses
    }

    fn mark_lost(&mut self, packet: u64) -> bool {
        let flags = self.flag(packet);
        let is_new = *flags & (SACKED | LOST) == 0;
        if is_new {
            *flags |= LOST;
            self.pipe -= 1;
            self.losses += 1;
            self.retransmit_from = self.retransmit_from.min(packet);
        }
        is_new
    }

    /// True where the lowest outstanding packet has been found lost.
    #[inline]
    pub fn first_is_lost(&self) -> bool {
        self.flags.front().is_some_and(|flags| flags & LOST != 0)
    }

    /// The lowest packet that is lost and not retransmitted (RFC 6675, NextSeg, rule 1).
    #[inline]
    pub fn next_lost(&mut self) -> Option<u64> {
        let end = self.lost_end();
        self.retransmit_from = self.retransmit_from.max(self.first);
        while self.retransmit_from < end {
            let index = (self.retransmit_from - self.first) as usize;
            if self.flags[index] & (SACKED | LOST | RETRANSMITTED) == LOST {
                return Some(self.retransmit_from);
            }
            self.retransmit_from += 1;
        }
        None
    }

    /// The lowest packet below the highest one selectively acknowledged that is neither
    /// acknowledged nor retransmitted, lost or not (RFC 6675, NextSeg, rule 3).
    pub fn next_doubtful(&self) -> Option<u64> {
        let highest = self.highest_sacked[0]?;
        let from = self.retransmit_from.max(self.first);
        (from..highest.min(self.first + self.flags.len() as u64)).find(|packet| {
            self.flags[(packet - self.first) as usize] & (SACKED | RETRANSMITTED) == 0
        })
    }

    #[inline]
    fn lost_end(&self) -> u64 {
        self.first + self.flags.len() as u64
    }

    fn flag(&mut self, packet: u64) -> &mut u8 {
        let index = (packet - self.first) as usize;
        if index >= self.flags.len() {
            self.flags.resize(index + 1, 0);
        }
        &mut self.flags[index]
    }
}

#[inline]
fn copies_in_flight(flags: u8) -> u64 {
    let original = u64::from(flags & (LOST | SACKED) == 0);
    let copy = u64::from(flags & RETRANSMITTED != 0 && flags & SACKED == 0);
    original + copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_sent(count: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for _ in 0..count {
            board.send_new();
        }
        board
    }

    #[test]
    fn packets_below_three_selectively_acknowledged_ones_are_lost() {
        let mut board = with_sent(10);
        board.sack(SackBlock { start: 2, end: 4 });
        board.find_losses();
        assert_eq!(board.next_lost(), None);
        board.sack(SackBlock { start: 6, end: 7 });
        board.find_losses();
        assert_eq!(board.next_lost(), Some(0));
        board.retransmit(0);
        assert_eq!(board.next_lost(), Some(1));
        board.retransmit(1);
        assert_eq!(board.next_lost(), None, "4 and 5 have one above them");
        assert_eq!(board.in_flight(), 10 - 3 - 2 + 2);
    }

    #[test]
    fn a_repeated_block_acknowledges_nothing_new() {
        let mut board = with_sent(10);
        assert_eq!(board.sack(SackBlock { start: 3, end: 6 }), 3);
        assert_eq!(board.sack(SackBlock { start: 3, end: 7 }), 1);
        assert_eq!(board.sack(SackBlock { start: 3, end: 7 }), 0);
        assert_eq!(board.acknowledge(7), 3);
        assert_eq!(board.in_flight(), 3);
    }

    #[test]
    fn after_a_timeout_everything_outstanding_waits_for_retransmission() {
        let mut board = with_sent(4);
        board.sack(SackBlock { start: 2, end: 4 });
        board.lose_all();
        assert_eq!(board.in_flight(), 0);
        for packet in 0..4 {
            assert_eq!(board.next_lost(), Some(packet));
            board.retransmit(packet);
        }
        assert_eq!(board.acknowledge(4), 4);
        assert_eq!(board.in_flight(), 0);
    }
}
