//! The headers of a modelled packet in a trace: IPv4 with TCP or UDP.

use ontempo_mechanisms::recovery::SackBlock;
use ontempo_runtime::End;

use crate::packet::{MAX_BLOCKS, Packet};

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// Two NOPs, kind, length, and eight bytes a block (RFC 2018, section 3).
const MAX_OPTIONS: usize = 4 + 8 * MAX_BLOCKS;
/// The options of a SYN of 60 bytes, as NOPs.
const SYN_OPTIONS: [u8; 20] = [1; 20];
/// Maximum bytes of a frame's headers.
pub(super) const MAX_HEADERS: usize = IP_HEADER + TCP_HEADER + MAX_OPTIONS;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// Offset of the checksum in its header.
const IP_CHECKSUM: usize = 10;
const TCP_CHECKSUM: usize = IP_HEADER + 16;
const UDP_CHECKSUM: usize = IP_HEADER + 6;

const FLAG_SYN: u8 = 0x02;
const FLAG_ACK: u8 = 0x10;
/// The echo of a congestion mark (RFC 3168).
const FLAG_ECE: u8 = 0x40;
const ECN_CAPABLE: u8 = 0b10;
/// ECT(1) (RFC 9331).
const ECN_L4S: u8 = 0b01;
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// The first of the dynamic ports (RFC 6335), which no protocol claims.
const FIRST_PORT: u32 = 49_152;
const PORTS: u32 = 65_536 - FIRST_PORT;

/// The transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// TCP; without `sack`, ACKs carry no blocks.
    Tcp { packet_size: u32, sack: bool },
    /// UDP.
    Udp,
}

/// A flow as a trace shows it: its ends have the addresses that they have in an emulation; its ports
/// are its number, counted from 49152, so that no two flows share both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    source: [u8; 4],
    sink: [u8; 4],
    source_port: u16,
    sink_port: u16,
    protocol: Protocol,
}

impl Ends {
    pub(crate) fn new(flow: u32, protocol: Protocol) -> Self {
        Self {
            source: End::source(flow as usize).v4().octets(),
            sink: End::sink(flow as usize).v4().octets(),
            source_port: port(flow % PORTS),
            sink_port: port(flow / PORTS),
            protocol,
        }
    }
}

fn port(number: u32) -> u16 {
    (FIRST_PORT + number % PORTS) as u16
}

/// The headers of one packet; the payload is not written, and counts as zeros in checksums.
pub(super) struct Frame {
    bytes: [u8; MAX_HEADERS],
    captured: usize,
    /// Bytes of the whole packet.
    pub(super) length: u32,
}

impl Frame {
    /// `packet` as it crosses a link, with a congestion mark if `marked`.
    pub(super) fn new(ends: &Ends, packet: &Packet, marked: bool) -> Self {
        let mut frame = Self { bytes: [0; MAX_HEADERS], captured: 0, length: packet.size };
        let ecn = match packet.marks {
            marks if marks.ack => 0,
            marks if marks.congestion || marked => CONGESTION_EXPERIENCED,
            marks if marks.is_l4s() => ECN_L4S,
            marks if marks.is_ecn_capable() => ECN_CAPABLE,
            _ => 0,
        };
        match ends.protocol {
            Protocol::Tcp { packet_size, sack } => {
                frame.tcp(ends, packet, packet_size, sack);
                frame.ip(ends, packet.marks.ack, PROTOCOL_TCP, ecn);
                frame.transport_checksum(PROTOCOL_TCP, TCP_CHECKSUM);
            }
            Protocol::Udp => {
                frame.udp(ends, packet.marks.ack);
                frame.ip(ends, packet.marks.ack, PROTOCOL_UDP, ecn);
                frame.transport_checksum(PROTOCOL_UDP, UDP_CHECKSUM);
            }
        }
        frame
    }

    /// The headers.
    pub(super) fn captured(&self) -> &[u8] {
        &self.bytes[..self.captured]
    }

    fn put(&mut self, at: usize, field: &[u8]) {
        self.bytes[at..at + field.len()].copy_from_slice(field);
    }

