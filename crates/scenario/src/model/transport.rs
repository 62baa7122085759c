//! What carries a flow.

use std::collections::BTreeMap;

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_mechanisms::congestion::{self, CongestionName, ParameterError};
use ontempo_mechanisms::rist::RistParameters;
use ontempo_mechanisms::srt::SrtParameters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TcpSpec, defaults};
use crate::congestion::{ParameterValue, as_option};
use crate::custom::CustomParameters;

/// What carries a flow's packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Transport {
    /// TCP, one way: data forward, ACKs of 40 bytes back.
    Tcp(TcpSpec),
    /// UDP.
    Udp {
        /// Size of a packet on the wire, headers counted. A film's packets have the size of their datagrams.
        #[serde(default = "defaults::packet")]
        packet: Bytes,
        /// The ECN code point of its packets. The flow does not react to marks.
        #[serde(default, skip_serializing_if = "EcnCode::is_default")]
        ecn: EcnCode,
    },
    /// UDP whose packets are spaced (psp, section 2): at a fixed distance, or at one that a
    /// controller adapts to reports of the receiver. Give `spacing` or `controller`.
    Spaced {
        /// Size of a packet on the wire, headers counted.
        #[serde(default = "defaults::packet")]
        packet: Bytes,
        /// The distance between packets. Packets follow each other no faster than the first
        /// link takes for one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spacing: Option<Duration>,
        /// From where to where the spacing is.
        #[serde(default)]
        spacing_from: SpacingFrom,
        /// Who adapts the spacing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        controller: Option<SpacingKind>,
        /// Which of the receiver's reports the controller decides on. Only with `controller`.
        /// Default: `"fresh"`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        feedback: Option<SpacingFeedback>,
        /// How fast the rate grows while nothing is lost. Only with `controller`. Default:
        /// `"packet-per-round-trip"`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        increase: Option<SpacingIncrease>,
    },
    /// ADUs, acknowledged selectively and sent again where lost; their order is the
    /// application's choice (rr3216).
    Adu(AduSpec),
    /// `ontempo send` and `ontempo receive`: units over QUIC, as the two programs carry them, with
    /// their own code and its handshake. It carries media alone.
    Ontempo(OntempoSpec),
    /// SRT in live mode, as `srt-live-transmit` has it at both ends. It carries media alone.
    Srt(SrtSpec),
    /// RIST's main profile, as `ristsender` and `ristreceiver` have it. It carries media alone.
    Rist(RistSpec),
    /// Whatever a `command` opens itself; emulated only.
    Own {},
}

/// How `ontempo send` carries a film. The defaults are the program's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OntempoSpec {
    /// Deadline of units, and delay from the source to the receiver's output, without the fastest
    /// transit of the path. Default: four times the round trip that is measured before the first unit
    /// is sent, at least 120 ms, at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,
    /// How much longer than the latency the receiver waits for what is missing, and units live; not with
    /// reliability `none`. At most 60 s.
    pub grace: Duration,
    /// The order in which units are delivered.
    pub order: DeliveryKind,
    /// Whether, and for how long, lost packets are sent again.
    pub reliability: ReliabilityKind,
    /// The congestion controller, by name.
    pub congestion: String,
    /// Its parameters, by name; those that are not given have their defaults. BBR's `variant` is `media`
    /// here.
    #[serde(skip_serializing_if = "CustomParameters::is_empty")]
    #[schemars(with = "BTreeMap<String, ParameterValue>")]
    pub congestion_parameters: CustomParameters,
}

impl Default for OntempoSpec {
    fn default() -> Self {
        Self {
            latency: None,
            grace: Duration::from_millis(50),
            order: DeliveryKind::default(),
            reliability: ReliabilityKind::default(),
            congestion: CongestionName::FOR_MEDIA.name().to_owned(),
            congestion_parameters: CustomParameters::new(),
        }
    }
}

impl OntempoSpec {
    /// Its congestion controller, if it is one of the registry.
    ///
    /// # Errors
    /// Names the parameter that the controller does not have or that is out of its range.
    pub fn known_congestion(&self) -> Option<Result<congestion::Congestion, ParameterError>> {
        let name: CongestionName = self.congestion.parse().ok()?;
        let set = self.set_congestion();
        let set: Vec<_> = set.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Some(name.over_udp(&set))
    }

    /// The parameters of its congestion controller as `--set-congestion` takes them.
    pub fn set_congestion(&self) -> Vec<(&str, String)> {
        let all = self.congestion_parameters.iter();
        all.map(|(name, value)| (name.as_str(), as_option(value))).collect()
    }
}

/// How SRT carries a film. The defaults are those of `srt-live-transmit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SrtSpec {
    /// From sending to delivery, without the time on the path (`latency`).
    pub latency: Duration,
    /// The rate that the sender does not exceed (`maxbw`); 1 Gbit/s where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<Rate>,
}

impl Default for SrtSpec {
    fn default() -> Self {
        Self { latency: SrtParameters::default().latency, max_bandwidth: None }
    }
}

