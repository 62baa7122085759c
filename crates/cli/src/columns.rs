//! Columns of a result table by name.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use ontempo_simulator::ResultTable;

/// The columns of one table.
///
/// Tables that were read back are checked against their schema, and tables of a run follow it, so
/// that every requested column exists.
pub(crate) struct Columns<'a>(&'a RecordBatch);

impl<'a> Columns<'a> {
    /// The columns of the table `name`, if it is among `tables`.
    pub(crate) fn of(tables: &'a [ResultTable], name: &str) -> Option<Self> {
        tables.iter().find(|table| table.name == name).map(|table| Self(&table.batch))
    }

    pub(crate) fn rows(&self) -> std::ops::Range<usize> {
        0..self.0.num_rows()
    }

    fn column(&self, name: &str) -> &'a ArrayRef {
        self.0
            .column_by_name(name)
            .unwrap_or_else(|| unreachable!("the table has no column `{name}`"))
    }

    pub(crate) fn count(&self, name: &str) -> &'a UInt64Array {
        self.column(name).as_primitive::<UInt64Type>()
    }

    pub(crate) fn number(&self, name: &str) -> &'a Float64Array {
        self.column(name).as_primitive::<Float64Type>()
    }

    pub(crate) fn text(&self, name: &str) -> Texts<'a> {
        let column = self.column(name).as_dictionary::<Int32Type>();
        Texts { keys: column.keys(), values: column.values().as_string::<i32>() }
    }

    /// The distinct texts of a column, from its dictionary.
    pub(crate) fn distinct(&self, name: &str) -> Arc<dyn Array> {
        self.column(name).as_dictionary::<Int32Type>().values().clone()
    }
}

/// A column of text.
pub(crate) struct Texts<'a> {
    keys: &'a arrow_array::PrimitiveArray<Int32Type>,
    values: &'a StringArray,
}

impl<'a> Texts<'a> {
    /// The text in `row`; `None` if null.
    pub(crate) fn get(&self, row: usize) -> Option<&'a str> {
        if self.keys.is_null(row) {
            return None;
        }
        usize::try_from(self.keys.value(row)).ok().map(|key| self.values.value(key))
    }
}

/// The number in `row`; `None` if null.
pub(crate) fn optional(numbers: &Float64Array, row: usize) -> Option<f64> {
    numbers.is_valid(row).then(|| numbers.value(row))
}