    /// Data starts at sequence number 1, as if after a SYN; the reverse direction, which
    /// carries no data, stays at 1.
    fn tcp(&mut self, ends: &Ends, packet: &Packet, packet_size: u32, sack: bool) {
        let payload = packet_size.saturating_sub((IP_HEADER + TCP_HEADER) as u32);
        // Sequence numbers wrap at 2^32.
        let sequence =
            |number: u64| (number.wrapping_mul(u64::from(payload)) as u32).wrapping_add(1);
        let (own, other, numbers) = if packet.marks.ack {
            (ends.sink_port, ends.source_port, (1, sequence(packet.number)))
        } else {
            (ends.source_port, ends.sink_port, (sequence(packet.number), 1))
        };
        self.put(IP_HEADER, &own.to_be_bytes());
        self.put(IP_HEADER + 2, &other.to_be_bytes());
        self.put(IP_HEADER + 4, &numbers.0.to_be_bytes());
        self.put(IP_HEADER + 8, &numbers.1.to_be_bytes());
        let mut options = 0;
        let echo = if packet.marks.ack && packet.marks.congestion { FLAG_ECE } else { 0 };
        let mut flags = FLAG_ACK | echo;
        if packet.is_syn() {
            // A SYN precedes the data; its size has its options, all NOPs here.
            options = SYN_OPTIONS.len();
            self.put(IP_HEADER + TCP_HEADER, &SYN_OPTIONS);
            self.put(IP_HEADER + 4, &0u32.to_be_bytes());
            flags = if packet.marks.ack { FLAG_SYN | FLAG_ACK } else { FLAG_SYN };
            if !packet.marks.ack {
                self.put(IP_HEADER + 8, &0u32.to_be_bytes());
            }
        } else if packet.marks.ack && sack {
            let (blocks, count) = packet.blocks();
            options = self.sack(&blocks[..count], sequence);
            self.length += options as u32;
        }
        let words = ((TCP_HEADER + options) / 4) as u8;
        self.put(IP_HEADER + 12, &[words << 4, flags]);
        self.put(IP_HEADER + 14, &u16::MAX.to_be_bytes());
        self.captured = IP_HEADER + TCP_HEADER + options;
    }

    /// Writes the blocks as options; returns their length in bytes.
    fn sack(&mut self, blocks: &[SackBlock], sequence: impl Fn(u64) -> u32) -> usize {
        const NOP: u8 = 1;
        const SACK: u8 = 5;
        if blocks.is_empty() {
            return 0;
        }
        let mut at = IP_HEADER + TCP_HEADER;
        self.put(at, &[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
        at += 4;
        for block in blocks {
            self.put(at, &sequence(block.start).to_be_bytes());
            self.put(at + 4, &sequence(block.end).to_be_bytes());
            at += 8;
        }
        at - IP_HEADER - TCP_HEADER
    }

    /// Reports of a spaced flow go `back`.
    fn udp(&mut self, ends: &Ends, back: bool) {
        let (own, other) = (ends.source_port, ends.sink_port);
        let (own, other) = if back { (other, own) } else { (own, other) };
        self.put(IP_HEADER, &own.to_be_bytes());
        self.put(IP_HEADER + 2, &other.to_be_bytes());
        let length = self.transport_length();
        self.put(IP_HEADER + 4, &length.to_be_bytes());
        self.captured = IP_HEADER + UDP_HEADER;
    }

    /// Not fragmented, so that the identification field has no meaning (RFC 6864).
    fn ip(&mut self, ends: &Ends, back: bool, protocol: u8, ecn: u8) {
        const VERSION_AND_WORDS: u8 = 0x45;
        const DO_NOT_FRAGMENT: u8 = 0x40;
        const TIME_TO_LIVE: u8 = 64;
        let [high, low] = (self.length as u16).to_be_bytes();
        self.put(0, &[VERSION_AND_WORDS, ecn, high, low, 0, 0, DO_NOT_FRAGMENT, 0]);
        self.put(8, &[TIME_TO_LIVE, protocol]);
        let (from, to) = if back { (ends.sink, ends.source) } else { (ends.source, ends.sink) };
        self.put(12, &from);
        self.put(16, &to);
        let sum = checksum(words(&self.bytes[..IP_HEADER]));
        self.put(IP_CHECKSUM, &sum.to_be_bytes());
    }

    /// Bytes after the IP header; the scenario ensures that they fit in 16 bits.
    fn transport_length(&self) -> u16 {
        (self.length as usize).saturating_sub(IP_HEADER) as u16
    }

    fn transport_checksum(&mut self, protocol: u8, at: usize) {
        let pseudo_header = u32::from(protocol) + u32::from(self.transport_length());
        let sum = checksum(pseudo_header + words(&self.bytes[12..self.captured]));
        // In UDP, a zero checksum means "none" (RFC 768).
        let sum = if protocol == PROTOCOL_UDP && sum == 0 { u16::MAX } else { sum };
        self.put(at, &sum.to_be_bytes());
    }
}

/// The sum of the 16-bit words of `bytes`, which are too few to overflow it.
fn words(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)))
        .sum()
}

