//! Packets in the network, and the pool that holds them.

use ontempo_foundation::Time;
use ontempo_mechanisms::adu::{AduAck, Transmission};
use ontempo_mechanisms::recovery::SackBlock;
use ontempo_scenario::model::EcnCode;

/// Flags of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// An acknowledgement rather than data.
    pub(crate) ack: bool,
    /// Congestion experienced (data), or its echo (ACK).
    pub(crate) congestion: bool,
    /// A retransmission.
    pub(crate) retransmission: bool,
    /// What links see of it, as bits.
    seen: u8,
}

impl Marks {
    const ECN_CAPABLE: u8 = 1;
    const CORRUPTED: u8 = 2;
    const ECT1: u8 = 4;
    const PUSH: u8 = 8;
    const EXTRA: u8 = 16;
    const MEASURED: u8 = 32;

    fn set(&mut self, bit: u8, is_set: bool) {
        self.seen = if is_set { self.seen | bit } else { self.seen & !bit };
    }

    /// Whether it may be marked instead of dropped.
    #[inline]
    pub(crate) fn is_ecn_capable(self) -> bool {
        self.seen & Self::ECN_CAPABLE != 0
    }

    pub(crate) fn set_ecn_capable(&mut self, capable: bool) {
        self.set(Self::ECN_CAPABLE, capable);
    }

    /// Whether it is of the L4S service: ECT(1) or CE.
    #[inline]
    pub(crate) fn is_l4s(self) -> bool {
        self.seen & Self::ECT1 != 0 || (self.congestion && !self.ack)
    }

    /// It is sent with this ECN code point.
    pub(crate) fn set_ecn(&mut self, code: EcnCode) {
        self.set_ecn_capable(code != EcnCode::None);
        self.set(Self::ECT1, code == EcnCode::Ect1);
    }

    /// Whether it ends what the application wrote.
    #[inline]
    pub(crate) fn is_pushed(self) -> bool {
        self.seen & Self::PUSH != 0
    }

    pub(crate) fn push(&mut self) {
        self.seen |= Self::PUSH;
    }

    /// Whether it has bit errors, so that its receiver drops it.
    #[inline]
    pub(crate) fn is_corrupted(self) -> bool {
        self.seen & Self::CORRUPTED != 0
    }

    pub(crate) fn corrupt(&mut self) {
        self.seen |= Self::CORRUPTED;
    }

    /// It is none of the packets that the flow counts as sent: a SYN, a probe, a copy made by a link.
    pub(crate) fn leave_out(&mut self) {
        self.seen |= Self::EXTRA;
    }

    /// It is sent in the measured span.
    pub(crate) fn measure(&mut self) {
        self.seen |= Self::MEASURED;
    }

    /// Whether its flow has counted it as sent, in the measured span or `!measured` before.
    #[inline]
    pub(crate) fn is_counted(self, measured: bool) -> bool {
        !self.ack && self.seen & Self::EXTRA == 0 && (self.seen & Self::MEASURED != 0) == measured
    }
}

/// A SACK block relative to the cumulative acknowledgement, half the size of an absolute one.
#[derive(Clone, Copy, Debug, Default)]
struct RelativeBlock {
    start: u32,
    end: u32,
}

impl RelativeBlock {
    /// Reads other data from a block's place.
    fn of_word(word: u64) -> Self {
        Self { start: (word >> 32) as u32, end: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.end)
    }
}

/// Maximum number of SACK blocks in an ACK.
pub(crate) const MAX_BLOCKS: usize = 3;

/// A packet; it fills one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// Index of its next step in the routes.
    pub(crate) step: u32,
    /// Data: its number. ACK: the lowest number that has not arrived; of ADUs, the highest
    /// transmission that has.
    pub(crate) number: u64,
    /// Data: when it was sent. ACK: when the data packet that it answers was sent.
    pub(crate) stamp: Time,
    /// When it reached the link to which it was last offered.
    pub(crate) entered: Time,
    /// Bytes on the wire.
    pub(crate) size: u32,
    pub(crate) marks: Marks,
    blocks: [RelativeBlock; MAX_BLOCKS],
}

impl Packet {
    /// A data packet at the start of its route.
    pub(crate) fn data(flow: u32, step: u32, number: u64, now: Time, size: u32) -> Self {
        Self {
            flow,
            step,
            number,
            stamp: now,
            entered: now,
            size,
            marks: Marks::default(),
            blocks: [RelativeBlock::default(); MAX_BLOCKS],
        }
    }

    /// Becomes a data packet at the start of its route, whatever it was.
    #[inline(always)]
    pub(crate) fn begin(&mut self, (flow, step): (u32, u32), number: u64, now: Time, size: u32) {
        (self.flow, self.step, self.number, self.size) = (flow, step, number, size);
        (self.stamp, self.entered) = (now, now);
        self.marks = Marks::default();
        self.blocks = [RelativeBlock::default(); MAX_BLOCKS];
    }

