//! Reports of a process's sockets, as written and read.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Parameter, Turn, Value};
use serde::{Deserialize, Serialize};

use super::delivery::MAX_AMOUNT;
use super::document::{Document, Kind};

/// Maximum sockets of a report.
pub const MAX_SOCKETS: usize = 1_024;

/// Maximum bytes of a socket's name, and of the reason why its reservation was refused or lost: a
/// `DisplayString` of the MIB has as many (RFC 2579).
pub const MAX_TEXT_LEN: usize = 255;

/// Maximum violations of a socket in a report.
pub const MAX_VIOLATIONS: usize = 32;

/// Maximum bytes of a report: [`MAX_SOCKETS`] with the longest texts, escaped, and all violations.
pub const MAX_REPORT_LEN: usize = 9 << 20;

/// All sockets of one process that have a specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessReport {
    /// Process id.
    pub process: u32,
    /// Start of the process, in clock ticks since the host's: field 22 of `/proc/PID/stat`. Another
    /// process that gets the same id has another.
    pub started: u64,
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

impl Reservation {
    /// Its name, as users write services and as metrics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Requested => "requested",
            Self::ControlledLoad => "controlled-load",
            Self::Guaranteed => "guaranteed",
            Self::Refused => "refused",
            Self::Lost => "lost",
        }
    }
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
    /// How many rungs its ladder has; 0 without one.
    #[serde(default)]
    pub rungs: u32,
    /// The rung at which it is, 0 the first.
    #[serde(default)]
    pub rung: u32,
    /// The rung that an operator holds it at; `None`: its ladder steps by itself.
    #[serde(default)]
    pub held: Option<u32>,
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
    /// The value that this end has asked for; `None` if it has asked for none.
    pub asked: Option<u64>,
    /// The agreed value.
    pub agreed: u64,
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

impl ProcessReport {
    /// A report that [`check`](Self::check) accepts: of the first [`MAX_SOCKETS`] sockets, with
    /// texts of at most [`MAX_TEXT_LEN`] and the latest [`MAX_VIOLATIONS`].
    pub(crate) fn bounded(process: u32, started: u64, mut sockets: Vec<SocketReport>) -> Self {
        sockets.truncate(MAX_SOCKETS);
        for socket in &mut sockets {
            cut(&mut socket.name);
            cut(&mut socket.reason);
            let before = socket.violations.len().saturating_sub(MAX_VIOLATIONS);
            socket.violations.drain(..before);
        }
        Self { process, started, sockets }
    }
}

impl Document for ProcessReport {
    const KIND: Kind = Kind::Sockets;

    fn written_by(&self) -> (u32, u64) {
        (self.process, self.started)
    }

    fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Also no number in it is used twice.
    fn check(&self) -> Result<(), String> {
        if self.sockets.len() > MAX_SOCKETS {
            return Err(format!("{} sockets; {MAX_SOCKETS} at most", self.sockets.len()));
        }
        let mut ids = BTreeSet::new();
        for socket in &self.sockets {
            if !ids.insert(socket.id) {
                return Err(format!("two sockets with the id {}", socket.id));
            }
            socket.check().map_err(|why| format!("socket {}: {why}", socket.id))?;
        }
        Ok(())
    }
}