/// The ones' complement of the ones' complement sum (RFC 1071).
fn checksum(sum: u32) -> u16 {
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + folded) as u16
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Time;

    use ontempo_scenario::model::EcnCode;

    use super::*;

    const TCP: Protocol = Protocol::Tcp { packet_size: 1000, sack: true };

    fn ends(protocol: Protocol) -> Ends {
        Ends::new(PORTS + 3, protocol)
    }

    fn ack(number: u64, blocks: &[(u64, u64)]) -> Packet {
        let mut packet = Packet::data(0, 0, number, Time::ZERO, 40);
        packet.marks.ack = true;
        let blocks: Vec<SackBlock> =
            blocks.iter().map(|(start, end)| SackBlock { start: *start, end: *end }).collect();
        packet.set_blocks(&blocks);
        packet
    }

    fn field(frame: &Frame, at: usize) -> u32 {
        u32::from_be_bytes(frame.bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn addresses_are_those_of_an_emulation_and_ports_follow_flows() {
        let ends = ends(TCP);
        // Two a flow, from 10.0.0.2 on.
        assert_eq!((ends.source, ends.sink), ([10, 0, 128, 8], [10, 0, 128, 9]));
        assert_eq!((ends.source_port, ends.sink_port), (49_155, 49_153));
    }

    #[test]
    fn data_is_numbered_in_bytes_of_payload_from_one_and_wraps() {
        let packet = Packet::data(0, 0, 3, Time::ZERO, 1000);
        let frame = Frame::new(&ends(TCP), &packet, false);
        assert_eq!((frame.captured().len(), frame.length), (40, 1000));
        assert_eq!((field(&frame, 24), field(&frame, 28)), (1 + 3 * 960, 1));
        let packet = Packet::data(0, 0, 5_000_000, Time::ZERO, 1000);
        let frame = Frame::new(&ends(TCP), &packet, false);
        assert_eq!(u64::from(field(&frame, 24)), (1 + 5_000_000 * 960) % (1 << 32));
    }

    #[test]
    fn a_syn_and_its_answer_have_their_flags_and_options() {
        for (ack, flags, acknowledged) in [(false, FLAG_SYN, 0), (true, FLAG_SYN | FLAG_ACK, 1)] {
            let mut packet = Packet::data(0, 0, 0, Time::ZERO, 60);
            packet.marks.ack = ack;
            packet.set_syn();
            let frame = Frame::new(&ends(TCP), &packet, false);
            assert_eq!((frame.captured().len(), frame.length), (60, 60));
            assert_eq!((field(&frame, 24), field(&frame, 28)), (0, acknowledged));
            assert_eq!(frame.bytes[32..34], [10 << 4, flags]);
        }
    }

    #[test]
    fn blocks_lengthen_an_ack_by_their_options() {
        let frame = Frame::new(&ends(TCP), &ack(2, &[(4, 6), (9, 10)]), false);
        assert_eq!((frame.captured().len(), frame.length), (60, 60));
        assert_eq!((field(&frame, 24), field(&frame, 28)), (1, 1 + 2 * 960));
        assert_eq!(frame.bytes[40..44], [1, 1, 5, 18]);
        let edges: Vec<u32> = (44..60).step_by(4).map(|at| field(&frame, at)).collect();
        assert_eq!(edges, [1 + 4 * 960, 1 + 6 * 960, 1 + 9 * 960, 1 + 10 * 960]);
        let without = Protocol::Tcp { packet_size: 1000, sack: false };
        let frame = Frame::new(&ends(without), &ack(2, &[(4, 6)]), false);
        assert_eq!(frame.captured().len(), 40);
    }

    #[test]
    fn a_mark_shows_in_data_and_its_echo_in_the_ack() {
        let mut packet = Packet::data(0, 0, 3, Time::ZERO, 1000);
        packet.marks.set_ecn(EcnCode::Ect1);
        assert_eq!(Frame::new(&ends(TCP), &packet, false).bytes[1], ECN_L4S);
        packet.marks.set_ecn(EcnCode::Ect0);
        assert_eq!(Frame::new(&ends(TCP), &packet, false).bytes[1], ECN_CAPABLE);
        assert_eq!(Frame::new(&ends(TCP), &packet, true).bytes[1], CONGESTION_EXPERIENCED);
        let mut packet = ack(1, &[]);
        packet.marks.congestion = true;
        let frame = Frame::new(&ends(TCP), &packet, false);
        assert_eq!((frame.bytes[1], frame.bytes[33]), (0, FLAG_ACK | FLAG_ECE));
    }

    #[test]
    fn a_report_of_a_spaced_flow_goes_from_its_sink_to_its_source() {
        let there = Frame::new(&ends(Protocol::Udp), &Packet::data(0, 0, 1, Time::ZERO, 44), false);
        let back = Frame::new(&ends(Protocol::Udp), &ack(1, &[]), false);
        assert_eq!((field(&there, 12), field(&there, 16)), (field(&back, 16), field(&back, 12)));
        assert_eq!(there.bytes[20..22], back.bytes[22..24]);
    }

    /// A sum over everything that a checksum covers, the checksum included, is all ones.
    #[test]
    fn checksums_hold_over_header_and_a_payload_of_zeros() {
        let data = Packet::data(0, 0, 77, Time::ZERO, 999);
        let tcp = Frame::new(&ends(TCP), &data, false);
        let answer = Frame::new(&ends(TCP), &ack(2, &[(4, 6), (9, 10), (12, 14)]), false);
        let udp = Frame::new(&ends(Protocol::Udp), &data, false);
        for (frame, protocol) in [(tcp, 6), (answer, 6), (udp, 17)] {
            assert_eq!(checksum(words(&frame.bytes[..IP_HEADER])), 0);
            let covered = protocol + (frame.length - 20) + words(&frame.captured()[12..]);
            assert_eq!(checksum(covered), 0);
        }
    }
}
