//! Tables in memory and on disk: Arrow columns by the schemas of `ontempo-scenario`.

use std::fs::File;
use std::io;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, StringDictionaryBuilder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use ontempo_scenario::tables::{Column, ColumnKind, TABLES_VERSION, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

/// A value for one column of a row.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// For a column of text.
    Text(&'a str),
    /// For a column of counts.
    Count(u64),
    /// For a column of numbers.
    Number(f64),
    /// No value, for a nullable column.
    None,
}

impl From<u64> for Cell<'_> {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Cell<'_> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

enum Builder {
    Text(StringDictionaryBuilder<Int32Type>),
    Count(UInt64Builder),
    Number(Float64Builder),
}

impl Builder {
    fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Text => Self::Text(StringDictionaryBuilder::new()),
            ColumnKind::Count => Self::Count(UInt64Builder::new()),
            ColumnKind::Number => Self::Number(Float64Builder::new()),
        }
    }

    fn push(&mut self, cell: Cell<'_>, column: &Column) {
        match (self, cell) {
            (Self::Text(builder), Cell::Text(text)) => builder.append_value(text),
            (Self::Text(builder), Cell::None) => builder.append_null(),
            (Self::Count(builder), Cell::Count(count)) => builder.append_value(count),
            (Self::Count(builder), Cell::None) => builder.append_null(),
            (Self::Number(builder), Cell::Number(number)) => builder.append_value(number),
            (Self::Number(builder), Cell::None) => builder.append_null(),
            (_, cell) => unreachable!("column {} cannot hold {cell:?}", column.name),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Count(builder) => Arc::new(builder.finish()),
            Self::Number(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Rows of one table, as they are added.
pub struct Rows {
    table: &'static Table,
    builders: Vec<Builder>,
}

impl Rows {
    /// An empty set of rows of `table`.
    pub fn of(table: &'static Table) -> Self {
        let builders = table.columns.iter().map(|column| Builder::new(column.kind)).collect();
        Self { table, builders }
    }

    /// Adds a row; cells in the order of the table's columns.
    pub fn push<const N: usize>(&mut self, cells: [Cell<'_>; N]) {
        debug_assert_eq!(N, self.table.columns.len(), "cells of a row of {}", self.table.name);
        for ((builder, cell), column) in self.builders.iter_mut().zip(cells).zip(self.table.columns)
        {
            builder.push(cell, column);
        }
    }

    /// The table with the rows added so far.
    pub fn finish(mut self) -> ResultTable {
        let columns: Vec<ArrayRef> = self.builders.iter_mut().map(Builder::finish).collect();
        let batch = RecordBatch::try_new(Arc::new(schema(self.table)), columns)
            .unwrap_or_else(|error| unreachable!("rows follow their table's schema: {error}"));
        ResultTable { name: self.table.name, batch }
    }
}

/// Metadata key of a file's table version.
pub(crate) const VERSION_KEY: &str = "ontempo.tables";

pub(crate) fn schema(table: &Table) -> Schema {
    let fields: Vec<Field> = table
        .columns
        .iter()
        .map(|column| {
            let kind = match column.kind {
                ColumnKind::Text => {
                    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
                }
                ColumnKind::Count => DataType::UInt64,
                ColumnKind::Number => DataType::Float64,
            };
            Field::new(column.name, kind, column.optional)
        })
        .collect();
    let version = (VERSION_KEY.to_owned(), TABLES_VERSION.to_string());
    Schema::new(fields).with_metadata([version])
}

/// One table of results.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultTable {
    /// Its name.
    pub name: &'static str,
    /// Its rows.
    pub batch: RecordBatch,
}

/// Writes `batch` to `file`.
pub(crate) fn write_parquet(batch: &RecordBatch, file: &File) -> io::Result<()> {
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
    let mut writer =
        ArrowWriter::try_new(file, batch.schema(), Some(properties)).map_err(into_io_error)?;
    writer.write(batch).map_err(into_io_error)?;
    writer.close().map_err(into_io_error)?;
    Ok(())
}

fn into_io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
