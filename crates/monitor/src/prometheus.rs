//! Export to Prometheus: the OpenMetrics text format, by `prometheus-client`; the older text format
//! 0.0.4 for clients that do not accept OpenMetrics. [`http`](super::http) serves them.

mod daemon;
mod delivery;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ontempo_foundation::printable;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use self::daemon::Daemon;
use self::delivery::Flows;
use super::report::from_mib_units;
use super::{Carrier, Collected, CollectedFlow, ParameterReport, Role, SocketReport};
use ontempo_mechanisms::qos::Value;
use ontempo_reservation::local::Status;

/// Bytes of the sockets' figures in a page, in each format. Any user's reports may have long names of many sockets.
const MAX_PAGE: usize = 4 << 20;
/// Lines of a socket beside its measures and parameters: DSCP and reservation.
const OTHERS: usize = 2;
/// Bytes of a line beside its labels: the metric's name and its value, and the labels that only it
/// has.
const MAX_LINE_REST: usize = 96;

/// The metrics of a host's sockets in both formats.
#[derive(Clone, Debug)]
pub struct Page {
    pub(crate) open_metrics: Arc<str>,
    pub(crate) plain: Arc<str>,
}

impl Page {
    /// The metrics of these sockets, as many as fit in 4 MiB, and of these flows, as many as fit in
    /// 2 MiB; the metrics `ontempo_qos_sockets_left_out` and `ontempo_delivery_flows_left_out` count the
    /// others. Those of the users with the fewest bytes go first. The state of the host's RSVP daemon stands below, `Some(None)` for one that does not
    /// answer; `None` where there is none.
    ///
    /// # Errors
    /// Never: it writes to memory.
    pub fn of(
        sockets: &[Collected],
        flows: &[CollectedFlow],
        daemon: Option<Option<&Status>>,
    ) -> Result<Self, fmt::Error> {
        let shown = fitting(sockets, MAX_PAGE, |one| (one.user, length(one)));
        let left_out = sockets.len() - shown.len();
        let shown = Figures { sockets: shown, left_out };
        let flows_shown =
            fitting(flows, delivery::MAX_BYTES, |one| (one.user, delivery::length(one)));
        let left_out = flows.len() - flows_shown.len();
        let flows = (!flows.is_empty()).then_some(Flows { flows: flows_shown, left_out });
        let daemon = daemon.map(|status| Daemon(status.cloned()));
        let open_metrics = text(shown, flows, daemon)?;
        Ok(Self { plain: plain(&open_metrics).into(), open_metrics: open_metrics.into() })
    }

    /// Its text in both formats: OpenMetrics, and the older one.
    pub fn texts(&self) -> [&str; 2] {
        [&self.open_metrics, &self.plain]
    }

    /// Whether there are other copies of it.
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.open_metrics) > 1 || Arc::strong_count(&self.plain) > 1
    }
}

/// The pages that are served: at most two versions at a time, however slowly they are read.
#[derive(Debug, Default)]
pub struct Pages {
    current: Option<Page>,
    before: Option<Page>,
}

impl Pages {
    /// The page that `make` makes; while somebody still reads the one before the current page, the
    /// current one.
    ///
    /// # Errors
    /// Where `make` fails.
    pub fn next(
        &mut self,
        make: impl FnOnce() -> Result<Page, fmt::Error>,
    ) -> Result<Page, fmt::Error> {
        if let (Some(current), Some(before)) = (&self.current, &self.before)
            && before.is_shared()
        {
            return Ok(current.clone());
        }
        self.before = self.current.take().filter(Page::is_shared);
        let made = make()?;
        self.current = Some(made.clone());
        Ok(made)
    }

    /// The page that was made last.
    pub fn current(&self) -> Option<Page> {
        self.current.clone()
    }
}

/// Those that fit in so many bytes, in their order; `of` says whose each is, and its bytes.
fn fitting<T: Clone>(all: &[T], mut left: usize, of: impl Fn(&T) -> (u32, usize)) -> Vec<T> {
    let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
    let mut places: Vec<(usize, usize, usize)> = all
        .iter()
        .enumerate()
        .map(|(place, one)| {
            let (user, bytes) = of(one);
            let of_user = of_users.entry(user).or_default();
            *of_user += bytes;
            (*of_user, place, bytes)
        })
        .collect();
    places.sort_unstable();
    let mut shown: Vec<usize> = places
        .into_iter()
        .map_while(|(_, place, bytes)| {
            left = left.checked_sub(bytes)?;
            Some(place)
        })
        .collect();
    shown.sort_unstable();
    shown.into_iter().map(|place| all[place].clone()).collect()
}

