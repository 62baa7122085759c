//! Options of an endpoint, its socket and its thread.

use std::collections::BTreeMap;

use ontempo_foundation::{Bytes, Duration, Packets};
use ontempo_transport::live::Options;
use ontempo_transport::{AckRequest, Configuration, Congestion, CongestionName};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The fields of `ontempo.live.Options`.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct OptionsFields {
    congestion: String,
    congestion_parameters: BTreeMap<String, String>,
    initial_window: u64,
    acknowledge: String,
    idle_timeout_s: f64,
    keep_alive_s: Option<f64>,
    handshake_timeout_s: f64,
    send_units: u64,
    send_bytes: u64,
    receive_flows: u64,
    receive_units: u64,
    receive_bytes: u64,
    max_unit_bytes: u64,
    connections: usize,
    connections_of_host: usize,
    half_open: usize,
    retry: bool,
    receive_memory: u64,
    dscp: String,
    precise: bool,
}

const ACKNOWLEDGE: [(&str, AckRequest); 3] = [
    ("immediate", AckRequest::Immediate),
    ("delayed", AckRequest::Delayed),
    ("adaptive", AckRequest::Adaptive),
];

/// The value of a name; the error of an unknown name lists the known ones.
pub(crate) fn choice<T: Copy>(field: &str, text: &str, known: &[(&str, T)]) -> PyResult<T> {
    let found = known.iter().find(|(name, _)| *name == text).map(|&(_, value)| value);
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|&(name, _)| name).collect();
        PyValueError::new_err(format!("{field} is `{text}`: one of {}", names.join(", ")))
    })
}

/// The name of a value.
pub(super) fn name<T: PartialEq>(known: &[(&'static str, T)], value: &T) -> &'static str {
    known.iter().find(|(_, known)| known == value).map_or("", |&(name, _)| name)
}

/// A `ValueError` that names the field.
fn invalid(field: &str, error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{field}: {error}"))
}

/// A congestion control by its name, with those of its parameters that are not the defaults.
pub(crate) fn congestion(name: &str, set: &BTreeMap<String, String>) -> PyResult<Congestion> {
    let name: CongestionName = name.parse().map_err(|error| invalid("congestion", error))?;
    let set: Vec<_> = set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    name.over_udp(&set).map_err(|error| invalid("congestion_parameters", error))
}

impl OptionsFields {
    pub(super) fn options(&self) -> PyResult<Options> {
        let mut options = Options::default();
        let seconds = Duration::from_secs_f64;
        let all = &mut options.configuration;
        all.congestion = congestion(&self.congestion, &self.congestion_parameters)?;
        all.initial_window = Packets::new(self.initial_window);
        all.acknowledge = choice("acknowledge", &self.acknowledge, &ACKNOWLEDGE)?;
        all.idle_timeout = seconds(self.idle_timeout_s);
        all.keep_alive = self.keep_alive_s.map(seconds);
        all.handshake_timeout = seconds(self.handshake_timeout_s);
        all.send_units = self.send_units;
        all.send_bytes = Bytes::new(self.send_bytes);
        all.limits.flows = self.receive_flows;
        all.limits.units = self.receive_units;
        all.limits.bytes = self.receive_bytes;
        all.limits.unit_bytes = self.max_unit_bytes;
        all.connections = self.connections;
        all.connections_of_host = self.connections_of_host;
        all.half_open = self.half_open;
        all.retry = self.retry;
        all.receive_memory = Bytes::new(self.receive_memory);
        options.socket.dscp = self.dscp.parse().map_err(|error| invalid("dscp", error))?;
        options.driver.precise = self.precise;
        Ok(options)
    }

    fn of(all: &Configuration) -> Self {
        Self {
            congestion: all.congestion.name().name().to_owned(),
            congestion_parameters: BTreeMap::from_iter(
                all.congestion
                    .changed()
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.to_string())),
            ),
            initial_window: all.initial_window.get(),
            acknowledge: name(&ACKNOWLEDGE, &all.acknowledge).to_owned(),
            idle_timeout_s: all.idle_timeout.as_secs_f64(),
            keep_alive_s: all.keep_alive.map(Duration::as_secs_f64),
            handshake_timeout_s: all.handshake_timeout.as_secs_f64(),
            send_units: all.send_units,
            send_bytes: all.send_bytes.get(),
            receive_flows: all.limits.flows,
            receive_units: all.limits.units,
            receive_bytes: all.limits.bytes,
            max_unit_bytes: all.limits.unit_bytes,
            connections: all.connections,
            connections_of_host: all.connections_of_host,
            half_open: all.half_open,
            retry: all.retry,
            receive_memory: all.receive_memory.get(),
            dscp: "cs0".to_owned(),
            precise: false,
        }
    }
}

/// Raises `ValueError` if an option has an unknown value.
#[pyfunction]
pub(crate) fn check_options(options: OptionsFields) -> PyResult<()> {
    options.options().map(|_| ())
}

/// The endpoint's default options.
#[pyfunction]
pub(crate) fn default_options() -> OptionsFields {
    OptionsFields::of(&Configuration::default())
}
