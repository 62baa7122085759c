//! The figures of the host's RSVP daemon.

use std::fmt;

use ontempo_reservation::local::{InterfaceStatus, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Name, help and value of a figure.
type Figure<F, T> = (&'static str, &'static str, fn(&F) -> T);

const STATE: [Figure<Status, usize>; 5] = [
    ("neighbours", "RSVP neighbours heard within the lifetime of state", |one| one.neighbours),
    ("sessions", "Sessions with any state", |one| one.census.sessions),
    ("senders", "Senders with a PATH", |one| one.census.paths),
    ("reservations", "Flow descriptors of all reservation state", |one| one.census.reservations),
    ("classes", "Reservations that are enforced", |one| one.census.enforced),
];

const COUNTERS: [Figure<Status, u64>; 4] = [
    ("received_packets", "RSVP packets received", |one| one.packets_in),
    ("sent_packets", "RSVP packets sent", |one| one.packets_out),
    ("bad_packets", "RSVP packets received and dropped", |one| one.bad_packets),
    ("refusals", "Requests refused by this daemon", |one| one.refused),
];

const OF_INTERFACES: [Figure<InterfaceStatus, u64>; 3] = [
    ("interface_rate", "Rate of the interface", |one| one.rate),
    ("interface_reservable", "What may be reserved of it", |one| one.reservable),
    ("interface_reserved", "What is reserved of it", |one| one.reserved),
];

/// Of a daemon that answers; `None`: it does not.
#[derive(Debug)]
pub(super) struct Daemon(pub(super) Option<Status>);

fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    unit: Option<&Unit>,
    metrics: impl IntoIterator<Item = (Vec<(&'static str, String)>, M)>,
    kind: MetricType,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, metric) in metrics {
        metric.encode(family.encode_family(&labels.as_slice())?)?;
    }
    Ok(())
}

impl Collector for Daemon {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let up = ConstGauge::new(i64::from(self.0.is_some()));
        let help = "1 while the RSVP daemon answers";
        let kind = MetricType::Gauge;
        up.encode(encoder.encode_descriptor("up", help, None, kind)?)?;
        let Some(status) = &self.0 else { return Ok(()) };
        let age = ConstGauge::new(status.up_s);
        let help = "Since the daemon started";
        age.encode(encoder.encode_descriptor("age", help, Some(&Unit::Seconds), kind)?)?;
        for (name, help, value) in STATE {
            let value = ConstGauge::new(i64::try_from(value(status)).unwrap_or(i64::MAX));
            value.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        for (name, help, value) in COUNTERS {
            let value = ConstCounter::new(value(status));
            value.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let dropped = status
            .dropped
            .iter()
            .map(|(why, count)| (vec![("reason", why.clone())], ConstCounter::new(*count)));
        let texts = ("dropped_packets", "RSVP packets dropped on receipt or not sent");
        family(&mut encoder, texts, None, dropped, MetricType::Counter)?;
        let unit = Unit::Other("bytes_per_second".to_owned());
        for (name, help, value) in OF_INTERFACES {
            let rates = status.interfaces.iter().map(|one| {
                // The daemon has bits.
                let bytes = value(one) as f64 / 8.0;
                (vec![("interface", one.name.clone())], ConstGauge::new(bytes))
            });
            family(&mut encoder, (name, help), Some(&unit), rates, kind)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::status;
    use super::super::Page;

    #[test]
    fn a_daemon_shows_its_state_and_one_that_is_silent_that_it_is_down() {
        let mut status = status(3);
        (status.neighbours, status.refused, status.packets_in) = (2, 4, 90);
        status.census.sessions = 3;
        status.dropped.insert("a \"bad\" checksum".to_owned(), 5);
        let text = Page::of(&[], &[], Some(Some(&status))).unwrap().plain;
        for line in [
            "ontempo_rsvpd_up 1",
            "ontempo_rsvpd_age_seconds 10.0",
            "ontempo_rsvpd_neighbours 2",
            "ontempo_rsvpd_sessions 3",
            "ontempo_rsvpd_received_packets_total 90",
            "ontempo_rsvpd_bad_packets_total 7",
            "ontempo_rsvpd_refusals_total 4",
            "ontempo_rsvpd_dropped_packets_total{reason=\"a \\\"bad\\\" checksum\"} 5",
            "ontempo_rsvpd_interface_reserved_bytes_per_second{interface=\"l2\"} 187500.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        let text = Page::of(&[], &[], Some(None)).unwrap().plain;
        assert!(text.contains("ontempo_rsvpd_up 0\n") && !text.contains("sessions"), "{text}");
        assert!(!Page::of(&[], &[], None).unwrap().plain.contains("rsvpd"));
    }
}
