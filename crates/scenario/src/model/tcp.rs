//! TCP: congestion control, loss recovery, acknowledgements, pacing.

use ontempo_foundation::{Bytes, Duration, Packets};
use ontempo_mechanisms::congestion::{self, CongestionName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;

/// How a TCP flow behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TcpSpec {
    /// The congestion controller: a name, or a table with its parameters.
    pub congestion: Congestion,
    /// Size of a full packet on the wire, 40 bytes of headers counted.
    pub packet: Bytes,
    /// How losses are found and repaired.
    pub recovery: RecoveryKind,
    /// When the receiver acknowledges.
    pub ack: AckKind,
    /// How packets are spread over a round trip.
    pub pacing: PacingKind,
    /// Remove the delay that a train of packets inflicts on itself from the RTT samples
    /// (pert, ch. V).
    pub correct_self_induced_delay: bool,
    /// Window at the start and after an idle restart.
    pub initial_window: Packets,
    /// The receiver's window: the most that may be in flight.
    pub receive_window: Packets,
    /// Slow-start threshold at the start; none where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ssthresh: Option<Packets>,
    /// Send a new packet for each of the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
    /// Least retransmission timeout.
    pub min_rto: Duration,
    /// Granularity of the retransmission clock; zero for an exact one.
    pub clock: Duration,
    /// Take an RTT sample from every ACK, as timestamps allow (RFC 7323); otherwise one a
    /// round trip.
    pub timestamps: bool,
    /// Let the window grow while the application, not the window, limits what is sent (as ns-2
    /// does; Linux does not).
    pub grow_when_application_limited: bool,
    /// Begin again from the initial window after an idle time of one RTO (RFC 5681, 4.1).
    pub idle_restart: bool,
    /// Negotiate ECN (RFC 3168).
    pub ecn: bool,
}

impl Default for TcpSpec {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            packet: defaults::packet(),
            recovery: RecoveryKind::Sack,
            ack: AckKind::Immediate {},
            pacing: PacingKind::Off,
            correct_self_induced_delay: false,
            initial_window: Packets::new(2),
            receive_window: Packets::new(100_000),
            initial_ssthresh: None,
            limited_transmit: true,
            min_rto: Duration::from_millis(200),
            clock: Duration::ZERO,
            timestamps: true,
            grow_when_application_limited: true,
            idle_restart: true,
            ecn: false,
        }
    }
}

/// A congestion controller, as the registry has it ([`ontempo_mechanisms::congestion`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Congestion {
    /// One that has a name here, with its parameters.
    Known(congestion::Congestion),
    /// Any that the Linux kernel has; emulated only.
    Kernel {
        /// What the kernel calls it.
        name: String,
    },
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Known(CongestionName::Reno.into())
    }
}

/// How losses are found and repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecoveryKind {
    /// Fast retransmit and fast recovery, left at the first new ACK (RFC 5681).
    Reno,
    /// Fast recovery that partial ACKs prolong (RFC 6582).
    NewReno,
    /// Selective acknowledgements (RFC 2018, RFC 6675).
    #[default]
    Sack,
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum AckKind {
    /// Each packet.
    Immediate {},
    /// Each second packet, or after `timeout` (RFC 5681, 4.2).
    Delayed {
        /// The longest wait, at most 500 ms.
        #[serde(default = "defaults::ack_timeout")]
        timeout: Duration,
    },
    /// One ACK for up to `most` packets, adapted to order and arrival rate (pert, ch. IV).
    Adaptive {
        /// The most packets that one ACK covers.
        #[serde(default = "defaults::ack_most")]
        most: Packets,
    },
}

/// How packets are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PacingKind {
    /// Not at all: as the window opens.
    #[default]
    Off,
    /// At `srtt / cwnd` from packet to packet.
    Window,
    /// At the rate that the congestion controller answers.
    Controller,
}
