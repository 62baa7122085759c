//! The figures of `ontempo send`, `receive` and `relay`.
//!
//! No label has a peer's address: one that comes again from another port would begin new series for ever.

use std::fmt;

use ontempo_foundation::printable;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::super::{
    CollectedFlow, DELAY_BOUNDS_S, DELAY_BUCKETS, DelayReport, FlowReport, PathReport,
};

/// Bytes of these figures in a page.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Bytes of a line beside the labels of its flow: the metric's name and its value, and the labels that
/// only it has.
const MAX_LINE_REST: usize = 112;

/// The flows of a page, and how many there was no room for.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) flows: Vec<CollectedFlow>,
    pub(super) left_out: usize,
}

type Labels = Vec<(&'static str, String)>;

/// Name, help, unit and value of a figure.
type Figure<F, T> = (&'static str, &'static str, Option<Unit>, fn(&F) -> Option<T>);

const COUNTERS: [Figure<FlowReport, u64>; 12] = [
    (
        "input",
        "What came in: of a sender's source, else of the network",
        Some(Unit::Bytes),
        |one| Some(one.input_bytes),
    ),
    (
        "output",
        "What went out: into the network, at a receiver to its target",
        Some(Unit::Bytes),
        |one| one.output_bytes,
    ),
    ("units", "Units sent by a sender, else units received", None, |one| Some(one.units)),
    ("late_units", "Units that came after their deadline", None, |one| Some(one.late_units)),
    ("dropped_units", "Units dropped at their deadline, or for want of room", None, |one| {
        Some(one.dropped_units)
    }),
    ("whole_datagrams", "Datagrams that the receiver gave out whole", None, |one| {
        one.whole_datagrams
    }),
    ("damaged_datagrams", "Datagrams that it gave out with a part missing", None, |one| {
        one.damaged_datagrams
    }),
    ("missing_datagrams", "Datagrams that it did not give out", None, |one| one.missing_datagrams),
    ("packets", "Packets acknowledged or lost", None, |one| one.packets),
    (
        "lost_packets",
        "Packets declared lost; what was in them is sent again until its deadline",
        None,
        |one| one.lost_packets,
    ),
    ("lost", "What was in these packets", Some(Unit::Bytes), |one| one.lost_bytes),
    ("reconnections", "Connections after the first", None, |one| Some(one.reconnections)),
];

const GAUGES: [Figure<FlowReport, f64>; 9] = [
    ("flowing", "1 while something flows", None, |one| Some(f64::from(u8::from(one.flowing)))),
    (
        "input_bytes_per_second",
        "What came in over the last second, in bytes per second",
        None,
        |one| Some(one.input_bps / 8.0),
    ),
    (
        "output_bytes_per_second",
        "What went out over the last second, in bytes per second",
        None,
        |one| one.output_bps.map(|rate| rate / 8.0),
    ),
    (
        "target_bytes_per_second",
        "The bit rate that the path bears, in bytes per second",
        None,
        |one| one.target_bps.map(|rate| rate / 8.0),
    ),
    ("round_trip", "Round trip", Some(Unit::Seconds), |one| one.round_trip_s),
    (
        "loss_ratio",
        "Share lost in the last second: of packets at a sender, of datagrams at a receiver",
        None,
        |one| one.loss,
    ),
    ("latency", "The latency that was asked for", Some(Unit::Seconds), |one| one.latency_s),
    ("viewers", "Viewers of a relay or a stream", None, |one| {
        one.viewers.map(|viewers| viewers.count as f64)
    }),
    ("viewers_late_units", "Units late at the viewers that there are now", None, |one| {
        one.viewers.map(|viewers| viewers.late_units as f64)
    }),
];

const OF_PATHS: [Figure<PathReport, f64>; 3] = [
    ("path_up", "1 while the path answers", None, |one| one.up.map(|up| f64::from(u8::from(up)))),
    ("path_carries", "1 while the stream goes over the path", None, |one| {
        one.carries.map(|carries| f64::from(u8::from(carries)))
    }),
    ("path_round_trip", "Round trip of the path", Some(Unit::Seconds), |one| one.round_trip_s),
];

const COUNTERS_OF_PATHS: [Figure<PathReport, u64>; 2] = [
    ("path", "Sent over the path, at a receiver received", Some(Unit::Bytes), |one| {
        Some(one.bytes)
    }),
    ("path_lost_packets", "Packets of the path declared lost", None, |one| one.lost_packets),
];

/// Delays as a histogram.
struct Histogram(DelayReport);

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let DelayReport { cumulative, sum_s } = self.0;
        let bounds = DELAY_BOUNDS_S.iter().copied().chain([f64::INFINITY]);
        let mut before = 0;
        // The encoder adds them up.
        let buckets: Vec<(f64, u64)> = bounds
            .zip(cumulative)
            .map(|(bound, up_to)| (bound, up_to - std::mem::replace(&mut before, up_to)))
            .collect();
        encoder.encode_histogram::<NoLabelSet>(sum_s, cumulative[DELAY_BUCKETS - 1], &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn labels(one: &CollectedFlow) -> Labels {
    vec![
        ("flow", one.index.to_string()),
        ("role", one.flow.role.name().to_owned()),
        ("name", printable(&one.flow.name).into_owned()),
        ("place", printable(&one.flow.place).into_owned()),
    ]
}

/// At most how many bytes of a page a flow takes.
pub(super) fn length(one: &CollectedFlow) -> usize {
    let labels = super::length_of(&labels(one));
    let of_paths = (OF_PATHS.len() + COUNTERS_OF_PATHS.len()) * one.flow.paths.len();
    let of_delays = one.flow.delays.map_or(0, |_| DELAY_BUCKETS + 2);
    let of_viewers = one.flow.viewers.map_or(0, |_| 2);
    let lines = COUNTERS.len() + GAUGES.len() + of_paths + of_delays + of_viewers;
    lines * (labels + MAX_LINE_REST)
}

/// A family, unless it is empty.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, &Option<Unit>),
    metrics: impl Iterator<Item = (Labels, M)>,
) -> Result<(), fmt::Error> {
    let mut metrics = metrics.peekable();
    let Some((_, first)) = metrics.peek() else { return Ok(()) };
    let kind = first.metric_type();
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (labels, metric) in metrics {
        metric.encode(family.encode_family(&labels.as_slice())?)?;
    }
    Ok(())
}

impl Collector for Flows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, unit, value) in &COUNTERS {
            let values = self
                .flows
                .iter()
                .filter_map(|one| Some((labels(one), ConstCounter::new(value(&one.flow)?))));
            family(&mut encoder, (name, help, unit), values)?;
        }
        for (name, help, unit, value) in &GAUGES {
            let values = self
                .flows
                .iter()
                .filter_map(|one| Some((labels(one), ConstGauge::new(value(&one.flow)?))));
            family(&mut encoder, (name, help, unit), values)?;
        }
        for (name, help, unit, value) in &OF_PATHS {
            let values = self
                .paths()
                .filter_map(|(labels, path)| Some((labels, ConstGauge::new(value(path)?))));
            family(&mut encoder, (name, help, unit), values)?;
        }
        for (name, help, unit, value) in &COUNTERS_OF_PATHS {
            let values = self
                .paths()
                .filter_map(|(labels, path)| Some((labels, ConstCounter::new(value(path)?))));
            family(&mut encoder, (name, help, unit), values)?;
        }
        self.viewers(&mut encoder)?;
        let delays =
            self.flows.iter().filter_map(|one| Some((labels(one), Histogram(one.flow.delays?))));
        let help =
            "From a unit's entry into the send queue to its complete arrival at the receiver";
        family(&mut encoder, ("unit_delay", help, &Some(Unit::Seconds)), delays)?;
        if self.left_out > 0 {
            let left_out = ConstGauge::new(i64::try_from(self.left_out).unwrap_or(i64::MAX));
            let help = "Flows that are left out, because the page is full";
            let kind = left_out.metric_type();
            left_out.encode(encoder.encode_descriptor("flows_left_out", help, None, kind)?)?;
        }
        Ok(())
    }
}

