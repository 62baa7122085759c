//! Export to Prometheus: the OpenMetrics text format, by `prometheus-client`, over
//! plain HTTP; the older text format 0.0.4 for clients that do not accept OpenMetrics.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::{Carrier, Collected, ParameterReport, Role, SocketReport};

/// The metrics of these sockets as text.
///
/// # Errors
/// Never: it writes to memory.
pub fn text(sockets: Vec<Collected>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ontempo_qos");
    registry.register_collector(Box::new(Figures { sockets }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The media type of [`text`], and the part of it that a client's `Accept` names.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OPEN_METRICS_NAME: &[u8] = b"application/openmetrics-text";
/// The media type of what [`plain`] returns.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 8192;

/// Reads one request from a connection and answers it with what `page` returns.
///
/// # Errors
/// If the connection fails, or nothing arrives for five seconds.
pub fn answer(
    mut connection: TcpStream,
    page: impl FnOnce() -> Result<String, fmt::Error>,
) -> io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    connection.set_write_timeout(Some(Duration::from_secs(5)))?;
    let head = read_head(&mut connection)?;
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let path = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let words = "text/plain; charset=utf-8";
    let (status, kind, body) = match (line.starts_with(b"GET "), path) {
        (true, b"/metrics") => match page() {
            Ok(text) if accepts_open_metrics(&head) => ("200 OK", OPEN_METRICS, text),
            Ok(text) => ("200 OK", PLAIN, plain(&text)),
            Err(error) => ("500 Internal Server Error", words, format!("{error}\n")),
        },
        (true, _) => ("404 Not Found", words, "the figures are at /metrics\n".to_owned()),
        (false, _) => ("405 Method Not Allowed", words, "only GET is answered\n".to_owned()),
    };
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// Whether the `Accept` field of a request names OpenMetrics, as Prometheus does since version 2.5.
fn accepts_open_metrics(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n').any(|line| {
        let is_field = line.get(..7).is_some_and(|name| name.eq_ignore_ascii_case(b"accept:"));
        is_field && line.windows(OPEN_METRICS_NAME.len()).any(|part| part == OPEN_METRICS_NAME)
    })
}

/// Converts OpenMetrics to the text format 0.0.4: a counter's family has the name of its samples,
/// and
/// there are no units and no end marker.
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

fn read_head(connection: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the request's head is too long",
            ));
        }
        match connection.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(head)
}

#[derive(Debug)]
struct Figures {
    sockets: Vec<Collected>,
}

/// Name, help, unit and value of a measure.
type Measure<T> = (&'static str, &'static str, Option<Unit>, fn(&SocketReport) -> T);

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

    /// Whether each parameter is violated now, and the number of its violations.
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
        Ok(())
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
        ("name", one.socket.name.clone()),
        ("role", role.to_owned()),
        ("carrier", carrier.to_owned()),
        ("local", one.socket.local.clone()),
        ("remote", one.socket.remote.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::tests::collected;
    use super::*;

    #[test]
    fn figures_have_names_units_and_labels() {
        let text = text(vec![collected(1)]).unwrap();
        let labels = "socket=\"1\",name=\"café 1\",role=\"receiver\",carrier=\"udp\",\
                      local=\"192.0.2.1:5000\",remote=\"192.0.2.2:5000\"";
        for line in [
            "# UNIT ontempo_qos_delay_seconds seconds".to_owned(),
            format!("ontempo_qos_delay_seconds{{{labels}}} 0.0125"),
            format!("ontempo_qos_messages_total{{{labels}}} 35"),
            format!("ontempo_qos_violated{{{labels},parameter=\"max_delay\"}} 1"),
            format!("ontempo_qos_violations_total{{{labels},parameter=\"max_delay\"}} 2"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut one = collected(1);
        one.socket.delay = None;
        let text = text(vec![one]).unwrap();
        assert!(!text.contains("ontempo_qos_delay_seconds{"));
    }

    #[test]
    fn who_does_not_ask_for_open_metrics_gets_the_text_format_before_it() {
        let text = plain(&text(vec![collected(1)]).unwrap());
        for line in [
            "# HELP ontempo_qos_sent_bytes_total Payload sent",
            "# TYPE ontempo_qos_sent_bytes_total counter",
            "# TYPE ontempo_qos_throughput_bytes_per_second gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
        assert!(accepts_open_metrics(
            b"GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n"
        ));
        assert!(!accepts_open_metrics(b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n"));
    }

    #[test]
    fn only_the_figures_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ask = |request: &'static [u8]| {
            let client = std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(request).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer
            });
            answer(listener.accept().unwrap().0, || Ok("figures\n".to_owned())).unwrap();
            client.join().unwrap()
        };
        assert!(ask(b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nfigures\n"));
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    }
}
