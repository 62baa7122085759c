//! A multiplexer of AV1 for tests: ffmpeg 5.1 and GStreamer 1.22 make no transport stream of it.

/// How OBUs are put into PES packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Av1Framing {
    /// Behind start codes, escaped ("Carriage of AV1 in MPEG-2 TS", AOM): a frame a PES packet.
    StartCodes,
    /// As they are, all of a picture in a PES packet: what GStreamer calls `AV1G`.
    LowOverhead,
}

const PACKET: usize = 188;
const PMT: u16 = 0x1000;
const VIDEO: u16 = 0x100;

/// Ticks of 90 kHz from the clock reference to the picture.
const AHEAD: u64 = 9_000;

/// obu_type.
const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const TILE_GROUP: u8 = 4;
const FRAME: u8 = 6;

/// The transport stream of the pictures in `ivf`, a file as `ffmpeg -f ivf` writes it.
///
/// # Panics
///
/// If it is no such file.
pub fn av1_transport_stream(ivf: &[u8], framing: Av1Framing) -> Vec<u8> {
    assert!(ivf.starts_with(b"DKIF") && &ivf[8..12] == b"AV01", "no AV1 in IVF");
    let number =
        |at: usize| u64::from(u32::from_le_bytes(ivf[at..at + 4].try_into().expect("4 bytes")));
    let (rate, scale) = (number(16), number(20));
    let mut mux = Mux { framing, bytes: Vec::new(), counters: [0; 3] };
    let mut at = 32;
    while at < ivf.len() {
        let size = number(at) as usize;
        let ticks = 90_000 + number(at + 4) * 90_000 * scale / rate;
        mux.picture(ticks, &ivf[at + 12..at + 12 + size]);
        at += 12 + size;
    }
    mux.bytes
}

struct Mux {
    framing: Av1Framing,
    bytes: Vec<u8>,
    /// Continuity counters of PAT, PMT and pictures.
    counters: [u8; 3],
}

/// An OBU: its type, its bytes with header and size, its payload.
struct Obu<'a> {
    kind: u8,
    whole: &'a [u8],
    payload: &'a [u8],
}

fn obus(mut bytes: &[u8]) -> Vec<Obu<'_>> {
    let mut all = Vec::new();
    while let Some(&head) = bytes.first() {
        assert!(head & 2 != 0, "ffmpeg writes sizes");
        let mut at = 1 + usize::from(head >> 2 & 1);
        let (mut size, mut shift) = (0, 0);
        loop {
            size |= usize::from(bytes[at] & 0x7f) << shift;
            shift += 7;
            at += 1;
            if bytes[at - 1] & 0x80 == 0 {
                break;
            }
        }
        let (whole, after) = bytes.split_at(at + size);
        all.push(Obu { kind: head >> 3 & 0x0f, whole, payload: &whole[at..] });
        bytes = after;
    }
    all
}

impl Mux {
    fn picture(&mut self, ticks: u64, unit: &[u8]) {
        let all = obus(unit);
        // frame_type 0
        let is_key = all.iter().any(|one| one.kind == SEQUENCE_HEADER)
            && all.iter().any(|one| one.kind == FRAME && one.payload[0] & 0xe0 == 0);
        if is_key || self.counters[2].is_multiple_of(8) {
            self.tables();
        }
        let mut pcr = Some(ticks - AHEAD);
        if self.framing == Av1Framing::LowOverhead {
            self.pes(ticks, is_key, &mut pcr, unit);
            return;
        }
        let (mut unit, mut is_open) = (Vec::new(), false);
        let mut is_first = true;
        for Obu { kind, whole, payload } in all {
            if kind == TEMPORAL_DELIMITER {
                continue;
            }
            if is_open && kind != TILE_GROUP {
                self.pes(ticks, is_key && is_first, &mut pcr, &std::mem::take(&mut unit));
                is_first = false;
            }
            unit.extend([0, 0, 1]);
            escape(whole, &mut unit);
            // A header that shows a frame decoded before has no tiles.
            is_open = matches!(kind, FRAME_HEADER | TILE_GROUP);
            if kind == FRAME || kind == FRAME_HEADER && payload[0] & 0x80 != 0 {
                self.pes(ticks, is_key && is_first, &mut pcr, &std::mem::take(&mut unit));
                (is_open, is_first) = (false, false);
            }
        }
        if !unit.is_empty() {
            self.pes(ticks, false, &mut pcr, &unit);
        }
    }

