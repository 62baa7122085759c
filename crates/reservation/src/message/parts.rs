//! SESSION, filterspecs, RSVP_HOP, STYLE and ERROR_SPEC (RFC 2205 appendix A).

use core::fmt;
use std::net::IpAddr;

use ontempo_foundation::Duration;
use serde::{Deserialize, Serialize};

use super::service::FlowSpec;
use super::wire::{Reader, family, put_address};

/// Where a flow's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Their destination.
    pub destination: IpAddr,
    /// Their protocol's number: 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// Their destination port; 0 stands for any.
    pub port: u16,
}

/// Who sends a flow: SENDER_TEMPLATE and FILTER_SPEC, which are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    /// Source address of its packets.
    pub address: IpAddr,
    /// Their source port; 0 stands for any.
    pub port: u16,
}

/// The node that a message comes from, and its name of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Address of the interface that the message left by.
    pub address: IpAddr,
    /// The logical interface handle (LIH): that node's number of the interface.
    pub interface: u32,
}

/// Which senders a reservation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// FF: for each of the named senders one.
    FixedFilter,
    /// SE: one, for the named senders together.
    SharedExplicit,
    /// WF: one, for all senders.
    Wildcard,
}

impl Style {
    /// The option vector's last five bits (RFC 2205 appendix A.7).
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::FixedFilter => 0b01_010,
            Self::SharedExplicit => 0b10_010,
            Self::Wildcard => 0b10_001,
        }
    }

    pub(super) fn of(bits: u32) -> Option<Self> {
        [Self::FixedFilter, Self::SharedExplicit, Self::Wildcard]
            .into_iter()
            .find(|style| style.bits() == bits & 0b11_111)
    }
}

/// A flowspec and the senders that it is for; none named under the wildcard style.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// The flowspec.
    pub flowspec: FlowSpec,
    /// For whom: one under FF, one or more under SE, none under WF.
    pub filters: Vec<Sender>,
}

/// Why something failed (RFC 2205 appendix B), with the numbers of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Not an error: a reservation is confirmed.
    Confirmed,
    /// Admission control: the delay bound cannot be met.
    DelayBound,
    /// Admission control: the bandwidth is not there.
    Bandwidth,
    /// Admission control: packets larger than the link's.
    Mtu,
    /// No path state for the session of this reservation.
    NoPath,
    /// No sender matches the reservation's filters.
    NoSender,
    /// The session has a reservation of another style: that style's option vector.
    ConflictingStyle(u16),
    /// The style is unknown.
    UnknownStyle,
    /// Sessions of one destination and protocol with and without a port.
    ConflictingDestinationPorts,
    /// Senders of one session with and without a port.
    ConflictingSenderPorts,
    /// An object of unknown class: class and C-Type.
    UnknownClass(u8, u8),
    /// An object of a known class and unknown C-Type: class and C-Type.
    UnknownCType(u8, u8),
    /// Traffic control: services that cannot be merged.
    ServiceConflict,
    /// Traffic control: a service that is not offered.
    ServiceUnsupported,
    /// Traffic control: an inconsistent flowspec, for example a mean rate above the peak rate.
    BadFlowspec,
    /// Traffic control: an inconsistent TSpec.
    BadTspec,
    /// The system's traffic control refused; the value is its own.
    TrafficControlSystem(u16),
    /// A limit of this implementation was reached; the value is its own.
    System(u16),
    /// Any other: code and value.
    Other(u8, u16),
}

impl Cause {
    /// Code and value as they stand in the message.
    pub fn numbers(self) -> (u8, u16) {
        match self {
            Self::Confirmed => (0, 0),
            Self::DelayBound => (1, 1),
            Self::Bandwidth => (1, 2),
            Self::Mtu => (1, 3),
            Self::NoPath => (3, 0),
            Self::NoSender => (4, 0),
            Self::ConflictingStyle(style) => (5, style),
            Self::UnknownStyle => (6, 0),
            Self::ConflictingDestinationPorts => (7, 0),
            Self::ConflictingSenderPorts => (8, 0),
            Self::UnknownClass(class, ctype) => (13, u16::from_be_bytes([class, ctype])),
            Self::UnknownCType(class, ctype) => (14, u16::from_be_bytes([class, ctype])),
            Self::ServiceConflict => (21, 1),
            Self::ServiceUnsupported => (21, 2),
            Self::BadFlowspec => (21, 3),
            Self::BadTspec => (21, 4),
            Self::TrafficControlSystem(value) => (22, value),
            Self::System(value) => (23, value),
            Self::Other(code, value) => (code, value),
        }
    }

