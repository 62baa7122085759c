//! The fields of an IP packet that the network reads and writes: addresses, ECN, and the TCP
//! sequence numbers.

use ontempo_runtime::{End, V6_PREFIX};

/// ECN of RFC 3168, section 5: the two bits, and the one that a router sets.
const ECN: u8 = 0b11;
const CONGESTION_EXPERIENCED: u8 = 0b11;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// The two ends of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) from: End,
    pub(crate) to: End,
}

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) acknowledges: u32,
    pub(crate) opens: bool,
    /// Bytes of data.
    pub(crate) payload: u32,
}

/// The ends of `packet`; `None` if it is not an IP packet between our addresses.
pub(crate) fn ends(packet: &[u8]) -> Option<Ends> {
    let version = packet.first()? >> 4;
    let (from, to) = match version {
        4 => (End::of_v4(word(packet, 12)?)?, End::of_v4(word(packet, 16)?)?),
        6 => (of_v6(packet.get(8..24)?)?, of_v6(packet.get(24..40)?)?),
        _ => return None,
    };
    Some(Ends { from, to })
}

fn of_v6(address: &[u8]) -> Option<End> {
    let (prefix, rest) = address.split_at_checked(12)?;
    if prefix[..8] != V6_PREFIX || prefix[8..] != [0; 4] {
        return None;
    }
    End::of_number(word(rest, 0)?)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Whether `packet` may be marked instead of dropped.
pub(crate) fn is_ecn_capable(packet: &[u8]) -> bool {
    match (packet[0] >> 4, packet) {
        (4, [_, service, ..]) => service & ECN != 0,
        (6, [_, second, ..]) => (second >> 4) & ECN != 0,
        _ => false,
    }
}

/// Whether `packet` is of the L4S service: ECT(1) or CE (RFC 9331, section 4.1).
pub(crate) fn is_l4s(packet: &[u8]) -> bool {
    match (packet[0] >> 4, packet) {
        (4, [_, service, ..]) => service & 1 != 0,
        (6, [_, second, ..]) => (second >> 4) & 1 != 0,
        _ => false,
    }
}

/// Gives `packet`, which has passed [`ends`], a congestion mark; an IPv4 header's checksum
/// follows (RFC 1624).
pub(crate) fn mark(packet: &mut [u8]) {
    match packet[0] >> 4 {
        4 => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= CONGESTION_EXPERIENCED;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        }
        _ => packet[1] |= CONGESTION_EXPERIENCED << 4,
    }
}

/// Whether the address of a packet's sender, or of its destination, is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    From,
    To,
}

/// Gives `packet`, which has passed [`ends`], another address, as a NAT does: the checksums of IPv4, TCP
/// and UDP follow (RFC 1624).
pub(crate) fn set_address(packet: &mut [u8], which: Which, end: End) {
    let second = usize::from(which == Which::To);
    let (at, protocol, transport) = match packet[0] >> 4 {
        4 => (12 + 4 * second, packet[9], usize::from(packet[0] & 0xf) * 4),
        // All but the last four bytes of our addresses of IPv6 are the same.
        _ => (8 + 16 * second + 12, packet[6], V6_HEADER),
    };
    let Some(old) = word(packet, at) else { return };
    let new = match packet[0] >> 4 {
        4 => u32::from(end.v4()),
        _ => u32::from_be_bytes(std::array::from_fn(|place| end.v6().octets()[12 + place])),
    };
    packet[at..at + 4].copy_from_slice(&new.to_be_bytes());
    if packet[0] >> 4 == 4 {
        adjust(packet, 10, old, new);
        // Only the first fragment has a transport header.
        if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 {
            return;
        }
    }
    match protocol {
        PROTOCOL_TCP => adjust(packet, transport + 16, old, new),
        // A datagram of IPv4 may have no checksum: zero.
        PROTOCOL_UDP if packet.get(transport + 6..transport + 8) != Some(&[0, 0]) => {
            adjust(packet, transport + 6, old, new);
            if packet.get(transport + 6..transport + 8) == Some(&[0, 0]) {
                packet[transport + 6..transport + 8].fill(0xff);
            }
        }
        _ => {}
    }
}

