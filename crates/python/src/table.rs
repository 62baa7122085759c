//! Tables, exported through Arrow's PyCapsule protocol without copies.

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float64Array, RecordBatch, RecordBatchIterator, StringArray,
    UInt32Array, UInt64Array,
};
use ontempo_scenario::tables::TABLES;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator};

/// One table of results.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Table {
    name: &'static str,
    batch: RecordBatch,
}

impl Table {
    pub(crate) fn new(name: &'static str, batch: RecordBatch) -> Self {
        Self { name, batch }
    }
}

#[pymethods]
impl Table {
    /// Its name.
    #[getter]
    fn name(&self) -> &'static str {
        self.name
    }

    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of its columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// What each of its columns means, in order.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let meanings = PyDict::new(py);
        for table in TABLES.iter().filter(|table| table.name == self.name) {
            for column in table.columns {
                meanings.set_item(column.name, column.about)?;
            }
        }
        Ok(meanings)
    }

    /// Its rows, each a dict by column name; an empty value is `None`. `pandas.DataFrame(table)` reads
    /// it so; polars, DuckDB and pyarrow read the columns without a copy.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let mut columns = Vec::new();
        for (field, array) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            columns.push((field.name().clone(), Values::of(field.name(), array)?));
        }
        let rows = Rows { columns, next: 0, count: self.batch.num_rows() };
        Bound::new(py, rows)?.into_any().try_iter()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let columns = self.column_names().join(", ");
        format!("<Table {}: {} rows of {columns}>", self.name, self.batch.num_rows())
    }

    /// Its schema, through Arrow's PyCapsule protocol.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref())
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Its rows, through Arrow's PyCapsule protocol. The consumer shares the memory.
    ///
    /// The protocol allows a producer to ignore the requested schema.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let schema = self.batch.schema();
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// The rows of a table, one after the other.
#[pyclass]
struct Rows {
    columns: Vec<(String, Values)>,
    next: usize,
    count: usize,
}

#[pymethods]
impl Rows {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if self.next == self.count {
            return Ok(None);
        }
        let row = PyDict::new(py);
        for (name, values) in &self.columns {
            match values {
                Values::Text(array) => row.set_item(name, text(array, self.next))?,
                Values::Small(array) => row.set_item(name, array.value(self.next))?,
                Values::Count(array) => {
                    let is_there = array.is_valid(self.next);
                    row.set_item(name, is_there.then(|| array.value(self.next)))?;
                }
                Values::Number(array) => {
                    let is_there = array.is_valid(self.next);
                    row.set_item(name, is_there.then(|| array.value(self.next)))?;
                }
            }
        }
        self.next += 1;
        Ok(Some(row))
    }
}

/// A column by the types that result tables have.
enum Values {
    Text(DictionaryArray<Int32Type>),
    Small(UInt32Array),
    Count(UInt64Array),
    Number(Float64Array),
}

impl Values {
    fn of(name: &str, array: &ArrayRef) -> PyResult<Self> {
        let any = array.as_any();
        let text = || any.downcast_ref::<DictionaryArray<Int32Type>>().cloned().map(Self::Text);
        let small = || any.downcast_ref::<UInt32Array>().cloned().map(Self::Small);
        let count = || any.downcast_ref::<UInt64Array>().cloned().map(Self::Count);
        let number = || any.downcast_ref::<Float64Array>().cloned().map(Self::Number);
        text().or_else(small).or_else(count).or_else(number).ok_or_else(|| {
            PyTypeError::new_err(format!("column {name} is of the type {}", array.data_type()))
        })
    }
}

fn text(array: &DictionaryArray<Int32Type>, row: usize) -> Option<&str> {
    let words = array.values().as_any().downcast_ref::<StringArray>()?;
    array.key(row).map(|key| words.value(key))
}