impl Flows {
    /// The paths of all flows, with their labels.
    fn paths(&self) -> impl Iterator<Item = (Labels, &PathReport)> {
        self.flows.iter().flat_map(|one| {
            one.flow.paths.iter().map(move |path| {
                let mut labels = labels(one);
                labels.push(("path", path.path.to_string()));
                (labels, path)
            })
        })
    }

    /// What the median viewer and the worst do not get whole.
    fn viewers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shares = self.flows.iter().flat_map(|one| {
            let of = one.flow.viewers.unwrap_or_default();
            let shares = [("median", of.median_bad_share), ("worst", of.worst_bad_share)];
            shares.into_iter().filter_map(move |(viewer, share)| {
                let mut labels = labels(one);
                labels.push(("viewer", viewer.to_owned()));
                Some((labels, ConstGauge::new(share?)))
            })
        });
        let help = "Share of datagrams damaged or missing at the median viewer and at the worst";
        family(encoder, ("viewers_bad_ratio", help, &None), shares)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::FlowRole;
    use super::super::super::tests::{collected, collected_flow};
    use super::super::{MAX_PAGE, Page};
    use super::*;

    #[test]
    fn figures_have_names_units_and_labels() {
        let page = Page::of(&[], &[collected_flow(3)], None).unwrap();
        let labels = "flow=\"3\",role=\"receiver\",name=\"film\",place=\"udp://127.0.0.1:5001\"";
        let plain = [
            format!("ontempo_delivery_input_bytes_per_second{{{labels}}} 500000.0"),
            format!("ontempo_delivery_late_units_total{{{labels}}} 3"),
            format!("ontempo_delivery_lost_bytes_total{{{labels}}} 9600"),
            format!("ontempo_delivery_round_trip_seconds{{{labels}}} 0.04"),
            format!("ontempo_delivery_path_carries{{{labels},path=\"2\"}} 0.0"),
            format!("ontempo_delivery_path_bytes_total{{{labels},path=\"1\"}} 500000"),
            format!("ontempo_delivery_viewers_bad_ratio{{{labels},viewer=\"worst\"}} 0.25"),
            "# TYPE ontempo_delivery_unit_delay_seconds histogram".to_owned(),
            format!("ontempo_delivery_unit_delay_seconds_bucket{{le=\"0.02\",{labels}}} 10"),
            format!("ontempo_delivery_unit_delay_seconds_bucket{{le=\"0.1\",{labels}}} 95"),
            format!("ontempo_delivery_unit_delay_seconds_bucket{{le=\"+Inf\",{labels}}} 100"),
            format!("ontempo_delivery_unit_delay_seconds_sum{{{labels}}} 4.5"),
            format!("ontempo_delivery_unit_delay_seconds_count{{{labels}}} 100"),
        ];
        for line in plain {
            assert!(
                page.plain.lines().any(|found| found == line),
                "{line}\nis not in\n{}",
                page.plain
            );
        }
        assert!(page.open_metrics.contains("# UNIT ontempo_delivery_unit_delay_seconds seconds"));
        assert!(!Page::of(&[collected(1)], &[], None).unwrap().plain.contains("delivery"));
    }

