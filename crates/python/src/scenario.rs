//! Parsed and validated scenarios.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

use ontempo_scenario::{
    CustomNames, Overrides, ScenarioError as ReadError, load_custom, model, parse_custom,
};
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::controllers::ControllerNames;

pyo3::create_exception!(
    ontempo._native,
    ScenarioError,
    PyValueError,
    "A scenario that cannot be run as written.\n\nThe message names file, line and field."
);

/// Texts such as `flows.video.count=30`, each replacing a value of a scenario.
#[derive(Default)]
pub(crate) struct OverrideTexts(Vec<String>);

impl FromPyObject<'_, '_> for OverrideTexts {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            let text = text.to_string_lossy();
            let what = format!("overrides are a list of texts: write [{text:?}], not {text:?}");
            return Err(PyTypeError::new_err(what));
        }
        value.extract().map(Self)
    }
}

/// The source of a scenario, to parse it again with overrides.
#[derive(Clone)]
enum Source {
    File(PathBuf),
    Text { text: String, name: String },
}

/// A parsed and validated scenario.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Scenario {
    pub(crate) model: Arc<model::Scenario>,
    source: Source,
    overrides: Vec<String>,
    /// How many sentences about fields that its overrides lose have been reported.
    reported: usize,
}

impl Scenario {
    /// Reads the source; the caller is warned of fields that the overrides lose, but for the first
    /// `reported` sentences.
    fn read(
        py: Python<'_>,
        source: Source,
        overrides: Vec<String>,
        controllers: &CustomNames,
        reported: usize,
    ) -> PyResult<Self> {
        let read = || {
            let values = Overrides::parse(&overrides)?;
            Ok(match &source {
                Source::File(path) => {
                    (load_custom(path, &values, controllers)?, values.fields_lost(path)?)
                }
                Source::Text { text, name } => (
                    parse_custom(text, name, &values, controllers)?,
                    values.fields_lost_in(text, name)?,
                ),
            })
        };
        let (model, lost) =
            read().map_err(|error: ReadError| ScenarioError::new_err(error.to_string()))?;
        for sentence in lost.iter().skip(reported) {
            // A sentence has no NUL: TOML and command lines have none.
            let sentence = CString::new(sentence.replace('\0', " "))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &sentence, 1)?;
        }
        Ok(Self { model: Arc::new(model), source, overrides, reported: lost.len() })
    }
}

#[pymethods]
impl Scenario {
    /// A one-line title.
    #[getter]
    fn title(&self) -> &str {
        &self.model.title
    }

    /// Its duration in seconds of virtual time.
    #[getter]
    fn duration_s(&self) -> f64 {
        self.model.duration.as_secs_f64()
    }

    /// The seed of `run` without a seed argument.
    #[getter]
    fn seed(&self) -> u64 {
        self.model.seed
    }

    /// The scenario as JSON with every default written out.
    fn canonical(&self) -> String {
        self.model.canonical()
    }

    /// A description with the topology drawn as text.
    fn explain(&self) -> String {
        self.model.explain()
    }

    /// A copy with further values replaced, parsed again from the source.
    fn with_overrides(&self, py: Python<'_>, overrides: OverrideTexts) -> PyResult<Self> {
        let mut all = self.overrides.clone();
        all.extend(overrides.0);
        Self::read(py, self.source.clone(), all, &self.model.controllers, self.reported)
    }

    /// Why this machine does not bear so many runs of it at a time; None if it does.
    ///
    /// They are estimated to take more memory than is free, or one to take more than a day. With
    /// `runs_at_once=0` (they run elsewhere) only the time counts.
    #[pyo3(signature = (runs_at_once=1))]
    fn too_large(&self, runs_at_once: usize) -> Option<String> {
        self.model.too_large(runs_at_once)
    }

    fn __repr__(&self) -> String {
        format!("<Scenario {:?}, {}>", self.model.title, self.model.duration)
    }
}

/// Read a scenario file, replacing some of its values.
///
/// Raises `ScenarioError` where it cannot be run as written. Warns where an override replaces a whole
/// table, and fields of the file are gone with it. `controllers` are the names of congestion controllers
/// that `run` will be given; the dictionary of them will do. Raises `ValueError` where one is no name.
#[pyfunction]
#[pyo3(
    signature = (path, overrides=OverrideTexts::default(), controllers=ControllerNames::default()),
    text_signature = "(path, overrides=(), controllers=())"
)]
pub(crate) fn load(
    py: Python<'_>,
    path: PathBuf,
    overrides: OverrideTexts,
    controllers: ControllerNames,
) -> PyResult<Scenario> {
    Scenario::read(py, Source::File(path), overrides.0, &controllers.0, 0)
}

/// Read a scenario from a string; `name` replaces the file name in error messages.
#[pyfunction]
#[pyo3(
    signature = (
        text, name="<text>".to_owned(), overrides=OverrideTexts::default(),
        controllers=ControllerNames::default()
    ),
    text_signature = "(text, name='<text>', overrides=(), controllers=())"
)]
pub(crate) fn parse(
    py: Python<'_>,
    text: String,
    name: String,
    overrides: OverrideTexts,
    controllers: ControllerNames,
) -> PyResult<Scenario> {
    Scenario::read(py, Source::Text { text, name }, overrides.0, &controllers.0, 0)
}
