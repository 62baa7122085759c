//! RIST, main profile, as `ristsender` and `ristreceiver` of librist 0.2.7 run it by default: one peer,
//! no encryption.
//!
//! The documents are VSF TR-06-1 (simple profile: RTP, RTCP, retransmission by negative
//! acknowledgements) and TR-06-2 (main profile: GRE over UDP, null packet deletion). They leave most of
//! what decides results to the implementation, so each such rule names the file and function of
//! librist 0.2.7 that it follows. Packets carry what decides, not their octets; their sizes are those on
//! the wire.
//!
//! Both programs work in loops that wait at most 5 ms. What a loop delays is modelled: it is much of
//! the round-trip time on a short path.

mod bandwidth;
mod flow;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use ontempo_foundation::{Bytes, Duration, Rate, Time};

pub use receiver::{RistReceiver, RistReceiverStatistics};
pub use sender::{RistSender, RistSenderStatistics};

/// The longest that a loop of librist waits (`RIST_MAX_JITTER`, rist-private.h).
const LOOP: Duration = Duration::from_millis(5);
/// The interval of RTCP packets (`RIST_PING_INTERVAL`, rist-private.h).
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// A peer not heard of for this long is dead, if none is configured
/// (rist-common.c, `rist_receiver_peer_insert_local`, `rist_sender_peer_insert_local`).
const SESSION_TIMEOUT: Duration = Duration::from_millis(250);
/// The most negative acknowledgements in a packet (`RIST_MAX_NACKS`, rist-private.h).
const MAX_NACKS: u32 = 200;
/// RTP sequence numbers: 16 bits.
const SEQUENCES: usize = 1 << 16;
/// The largest payload: `RIST_MAX_PACKET_SIZE` (10,000) less 32 (rist.c, `rist_sender_data_write`).
const MAX_PAYLOAD: u64 = 10_000 - 32;
/// Packets that wait to be put on the wire; beyond, the socket's buffer is full.
const MAX_OUTBOX: usize = 4096;

/// A transport packet of MPEG-TS (ISO/IEC 13818-1).
const TRANSPORT_PACKET: u64 = 188;
/// The RTP extension header of null packet deletion (TR-06-2).
const NULL_DELETION_HEADER: u64 = 8;

/// IPv4 and UDP.
const NETWORK_HEADERS: u64 = 20 + 8;
/// GRE without sequence and key, and the ports of reduced overhead (udp.c, `rist_send_seq_rtcp`).
const GRE: u64 = 4 + 4;
const RTP: u64 = 12;
/// RTCP: RFC 3550, section 6.4, without report blocks of reception in a sender report.
const SENDER_REPORT: u64 = 28;
const RECEIVER_REPORT: u64 = 32;
const EMPTY_RECEIVER_REPORT: u64 = 8;
/// An SDES chunk is 11 octets and the name, filled up to a multiple of 4 (udp.c,
/// `rist_rtcp_write_sdes`). The sender's name is its host's, here of 6 to 9 characters; the receiver's
/// has its address and port besides, here 22 to 25 characters.
const SENDER_DESCRIPTION: u64 = 20;
const RECEIVER_DESCRIPTION: u64 = 36;
const ECHO: u64 = 24;
/// The header of an extended report and its receiver reference time (RFC 3611, section 4.4).
const EXTENDED_REPORT: u64 = 8 + 12;
/// A range-based negative acknowledgement: its header, and each range (TR-06-1).
const NACK_HEADER: u64 = 12;
const NACK_RANGE: u64 = 4;
/// `ristreceiver` reports a new peer to it out of band: 56 octets with the addresses of the loopback
/// (tools/ristreceiver.c, `cb_auth_connect`).
const NOTICE: u64 = 4 + 56;

/// What the sender does to bound retransmissions (`rist_congestion_control_mode`, peer.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RistCongestionControl {
    /// Repeated requests are always met; both rates are averages over seconds.
    Off,
    /// A request is met once in a round-trip time; the rate of retransmissions is that of some 100 ms.
    #[default]
    Normal,
    /// Once in two round-trip times; both rates are those of some 100 ms.
    Aggressive,
}

/// Parameters of both ends; the default is that of librist 0.2.7 (include/librist/peer.h, and what both
/// programs print).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RistParameters {
    /// How long after its time of sending, and the path's delay, a datagram is given to the application
    /// (`buffer=`, milliseconds there): 1 s.
    pub buffer: Duration,
    /// Null packets of MPEG-TS are not sent (`ristsender -n`): false.
    pub null_packet_deletion: bool,
    /// The least time from noticing a gap to asking for what is missing: 25 ms.
    pub reorder_buffer: Duration,
    /// Bounds of the round-trip time as used: 50 ms and 500 ms.
    pub rtt_min: Duration,
    /// See [`rtt_min`](Self::rtt_min).
    pub rtt_max: Duration,
    /// Nothing is sent again while media, reports and retransmissions exceed this: 100 Mbit/s.
    pub max_bitrate: Rate,
    /// What bounds retransmissions besides.
    pub congestion_control: RistCongestionControl,
    /// How often a datagram is asked for, and sent again, at most: 20.
    pub max_retries: u32,
    /// A peer not heard of for this long is dead (`session-timeout=`): 250 ms.
    pub session_timeout: Duration,
}

