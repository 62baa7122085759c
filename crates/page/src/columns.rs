//! Columns of a result table by name.

use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, StringArray, UInt64Array};
use ontempo_runtime::{ResultTable, read_column, read_table};
use ontempo_scenario::tables::{TABLES, Table};

use crate::error::PageError;

/// One table of a run, or some columns of it.
pub(crate) struct Columns {
    table: ResultTable,
    path: PathBuf,
}

impl Columns {
    /// Reads the whole table.
    pub(crate) fn read(folder: &std::path::Path, table: &'static Table) -> Result<Self, PageError> {
        let path = folder.join(format!("{}.parquet", table.name));
        Ok(Self { table: read_table(folder, table)?, path })
    }

    /// Reads one column of a table that may be large.
    pub(crate) fn read_one(
        folder: &std::path::Path,
        table: &'static Table,
        column: &str,
    ) -> Result<Self, PageError> {
        let path = folder.join(format!("{}.parquet", table.name));
        Ok(Self { table: read_column(folder, table, column)?, path })
    }

    /// Reads the table `name` if this program knows it and the folder has it.
    pub(crate) fn read_known(
        folder: &std::path::Path,
        name: &str,
    ) -> Result<Option<Self>, PageError> {
        let known = TABLES.iter().find(|table| table.name == name);
        let is_there = folder.join(format!("{name}.parquet")).exists();
        known.filter(|_| is_there).map(|table| Self::read(folder, table)).transpose()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.batch.num_rows()
    }

    fn column(&self, name: &str) -> Result<&ArrayRef, PageError> {
        self.table.batch.column_by_name(name).ok_or_else(|| {
            PageError::Environment(format!("{}: it has no column `{name}`", self.path.display()))
        })
    }

    fn other_kind(&self, name: &str) -> PageError {
        PageError::Environment(format!(
            "{}: its column `{name}` is of another kind",
            self.path.display()
        ))
    }

    pub(crate) fn count(&self, name: &str) -> Result<&UInt64Array, PageError> {
        let column = self.column(name)?.as_primitive_opt::<UInt64Type>();
        column.ok_or_else(|| self.other_kind(name))
    }

    pub(crate) fn number(&self, name: &str) -> Result<&Float64Array, PageError> {
        let column = self.column(name)?.as_primitive_opt::<Float64Type>();
        column.ok_or_else(|| self.other_kind(name))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Texts<'_>, PageError> {
        let column = self.column(name)?.as_dictionary_opt::<Int32Type>();
        let column = column.ok_or_else(|| self.other_kind(name))?;
        let values = column.values().as_string_opt::<i32>();
        Ok(Texts { keys: column.keys(), values: values.ok_or_else(|| self.other_kind(name))? })
    }
}

/// A column of text.
pub(crate) struct Texts<'a> {
    keys: &'a arrow_array::PrimitiveArray<Int32Type>,
    values: &'a StringArray,
}

impl<'a> Texts<'a> {
    /// The place of a row's text among [`distinct`](Self::distinct); `None` if null.
    pub(crate) fn key(&self, row: usize) -> Option<usize> {
        if self.keys.is_null(row) {
            return None;
        }
        usize::try_from(self.keys.value(row)).ok()
    }

    /// The text in `row`; `None` if null.
    pub(crate) fn get(&self, row: usize) -> Option<&'a str> {
        self.key(row).map(|key| self.values.value(key))
    }

    /// The texts of the dictionary, in its order; a text may stand in it twice.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = &'a str> {
        let values = self.values;
        (0..values.len()).map(|place| values.value(place))
    }
}

/// The number in `row`; `None` if null.
pub(crate) fn optional(numbers: &Float64Array, row: usize) -> Option<f64> {
    numbers.is_valid(row).then(|| numbers.value(row))
}