    /// What the numbers mean.
    pub fn of(code: u8, value: u16) -> Self {
        let [class, ctype] = value.to_be_bytes();
        match (code, value) {
            (0, 0) => Self::Confirmed,
            (1, 1) => Self::DelayBound,
            (1, 2) => Self::Bandwidth,
            (1, 3) => Self::Mtu,
            (3, 0) => Self::NoPath,
            (4, 0) => Self::NoSender,
            (5, style) => Self::ConflictingStyle(style),
            (6, 0) => Self::UnknownStyle,
            (7, 0) => Self::ConflictingDestinationPorts,
            (8, 0) => Self::ConflictingSenderPorts,
            (13, _) => Self::UnknownClass(class, ctype),
            (14, _) => Self::UnknownCType(class, ctype),
            (21, 1) => Self::ServiceConflict,
            (21, 2) => Self::ServiceUnsupported,
            (21, 3) => Self::BadFlowspec,
            (21, 4) => Self::BadTspec,
            (22, value) => Self::TrafficControlSystem(value),
            (23, value) => Self::System(value),
            _ => Self::Other(code, value),
        }
    }

    /// Whether admission control refused: only then does blockade state help (RFC 2205 3.5).
    pub fn is_admission(self) -> bool {
        self.numbers().0 == 1
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Confirmed => "the reservation is confirmed",
            Self::DelayBound => "the delay bound cannot be met",
            Self::Bandwidth => "the bandwidth is not available",
            Self::Mtu => "packets are larger than the link allows",
            Self::NoPath => "no sender is known for the session",
            Self::NoSender => "no sender matches the reservation's filters",
            Self::ConflictingStyle(_) => "the session is reserved in another style",
            Self::UnknownStyle => "the style is unknown",
            Self::ConflictingDestinationPorts => "sessions with and without a port conflict",
            Self::ConflictingSenderPorts => "senders with and without a port conflict",
            Self::UnknownClass(class, _) => {
                return write!(f, "objects of class {class} are unknown");
            }
            Self::UnknownCType(class, ctype) => {
                return write!(f, "objects of class {class} have no C-Type {ctype}");
            }
            Self::ServiceConflict => "the services asked for cannot be merged",
            Self::ServiceUnsupported => "the service is not offered",
            Self::BadFlowspec => "the flowspec contradicts itself",
            Self::BadTspec => "the TSpec contradicts itself",
            Self::TrafficControlSystem(value) => {
                return write!(f, "the system's traffic control refused (value {value})");
            }
            Self::System(value) => return write!(f, "a limit of the node is reached ({value})"),
            Self::Other(code, value) => return write!(f, "error {code}, value {value}"),
        };
        f.write_str(text)
    }
}

/// What failed, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSpec {
    /// The node that found it.
    pub node: IpAddr,
    /// What was reserved before still is (flag InPlace).
    pub in_place: bool,
    /// The flowspec of the message's receiver is smaller than the one that failed (flag NotGuilty).
    pub not_guilty: bool,
    /// Why.
    pub cause: Cause,
}

impl Session {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_address(out, self.destination);
        out.extend([self.protocol, 0]);
        out.extend(self.port.to_be_bytes());
    }

    pub(super) fn read(ctype: u8, body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let destination = from.address(ctype)?;
        let protocol = from.u8()?;
        from.u8()?;
        let port = from.u16()?;
        from.end(Self { destination, protocol, port })
    }
}

impl Sender {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_address(out, self.address);
        out.extend([0, 0]);
        out.extend(self.port.to_be_bytes());
    }

    pub(super) fn read(ctype: u8, body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let address = from.address(ctype)?;
        from.u16()?;
        let port = from.u16()?;
        from.end(Self { address, port })
    }
}

impl Hop {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_address(out, self.address);
        out.extend(self.interface.to_be_bytes());
    }

    pub(super) fn read(ctype: u8, body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let address = from.address(ctype)?;
        let interface = from.u32()?;
        from.end(Self { address, interface })
    }
}

impl ErrorSpec {
    const IN_PLACE: u8 = 1;
    const NOT_GUILTY: u8 = 2;

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_address(out, self.node);
        let in_place = if self.in_place { Self::IN_PLACE } else { 0 };
        let not_guilty = if self.not_guilty { Self::NOT_GUILTY } else { 0 };
        let (code, value) = self.cause.numbers();
        out.extend([in_place | not_guilty, code]);
        out.extend(value.to_be_bytes());
    }

    pub(super) fn read(ctype: u8, body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let node = from.address(ctype)?;
        let flags = from.u8()?;
        let cause = Cause::of(from.u8()?, from.u16()?);
        from.end(Self {
            node,
            in_place: flags & Self::IN_PLACE != 0,
            not_guilty: flags & Self::NOT_GUILTY != 0,
            cause,
        })
    }
}

/// The C-Type of an address object.
pub(super) fn session_family(session: &Session) -> u8 {
    family(session.destination)
}

/// A refresh period in whole milliseconds, as TIME_VALUES holds it.
pub(super) fn millis(period: Duration) -> u32 {
    u32::try_from(period.as_nanos() / 1_000_000).unwrap_or(u32::MAX)
}
