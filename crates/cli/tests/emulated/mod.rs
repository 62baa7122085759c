//! What tests of emulations have in common.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_select::concat::concat_batches;
use ontempo_testing::{record_skip, require_programs, require_root};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::common::{Place, Ran};

/// True if this process may emulate; otherwise the test is recorded as skipped.
pub(crate) fn can_emulate() -> bool {
    if !require_root() || !require_programs(&["ip"]) {
        return false;
    }
    let has_tun = Path::new("/dev/net/tun").exists();
    if !has_tun {
        record_skip("this kernel has no /dev/net/tun");
    }
    has_tun
}

/// Runs a command in a host of the place's scenario; `$SINK` is the namespace of the sink of
/// flow a.0.
pub(crate) fn shell(place: &Place, host: &str, words: &[&str]) -> Ran {
    let run = run_name(place);
    let mut arguments = vec!["shell", "s.toml", host, "--name", &run, "--"];
    arguments.extend(words);
    let mut command = place.command(&arguments);
    command.env("SINK", format!("ontempo-{run}-a.0.sink"));
    let ran = Ran::of(command.output().expect("the program starts"));
    ran.succeeds();
    ran
}

/// A run's name that no other test has.
pub(crate) fn run_name(place: &Place) -> String {
    let folder = place.0.file_name().expect("a name").to_string_lossy().into_owned();
    folder.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}

/// The number at `place` of those that `before` stands in front of, with slashes between.
#[track_caller]
pub(crate) fn milliseconds(text: &str, before: &str, place: usize) -> f64 {
    let (_, after) = text.split_once(before).expect("the line is there");
    let numbers = after.split([' ', '\n']).next().unwrap_or_default();
    numbers.split('/').nth(place).and_then(|number| number.parse().ok()).expect("a number")
}

/// A table of the run in the folder `run`.
pub(crate) fn table(place: &Place, run: &str, name: &str) -> RecordBatch {
    let file = File::open(place.path(&format!("{run}/{name}.parquet"))).expect("a table");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.build())
        .expect("a whole table");
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(|batch| batch.expect("rows")).collect();
    concat_batches(&schema, &batches).expect("one schema")
}

/// A column of whole numbers.
pub(crate) fn counts(batch: &RecordBatch, name: &str) -> Vec<u64> {
    let column = batch.column_by_name(name).expect("a column");
    column.as_primitive::<UInt64Type>().values().to_vec()
}
