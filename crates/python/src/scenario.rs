//! Parsed and validated scenarios.

use std::path::PathBuf;
use std::sync::Arc;

use ontempo_scenario::{Overrides, load_with, model, parse_with};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

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
}

impl Scenario {
    fn read(source: Source, overrides: Vec<String>) -> PyResult<Self> {
        let read = || {
            let values = Overrides::parse(&overrides)?;
            match &source {
                Source::File(path) => load_with(path, &values),
                Source::Text { text, name } => parse_with(text, name, &values),
            }
        };
        let model = Arc::new(read().map_err(|error| ScenarioError::new_err(error.to_string()))?);
        Ok(Self { model, source, overrides })
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
    fn with_overrides(&self, overrides: OverrideTexts) -> PyResult<Self> {
        let mut all = self.overrides.clone();
        all.extend(overrides.0);
        Self::read(self.source.clone(), all)
    }

    fn __repr__(&self) -> String {
        format!("<Scenario {:?}, {}>", self.model.title, self.model.duration)
    }
}

/// Read a scenario file, replacing some of its values.
#[pyfunction]
#[pyo3(signature = (path, overrides=OverrideTexts::default()), text_signature = "(path, overrides=())")]
pub(crate) fn load(path: PathBuf, overrides: OverrideTexts) -> PyResult<Scenario> {
    Scenario::read(Source::File(path), overrides.0)
}

/// Read a scenario from a string; `name` replaces the file name in error messages.
#[pyfunction]
#[pyo3(
    signature = (text, name="<text>".to_owned(), overrides=OverrideTexts::default()),
    text_signature = "(text, name='<text>', overrides=())"
)]
pub(crate) fn parse(text: String, name: String, overrides: OverrideTexts) -> PyResult<Scenario> {
    Scenario::read(Source::Text { text, name }, overrides.0)
}
