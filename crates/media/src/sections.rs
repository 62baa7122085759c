//! Sections of the tables of a transport stream (ISO/IEC 13818-1, section 2.4.4), whole, with their checksum.

use std::collections::BTreeMap;

use super::ts::Header;

/// Bytes of a section of the PAT or of a PMT at most: section_length is at most 1,021 (sections 2.4.4.4, 2.4.4.9).
const MAX_SECTION: usize = 3 + 1_021;

/// PIDs whose sections are put together at a time.
const MAX_OPEN: usize = 512;

/// The value of stuffing behind the last section of a packet.
const STUFFING: u8 = 0xff;

/// A section that is not whole yet.
#[derive(Debug, Default)]
struct Open {
    counter: u8,
    /// Its bytes so far; empty where the next one has to begin first.
    bytes: Vec<u8>,
}

/// Puts sections together.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    open: BTreeMap<u16, Open>,
}

impl Sections {
    /// Takes the payload of a packet and answers the sections that end in it: those that are whole, with the right
    /// checksum, and in force (current_next_indicator).
    pub(crate) fn push(&mut self, header: &Header, payload: &[u8]) -> Vec<Section> {
        let mut ended = Vec::new();
        if !header.has_payload
            || self.open.len() >= MAX_OPEN && !self.open.contains_key(&header.pid)
        {
            return ended;
        }
        let open = self.open.entry(header.pid).or_default();
        let is_next = header.counter == (open.counter + 1) & 0x0f;
        let is_repeated = header.counter == open.counter && !open.bytes.is_empty();
        if is_repeated && !header.begins {
            return ended;
        }
        if !is_next {
            open.bytes.clear();
        }
        open.counter = header.counter;
        if !header.begins {
            if !open.bytes.is_empty() {
                open.bytes.extend_from_slice(payload);
                take(&mut open.bytes, &mut ended);
            }
            return ended;
        }
        // The pointer field skips the end of the section before.
        let Some((&pointer, rest)) = payload.split_first() else { return ended };
        let Some((end, begin)) = rest.split_at_checked(usize::from(pointer)) else {
            open.bytes.clear();
            return ended;
        };
        if !open.bytes.is_empty() {
            open.bytes.extend_from_slice(end);
            take(&mut open.bytes, &mut ended);
        }
        open.bytes.clear();
        open.bytes.extend_from_slice(begin);
        take(&mut open.bytes, &mut ended);
        ended
    }

    /// Forgets what has come of this PID.
    pub(crate) fn forget(&mut self, pid: u16) {
        self.open.remove(&pid);
    }
}

/// Takes the whole sections from the beginning of these bytes, and stuffing.
fn take(bytes: &mut Vec<u8>, ended: &mut Vec<Section>) {
    loop {
        let Some(&[table, high, low]) = bytes.first_chunk() else {
            if bytes.first() == Some(&STUFFING) {
                bytes.clear();
            }
            return;
        };
        let length = 3 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
        if table == STUFFING || length > MAX_SECTION {
            bytes.clear();
            return;
        }
        if bytes.len() < length {
            return;
        }
        let rest = bytes.split_off(length);
        ended.extend(Section::read(std::mem::replace(bytes, rest)));
    }
}

/// A section of a table.
#[derive(Debug)]
pub(crate) struct Section {
    /// table_id: 0 of the PAT, 2 of a PMT.
    pub(crate) table: u8,
    /// transport_stream_id of the PAT, program_number of a PMT.
    pub(crate) of: u16,
    /// version_number, 0 to 31.
    pub(crate) version: u8,
    /// section_number, and that of the last one.
    pub(crate) number: (u8, u8),
    bytes: Vec<u8>,
}

impl Section {
    /// A whole section with a checksum; `None` if that is wrong, or if it is not yet in force.
    fn read(bytes: Vec<u8>) -> Option<Self> {
        let &[table, syntax, _, high, low, version, number, last] = bytes.first_chunk()?;
        let is_right = syntax & 0x80 != 0 && bytes.len() >= 12 && checksum(&bytes) == 0;
        (is_right && version & 1 != 0).then_some(Self {
            table,
            of: u16::from_be_bytes([high, low]),
            version: version >> 1 & 0x1f,
            number: (number, last),
            bytes,
        })
    }

    /// What is between the header and the checksum.
    pub(crate) fn content(&self) -> &[u8] {
        &self.bytes[8..self.bytes.len() - 4]
    }
}

/// CRC-32 of sections (annex A); 0 of bytes that end with theirs.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            sum << 1 ^ if sum & 0x8000_0000 != 0 { 0x04c1_1db7 } else { 0 }
        })
    })
}