/// The bytes of labels on a page.
fn length_of(labels: &[(&str, String)]) -> usize {
    // A quotation mark, a backslash and a line end take two bytes.
    let escaped = |text: &str| {
        text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\' | b'\n')).count()
    };
    labels.iter().map(|(name, value)| name.len() + escaped(value) + "=\"\",".len()).sum()
}

/// At most how many bytes of a page a socket takes.
fn length(one: &Collected) -> usize {
    let labels = length_of(&labels(one));
    let lines = COUNTERS.len() + GAUGES.len() + OTHERS + 4 * one.socket.parameters.len();
    lines * (labels + MAX_LINE_REST)
}

/// These metrics as text.
///
/// # Errors
/// Never: it writes to memory.
fn text(
    sockets: Figures,
    flows: Option<Flows>,
    daemon: Option<Daemon>,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ontempo");
    registry.sub_registry_with_prefix("qos").register_collector(Box::new(sockets));
    if let Some(flows) = flows {
        registry.sub_registry_with_prefix("delivery").register_collector(Box::new(flows));
    }
    if let Some(daemon) = daemon {
        registry.sub_registry_with_prefix("rsvpd").register_collector(Box::new(daemon));
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Converts OpenMetrics to the text format 0.0.4: a counter's family has the name of its samples,
/// and there are no units and no end marker.
fn plain(open_metrics: &str) -> String {
    let mut text = String::new();
    let mut help = None;
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, what] => help = Some((name, what)),
            ["#", "TYPE", name, kind] => {
                let total = if kind == "counter" { "_total" } else { "" };
                if let Some((_, what)) = help.take().filter(|(of, _)| *of == name) {
                    text += &format!("# HELP {name}{total} {what}\n");
                }
                text += &format!("# TYPE {name}{total} {kind}\n");
            }
            ["#", ..] => {}
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

#[derive(Debug)]
struct Figures {
    sockets: Vec<Collected>,
    /// Sockets for which there was no room.
    left_out: usize,
}

/// Name, help, unit and value of a measure.
type Measure<T> = (&'static str, &'static str, Option<Unit>, fn(&SocketReport) -> T);

/// Name, help and value of a measure of a parameter.
type ParameterMeasure = (&'static str, &'static str, fn(&ParameterReport) -> Option<u64>);

const COUNTERS: [Measure<u64>; 5] = [
    ("sent_messages", "Messages sent", None, |one| one.sent_messages),
    ("sent", "Payload sent", Some(Unit::Bytes), |one| one.sent_bytes),
    ("messages", "Messages delivered", None, |one| one.messages),
    ("delivered", "Payload delivered", Some(Unit::Bytes), |one| one.bytes),
    ("lost_messages", "Messages known to be lost", None, |one| one.lost_messages),
];

const GAUGES: [Measure<Option<f64>>; 5] = [
    (
        "throughput_bytes_per_second",
        "Payload over time in the last interval, in bytes per second",
        None,
        |one| Some(one.throughput / 8.0),
    ),
    ("loss_ratio", "Share of messages lost in the last interval", None, |one| {
        one.loss.map(|percent| percent / 100.0)
    }),
    ("delay", "Mean delay in the last interval", Some(Unit::Seconds), |one| one.delay),
    (
        "delay_error",
        "How far the delay may be off for the clocks' sake",
        Some(Unit::Seconds),
        |one| one.delay_error,
    ),
    ("jitter", "Mean jitter in the last interval", Some(Unit::Seconds), |one| one.jitter),
];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, unit, value) in COUNTERS {
            let values = |one: &SocketReport| Some(ConstCounter::new(value(one)));
            self.family(&mut encoder, name, help, unit, values)?;
        }
        for (name, help, unit, value) in GAUGES {
            let values = |one: &SocketReport| value(one).map(ConstGauge::new);
            self.family(&mut encoder, name, help, unit, values)?;
        }
        let help = "DSCP of the packets";
        let dscp = |one: &SocketReport| Some(ConstGauge::new(i64::from(one.dscp)));
        self.family(&mut encoder, "dscp", help, None, dscp)?;
        self.reservations(&mut encoder)?;
        if self.left_out > 0 {
            let left_out = ConstGauge::new(i64::try_from(self.left_out).unwrap_or(i64::MAX));
            let help = "Sockets that are left out, because the page is full";
            let kind = left_out.metric_type();
            left_out.encode(encoder.encode_descriptor("sockets_left_out", help, None, kind)?)?;
        }
        self.parameters(&mut encoder)
    }
}

