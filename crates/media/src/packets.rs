//! The packets of a transport stream in a file, also where it is damaged or cut.

use super::ts::{self, FILLER, PACKET, PACKET_WITH_PARITY, SYNC};

/// Bytes without a packet at a time.
const MAX_SKIP: usize = 64 << 10;

/// The share of all bytes without a packet: beyond it this is no transport stream.
const MAX_SKIPPED: usize = 8;

/// Packets that begin where the ones before them end, with which the stream is found again.
const FOUND: usize = 3;

/// Bytes at the beginning that show how packets lie.
const LOOKED_AT: usize = 64 << 10;

/// How packets lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// From one to the next.
    size: usize,
    /// Bytes before each.
    lead: usize,
}

impl Layout {
    const PLAIN: Self = Self { size: PACKET, lead: 0 };

    /// With an arrival time before each packet, as in M2TS (Blu-ray, AVCHD), and with parity after it.
    const OTHERS: [Self; 2] =
        [Self { size: PACKET + 4, lead: 4 }, Self { size: PACKET_WITH_PARITY, lead: 0 }];

    /// That of these bytes: with the most sync bytes at its distance, if those are most of its packets'.
    fn of(bytes: &[u8]) -> Self {
        let head = &bytes[..bytes.len().min(LOOKED_AT)];
        let most = |layout: Self| {
            let mut counts = [0; PACKET_WITH_PARITY];
            let found = head.iter().enumerate().filter(|(_, byte)| **byte == SYNC);
            found.for_each(|(at, _)| counts[at % layout.size] += 1);
            counts.into_iter().max().unwrap_or(0)
        };
        let mut best = (Self::PLAIN, most(Self::PLAIN));
        for other in Self::OTHERS {
            let count = most(other);
            if count >= FOUND && count * 2 > head.len() / other.size && count > best.1 {
                best = (other, count);
            }
        }
        best.0
    }
}

/// Whether a file that begins so is a transport stream of packets of 188 bytes, the first of which are not damaged.
pub fn begins_transport_stream(head: &[u8]) -> bool {
    let packets = Packets::of(head);
    packets.layout == Layout::PLAIN && packets.fits(0)
}

/// The share of stuffing (null packets) among the packets of a transport stream, 0 to 1; bytes in which no packet begins
/// count for nothing.
pub fn stuffing_share(bytes: &[u8]) -> f64 {
    let (mut all, mut stuffing) = (0_u64, 0_u64);
    for header in Packets::of(bytes).filter_map(ts::header) {
        all += 1;
        stuffing += u64::from(header.pid == FILLER);
    }
    stuffing as f64 / all.max(1) as f64
}

/// The packets in these bytes, of 188 bytes, without what is between them in packets of 192 or 204. Where none begins,
/// it goes on where the sync bytes of three in a row fit (ISO/IEC 13818-1, section 2.4.3.3, leaves the number open). A packet
/// of which bytes are missing is left out.
#[derive(Clone, Debug)]
pub(crate) struct Packets<'a> {
    bytes: &'a [u8],
    layout: Layout,
    /// Where the next packet begins, with what is before it.
    at: usize,
    /// Places where no packet begins, and the bytes that were left out there.
    pub(crate) skipped: (usize, usize),
    /// Bytes after the last whole packet, fewer than one has.
    pub(crate) cut: usize,
    /// Where the stream was lost for good.
    pub(crate) lost: Option<usize>,
}

impl<'a> Packets<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, layout: Layout::of(bytes), at: 0, skipped: (0, 0), cut: 0, lost: None }
    }

    /// Where the next packet begins.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Whether the sync bytes from this place on fit, as far as the bytes go.
    fn fits(&self, at: usize) -> bool {
        let Layout { size, lead } = self.layout;
        let sync = |number: usize| self.bytes.get(at + lead + number * size);
        at + lead + PACKET <= self.bytes.len()
            && (0..FOUND).all(|number| sync(number).is_none_or(|&one| one == SYNC))
    }

    /// Where the next packet begins if this one is cut: earlier than its size says, with as many sync bytes as it takes
    /// to find the stream.
    fn cut_short(&self) -> Option<usize> {
        let Layout { size, lead } = self.layout;
        let sync = |at: usize| self.bytes.get(at + lead).is_none_or(|&one| one == SYNC);
        // Of the next one only the sync byte may be wrong.
        if sync(self.at + size) || sync(self.at + 2 * size) && sync(self.at + 3 * size) {
            return None;
        }
        let is_there = |at: &usize| {
            (0..FOUND).all(|number| self.bytes.get(at + lead + number * size) == Some(&SYNC))
        };
        (self.at + 1..self.at + size).find(is_there)
    }

    /// Goes on where the stream is found again; false if it is not.
    fn find(&mut self) -> bool {
        let left = self.bytes.len() - self.at;
        // Most likely only the sync byte is wrong.
        let next = self.at + self.layout.size;
        let mut places = std::iter::once(next).chain(self.at + 1..self.at + left.min(MAX_SKIP));
        let found = places.find(|at| self.fits(*at));
        // At the end too few are left to tell.
        let to = found.or((left < FOUND * self.layout.size).then_some(self.bytes.len()));
        let most = (self.bytes.len() / MAX_SKIPPED).max(FOUND * self.layout.size);
        let Some(to) = to.filter(|to| self.skipped.1 + to - self.at <= most) else {
            self.lost = Some(self.at);
            return false;
        };
        self.skipped = (self.skipped.0 + 1, self.skipped.1 + to - self.at);
        self.at = to;
        true
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.lost.is_some() {
            return None;
        }
        let Layout { size, lead } = self.layout;
        let is_whole = |at: usize| at + lead + PACKET <= self.bytes.len();
        if is_whole(self.at) && self.bytes[self.at + lead] != SYNC && !self.find() {
            return None;
        }
        if let Some(to) = self.cut_short() {
            self.skipped = (self.skipped.0 + 1, self.skipped.1 + to - self.at);
            self.at = to;
        }
        let packet = self.bytes.get(self.at + lead..self.at + lead + PACKET);
        match packet {
            Some(_) => self.at += size,
            // The parity of the last one may be missing.
            None => self.cut = self.bytes.len().saturating_sub(self.at),
        }
        packet
    }
}
