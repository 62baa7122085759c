//! Packets on their way, and the pool that holds them.

use ontempo_foundation::Time;
use ontempo_mechanisms::adu::{AduAck, Transmission};
use ontempo_mechanisms::recovery::SackBlock;

/// What a packet is and what was done to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// An acknowledgement rather than data.
    pub(crate) ack: bool,
    /// Congestion experienced (data), or its echo (ACK).
    pub(crate) congestion: bool,
    /// May be marked instead of dropped.
    pub(crate) ecn_capable: bool,
    /// Sent before.
    pub(crate) retransmission: bool,
}

/// A SACK block relative to the cumulative acknowledgement, half the size of an absolute one.
#[derive(Clone, Copy, Debug, Default)]
struct RelativeBlock {
    start: u32,
    end: u32,
}

impl RelativeBlock {
    /// A block's place holding other data.
    fn of_word(word: u64) -> Self {
        Self { start: (word >> 32) as u32, end: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.end)
    }
}

/// At most this many SACK blocks fit into an ACK.
pub(crate) const MAX_BLOCKS: usize = 3;

/// A packet: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// Place of its next step in the routes.
    pub(crate) step: u32,
    /// Data: its number. ACK: the lowest number that has not arrived; of ADUs, the highest
    /// transmission that has.
    pub(crate) number: u64,
    /// Data: when it was sent. ACK: that of the data packet that it answers.
    pub(crate) stamp: Time,
    /// When it reached the link that it was last offered to.
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

    /// Puts `blocks` into an ACK; those beyond the third, and beyond 2^32 packets, do not fit.
    pub(crate) fn set_blocks(&mut self, blocks: &[SackBlock]) {
        for (slot, block) in self.blocks.iter_mut().zip(blocks) {
            let start = u32::try_from(block.start - self.number);
            let end = u32::try_from(block.end - self.number);
            if let (Ok(start), Ok(end)) = (start, end) {
                *slot = RelativeBlock { start, end };
            }
        }
    }

    /// Puts a count into a report, or the sender's window into a data packet, where an ACK has
    /// its first block.
    pub(crate) fn set_count(&mut self, count: u64) {
        self.blocks[0] = RelativeBlock { start: (count >> 32) as u32, end: count as u32 };
    }

    /// The count of a report, or the window of a data packet.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.blocks[0].start) << 32 | u64::from(self.blocks[0].end)
    }

    /// Its blocks and how many there are.
    pub(crate) fn blocks(&self) -> ([SackBlock; MAX_BLOCKS], usize) {
        let count = self.blocks.iter().take_while(|block| block.end > 0).count();
        let absolute = self.blocks.map(|block| SackBlock {
            start: self.number + u64::from(block.start),
            end: self.number + u64::from(block.end),
        });
        (absolute, count)
    }

    /// Makes it carry a transmission of an ADU, where a TCP packet has its blocks.
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

    /// Makes it acknowledge ADUs.
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

/// Packets by handle; a freed place is used again first, while it is still in the cache.
#[derive(Default)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn insert(&mut self, packet: Packet) -> u32 {
        if let Some(handle) = self.free.pop() {
            self.packets[handle as usize] = packet;
            return handle;
        }
        self.packets.push(packet);
        (self.packets.len() - 1) as u32
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Packet {
        self.free.push(handle);
        self.packets[handle as usize]
    }

    /// The most packets that it ever held at a time.
    pub(crate) fn most(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn get(&self, handle: u32) -> &Packet {
        &self.packets[handle as usize]
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> &mut Packet {
        &mut self.packets[handle as usize]
    }
}