/// Cuts a text to [`MAX_TEXT_LEN`].
pub(crate) fn cut(text: &mut String) {
    let mut end = MAX_TEXT_LEN.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

impl SocketReport {
    fn check(&self) -> Result<(), String> {
        for (what, text) in [("name", &self.name), ("reason", &self.reason)] {
            if text.len() > MAX_TEXT_LEN {
                return Err(format!("{what}: {} bytes; {MAX_TEXT_LEN} at most", text.len()));
            }
        }
        for (what, address) in [("local", &self.local), ("remote", &self.remote)] {
            if address.parse::<SocketAddr>().is_err() {
                return Err(format!("{what}: no address with a port"));
            }
        }
        let figures = [Some(self.throughput), self.loss, self.delay, self.delay_error, self.jitter];
        if !figures.into_iter().flatten().all(|figure| figure.abs() <= MAX_AMOUNT) {
            return Err("a rate or a time is too large".to_owned());
        }
        if self.dscp > 63 {
            return Err(format!("dscp: {}; 63 at most", self.dscp));
        }
        let places = self.parameters.iter().map(|one| one.parameter);
        if !places.is_sorted_by(|one, next| one < next)
            || self.parameters.iter().any(|one| one.which().is_none())
        {
            return Err("parameters: unknown, or not in the order of the paper".to_owned());
        }
        let numbers = self.violations.iter().map(|one| one.number);
        if self.violations.len() > MAX_VIOLATIONS || !numbers.is_sorted_by(|one, next| one < next) {
            return Err(format!("violations: more than {MAX_VIOLATIONS}, or not in order"));
        }
        Ok(())
    }
}

/// The parameter with this index in a report.
fn of_index(index: u8) -> Option<Parameter> {
    Parameter::ALL.get(usize::from(index).checked_sub(1)?).copied()
}

impl ParameterReport {
    /// The parameter; `None` if the index is invalid.
    pub fn which(&self) -> Option<Parameter> {
        of_index(self.parameter)
    }
}

impl ViolationReport {
    /// The parameter; `None` if the index is invalid.
    pub fn which(&self) -> Option<Parameter> {
        of_index(self.parameter)
    }

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

#[cfg(test)]
mod tests {
    use super::super::tests::socket;
    use super::*;

    #[test]
    fn what_is_published_is_within_the_bounds_and_what_is_not_is_refused() {
        let violation = |number| ViolationReport {
            number,
            parameter: 6,
            begins: true,
            asked: u64::MAX,
            delivered: u64::MAX,
        };
        let mut long = socket(u32::MAX);
        (long.name, long.reason) = ("é".repeat(200), "\u{1}".repeat(300));
        long.violations = (0..40).map(|number| violation(u64::MAX - 40 + number)).collect();
        long.local = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".to_owned();
        long.parameters = (1..=Parameter::ALL.len() as u8)
            .map(|parameter| ParameterReport {
                parameter,
                asked: Some(u64::MAX),
                agreed: u64::MAX,
                coerced: false,
                delivered: Some(u64::MAX),
                violated: false,
                begun: u32::MAX,
                changed_ms: Some(u64::MAX),
            })
            .collect();
        let sockets: Vec<_> =
            (0..2_000).map(|id| SocketReport { id: u32::MAX - id, ..long.clone() }).collect();
        let report = ProcessReport::bounded(1, u64::MAX, sockets);
        assert_eq!(report.check(), Ok(()));
        assert_eq!((report.sockets[0].name.len(), report.sockets[0].reason.len()), (254, 255));
        assert_eq!(report.sockets[0].violations.last().map(|one| one.number), Some(u64::MAX - 1));
        let length = serde_json::to_vec(&report).unwrap().len();
        assert!(length < MAX_REPORT_LEN, "{length} bytes");

        let refused = |change: fn(&mut SocketReport)| {
            let mut one = socket(2);
            change(&mut one);
            ProcessReport { process: 1, started: 1, sockets: vec![socket(1), one] }.check().err()
        };
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|one| one.id = 1).unwrap(), "two sockets with the id 1");
        let name = "socket 2: name: 300 bytes; 255 at most";
        assert_eq!(refused(|one| one.name = "x".repeat(300)).unwrap(), name);
        let remote = refused(|one| one.remote = "\u{1b}[H".to_owned()).unwrap();
        assert_eq!(remote, "socket 2: remote: no address with a port");
        assert!(refused(|one| one.dscp = 64).is_some());
        assert!(refused(|one| one.parameters[1].parameter = 1).is_some(), "twice");
        assert!(refused(|one| one.parameters[1].parameter = 200).is_some(), "unknown");
    }
}