impl Figures {
    fn family<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        value: impl Fn(&SocketReport) -> Option<M>,
    ) -> Result<(), fmt::Error> {
        let mut metrics =
            self.sockets.iter().filter_map(|one| Some((one, value(&one.socket)?))).peekable();
        let Some((_, first)) = metrics.peek() else { return Ok(()) };
        let kind = first.metric_type();
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (one, metric) in metrics {
            metric.encode(family.encode_family(&labels(one))?)?;
        }
        Ok(())
    }

    /// 1 for the state in which each reservation is.
    fn reservations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if self.sockets.is_empty() {
            return Ok(());
        }
        let kind = prometheus_client::metrics::MetricType::Gauge;
        let help = "1 for the state of the reservation";
        let mut family = encoder.encode_descriptor("reservation", help, None, kind)?;
        for one in &self.sockets {
            let mut labels = labels(one).to_vec();
            labels.push(("state", one.socket.reservation.name().to_owned()));
            ConstGauge::new(1_i64).encode(family.encode_family(&labels.as_slice())?)?;
        }
        Ok(())
    }

    /// Whether each parameter is violated now, the number of its violations, and what is agreed.
    fn parameters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows: Vec<_> = self
            .sockets
            .iter()
            .flat_map(|one| one.socket.parameters.iter().map(move |parameter| (one, parameter)))
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let labels_of = |one: &Collected, parameter: &ParameterReport| {
            let mut labels = labels(one).to_vec();
            let name = parameter.which().map_or("unknown", |which| which.name());
            labels.push(("parameter", name.to_owned()));
            labels
        };
        let kind = prometheus_client::metrics::MetricType::Gauge;
        let help = "Whether the parameter is violated now";
        let mut family = encoder.encode_descriptor("violated", help, None, kind)?;
        for (one, parameter) in &rows {
            let metric = ConstGauge::new(i64::from(parameter.violated));
            let labels = labels_of(one, parameter);
            metric.encode(family.encode_family(&labels.as_slice())?)?;
        }
        let kind = prometheus_client::metrics::MetricType::Counter;
        let help = "Violations that have begun";
        let mut family = encoder.encode_descriptor("violations", help, None, kind)?;
        for (one, parameter) in &rows {
            let metric = ConstCounter::new(u64::from(parameter.begun));
            let labels = labels_of(one, parameter);
            metric.encode(family.encode_family(&labels.as_slice())?)?;
        }
        let values: [ParameterMeasure; 2] = [
            ("agreed", "Agreed value, in the unit of its label", |one| Some(one.agreed)),
            ("asked", "Value that this end has asked for, in the unit of its label", |one| {
                one.asked
            }),
        ];
        for (name, help, value) in values {
            let found = rows.iter().filter_map(|(one, parameter)| {
                Some((one, parameter, parameter.which()?, value(parameter)?))
            });
            let mut found = found.peekable();
            if found.peek().is_none() {
                continue;
            }
            let kind = prometheus_client::metrics::MetricType::Gauge;
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (one, parameter, which, value) in found {
                let (unit, value) = in_base_unit(from_mib_units(which, value));
                let mut labels = labels_of(one, parameter);
                labels.push(("unit", unit.to_owned()));
                ConstGauge::new(value).encode(family.encode_family(&labels.as_slice())?)?;
            }
        }
        Ok(())
    }
}

/// A parameter's value in Prometheus's base units.
fn in_base_unit(value: Value) -> (&'static str, f64) {
    match value {
        Value::Rate(rate) => ("messages/s", rate.as_f64()),
        Value::Size(size) => ("bytes", size.get() as f64),
        Value::Span(span) => ("seconds", span.as_secs_f64()),
        Value::Share(share) => ("ratio", share.as_f64() / 100.0),
        Value::Allowed(allowed) => ("allowed", f64::from(u8::from(allowed))),
    }
}

