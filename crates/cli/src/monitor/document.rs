//! What `ontempo monitor --json` writes of a collection, from what was collected: a tree of JSON
//! values would take six times the memory of the reports.

use ontempo_mechanisms::qos::{Parameter, Value};
use ontempo_monitor::{
    Carrier, Collected, ParameterReport, Reservation, Role, SocketReport, ViolationReport,
    from_mib_units,
};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
pub(crate) struct Document<'a> {
    sockets: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    index: u32,
    process: u32,
    socket: Socket<'a>,
}

/// A report whose parameters have names and units.
#[derive(Serialize)]
struct Socket<'a> {
    id: u32,
    name: &'a str,
    role: Role,
    carrier: Carrier,
    local: &'a str,
    remote: &'a str,
    dscp: u8,
    reservation: Reservation,
    reason: &'a str,
    opened_ms: u64,
    sent_messages: u64,
    sent_bytes: u64,
    messages: u64,
    bytes: u64,
    lost_messages: u64,
    throughput: f64,
    loss: Option<f64>,
    delay: Option<f64>,
    delay_error: Option<f64>,
    jitter: Option<f64>,
    rungs: u32,
    rung: u32,
    held: Option<u32>,
    #[serde(serialize_with = "parameters")]
    parameters: &'a [ParameterReport],
    #[serde(serialize_with = "violations")]
    violations: &'a [ViolationReport],
}

#[derive(Serialize)]
struct ShownParameter {
    parameter: &'static str,
    unit: &'static str,
    /// What this end has asked for.
    asked: Option<Number>,
    agreed: Number,
    coerced: bool,
    delivered: Option<Number>,
    violated: bool,
    begun: u32,
    changed_ms: Option<u64>,
}

#[derive(Serialize)]
struct ShownViolation {
    number: u64,
    parameter: &'static str,
    unit: &'static str,
    begins: bool,
    asked: Number,
    delivered: Number,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Number {
    Number(f64),
    Allowed(bool),
}

impl<'a> Document<'a> {
    pub(crate) fn of(collected: &'a [Collected]) -> Self {
        let shown = |one: &'a Collected| Shown {
            index: one.index,
            process: one.process,
            socket: Socket::of(&one.socket),
        };
        Self { sockets: collected.iter().map(shown).collect() }
    }
}

impl<'a> Socket<'a> {
    fn of(report: &'a SocketReport) -> Self {
        Self {
            id: report.id,
            name: &report.name,
            role: report.role,
            carrier: report.carrier,
            local: &report.local,
            remote: &report.remote,
            dscp: report.dscp,
            reservation: report.reservation,
            reason: &report.reason,
            opened_ms: report.opened_ms,
            sent_messages: report.sent_messages,
            sent_bytes: report.sent_bytes,
            messages: report.messages,
            bytes: report.bytes,
            lost_messages: report.lost_messages,
            throughput: report.throughput,
            loss: report.loss,
            delay: report.delay,
            delay_error: report.delay_error,
            jitter: report.jitter,
            rungs: report.rungs,
            rung: report.rung,
            held: report.held,
            parameters: &report.parameters,
            violations: &report.violations,
        }
    }
}

fn parameters<S: Serializer>(all: &[ParameterReport], to: S) -> Result<S::Ok, S::Error> {
    // A report whose parameters are unknown is not collected.
    to.collect_seq(all.iter().filter_map(|one| {
        let which = one.which()?;
        let (unit, agreed) = in_unit(which, one.agreed);
        Some(ShownParameter {
            parameter: which.name(),
            unit,
            asked: one.asked.map(|value| in_unit(which, value).1),
            agreed,
            coerced: one.coerced,
            delivered: one.delivered.map(|value| in_unit(which, value).1),
            violated: one.violated,
            begun: one.begun,
            changed_ms: one.changed_ms,
        })
    }))
}

fn violations<S: Serializer>(all: &[ViolationReport], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().filter_map(|one| {
        let which = one.which()?;
        let (unit, asked) = in_unit(which, one.asked);
        Some(ShownViolation {
            number: one.number,
            parameter: which.name(),
            unit,
            begins: one.begins,
            asked,
            delivered: in_unit(which, one.delivered).1,
        })
    }))
}

/// A value of a report, with its unit: seconds, as the measured delays have.
fn in_unit(which: Parameter, value: u64) -> (&'static str, Number) {
    match from_mib_units(which, value) {
        Value::Rate(rate) => ("messages/s", Number::Number(rate.as_f64())),
        Value::Size(size) => ("bytes", Number::Number(size.get() as f64)),
        Value::Span(span) => ("s", Number::Number(span.as_secs_f64())),
        Value::Share(share) => ("%", Number::Number(share.as_f64())),
        Value::Allowed(allowed) => ("allowed", Number::Allowed(allowed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_their_names_and_units() {
        let one = ParameterReport {
            parameter: 6,
            asked: Some(80_000),
            agreed: 100_000,
            coerced: false,
            delivered: Some(320_000),
            violated: true,
            begun: 2,
            changed_ms: None,
        };
        let mut text = Vec::new();
        parameters(&[one], &mut serde_json::Serializer::new(&mut text)).unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(shown[0]["parameter"], "max_delay");
        assert_eq!((&shown[0]["unit"], &shown[0]["agreed"]), (&"s".into(), &0.1.into()));
        assert_eq!(shown[0]["asked"], 0.08);
        assert_eq!(shown[0]["delivered"], 0.32);
        assert_eq!(in_unit(Parameter::Loss, 5_000), ("%", Number::Number(5.0)));
        assert_eq!(in_unit(Parameter::Permutable, 1), ("allowed", Number::Allowed(true)));
    }
}