    fn tables(&mut self) {
        let pat = [0, 0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xe0 | (PMT >> 8) as u8, PMT as u8];
        let name = match self.framing {
            Av1Framing::StartCodes => b"AV01",
            Av1Framing::LowOverhead => b"AV1G",
        };
        // Main profile, level 4.0, 8 bits, 4:2:0; nothing is said of the colours.
        let descriptors = [&[5, 4][..], name, &[0x80, 4, 0x81, 0x08, 0x0c, 0xc0]].concat();
        let (high, low) = (0xe0 | (VIDEO >> 8) as u8, VIDEO as u8);
        let entry = [&[6, high, low, 0xf0, descriptors.len() as u8][..], &descriptors].concat();
        let head = [2, 0xb0, 13 + entry.len() as u8, 0, 1, 0xc1, 0, 0, high, low, 0xf0, 0];
        for (place, pid, section) in
            [(0, 0, pat[1..].to_vec()), (1, PMT, [&head[..], &entry].concat())]
        {
            let mut payload =
                [&[0][..], &section, &section_checksum(&section).to_be_bytes()].concat();
            payload.resize(PACKET - 4, 0xff);
            self.packet(place, pid, true, &[], &payload);
        }
    }

    fn pes(&mut self, ticks: u64, is_key: bool, pcr: &mut Option<u64>, content: &[u8]) {
        let byte = |shift: u64| (ticks >> shift) as u8;
        let stamp = [0x20 | byte(29) & 0x0e | 1, byte(22), byte(14) | 1, byte(7), byte(0) << 1 | 1];
        // A length of 0 says nothing: there is no number for a larger one.
        let length = u16::try_from(content.len() + 8).unwrap_or(0).to_be_bytes();
        let head = [0, 0, 1, 0xbd, length[0], length[1], 0x84, 0x80, 5];
        let bytes = [&head[..], &stamp, content].concat();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let is_first = rest.len() == bytes.len();
            let mut field = Vec::new();
            if is_first && (is_key || pcr.is_some()) {
                field.push(if is_key { 0x40 } else { 0 } | if pcr.is_some() { 0x10 } else { 0 });
                if let Some(base) = pcr.take() {
                    // 33 bits, 6 reserved ones, and no extension of 9.
                    field.extend_from_slice(&(base << 15 | 0x7e00).to_be_bytes()[2..]);
                }
            }
            let taken = field.len() + usize::from(!field.is_empty());
            let (payload, after) = rest.split_at(rest.len().min(PACKET - 4 - taken));
            self.packet(2, VIDEO, is_first, &field, payload);
            rest = after;
        }
    }

    /// A packet whose adaptation field, `field` without its length, fills it up.
    fn packet(&mut self, place: usize, pid: u16, begins: bool, field: &[u8], payload: &[u8]) {
        let counter = self.counters[place];
        self.counters[place] = (counter + 1) & 0x0f;
        let begins = if begins { 0x40 } else { 0 };
        let mut packet = vec![0x47, begins | (pid >> 8) as u8, pid as u8, 0x10 | counter];
        let room = PACKET - 4 - payload.len();
        if room > 0 {
            packet[3] |= 0x20;
            packet.push(room as u8 - 1);
            packet.extend(field);
            if field.is_empty() && room > 1 {
                packet.push(0);
            }
            packet.resize(4 + room, 0xff);
        }
        packet.extend(payload);
        assert_eq!(packet.len(), PACKET);
        self.bytes.extend(packet);
    }
}

/// With the bytes that keep start codes out.
fn escape(bytes: &[u8], to: &mut Vec<u8>) {
    let mut zeros = 0;
    for &byte in bytes {
        if zeros >= 2 && byte <= 3 {
            to.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        to.push(byte);
    }
}

/// CRC-32 of a section of a transport stream's table (ISO/IEC 13818-1, annex A).
pub fn section_checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}