fn labels(one: &Collected) -> [(&'static str, String); 6] {
    let role = match one.socket.role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    let carrier = match one.socket.carrier {
        Carrier::Tcp => "tcp",
        Carrier::Udp => "udp",
        Carrier::Quic => "quic",
    };
    [
        ("socket", one.index.to_string()),
        ("name", printable(&one.socket.name).into_owned()),
        ("role", role.to_owned()),
        ("carrier", carrier.to_owned()),
        ("local", one.socket.local.clone()),
        ("remote", one.socket.remote.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::collected;
    use super::*;

    fn text_of(one: Collected) -> Result<String, fmt::Error> {
        text(Figures { sockets: vec![one], left_out: 0 }, None, None)
    }

    #[test]
    fn figures_have_names_units_and_labels() {
        let text = text_of(collected(1)).unwrap();
        let labels = "socket=\"1\",name=\"café 1\",role=\"receiver\",carrier=\"udp\",\
                      local=\"192.0.2.1:5000\",remote=\"192.0.2.2:5000\"";
        for line in [
            "# UNIT ontempo_qos_delay_seconds seconds".to_owned(),
            format!("ontempo_qos_delay_seconds{{{labels}}} 0.0125"),
            format!("ontempo_qos_messages_total{{{labels}}} 35"),
            format!("ontempo_qos_violated{{{labels},parameter=\"max_delay\"}} 1"),
            format!("ontempo_qos_violations_total{{{labels},parameter=\"max_delay\"}} 2"),
            format!("ontempo_qos_agreed{{{labels},parameter=\"max_delay\",unit=\"seconds\"}} 0.1"),
            format!(
                "ontempo_qos_asked{{{labels},parameter=\"max_delay\",unit=\"seconds\"}} 0.100003"
            ),
            format!("ontempo_qos_dscp{{{labels}}} 34"),
            format!("ontempo_qos_reservation{{{labels},state=\"controlled-load\"}} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut one = collected(1);
        one.socket.delay = None;
        let text = text_of(one).unwrap();
        assert!(!text.contains("ontempo_qos_delay_seconds{"));
    }

    #[test]
    fn who_does_not_ask_for_open_metrics_gets_the_text_format_before_it() {
        let text = plain(&text_of(collected(1)).unwrap());
        for line in [
            "# HELP ontempo_qos_sent_bytes_total Payload sent",
            "# TYPE ontempo_qos_sent_bytes_total counter",
            "# TYPE ontempo_qos_throughput_bytes_per_second gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn a_name_cannot_contain_what_a_terminal_obeys_nor_lines() {
        let mut one = collected(1);
        one.socket.name = "\u{1b}[2J\u{9b}\n\"film".to_owned();
        let text = text_of(one).unwrap();
        assert!(text.contains(r#"name="\\u001b[2J\\u009b\\u000a\"film""#), "{text}");
        assert!(!text.contains(|one: char| one.is_control() && one != '\n'));
    }

    /// As long as a valid report may have them, each byte of the name escaped.
    fn long(index: u32, user: u32) -> Collected {
        let mut one = collected(index);
        one.user = user;
        one.socket.name = "\u{1}".repeat(255);
        one.socket.local = "\"".repeat(255);
        one
    }

    #[test]
    fn a_page_has_a_bound_and_says_how_many_sockets_it_leaves_out() {
        let mut sockets: Vec<Collected> = (1..=8_000).map(|index| long(index, 1_000)).collect();
        sockets.push(Collected { user: 1_001, ..collected(8_001) });
        let page = Page::of(&sockets, &[], None).unwrap();
        for text in [&page.open_metrics, &page.plain] {
            // The lines about each metric are beside those of the sockets.
            let length = text.len();
            assert!((MAX_PAGE / 2..MAX_PAGE + 8_192).contains(&length), "{length} bytes");
            assert!(text.contains("socket=\"8001\""), "another user's socket has gone");
            let shown =
                text.lines().filter(|line| line.starts_with("ontempo_qos_messages_total{")).count();
            let line = format!("ontempo_qos_sockets_left_out {}", 8_001 - shown);
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        let page = Page::of(&[collected(1)], &[], None).unwrap();
        assert!(!page.plain.contains("left_out"));
    }

    #[test]
    fn slow_readers_hold_two_versions_at_most() {
        let mut pages = Pages::default();
        let mut made = 0;
        let mut held = Vec::new();
        for _ in 0..30 {
            held.push(
                pages
                    .next(|| {
                        made += 1;
                        Page::of(&[collected(made)], &[], None)
                    })
                    .unwrap(),
            );
        }
        assert_eq!(made, 2);
        // The first version has been read: there is a new one.
        held.remove(0);
        let page = pages.next(|| Page::of(&[collected(3)], &[], None)).unwrap();
        assert!(page.plain.contains("socket=\"3\""));
    }
}
