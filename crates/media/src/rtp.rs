//! The header of RTP (RFC 3550, section 5.1).

/// Fields of a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The last packet of a frame, for pictures.
    pub marker: bool,
    /// Payload type (RFC 3551; from 96 on dynamic).
    pub payload_type: u8,
    /// Sequence number, modulo 2^16.
    pub sequence: u16,
    /// Timestamp of the media clock, modulo 2^32.
    pub timestamp: u32,
    /// Synchronization source.
    pub ssrc: u32,
    /// Offset of the payload.
    pub payload: usize,
}

/// Bytes of a header without CSRCs and extension.
const MIN_HEADER: usize = 12;

/// Second bytes that RTCP has where it shares the port (RFC 5761, section 4).
const RTCP: std::ops::RangeInclusive<u8> = 192..=223;

/// Parses the header; `None` if the bytes are not an RTP packet.
pub fn header(bytes: &[u8]) -> Option<Header> {
    let fixed: &[u8; MIN_HEADER] = bytes.first_chunk()?;
    if fixed[0] >> 6 != 2 || RTCP.contains(&fixed[1]) {
        return None;
    }
    let mut payload = MIN_HEADER + 4 * usize::from(fixed[0] & 0x0f);
    if fixed[0] & 0x10 != 0 {
        let words = bytes.get(payload + 2..payload + 4)?;
        payload += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    if payload > bytes.len() {
        return None;
    }
    Some(Header {
        marker: fixed[1] & 0x80 != 0,
        payload_type: fixed[1] & 0x7f,
        sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
        timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        payload,
    })
}

/// Payload type of MPEG-TS (RFC 3551, table 5).
pub const TRANSPORT_STREAM: u8 = 33;

/// Clock rate in Hz (RFC 3551, tables 4 and 5). Dynamic types, from 96 on, are mostly video: 90
/// kHz.
pub const fn clock_rate(payload_type: u8) -> u64 {
    match payload_type {
        6 => 16_000,
        10 | 11 => 44_100,
        16 => 11_025,
        17 => 22_050,
        0..=13 | 15 | 18..=23 => 8_000,
        _ => 90_000,
    }
}

/// True for the audio types of RFC 3551.
pub const fn is_sound(payload_type: u8) -> bool {
    payload_type < 24
}

/// Extends a wrapping number of `bits` bits: the number nearest to `last` whose low bits are `low`.
pub fn unwrapped(last: u64, low: u64, bits: u32) -> u64 {
    let (whole, half) = (1u64 << bits, 1u64 << (bits - 1));
    let ahead = low.wrapping_sub(last) & (whole - 1);
    // A number below zero is taken one cycle later.
    if ahead >= half && last >= whole - ahead { last - (whole - ahead) } else { last + ahead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_with_its_lists_and_extension() {
        let mut bytes = vec![0x92, 0xe0 | 1, 0x12, 0x34, 0, 0, 1, 0, 0, 0, 0, 9];
        bytes.extend([0; 8]); // two contributing sources
        bytes.extend([0xbe, 0xde, 0, 1, 1, 2, 3, 4]); // an extension of one word
        bytes.extend(b"media");
        let header = header(&bytes).expect("RTP");
        assert_eq!((header.marker, header.payload_type), (true, 97));
        assert_eq!((header.sequence, header.timestamp, header.ssrc), (0x1234, 256, 9));
        assert_eq!(&bytes[header.payload..], b"media");
        assert_eq!(super::header(&bytes[..25]), None, "cut within the extension");
    }

    #[test]
    fn rtcp_and_other_versions_are_no_rtp() {
        for first in [[0x80, 200], [0x81, 201], [0x40, 96], [0x47, 0]] {
            let mut bytes = first.to_vec();
            bytes.resize(40, 0);
            assert_eq!(header(&bytes), None);
        }
    }

    #[test]
    fn wrapping_numbers_are_extended_also_backwards_for_late_packets() {
        assert_eq!(unwrapped(65_535, 0, 16), 65_536);
        assert_eq!(unwrapped(65_536, 65_535, 16), 65_535);
        assert_eq!(unwrapped(100, 99, 16), 99);
        assert_eq!(unwrapped(0, 65_535, 16), 65_535, "nothing is before zero");
        assert_eq!(unwrapped(1 << 40, 5, 32), (1 << 40) + 5);
    }
}