/// How RIST carries a film. The defaults are those of `ristsender`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RistSpec {
    /// From sending to delivery, without the time on the path (`buffer`).
    pub buffer: Duration,
    /// Whether null packets of the film are left out and put in again (`ristsender -n`).
    pub null_packet_deletion: bool,
}

impl Default for RistSpec {
    fn default() -> Self {
        let RistParameters { buffer, null_packet_deletion, .. } = RistParameters::default();
        Self { buffer, null_packet_deletion }
    }
}

/// Whether lost packets of a film are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReliabilityKind {
    /// Until they are acknowledged.
    Full,
    /// Until their deadline.
    #[default]
    Deadline,
    /// Never.
    None,
}

/// The ECN code point that a packet is sent with (RFC 3168, RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EcnCode {
    /// Not ECN-capable: queues drop it.
    #[default]
    None,
    /// ECT(0): queues with `ecn` may mark it instead.
    Ect0,
    /// ECT(1), the L4S service: `dualpi2` puts it into its low-latency queue; other queues treat it
    /// as ECT(0).
    Ect1,
}

impl EcnCode {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// From where the spacing to the next packet's start is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpacingFrom {
    /// From the start of a packet: the interval of a timer.
    #[default]
    Start,
    /// From the end of a packet, as its first link sends it (psp, fig. 3).
    End,
}

/// Controllers of the spacing between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpacingKind {
    /// The packet-spacing protocol (psp, section 2.1).
    Psp,
    /// The same, damped: a loss that a smaller spacing caused restores the one before
    /// (psp, section 2.2).
    PspDamped,
    /// The same, where only the decision before the report counts: a loss restores the spacing
    /// if that was a decrease, whatever spacing the lost packets were sent at.
    PspDampedLast,
}

/// Which reports the controller of a spacing decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpacingFeedback {
    /// Each: one decision per base round trip (psp, section 2.1).
    EachReport,
    /// Only one that covers no packet sent before the present spacing was set: ontempo's own rule.
    Fresh,
}

/// How fast the rate of a spaced flow grows while nothing is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpacingIncrease {
    /// The spacing shrinks by 2 us (psp, fig. 4): the faster of two flows gets ahead.
    FixedStep,
    /// The rate grows by one packet in a base round trip, and the spacing shrinks by at least 2 us:
    /// ontempo's own rule.
    PacketPerRoundTrip,
}

/// How a flow of ADUs is carried. The defaults are those of rr3216, section 3.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AduSpec {
    /// Size of an ADU on the wire, headers counted. A film's ADUs are its datagrams, each as large as it is.
    pub packet: Bytes,
    /// From one emission to the next; zero for as fast as the window allows.
    pub interval: Duration,
    /// The receiver's window in ADUs.
    pub window: Packets,
    /// What the window counts.
    pub window_counts: WindowCounts,
    /// The receiver acknowledges after so many ADUs.
    pub ack_every: Packets,
    /// The order in which ADUs are delivered.
    pub delivery: DeliveryKind,
    /// When a lost ADU is sent again.
    pub retransmission: RetransmissionKind,
    /// How many later ones must have arrived before an ADU is held to be lost: 1 where links
    /// keep the order, 3 where they may not (RFC 9002, section 6.1.1).
    pub lost_after: Packets,
    /// If set, no acknowledgement and no timer tells a loss: an ADU that the network loses is known to be
    /// lost so long after it would have left the link that lost it (rr3216, section 3.1.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_known_after: Option<Duration>,
    /// Whether the receiver also acknowledges where the application has taken more than `ack-every` ADUs
    /// since its last acknowledgement; if not, arrivals alone are acknowledged.
    pub tells_space: bool,
    /// Retransmission timeout before the first round trip is measured.
    pub initial_rto: Duration,
    /// Least retransmission timeout.
    pub min_rto: Duration,
    /// Whether the timeout doubles with each that follows another (RFC 6298, section 5.5).
    pub back_off: bool,
}

impl Default for AduSpec {
    fn default() -> Self {
        Self {
            packet: defaults::packet(),
            interval: Duration::from_millis(10),
            window: Packets::new(32),
            window_counts: WindowCounts::default(),
            ack_every: Packets::new(2),
            delivery: DeliveryKind::default(),
            retransmission: RetransmissionKind::default(),
            lost_after: Packets::new(1),
            loss_known_after: None,
            tells_space: true,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(200),
            back_off: true,
        }
    }
}

/// What the receiver's window counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WindowCounts {
    /// Buffers: an ADU leaves the window when the application takes it.
    #[default]
    Buffers,
    /// Numbers: an ADU may be sent where it is less than a window beyond the lowest one not
    /// acknowledged.
    Numbers,
}

/// The order of delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryKind {
    /// By number, without a gap.
    #[default]
    InOrder,
    /// As they arrive.
    OutOfOrder,
    /// Each after those that it depends on.
    PartialOrder,
}

/// When a lost ADU is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetransmissionKind {
    /// At the next emission, before new ADUs.
    #[default]
    Paced,
    /// As soon as it is known to be lost, whatever the interval.
    AtOnce,
}
