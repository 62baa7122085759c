//! The tables of one run.

use std::path::PathBuf;
use std::sync::Arc;

use ontempo_scenario::model::Scenario;
use ontempo_scenario::tables::TABLES;
use ontempo_simulator::Results;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::table::Table;

/// The tables of one run.
#[pyclass(frozen, name = "Result", module = "ontempo._native")]
pub(crate) struct RunResult {
    scenario: Arc<Scenario>,
    seed: u64,
    results: Results,
}

impl RunResult {
    pub(crate) fn new(scenario: Arc<Scenario>, seed: u64, results: Results) -> Self {
        Self { scenario, seed, results }
    }

    fn table(&self, name: &str) -> PyResult<Table> {
        let table = self.results.table(name);
        let table = table.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(Table::new(table.name, table.batch.clone()))
    }
}

/// Gives the class and its tables' properties their docstrings, which say what each column means: the
/// same words as in `docs/reference/tables.md`.
pub(crate) fn document(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<RunResult>();
    let property = py.import("builtins")?.getattr("property")?;
    let mut about = "The tables of one run.\n\n".to_owned();
    for table in TABLES {
        let doc = table.documentation();
        let summary = doc.lines().next().unwrap_or_default();
        about += &format!("{}: {summary}\n", table.name);
        // The docstring of a getter is fixed when it is compiled; a property takes any.
        let read = class.getattr(table.name)?.getattr("__get__")?;
        class.setattr(table.name, property.call1((read, py.None(), py.None(), doc))?)?;
    }
    about += "\nEach property says which columns its table has; so does Table.columns.";
    class.setattr("__doc__", about)
}

#[pymethods]
impl RunResult {
    /// The seed of the run.
    #[getter]
    fn seed(&self) -> u64 {
        self.seed
    }

    /// Every table by name.
    #[getter]
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = PyDict::new(py);
        for table in &self.results.tables {
            tables.set_item(table.name, Table::new(table.name, table.batch.clone()))?;
        }
        Ok(tables)
    }

    #[getter]
    fn flows(&self) -> PyResult<Table> {
        self.table("flows")
    }

    #[getter]
    fn links(&self) -> PyResult<Table> {
        self.table("links")
    }

    #[getter]
    fn queues(&self) -> PyResult<Table> {
        self.table("queues")
    }

    #[getter]
    fn samples(&self) -> PyResult<Table> {
        self.table("samples")
    }

    #[getter]
    fn playout(&self) -> PyResult<Table> {
        self.table("playout")
    }

    #[getter]
    fn adus(&self) -> PyResult<Table> {
        self.table("adus")
    }

    #[getter]
    fn packets(&self) -> PyResult<Table> {
        self.table("packets")
    }

    #[getter]
    fn events(&self) -> PyResult<Table> {
        self.table("events")
    }

    #[getter]
    fn messages(&self) -> PyResult<Table> {
        self.table("messages")
    }

    #[getter]
    fn intervals(&self) -> PyResult<Table> {
        self.table("intervals")
    }

    #[getter]
    fn capacity(&self) -> PyResult<Table> {
        self.table("capacity")
    }

    #[getter]
    fn frames(&self) -> PyResult<Table> {
        self.table("frames")
    }

    #[getter]
    fn media(&self) -> PyResult<Table> {
        self.table("media")
    }

    /// Write every table as Parquet, and `run.json`, into a directory, all or nothing.
    ///
    /// `ontempo show` and `ontempo summary` read it as they read a run of `ontempo simulate`.
    fn save(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.results.write(&directory, &self.scenario, self.seed))?)
    }

    fn __repr__(&self) -> String {
        let rows = |name| self.results.table(name).map_or(0, |table| table.batch.num_rows());
        format!("<Result of seed {}: {} flows, {} links>", self.seed, rows("flows"), rows("links"))
    }
}
