use ontempo_foundation::{Bytes, Duration, Packets, Rate};

/// Headers of IPv4 (20 bytes), UDP (8) and SRT (16; the draft, section 3).
const HEADERS: u64 = 44;
/// A handshake without extensions (the draft, section 3.2.1).
const HANDSHAKE: u64 = 48;
/// The extension with version, flags and latency (the draft, section 3.2.1.1).
const HANDSHAKE_EXTENSION: u64 = 16;
/// libsrt fills a control packet that has no body (`CPacket::pack` in `packet.cpp`).
const PADDING: u64 = 4;
/// The largest payload of a packet of live mode, seven packets of a transport stream
/// (SRT_LIVE_DEF_PLSIZE).
pub(super) const MAX_PAYLOAD: Bytes = Bytes::new(1_316);

/// A packet between the two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SrtPacket {
    /// A step of the handshake.
    Handshake(Handshake),
    /// A datagram of the application.
    Data {
        /// Sequence number of the packet.
        sequence: u64,
        /// Number of the application's datagram, from 0.
        message: u64,
        /// When the application handed it over, from the sender's start.
        timestamp: Duration,
        /// Sent before.
        is_retransmission: bool,
        /// Size of the datagram.
        payload: Bytes,
    },
    /// An acknowledgement with measurements.
    Ack(FullAck),
    /// Only the first sequence number that is missing.
    LightAck {
        /// All packets before this one have arrived or are given up.
        next: u64,
    },
    /// Answers a full acknowledgement.
    AckAck {
        /// Number of the acknowledgement.
        number: u64,
        /// When it was sent, from the sender's start.
        timestamp: Duration,
    },
    /// A loss report.
    Nak {
        /// First and last of consecutive packets that are missing.
        ranges: Vec<(u64, u64)>,
    },
    /// The sender does not have these packets any more.
    DropRequest {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// Sent when nothing else was sent for a second.
    KeepAlive {
        /// When it was sent, from its sender's start.
        timestamp: Duration,
    },
    /// The connection is closed.
    Shutdown {
        /// Which connection.
        attempt: u64,
    },
}

/// A step of the handshake of version 5 between caller and listener (the draft, section 4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Which step.
    pub step: HandshakeStep,
    /// Number of the caller's attempt, in place of the socket numbers of SRT.
    pub attempt: u64,
    /// When it was sent, from the caller's start; zero in an answer.
    pub timestamp: Duration,
    /// The first sequence number of the caller.
    pub initial_sequence: u64,
    /// How many packets its sender accepts.
    pub flow_window: Packets,
}

/// The four steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// The caller asks for a cookie.
    Induction,
    /// The listener gives it.
    InductionAnswer,
    /// The caller states its options.
    Conclusion,
    /// The listener has accepted.
    ConclusionAnswer,
}

/// A full acknowledgement (the draft, section 3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullAck {
    /// Number of the acknowledgement, from 1.
    pub number: u64,
    /// All packets before this one have arrived or are given up.
    pub next: u64,
    /// Smoothed round-trip time at the receiver.
    pub rtt: Duration,
    /// Its variance.
    pub rtt_variance: Duration,
    /// Room in the receive buffer.
    pub available_buffer: Packets,
    /// The receiving rate, headers included; `None` in a small acknowledgement, which has no rates.
    pub receiving_rate: Option<Rate>,
}

impl SrtPacket {
    /// Size on the wire, with the headers of IPv4 and UDP.
    pub fn wire_size(&self) -> Bytes {
        let body = match self {
            Self::Handshake(handshake) => match handshake.step {
                HandshakeStep::Induction | HandshakeStep::InductionAnswer => HANDSHAKE,
                HandshakeStep::Conclusion | HandshakeStep::ConclusionAnswer => {
                    HANDSHAKE + HANDSHAKE_EXTENSION
                }
            },
            Self::Data { payload, .. } => payload.get(),
            // Four fields of 4 bytes; with rate, bandwidth and rate in bytes seven.
            Self::Ack(ack) if ack.receiving_rate.is_none() => 16,
            Self::Ack(_) => 28,
            Self::LightAck { .. } => 4,
            Self::Nak { ranges } => 4 * ranges.iter().map(nak_words).sum::<u64>(),
            Self::DropRequest { .. } => 8,
            Self::AckAck { .. } | Self::KeepAlive { .. } | Self::Shutdown { .. } => PADDING,
        };
        Bytes::new(HEADERS.saturating_add(body))
    }
}

/// Words of 4 bytes that a range takes in a loss report (the draft, appendix A).
pub(super) const fn nak_words(range: &(u64, u64)) -> u64 {
    if range.0 == range.1 { 1 } else { 2 }
}
