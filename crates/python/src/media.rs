//! Transport streams for Python: an index made by `ontempo_media`.

use ontempo_foundation::Duration;
use ontempo_media::{IndexedUnit, Kind, TransportStreamIndex};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Filler => "filler",
        Kind::Other => "other",
        Kind::Datagram => "datagram",
        Kind::Disposable => "disposable",
        Kind::Frame => "frame",
        Kind::Sound => "sound",
        Kind::Key => "key",
        Kind::Tables => "tables",
    }
}

/// A unit of a transport stream.
#[pyclass(frozen, get_all, module = "ontempo._native")]
pub(crate) struct MediaUnit {
    kind: &'static str,
    pid: u16,
    media_time_s: Option<f64>,
    size: usize,
    packets: Vec<usize>,
}

impl MediaUnit {
    fn of(unit: IndexedUnit) -> Self {
        Self {
            kind: name(unit.kind),
            pid: unit.pid,
            media_time_s: unit.media_time.map(Duration::as_secs_f64),
            size: unit.size,
            packets: unit.packets,
        }
    }
}

#[pymethods]
impl MediaUnit {
    fn __repr__(&self) -> String {
        let time = self.media_time_s.map_or_else(|| "None".to_owned(), |time| time.to_string());
        format!(
            "MediaUnit(kind='{}', pid={}, media_time_s={time}, size={}, packets={:?})",
            self.kind, self.pid, self.size, self.packets
        )
    }
}

/// An index of a transport stream.
#[pyclass(frozen, get_all, module = "ontempo._native")]
pub(crate) struct TransportStream {
    packets: usize,
    units: Vec<Py<MediaUnit>>,
    due_ns: Vec<u64>,
    continuity_errors: Vec<usize>,
    damaged: Vec<usize>,
    cut: usize,
}

/// Reads a whole transport stream; raises `ValueError` if the bytes are not one.
#[pyfunction]
pub(crate) fn read_transport_stream(
    py: Python<'_>,
    data: PyBackedBytes,
) -> PyResult<TransportStream> {
    let index = py
        .detach(|| TransportStreamIndex::read(&data))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let units = index.units.into_iter().map(|unit| Py::new(py, MediaUnit::of(unit)));
    Ok(TransportStream {
        packets: index.packets,
        units: units.collect::<PyResult<_>>()?,
        due_ns: index.due.into_iter().map(Duration::as_nanos).collect(),
        continuity_errors: index.continuity_errors,
        damaged: index.damaged,
        cut: index.cut,
    })
}