/// The checksum at `at` after a word that it covers has changed.
fn adjust(packet: &mut [u8], at: usize, old: u32, new: u32) {
    let Some(&[high, low]) = packet.get(at..at + 2) else { return };
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let mut sum = u32::from(!u16::from_be_bytes([high, low])) + halves(!old) + halves(new);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Gives the payload of `packet`, which has passed [`ends`], a bit error, so that its receiver's
/// checksum fails. A bit of the last byte: `place` chooses which, so that errors of different links
/// do not cancel.
pub(crate) fn corrupt(packet: &mut [u8], place: usize) {
    let header = match packet[0] >> 4 {
        4 => usize::from(packet[0] & 0xf) * 4,
        _ => V6_HEADER,
    };
    if packet.len() > header
        && let Some(last) = packet.last_mut()
    {
        *last ^= 1 << (place % 8);
    }
}

/// The TCP header of `packet`, if it directly follows the IP header.
pub(crate) fn segment(packet: &[u8]) -> Option<Segment> {
    let (protocol, start) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 0xf) * 4),
        6 => (*packet.get(6)?, V6_HEADER),
        _ => return None,
    };
    if protocol != PROTOCOL_TCP || start < V4_HEADER {
        return None;
    }
    let header = packet.get(start..)?;
    let length = usize::from(*header.get(12)? >> 4) * 4;
    Some(Segment {
        sequence: word(header, 4)?,
        acknowledges: word(header, 8)?,
        opens: header.get(13)? & 0b10 != 0,
        payload: header.len().checked_sub(length)? as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header from RFC 1071's terms: its words sum to 0xffff.
    fn checksum_holds(header: &[u8]) -> bool {
        let words = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        (sum & 0xffff) + (sum >> 16) == 0xffff
    }

    fn v4(service: u8) -> Vec<u8> {
        let mut packet = vec![0x45, service, 0, 40, 7, 7, 0x40, 0, 64, 6, 0, 0];
        packet.extend([10, 0, 0, 2, 10, 0, 0, 3]);
        packet.extend([0, 80, 0, 81, 0, 0, 0, 9, 0, 0, 0, 5, 0x50, 0b10010, 0, 0, 0, 0, 0, 0]);
        let sum: u32 =
            packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn a_mark_leaves_the_header_checksum_right() {
        for service in [0b01, 0b10, 0xb8 | 0b10] {
            let mut packet = v4(service);
            assert!(checksum_holds(&packet[..20]) && is_ecn_capable(&packet));
            mark(&mut packet);
            assert!(checksum_holds(&packet[..20]));
            assert_eq!(packet[1], service | 0b11);
            assert!(is_l4s(&packet));
        }
        assert!(is_l4s(&v4(0b01)) && !is_l4s(&v4(0b10)) && !is_l4s(&v4(0)));
        assert!(!is_ecn_capable(&v4(0xb8)));
    }

    #[test]
    fn checksums_are_right_after_another_address() {
        // Of the pseudo header, the transport header and what follows.
        let transport_holds = |packet: &[u8], addresses: std::ops::Range<usize>, from: usize| {
            let length = (packet.len() - from) as u16;
            let protocol = if addresses.start == 12 { packet[9] } else { packet[6] };
            let mut all = packet[addresses].to_vec();
            all.extend([0, protocol]);
            all.extend(length.to_be_bytes());
            all.extend(&packet[from..]);
            let words = all.chunks(2);
            let sum: u32 = words
                .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
                .sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            (sum & 0xffff) + (sum >> 16) == 0xffff
        };
        // A right checksum is what makes the sum right: found by adjusting a zero.
        let close = |packet: &mut Vec<u8>, addresses: std::ops::Range<usize>, from, at: usize| {
            for checksum in 0..=u16::MAX {
                packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
                if transport_holds(packet, addresses.clone(), from) {
                    return;
                }
            }
            panic!("no checksum is right");
        };
        let source = End::of_number(2).expect("an end");
        for (protocol, field) in [(PROTOCOL_TCP, 16), (PROTOCOL_UDP, 6)] {
            let mut packet = v4(0);
            packet[9] = protocol;
            let sum: u32 =
                packet[..20].chunks(2).map(|p| u32::from(p[0]) << 8 | u32::from(p[1])).sum();
            let sum = sum - u32::from(packet[10]) * 256 - u32::from(packet[11]);
            let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            close(&mut packet, 12..20, 20, 20 + field);
            for times in [1, 2, 100] {
                set_address(&mut packet, Which::From, source.changed(times));
                let seen = ends(&packet).expect("of ours").from;
                assert_eq!((seen, seen.changes()), (source.changed(times), times));
                assert_eq!(seen.changed(0), source);
                assert!(checksum_holds(&packet[..20]) && transport_holds(&packet, 12..20, 20));
            }
            let before = packet.clone();
            set_address(&mut packet, Which::To, source.changed(7));
            set_address(&mut packet, Which::To, End::of_number(3).expect("an end"));
            assert_eq!(packet, before, "there and back");

            let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
            for end in [source, source.peer()] {
                packet.extend(end.v6().octets());
            }
            packet.extend([0, 80, 0, 81, 0, 20, 0, 9, 0, 0, 0, 5, 0x50, 2, 0, 0, 0, 0, 0, 0]);
            close(&mut packet, 8..40, 40, 40 + field);
            set_address(&mut packet, Which::From, source.changed(3));
            assert_eq!(ends(&packet).map(|ends| ends.from), Some(source.changed(3)));
            assert!(transport_holds(&packet, 8..40, 40));
        }
        let mut without = v4(0);
        without[9] = PROTOCOL_UDP;
        without[26..28].fill(0);
        set_address(&mut without, Which::From, source.changed(1));
        assert_eq!(without[26..28], [0, 0], "no checksum stays none");
        for length in 20..40 {
            set_address(&mut v4(0)[..length], Which::To, source);
        }
    }

    #[test]
    fn a_bit_error_is_behind_the_header_and_two_of_different_links_do_not_cancel() {
        let sound = v4(0);
        let mut packet = sound.clone();
        corrupt(&mut packet, 3);
        assert_eq!(packet[..39], sound[..39]);
        assert_eq!(packet[39], sound[39] ^ 8);
        corrupt(&mut packet, 4);
        assert_ne!(packet, sound);
        let mut header = sound[..20].to_vec();
        corrupt(&mut header, 0);
        assert_eq!(header, sound[..20], "there is no payload");
    }

    #[test]
    fn ends_are_read_from_both_versions_and_strangers_are_none() {
        let (from, to) = (End::of_number(2).expect("an end"), End::of_number(3).expect("an end"));
        assert_eq!(ends(&v4(0)), Some(Ends { from, to }));
        let mut v6 = vec![0x60, 0x20, 0, 0, 0, 0, 59, 64];
        for end in [from, to] {
            v6.extend(end.v6().octets());
        }
        assert_eq!(ends(&v6), Some(Ends { from, to }));
        assert!(is_ecn_capable(&v6));
        mark(&mut v6);
        assert_eq!(v6[..2], [0x60, 0x30]);
        assert!(is_l4s(&v6));
        v6[8] = 0xfe;
        assert_eq!(ends(&v6), None);
        for length in 0..v6.len() {
            assert_eq!(ends(&v6[..length]), None);
        }
    }

    #[test]
    fn a_segment_tells_its_numbers_and_a_short_one_nothing() {
        let packet = v4(0);
        let expected = Segment { sequence: 9, acknowledges: 5, opens: true, payload: 0 };
        assert_eq!(segment(&packet), Some(expected));
        for length in 0..packet.len() {
            assert_eq!(segment(&packet[..length]), None);
        }
    }
}
