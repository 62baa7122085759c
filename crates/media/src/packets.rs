//! The packets of a transport stream in a file, also where it is damaged or cut.

use super::ts::{PACKET, SYNC};

/// Bytes without a packet at a time.
const MAX_SKIP: usize = 64 << 10;

/// The share of all bytes without a packet: beyond it this is no transport stream.
const MAX_SKIPPED: usize = 8;

/// Packets that begin where the ones before them end, with which the stream is found again.
const FOUND: usize = 3;

/// The packets of 188 bytes in these bytes. Where none begins, it goes on where the sync bytes of three in a row
/// fit (ISO/IEC 13818-1, section 2.4.3.3, leaves the number open).
#[derive(Clone, Debug)]
pub(crate) struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Places where no packet begins, and the bytes that were left out there.
    pub(crate) skipped: (usize, usize),
    /// Bytes after the last whole packet, fewer than one has.
    pub(crate) cut: usize,
    /// Where the stream was lost for good.
    pub(crate) lost: Option<usize>,
}

impl<'a> Packets<'a> {
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, skipped: (0, 0), cut: 0, lost: None }
    }

    /// Where the next packet begins.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Whether the sync bytes from this place on fit, as far as the bytes go.
    fn fits(&self, at: usize) -> bool {
        let sync = |number: usize| self.bytes.get(at + number * PACKET);
        at + PACKET <= self.bytes.len()
            && (0..FOUND).all(|number| sync(number).is_none_or(|&one| one == SYNC))
    }

    /// Goes on where the stream is found again; false if it is not.
    fn find(&mut self) -> bool {
        let left = self.bytes.len() - self.at;
        // Most likely only the sync byte is wrong.
        let next = self.at + PACKET;
        let mut places = std::iter::once(next).chain(self.at + 1..self.at + left.min(MAX_SKIP));
        let found = places.find(|at| self.fits(*at));
        // At the end too few are left to tell.
        let to = found.or((left < FOUND * PACKET).then_some(self.bytes.len()));
        let most = (self.bytes.len() / MAX_SKIPPED).max(FOUND * PACKET);
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
        if self.bytes.len() - self.at >= PACKET && self.bytes[self.at] != SYNC && !self.find() {
            return None;
        }
        let packet = self.bytes.get(self.at..self.at + PACKET);
        match packet {
            Some(_) => self.at += PACKET,
            None => self.cut = self.bytes.len() - self.at,
        }
        packet
    }
}