    /// Becomes the ACK that answers it, at the start of the route `step`: `next` is the lowest number that
    /// has not arrived, and nothing beyond it has.
    #[inline]
    pub(crate) fn answer(&mut self, step: u32, next: u64, now: Time, size: u32) {
        let congestion = self.marks.congestion;
        (self.step, self.number, self.entered, self.size) = (step, next, now, size);
        self.marks = Marks { ack: true, congestion, ..Marks::default() };
        self.blocks = [RelativeBlock::default(); MAX_BLOCKS];
    }

    /// Stores `blocks` in an ACK; those beyond the third, and beyond 2^32 packets, do not fit.
    pub(crate) fn set_blocks(&mut self, blocks: &[SackBlock]) {
        for (slot, block) in self.blocks.iter_mut().zip(blocks) {
            let start = u32::try_from(block.start - self.number);
            let end = u32::try_from(block.end - self.number);
            if let (Ok(start), Ok(end)) = (start, end) {
                *slot = RelativeBlock { start, end };
            }
        }
    }

    /// Stores a counter in a report, or in a data packet the sender's window or what had been
    /// acknowledged to it, in place of an ACK's first block.
    pub(crate) fn set_count(&mut self, count: u64) {
        self.blocks[0] = RelativeBlock { start: (count >> 32) as u32, end: count as u32 };
    }

    /// What [`Self::set_count`] has stored.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.blocks[0].start) << 32 | u64::from(self.blocks[0].end)
    }

    /// Marks a packet of TCP as a SYN, or an ACK as the answer to one: the second block is there
    /// without the first.
    pub(crate) fn set_syn(&mut self) {
        self.blocks[0] = RelativeBlock::default();
        self.blocks[1] = RelativeBlock { start: 0, end: 1 };
        self.marks.leave_out();
    }

    /// Whether a packet of TCP is a SYN or the answer to one.
    pub(crate) fn is_syn(&self) -> bool {
        self.blocks[0].end == 0 && self.blocks[1].end == 1
    }

    /// Marks an ACK of TCP as a reset (RST): the second block is there without the first, as in a SYN.
    pub(crate) fn set_reset(&mut self) {
        self.blocks[0] = RelativeBlock::default();
        self.blocks[1] = RelativeBlock { start: 0, end: 2 };
        self.marks.leave_out();
    }

    /// Whether a packet of TCP is a reset.
    pub(crate) fn is_reset(&self) -> bool {
        self.marks.ack && self.blocks[0].end == 0 && self.blocks[1].end == 2
    }

    /// Whether an ACK of TCP has SACK blocks.
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        self.blocks[0].end > 0
    }

    /// Its SACK blocks and their number.
    pub(crate) fn blocks(&self) -> ([SackBlock; MAX_BLOCKS], usize) {
        let count = self.blocks.iter().take_while(|block| block.end > 0).count();
        let absolute = self.blocks.map(|block| SackBlock {
            start: self.number + u64::from(block.start),
            end: self.number + u64::from(block.end),
        });
        (absolute, count)
    }

    /// Stores a transmission of an ADU in place of TCP's blocks.
    pub(crate) fn set_transmission(&mut self, transmission: &Transmission) {
        self.marks.retransmission = transmission.again;
        self.blocks[0] = RelativeBlock::of_word(transmission.number);
        self.blocks[1] = RelativeBlock::of_word(u64::from(transmission.asks));
    }

    /// The transmission of an ADU that it carries.
    pub(crate) fn transmission(&self) -> Transmission {
        Transmission {
            number: self.blocks[0].word(),
            adu: self.number,
            again: self.marks.retransmission,
            asks: self.blocks[1].word() != 0,
        }
    }

    /// Stores an acknowledgement of ADUs.
    pub(crate) fn set_adu_ack(&mut self, ack: &AduAck) {
        self.marks.ack = true;
        self.number = ack.largest;
        let words = [(ack.received >> 64) as u64, ack.received as u64, ack.freed];
        self.blocks = words.map(RelativeBlock::of_word);
    }

    /// The acknowledgement of ADUs that it carries.
    pub(crate) fn adu_ack(&self) -> AduAck {
        let [high, low, freed] = self.blocks.map(RelativeBlock::word);
        let received = u128::from(high) << 64 | u128::from(low);
        AduAck { largest: self.number, received, freed }
    }
}

/// Packets by handle; a freed slot is reused first, while it is still in the cache.
#[derive(Default)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

impl Pool {
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet) -> u32 {
        let (handle, place) = self.hold();
        *place = packet;
        handle
    }

    /// A place for a packet, with what it last held.
    #[inline(always)]
    pub(crate) fn hold(&mut self) -> (u32, &mut Packet) {
        let handle = self.free.pop().unwrap_or_else(|| self.grow());
        (handle, &mut self.packets[handle as usize])
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.packets.push(Packet::data(0, 0, 0, Time::ZERO, 0));
        (self.packets.len() - 1) as u32
    }

    #[inline]
    pub(crate) fn release(&mut self, handle: u32) {
        self.free.push(handle);
    }

    #[inline]
    pub(crate) fn remove(&mut self, handle: u32) -> Packet {
        self.free.push(handle);
        self.packets[handle as usize]
    }

    /// Largest number of packets held at a time.
    pub(crate) fn max_held(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn get(&self, handle: u32) -> &Packet {
        &self.packets[handle as usize]
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> &mut Packet {
        &mut self.packets[handle as usize]
    }
}
