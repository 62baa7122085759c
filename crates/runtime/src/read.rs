//! Reads result tables from disk and checks their version first.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatchReader;
use arrow_select::concat::concat_batches;
use ontempo_scenario::tables::{TABLES, TABLES_VERSION, Table};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::tables::{ResultTable, VERSION_KEY, schema};

/// Why a table cannot be read.
#[derive(Debug)]
pub struct ReadError {
    /// The table's file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: ReadErrorReason,
}

/// What is wrong with a table's file.
#[derive(Debug)]
pub enum ReadErrorReason {
    /// It cannot be opened or read.
    Io(io::Error),
    /// It is no Parquet file, or a damaged one.
    Damaged(String),
    /// It is a Parquet file, but not a result table.
    NoTable,
    /// It was written by another version.
    OtherVersion(String),
    /// Its columns differ from the schema of the table that it names.
    OtherColumns,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.reason {
            ReadErrorReason::Io(error) => error.fmt(f),
            ReadErrorReason::Damaged(what) => write!(f, "not a whole Parquet file: {what}"),
            ReadErrorReason::NoTable => {
                write!(
                    f,
                    "a Parquet file, but no table of ontempo: it does not say `{VERSION_KEY}`"
                )
            }
            ReadErrorReason::OtherVersion(found) => write!(
                f,
                "its tables are of version {found}; this program reads version {TABLES_VERSION}: \
                 run the scenario again, or read it with the ontempo that wrote it"
            ),
            ReadErrorReason::OtherColumns => {
                f.write_str("its columns are not those of the table that it is named for")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads every table of the run in `folder`.
///
/// # Errors
/// If one is missing, damaged, or of another version.
pub fn read_tables(folder: &Path) -> Result<Vec<ResultTable>, ReadError> {
    TABLES.iter().map(|table| read_table(folder, table)).collect()
}

/// Reads one table of the run in `folder`.
///
/// # Errors
/// If it is missing, damaged, or of another version.
pub fn read_table(folder: &Path, table: &'static Table) -> Result<ResultTable, ReadError> {
    let path = folder.join(format!("{}.parquet", table.name));
    read(&path, table, None).map_err(|reason| ReadError { path, reason })
}

/// Reads one column of a table of the run in `folder`.
///
/// # Errors
/// If the table is missing, damaged, or of another version.
pub fn read_column(
    folder: &Path,
    table: &'static Table,
    column: &str,
) -> Result<ResultTable, ReadError> {
    let path = folder.join(format!("{}.parquet", table.name));
    read(&path, table, Some(column)).map_err(|reason| ReadError { path, reason })
}

fn read(
    path: &Path,
    table: &'static Table,
    column: Option<&str>,
) -> Result<ResultTable, ReadErrorReason> {
    let damaged = |error: &dyn fmt::Display| ReadErrorReason::Damaged(error.to_string());
    let file = File::open(path).map_err(ReadErrorReason::Io)?;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(&error))?;
    match builder.schema().metadata().get(VERSION_KEY) {
        None => return Err(ReadErrorReason::NoTable),
        Some(version) if *version != TABLES_VERSION.to_string() => {
            return Err(ReadErrorReason::OtherVersion(version.clone()));
        }
        Some(_) => {}
    }
    let expected = schema(table);
    if builder.schema().fields() != expected.fields() {
        return Err(ReadErrorReason::OtherColumns);
    }
    let mask = match column {
        Some(column) => ProjectionMask::columns(builder.parquet_schema(), [column]),
        None => ProjectionMask::all(),
    };
    let reader = builder.with_projection(mask).build().map_err(|error| damaged(&error))?;
    let reader_schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| damaged(&error))?;
    let batch = concat_batches(&reader_schema, &batches).map_err(|error| damaged(&error))?;
    Ok(ResultTable { name: table.name, batch })
}
