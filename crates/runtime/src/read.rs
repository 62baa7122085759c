//! Reads result tables from disk and checks their version first.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatchReader;
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat_batches;
use ontempo_place::open_regular;
use ontempo_scenario::tables::{TABLES, TABLES_VERSION, Table};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::tables::{ResultTable, VERSION_KEY, schema};

/// Memory of the rows that are read of a table. A file may be of another user, and a few hundred kilobytes
/// hold millions of equal rows; to join the rows takes as much again.
const MAX_TABLE: u64 = 1 << 30;

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
    /// It takes more memory than a table may.
    TooLarge,
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
            ReadErrorReason::TooLarge => write!(
                f,
                "its rows take more than {} MiB, the most that is read of a table: record fewer \
                 packets or samples (`measure`)",
                MAX_TABLE >> 20
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
    read(&path, table, None, MAX_TABLE).map_err(|reason| ReadError { path, reason })
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
    read(&path, table, Some(column), MAX_TABLE).map_err(|reason| ReadError { path, reason })
}

/// Bytes of a value in memory, at least: a text is the number of one.
fn least_bytes(field: &Arc<Field>) -> u64 {
    if matches!(field.data_type(), DataType::Dictionary(..)) { 4 } else { 8 }
}

fn read(
    path: &Path,
    table: &'static Table,
    column: Option<&str>,
    max: u64,
) -> Result<ResultTable, ReadErrorReason> {
    let damaged = |error: &dyn fmt::Display| ReadErrorReason::Damaged(error.to_string());
    let file = open_regular(path).map_err(ReadErrorReason::Io)?;
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
    // Before anything is read, if the file says so itself.
    let said = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(u64::MAX);
    let is_read = |field: &&Arc<Field>| column.is_none_or(|column| field.name() == column);
    let row: u64 = expected.fields().iter().filter(is_read).map(least_bytes).sum();
    if said.saturating_mul(row) > max {
        return Err(ReadErrorReason::TooLarge);
    }
    let reader = builder.with_projection(mask).build().map_err(|error| damaged(&error))?;
    let reader_schema = reader.schema();
    let (mut batches, mut bytes) = (Vec::new(), 0);
    for batch in reader {
        let batch = batch.map_err(|error| damaged(&error))?;
        bytes += batch.get_array_memory_size() as u64;
        if bytes > max {
            return Err(ReadErrorReason::TooLarge);
        }
        batches.push(batch);
    }
    let batch = concat_batches(&reader_schema, &batches).map_err(|error| damaged(&error))?;
    Ok(ResultTable { name: table.name, batch })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use arrow_array::{ArrayRef, DictionaryArray, types::Int32Type};
    use arrow_array::{Float64Array, RecordBatch, UInt64Array, new_null_array};
    use ontempo_scenario::tables::PACKETS;

    use super::*;
    use crate::tables::write_parquet;

    #[test]
    fn a_table_of_many_equal_rows_is_refused_before_and_while_it_is_read() {
        const ROWS: usize = 200_000;
        let column = |field: &Arc<Field>| -> ArrayRef {
            match field.data_type() {
                kind if field.is_nullable() => new_null_array(kind, ROWS),
                DataType::UInt64 => Arc::new(UInt64Array::from(vec![0; ROWS])),
                DataType::Float64 => Arc::new(Float64Array::from(vec![0.0; ROWS])),
                _ => Arc::new(vec!["a"; ROWS].into_iter().collect::<DictionaryArray<Int32Type>>()),
            }
        };
        let schema = Arc::new(schema(&PACKETS));
        let columns = schema.fields().iter().map(column).collect();
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let path = std::env::temp_dir().join(format!("ontempo-bomb-{}", std::process::id()));
        write_parquet(&batch, &File::create(&path).unwrap()).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 100_000);
        let row: u64 = schema.fields().iter().map(least_bytes).sum();
        let least = ROWS as u64 * row;
        let refused = |column, max| match read(&path, &PACKETS, column, max) {
            Ok(table) => panic!("{} rows are read", table.batch.num_rows()),
            Err(reason) => assert!(matches!(reason, ReadErrorReason::TooLarge), "{reason:?}"),
        };
        refused(None, least - 1);
        // It takes more than the least.
        refused(None, least);
        refused(Some("link"), 4 * ROWS as u64 - 1);
        let read = read(&path, &PACKETS, None, 3 * least).unwrap();
        assert_eq!(read.batch.num_rows(), ROWS);
        fs::remove_file(path).unwrap();
    }
}
