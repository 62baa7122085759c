//! TCP: congestion control, loss recovery, acknowledgements, pacing.

use ontempo_foundation::{Bytes, Duration, Packets};
use ontempo_mechanisms::congestion::{self, CongestionName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use crate::custom::CustomParameters;

/// How a TCP flow behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TcpSpec {
    /// Where the defaults of all other fields come from; the scenario's `tcp-profile` where not
    /// given. Reading a scenario fills them in, and the profile itself is not part of the result.
    #[serde(skip_serializing)]
    pub(crate) profile: TcpProfile,
    /// The congestion controller: a name, or a table with its parameters.
    pub congestion: Congestion,
    /// Size of a full packet on the wire, 40 bytes of headers counted.
    pub packet: Bytes,
    /// How losses are found and repaired.
    pub recovery: RecoveryKind,
    /// When the receiver acknowledges.
    pub ack: AckKind,
    /// How packets are spread over a round trip. BBR paces at its own rate.
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
    /// Heed the selective acknowledgements that arrive after a timeout, before all that was sent by then
    /// is acknowledged (RFC 6675, section 5.1). Otherwise all of it is sent again, in order, as ns-2's
    /// Sack1 does; with `"sack"`.
    pub sack_after_timeout: bool,
    /// Lower the window during an episode packet by packet, as packets are delivered, rather than
    /// at once (RFC 9937); with `"sack"` and `"rack"`.
    pub proportional_rate_reduction: bool,
    /// Send a probe where the acknowledgement of a tail is missing for two round trips
    /// (RFC 8985, section 7); with `"rack"`.
    pub tail_loss_probe: bool,
    /// Least retransmission timeout; with `rto = "linux"`, the least of its variation's term.
    pub min_rto: Duration,
    /// How the retransmission timeout is computed.
    pub rto: RtoKind,
    /// Granularity of the retransmission clock; zero for an exact one.
    pub clock: Duration,
    /// Take an RTT sample from every ACK, as timestamps allow (RFC 7323); otherwise one a
    /// round trip.
    pub timestamps: bool,
    /// Let the window grow while the application, not the window, limits what is sent (as ns-2
    /// does). Otherwise it grows as in Linux: if it limited what was sent during the last window,
    /// and in slow start up to twice what was in flight.
    pub grow_when_application_limited: bool,
    /// Begin again from the initial window after an idle time of one RTO (RFC 5681, 4.1).
    pub idle_restart: bool,
    /// At such a restart, halve the window for each RTO of the idle time, down to the initial
    /// window (RFC 2861, Linux).
    pub idle_decay: bool,
    /// Undo a timeout that was spurious: window and threshold are as before it if the first ACK of new
    /// data echoes a time before the retransmission (Eifel: RFC 3522, RFC 4015). Needs `timestamps`.
    pub undo_timeouts: bool,
    /// Begin with a SYN of 60 bytes and its answer: one round trip, and the first RTT sample. A
    /// lost one is sent again after 1 s, 2 s, 4 s (RFC 6298).
    pub handshake: bool,
    /// Negotiate ECN (RFC 3168).
    pub ecn: bool,
}

impl Default for TcpSpec {
    fn default() -> Self {
        Self::of(TcpProfile::default())
    }
}

impl TcpSpec {
    fn of_ns2() -> Self {
        Self {
            profile: TcpProfile::default(),
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
            sack_after_timeout: true,
            proportional_rate_reduction: false,
            tail_loss_probe: false,
            min_rto: Duration::from_millis(200),
            rto: RtoKind::Rfc6298,
            clock: Duration::ZERO,
            timestamps: true,
            grow_when_application_limited: true,
            idle_restart: true,
            idle_decay: false,
            undo_timeouts: false,
            handshake: false,
            ecn: false,
        }
    }

    /// The defaults of a profile.
    pub fn of(profile: TcpProfile) -> Self {
        match profile {
            TcpProfile::Ns2 => Self::of_ns2(),
            TcpProfile::Linux => Self {
                congestion: profile.congestion(CongestionName::Cubic),
                recovery: RecoveryKind::Rack,
                ack: AckKind::Linux { timeout: defaults::linux_ack_timeout() },
                initial_window: Packets::new(10),
                proportional_rate_reduction: true,
                tail_loss_probe: true,
                rto: RtoKind::Linux,
                grow_when_application_limited: false,
                idle_decay: true,
                undo_timeouts: true,
                handshake: true,
                ..Self::of_ns2()
            },
        }
    }
}

/// Sets of defaults for a TCP flow. Each field that is given wins over the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TcpProfile {
    /// TCP as Linux 6 has it by default, without the queue discipline `fq` (so without pacing, but
    /// for BBR, and PERT, whose kernel module paces).
    #[default]
    #[serde(rename = "linux")]
    Linux,
    /// The one-way TCP of ns-2 2.35.
    #[serde(rename = "ns-2")]
    Ns2,
}

impl TcpProfile {
    /// All profiles, the default first.
    pub const ALL: [Self; 2] = [Self::Linux, Self::Ns2];

    /// Its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns2 => "ns-2",
            Self::Linux => "linux",
        }
    }

    /// A controller with the parameters that the profile sets.
    fn congestion(self, name: CongestionName) -> Congestion {
        let with = name.with(self.congestion_parameters(name.name()).iter().copied());
        Congestion::Known(with.unwrap_or_else(|_| name.into()))
    }

    /// The parameters of the controller `kind` that profiles set, as in a file. Each is a keyword.
    pub fn congestion_parameters(self, kind: &str) -> &'static [(&'static str, &'static str)] {
        const ACKS: (&str, &str) = ("counting", "acks");
        const PACKETS: (&str, &str) = ("counting", "packets");
        const ALL: (&str, &str) = ("samples", "all");
        const CONFIRMED: (&str, &str) = ("samples", "confirmed");
        const ALPHA: (&str, &str) = ("compete", "alpha");
        const AS_RENO: (&str, &str) = ("compete", "as-reno");
        match (self, kind) {
            (Self::Ns2, "cubic") => &[("variant", "rfc9438")],
            (Self::Ns2, "reno" | "newreno") => &[ACKS],
            (Self::Ns2, "pert") => &[ACKS, ALL, ALPHA],
            (Self::Linux, "cubic") => &[("variant", "linux")],
            (Self::Linux, "reno" | "newreno") => &[PACKETS],
            (Self::Linux, "pert") => &[PACKETS, CONFIRMED, AS_RENO],
            _ => &[],
        }
    }
}

/// How the retransmission timeout is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RtoKind {
    /// `max(SRTT + 4 RTTVAR, min-rto)` (RFC 6298).
    #[default]
    Rfc6298,
    /// `SRTT + max(min-rto, 4 RTTVAR)`, where the variation is the greatest of a round trip
    /// (Linux, `tcp_rtt_estimator`).
    Linux,
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
    /// One of the program that reads the scenario ([`CustomNames`](crate::CustomNames)).
    Custom {
        /// What the program calls it.
        name: String,
        /// Its parameters, as they are written.
        parameters: CustomParameters,
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
    /// By the times at which packets were sent: one is lost if a packet sent later has arrived and
    /// a round trip and a reordering window have passed (RFC 8985). Finds lost retransmissions.
    Rack,
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
    /// As a Linux receiver: each second packet, or after `timeout`; but each of the first 16 at once
    /// (again after a silence), each by which the receive window grows, and the last of what the
    /// application wrote.
    Linux {
        /// The longest wait, at most 500 ms.
        #[serde(default = "defaults::linux_ack_timeout")]
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
