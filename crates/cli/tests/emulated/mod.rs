//! What tests of emulations have in common.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StringArray};
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

/// A column of numbers.
pub(crate) fn numbers(batch: &RecordBatch, name: &str) -> Vec<f64> {
    let column = batch.column_by_name(name).expect("a column");
    column.as_primitive::<Float64Type>().values().to_vec()
}

/// A column of names.
pub(crate) fn texts(batch: &RecordBatch, name: &str) -> Vec<String> {
    let column = batch.column_by_name(name).expect("a column").as_dictionary::<Int32Type>();
    let column = column.downcast_dict::<StringArray>().expect("texts");
    column.into_iter().map(|text| text.unwrap_or_default().to_owned()).collect()
}

/// Checks that the packets of 1,000 bytes in the table `packets` began their transmissions, on a link
/// that always has something to send until `end`, at the rates that hold from each of `times` on.
#[track_caller]
pub(crate) fn assert_carried(packets: &RecordBatch, times: &[f64], rates: &[f64], end: f64) {
    let started = packets.column_by_name("started_s").expect("a column");
    let started = started.as_primitive::<Float64Type>();
    // A packet of another size is the kernel's own.
    let data: Vec<f64> = counts(packets, "size_bytes")
        .iter()
        .enumerate()
        .filter(|(row, size)| **size == 1000 && started.is_valid(*row))
        .map(|(row, _)| started.value(row))
        .collect();
    for (place, (from, rate)) in times.iter().zip(rates).enumerate() {
        let to = times.get(place + 1).copied().unwrap_or(end);
        let sent = data.iter().filter(|at| (*from..to).contains(at)).count() as f64;
        let integral = rate * (to - from) / 8_000.0;
        // A packet that is sent across a change; at the start what a busy machine sends late.
        let slack = if place == 0 { 40.0 } else { 2.0 };
        assert!(
            (sent - integral).abs() <= slack,
            "{sent} packets for {integral} from {from} s to {to} s"
        );
    }
}

/// A packet of a trace.
pub(crate) struct Captured {
    /// In nanoseconds from the start of the run.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The packets of a pcapng file with one interface in nanoseconds, and the names of its addresses.
pub(crate) fn captured(path: &Path) -> (Vec<Captured>, String) {
    let file = std::fs::read(path).expect("a trace");
    let (mut packets, mut names) = (Vec::new(), String::new());
    let mut rest = &file[..];
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().expect("four"));
    while !rest.is_empty() {
        let (kind, length) = (word(rest), word(&rest[4..]) as usize);
        let body = &rest[8..length - 4];
        match kind {
            4 => names = String::from_utf8_lossy(body).into_owned(),
            6 => {
                let at = u64::from(word(&body[4..])) << 32 | u64::from(word(&body[8..]));
                let size = word(&body[12..]) as usize;
                assert_eq!(word(&body[16..]) as usize, size, "a packet is not whole");
                packets.push(Captured { at, bytes: body[20..20 + size].to_vec() });
            }
            _ => {}
        }
        rest = &rest[length..];
    }
    (packets, names)
}