    #[test]
    fn what_a_role_does_not_have_is_left_out() {
        let mut one = collected_flow(1);
        one.flow = FlowReport { role: FlowRole::Sender, ..FlowReport::default() };
        let text = Page::of(&[], &[one], None).unwrap().plain;
        for name in ["unit_delay", "viewers", "path", "target", "loss_ratio", "datagrams"] {
            assert!(!text.contains(&format!("ontempo_delivery_{name}")), "{name}: {text}");
        }
        assert!(text.contains("ontempo_delivery_flowing{"), "{text}");
    }

    #[test]
    fn hostile_names_fill_their_part_of_the_page_at_most_and_end_no_line() {
        let flows: Vec<_> = (1..=2_000)
            .map(|index| {
                let mut one = collected_flow(index);
                one.flow.name = "\u{1b}\n\"".repeat(85);
                one
            })
            .collect();
        let page = Page::of(&[collected(1)], &flows, None).unwrap();
        for text in [&page.open_metrics, &page.plain] {
            assert!((MAX_BYTES / 2..MAX_BYTES + 8_192).contains(&text.len()), "{}", text.len());
            assert!(text.contains("ontempo_delivery_flows_left_out 1"), "some are left out");
            assert!(text.contains("ontempo_qos_dscp"), "sockets have a part of their own");
            assert!(!text.contains(|one: char| one.is_control() && one != '\n'));
        }
        const { assert!(MAX_BYTES < MAX_PAGE) };
    }
}
