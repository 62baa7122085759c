//! Reports of a process's sockets, as written and read.

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Parameter, Turn, Value};
use serde::{Deserialize, Serialize};

/// All sockets of one process that have a specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessReport {
    /// Process id.
    pub process: u32,
    /// Its sockets, in the order in which they were opened.
    pub sockets: Vec<SocketReport>,
}

/// The end of a flow at which a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

/// Transport of a flow's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Kernel TCP.
    Tcp,
    /// UDP.
    Udp,
    /// QUIC.
    Quic,
}

/// State of a flow's reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reservation {
    /// None requested.
    None,
    /// Requested, no answer yet.
    Requested,
    /// Controlled load (RFC 2211).
    ControlledLoad,
    /// Guaranteed (RFC 2212).
    Guaranteed,
    /// Refused by the network.
    Refused,
    /// Lost after it was established.
    Lost,
}

/// One socket: one direction of one flow at this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketReport {
    /// A number unique among the process's sockets.
    pub id: u32,
    /// The application's name for the flow; may be empty.
    pub name: String,
    /// Which end it is.
    pub role: Role,
    /// Its transport.
    pub carrier: Carrier,
    /// Local address and port.
    pub local: String,
    /// Remote address and port.
    pub remote: String,
    /// DSCP of its packets, 0 to 63.
    pub dscp: u8,
    /// State of the reservation.
    pub reservation: Reservation,
    /// Why it was refused or lost; otherwise empty.
    pub reason: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// Messages sent; at a receiver, from the sender's last report.
    pub sent_messages: u64,
    /// Their payload in bytes.
    pub sent_bytes: u64,
    /// Messages delivered; at a sender, from the receiver's last report.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Messages lost.
    pub lost_messages: u64,
    /// Payload over time in the last interval, in bits per second (equation 2 of qosockets).
    pub throughput: f64,
    /// Loss in the last interval in per cent (equation 3); `None` if nothing was sent.
    pub loss: Option<f64>,
    /// Mean delay in the last interval in seconds (equation 4).
    pub delay: Option<f64>,
    /// Error bound of the delay, from the clock offset, in seconds.
    pub delay_error: Option<f64>,
    /// Mean jitter in the last interval in seconds (equation 5).
    pub jitter: Option<f64>,
    /// The agreed parameters, in the order of the paper.
    pub parameters: Vec<ParameterReport>,
    /// The latest begins and ends of violations, oldest first.
    pub violations: Vec<ViolationReport>,
}

/// An agreed parameter of a socket. Values are in the units of the MIB:
/// [`in_mib_units`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterReport {
    /// Index among the parameters of the paper, from 1.
    pub parameter: u8,
    /// The agreed value.
    pub asked: u64,
    /// Whether it was coerced at this end.
    pub coerced: bool,
    /// The value delivered in the last interval with a measurement.
    pub delivered: Option<u64>,
    /// Whether it is violated now.
    pub violated: bool,
    /// Number of violations so far.
    pub begun: u32,
    /// Time of the last begin or end, in milliseconds since 1970.
    pub changed_ms: Option<u64>,
}

/// Begin or end of a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViolationReport {
    /// Number of the event at this socket, from 1.
    pub number: u64,
    /// Index of the parameter, from 1.
    pub parameter: u8,
    /// True for the begin, false for the end.
    pub begins: bool,
    /// The agreed value, in units of the MIB.
    pub asked: u64,
    /// The delivered value, in units of the MIB.
    pub delivered: u64,
}

impl ParameterReport {
    /// The parameter; `None` if the index is invalid.
    pub fn which(&self) -> Option<Parameter> {
        Parameter::ALL.get(usize::from(self.parameter).checked_sub(1)?).copied()
    }
}

impl ViolationReport {
    /// A report of a violation.
    pub fn of(number: u64, violation: &ontempo_mechanisms::qos::Violation) -> Self {
        Self {
            number,
            parameter: violation.parameter as u8 + 1,
            begins: violation.turn == Turn::Begins,
            asked: in_mib_units(violation.asked),
            delivered: in_mib_units(violation.delivered),
        }
    }
}

/// A parameter's value in the units of the MIB: thousandths of a message per second, bytes,
/// microseconds, thousandths of a per cent, 0 or 1.
pub fn in_mib_units(value: Value) -> u64 {
    match value {
        Value::Rate(rate) => rate.as_thousandths(),
        Value::Size(size) => size.get(),
        Value::Span(span) => span.as_nanos() / 1_000,
        Value::Share(share) => share.as_thousandths().into(),
        Value::Allowed(allowed) => allowed.into(),
    }
}

/// A parameter's value as [`in_mib_units`] wrote it.
pub fn from_mib_units(parameter: Parameter, value: u64) -> Value {
    match parameter {
        Parameter::MinRate | Parameter::MaxRate | Parameter::PeakRate => {
            Value::Rate(MessageRate::from_thousandths(value))
        }
        Parameter::Size => Value::Size(Bytes::new(value)),
        Parameter::Loss => {
            Value::Share(Percent::from_thousandths(u32::try_from(value).unwrap_or(u32::MAX)))
        }
        Parameter::Permutable => Value::Allowed(value != 0),
        _ => Value::Span(Duration::from_nanos(value.saturating_mul(1_000))),
    }
}
