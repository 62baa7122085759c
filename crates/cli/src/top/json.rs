//! The documents of `ontempo top --json`.

use ontempo_monitor::{CollectedFlow, FlowReport, FlowRole};
use serde::Serialize;

use super::gather::{Look, Reserved};
use super::history::{Histories, Key};
use crate::monitor::document::Document;
use crate::monitor::since_1970_ms;

#[derive(Serialize)]
pub(super) struct Shown<'a> {
    time_ms: u64,
    senders: Vec<Flow<'a>>,
    receivers: Vec<Flow<'a>>,
    /// Relays, and the streams of each.
    relays: Vec<Flow<'a>>,
    /// As `ontempo monitor --json` has them.
    #[serde(flatten)]
    sockets: Document<'a>,
    /// Null where no RSVP daemon answers.
    reservations: Option<Vec<Reservation<'a>>>,
    /// Reports that were rejected.
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct Flow<'a> {
    index: u32,
    process: u32,
    user: u32,
    #[serde(flatten)]
    flow: &'a FlowReport,
    /// Rates of the last minute, the oldest first: those of the sparkline.
    last_minute_bps: Vec<f64>,
}

#[derive(Serialize)]
struct Reservation<'a> {
    session: &'a str,
    senders: &'a str,
    service: &'a str,
    rate_bps: f64,
    interface: &'a str,
    class: Option<&'a str>,
    packets_per_s: Option<f64>,
    last_minute_packets_per_s: Vec<f64>,
}

pub(super) fn document<'a>(look: &'a Look, histories: &Histories) -> Shown<'a> {
    let flow = |one: &'a CollectedFlow| Flow {
        index: one.index,
        process: one.process,
        user: one.user,
        flow: &one.flow,
        last_minute_bps: histories.rates(&Key::Flow(one.index)),
    };
    let of = |roles: &[FlowRole]| {
        look.flows.iter().filter(|one| roles.contains(&one.flow.role)).map(flow).collect()
    };
    let reservation = |one: &'a Reserved| Reservation {
        session: &one.session,
        senders: &one.senders,
        service: &one.service,
        rate_bps: one.rate_bps,
        interface: &one.interface,
        class: one.class.as_deref(),
        packets_per_s: one.packets_per_s,
        last_minute_packets_per_s: histories.rates(&one.key()),
    };
    let reservations = look.reservations.as_ref();
    Shown {
        time_ms: since_1970_ms(),
        senders: of(&[FlowRole::Sender]),
        receivers: of(&[FlowRole::Receiver]),
        relays: of(&[FlowRole::Relay, FlowRole::Stream]),
        sockets: Document::of(&look.sockets),
        reservations: reservations.map(|all| all.iter().map(reservation).collect()),
        skipped: look.skipped.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::sections::tests::look;
    use super::*;

    #[test]
    fn a_document_has_each_kind_in_its_place_with_its_rates() {
        let look = look();
        let mut histories = Histories::default();
        histories.add(Instant::now(), vec![(Key::Flow(1), 4e6)]);
        let shown = serde_json::to_value(document(&look, &histories)).unwrap();
        assert_eq!(shown["senders"][0]["name"], "film");
        assert_eq!(shown["senders"][0]["last_minute_bps"], serde_json::json!([4e6]));
        assert_eq!(shown["receivers"][0]["role"], "receiver");
        assert_eq!(shown["relays"].as_array().map(Vec::len), Some(3));
        assert_eq!(shown["sockets"], serde_json::json!([]));
        assert_eq!(shown["reservations"][0]["packets_per_s"], 42.0);
    }
}