impl Default for RistParameters {
    fn default() -> Self {
        Self {
            buffer: Duration::from_millis(1000),
            null_packet_deletion: false,
            reorder_buffer: Duration::from_millis(25),
            rtt_min: Duration::from_millis(50),
            rtt_max: Duration::from_millis(500),
            max_bitrate: Rate::from_bits_per_sec(100_000_000),
            congestion_control: RistCongestionControl::default(),
            max_retries: 20,
            session_timeout: SESSION_TIMEOUT,
        }
    }
}

impl RistParameters {
    /// A round-trip time within its bounds. As in librist, the upper bound wins (rist-common.c,
    /// `rist_process_nack`).
    fn bounded_rtt(&self, rtt: Duration) -> Duration {
        rtt.max(self.rtt_min).min(self.rtt_max)
    }
}

/// Which program sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RistEnd {
    /// `ristsender`.
    Sender,
    /// `ristreceiver`.
    Receiver,
}

/// Consecutive sequence numbers that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackRange {
    /// The first.
    pub first: u16,
    /// How many follow it.
    pub additional: u16,
}

/// A packet between both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RistPacket {
    /// RTP.
    Data {
        /// Of RTP.
        sequence: u16,
        /// The application's datagram, numbered from 0.
        datagram: u64,
        /// When the sending application gave it.
        timestamp: Time,
        /// True where it was sent before (the lowest bit of the SSRC).
        is_retransmission: bool,
        /// Size of what follows the RTP header: without deleted null packets, with the header for them.
        payload: Bytes,
    },
    /// The receiver asks for datagrams: an empty receiver report, SDES and ranges.
    Nack {
        /// In the order in which their absence was noticed.
        ranges: Vec<NackRange>,
    },
    /// The sender's report every 100 ms, with SDES.
    SenderReport {
        /// When it was sent, where it asks for an echo: once the receiver is known to answer.
        echo_request: Option<Time>,
    },
    /// The receiver's report every 100 ms, with SDES and a request for an echo.
    ReceiverReport {
        /// When it was sent.
        echo_request: Time,
        /// With an extended report: until the sender is known to answer echoes.
        is_extended: bool,
    },
    /// The sender's request for an echo, at its start, with SDES.
    EchoRequest {
        /// When it was sent.
        sent: Time,
    },
    /// The answer to a request for an echo, with SDES.
    EchoResponse {
        /// Who answers.
        from: RistEnd,
        /// When the request was sent.
        request_sent: Time,
    },
    /// The receiver's program tells a new peer its address, out of band. Nothing follows from it.
    Notice,
}

impl RistPacket {
    /// Size with the headers of IPv4, UDP, GRE and RTP.
    pub fn wire_size(&self) -> Bytes {
        Bytes::new(NETWORK_HEADERS + self.datagram_size())
    }

    /// Size of the UDP datagram's payload, which is what librist counts as sent.
    fn datagram_size(&self) -> u64 {
        match self {
            Self::Data { payload, .. } => GRE + RTP + payload.get().min(MAX_PAYLOAD),
            Self::Nack { ranges } => {
                let ranges = NACK_HEADER + NACK_RANGE * ranges.len() as u64;
                GRE + EMPTY_RECEIVER_REPORT + RECEIVER_DESCRIPTION + ranges
            }
            Self::SenderReport { echo_request } => {
                let echo = if echo_request.is_some() { ECHO } else { 0 };
                GRE + SENDER_REPORT + SENDER_DESCRIPTION + echo
            }
            Self::ReceiverReport { is_extended, .. } => {
                let extended = if *is_extended { EXTENDED_REPORT } else { 0 };
                GRE + RECEIVER_REPORT + RECEIVER_DESCRIPTION + extended + ECHO
            }
            Self::EchoRequest { .. } => GRE + EMPTY_RECEIVER_REPORT + SENDER_DESCRIPTION + ECHO,
            Self::EchoResponse { from, .. } => {
                let description = match from {
                    RistEnd::Sender => SENDER_DESCRIPTION,
                    RistEnd::Receiver => RECEIVER_DESCRIPTION,
                };
                GRE + EMPTY_RECEIVER_REPORT + description + ECHO
            }
            Self::Notice => NOTICE,
        }
    }
}

/// The round-trip time that an echo shows, in whole milliseconds. librist keeps the fraction of a second
/// alone (rist-common.c, `rist_rtcp_handle_echo_response`: a cast to 32 bits before the division).
fn echo_rtt(now: Time, request_sent: Time) -> Duration {
    Duration::from_millis(now.since(request_sent).as_nanos() % 1_000_000_000 / 1_000_000)
}
