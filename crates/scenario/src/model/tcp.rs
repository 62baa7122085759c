//! TCP: congestion control, loss recovery, acknowledgements, pacing.

use ontempo_foundation::{Bytes, Duration, Packets};
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

/// A congestion controller by name, or with parameters.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Congestion {
    /// `"reno"`, `"newreno"`, `"cubic"`, `"vegas"`, `"pert"` or `"bbr"`, with its defaults.
    Named(CongestionName),
    /// With parameters.
    With(CongestionSpec),
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Named(CongestionName::Reno)
    }
}

/// The names of the congestion controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CongestionName {
    /// Reno (RFC 5681).
    Reno,
    /// Reno that reacts once per window of data (RFC 6582).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Vegas (Brakmo and Peterson, 1995).
    Vegas,
    /// PERT (pert, ch. II).
    Pert,
    /// BBR, as the Linux kernel has it; emulated only.
    Bbr,
}

/// A congestion controller with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "lowercase",
    rename_all_fields = "kebab-case"
)]
pub enum CongestionSpec {
    /// Reno (RFC 5681).
    Reno {
        /// Grow by packets acknowledged (RFC 3465) instead of by ACKs.
        #[serde(default)]
        count_packets: bool,
    },
    /// Reno that reacts once per window of data (RFC 6582).
    NewReno {
        /// Grow by packets acknowledged (RFC 3465) instead of by ACKs.
        #[serde(default)]
        count_packets: bool,
    },
    /// CUBIC (RFC 9438).
    Cubic {
        /// `rfc9438`, or `linux-2.6` for the one that ns-2 carries.
        #[serde(default)]
        variant: CubicVariant,
    },
    /// Vegas (Brakmo and Peterson, 1995).
    Vegas {},
    /// PERT (pert, ch. II).
    Pert {
        /// Which reading of PERT's open points.
        #[serde(default)]
        variant: PertVariant,
        /// Queueing delay below which PERT never responds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t_min: Option<Duration>,
        /// Queueing delay at which it responds with probability `p-max`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t_max: Option<Duration>,
        /// Probability of a response at `t-max`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        p_max: Option<f64>,
        /// The largest additive increase, in packets per round trip.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alpha_max: Option<f64>,
    },
    /// Any that the Linux kernel has; emulated only.
    Kernel {
        /// What the kernel calls it.
        name: String,
    },
}

/// Which CUBIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CubicVariant {
    /// RFC 9438.
    #[default]
    #[serde(rename = "rfc9438")]
    Rfc9438,
    /// Linux 2.6, as ns-2 carries it.
    #[serde(rename = "linux-2.6")]
    Linux26,
}

/// Which reading of PERT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PertVariant {
    /// The thesis: compete from 0.65 of the largest queueing delay, alpha at once.
    Thesis,
    /// The public ns-3 port: a ramp from 0.5, alpha in steps.
    #[default]
    Reference,
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
