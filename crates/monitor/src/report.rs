//! The figures of a process's sockets, as they are written and read.

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Parameter, Turn, Value};
use serde::{Deserialize, Serialize};

/// All sockets of one process that have a specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessReport {
    /// The process's number.
    pub process: u32,
    /// Its sockets, in the order in which they were opened.
    pub sockets: Vec<SocketReport>,
}

/// Which end of a flow a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

/// What carries a flow's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// A stream of the kernel's TCP.
    Tcp,
    /// Datagrams.
    Udp,
    /// QUIC.
    Quic,
}

/// How a flow's reservation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reservation {
    /// None was asked for.
    None,
    /// Asked for, not answered yet.
    Requested,
    /// Controlled load (RFC 2211).
    ControlledLoad,
    /// Guaranteed (RFC 2212).
    Guaranteed,
    /// The network refused it.
    Refused,
    /// It was there and is gone.
    Lost,
}

/// One socket: one direction of one flow at this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketReport {
    /// A number that the process gives to no other of its sockets.
    pub id: u32,
    /// What the application calls the flow; may be empty.
    pub name: String,
    /// Which end it is.
    pub role: Role,
    /// What carries it.
    pub carrier: Carrier,
    /// Address and port here.
    pub local: String,
    /// Address and port there.
    pub remote: String,
    /// The code point that packets leave with, 0 to 63.
    pub dscp: u8,
    /// How the reservation stands.
    pub reservation: Reservation,
    /// Why it was refused or lost; else empty.
    pub reason: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// Messages sent, at a receiver as far as the sender has told.
    pub sent_messages: u64,
    /// Their payload in bytes.
    pub sent_bytes: u64,
    /// Messages delivered, at a sender as far as the receiver has told.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Messages known to be lost.
    pub lost_messages: u64,
    /// Payload over time in the last interval, in bits per second (equation 2 of qosockets).
    pub throughput: f64,
    /// Loss in the last interval in per cent (equation 3); `None` where nothing was sent.
    pub loss: Option<f64>,
    /// Mean delay in the last interval in seconds (equation 4).
    pub delay: Option<f64>,
    /// How far it may be off for the clocks' sake, in seconds.
    pub delay_error: Option<f64>,
    /// Mean jitter in the last interval in seconds (equation 5).
    pub jitter: Option<f64>,
    /// What was agreed, in the order of the paper.
    pub parameters: Vec<ParameterReport>,
    /// The latest violations that began or ended, the oldest first.
    pub violations: Vec<ViolationReport>,
}

/// One parameter that was agreed for a socket. Values are in the units of the MIB:
/// [`in_mib_units`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterReport {
    /// Its place among the parameters of the paper, from 1.
    pub parameter: u8,
    /// What was agreed.
    pub asked: u64,
    /// Whether this end had asked for something else.
    pub coerced: bool,
    /// What was delivered in the last interval that could tell.
    pub delivered: Option<u64>,
    /// Whether it is violated now.
    pub violated: bool,
    /// Violations that have begun.
    pub begun: u32,
    /// When one last began or ended, in milliseconds since 1970.
    pub changed_ms: Option<u64>,
}

/// A violation that began or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViolationReport {
    /// Counts the violations of this socket, from 1.
    pub number: u64,
    /// The parameter's place, from 1.
    pub parameter: u8,
    /// Whether it begins; else it ends.
    pub begins: bool,
    /// What was agreed, in units of the MIB.
    pub asked: u64,
    /// What was delivered, in units of the MIB.
    pub delivered: u64,
}

impl ParameterReport {
    /// Which parameter it is; `None` where the report has a number of none.
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
