//! What neither the scenario nor the command line is to blame for: exit code 3.

mod common;

use common::{Place, Ran, SCENARIO, WHOLE, endless, files};
use ontempo_testing::record_skip;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_schema::Schema;
use ontempo_scenario::tables::TABLES_VERSION;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

#[test]
fn an_unusable_output_folder_is_named_before_the_run_starts() {
    let place = Place::new("unwritable", &endless());
    fs::write(place.path("file"), "in the way").unwrap();
    for out in ["file", "file/out", "/proc/ontempo"] {
        place.run(&["simulate", "s.toml", "--out", out]).fails(3, &["cannot write", out]);
    }
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "in the way");
}

#[test]
fn a_full_standard_output_is_an_error() {
    let place = Place::new("stdout", SCENARIO);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&["reference"]).stdout(full).output().unwrap();
    Ran::of(output).fails(3, &["cannot write to standard output"]);
}

/// A disk of a few kilobytes, gone with the test.
struct TinyDisk(PathBuf);

impl TinyDisk {
    /// `None` if this user may not mount one; the test is then recorded as skipped.
    fn mount(folder: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&folder).expect("a place to mount at");
        let size = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&folder).output();
        if mounted.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("mount: {mounted:?}");
        record_skip("this user cannot mount a tmpfs");
        None
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_fills_while_tables_are_written_keeps_the_previous_run() {
    let place = Place::new("full-tables", SCENARIO);
    let Some(disk) = TinyDisk::mount(place.path("disk"), "100k") else { return };
    place.run(&["simulate", "s.toml", "--out", "disk/out"]).succeeds();
    let before = fs::read(place.path("disk/out/run.json")).unwrap();
    let all = "measure.packets=[\"bottleneck\", \"reverse\"]";
    let longer = ["--set", all, "--set", "duration=60 s", "--set", "measure.sample-every=1 ms"];
    let arguments = ["simulate", "s.toml", "--out", "disk/out"];
    let ran = place.run(&[arguments.as_slice(), &longer].concat());
    ran.fails(3, &["cannot write disk/out/", ".parquet", "space", "nothing was written"]);
    assert_eq!(files(&place.path("disk/out")), WHOLE);
    assert_eq!(fs::read(place.path("disk/out/run.json")).unwrap(), before);
    place.run(&["summary", "disk/out"]).succeeds();
    drop(disk);
}

#[test]
fn a_full_disk_leaves_no_file_of_a_token() {
    let place = Place::new("full-token", SCENARIO);
    let Some(disk) = TinyDisk::mount(place.path("disk"), "4k") else { return };
    fs::write(place.path("disk/full"), vec![7; 4096]).unwrap();
    let to = ["receive", "--listen", "127.0.0.1:0", "--to", "udp://127.0.0.1:9"];
    let ran = place.run(&[&to[..], &["--token-file", "disk/token"]].concat());
    ran.fails(3, &["--token-file disk/token", "space"]);
    assert_eq!(files(&place.path("disk")), ["full"]);
    drop(disk);
}

#[test]
fn a_disk_that_fills_during_a_run_ends_the_run() {
    let place = Place::new("full-trace", &endless());
    let Some(disk) = TinyDisk::mount(place.path("disk"), "256k") else { return };
    let arguments = ["simulate", "s.toml", "--out", "disk/out", "--trace", "bottleneck"];
    let ran = place.run(&arguments);
    ran.fails(3, &["cannot write disk/out/bottleneck.pcapng", "space", "nothing was written"]);
    assert_eq!(files(&place.path("disk")), [""; 0]);
    drop(disk);
}

#[test]
fn a_disk_that_fills_during_a_study_keeps_the_complete_runs() {
    let place = Place::new("full-study", SCENARIO);
    let Some(disk) = TinyDisk::mount(place.path("disk"), "400k") else { return };
    let ran = place.run(&["simulate", "s.toml", "--out", "disk/out", "--seeds", "0..99"]);
    ran.fails(3, &["cannot write disk/out/seed-", "space", "of 100 runs: disk/out/seed-"]);
    let kept = files(&place.path("disk/out"));
    assert!(kept.len() > 1, "{kept:?}");
    for run in kept {
        assert_eq!(files(&place.path("disk/out").join(run)), WHOLE);
    }
    drop(disk);
}

/// Rewrites the table at `path` with this version.
fn write_as(path: &Path, version: Option<&str>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("a table"))
        .and_then(|builder| builder.build())
        .expect("a whole table");
    let batches: Vec<_> = reader.map(|batch| batch.expect("a whole table")).collect();
    let metadata = version.map(|version| ("ontempo.tables".to_owned(), version.to_owned()));
    let schema = Schema::new(batches[0].schema().fields().clone());
    let schema = Arc::new(
        schema.with_metadata(metadata.into_iter().collect::<std::collections::HashMap<_, _>>()),
    );
    let file = File::create(path).expect("a table to write");
    let mut writer = ArrowWriter::try_new(file, schema.clone(), None).expect("a writer");
    for batch in batches {
        writer.write(&batch.with_schema(schema.clone()).expect("columns")).expect("a row group");
    }
    writer.close().expect("a whole file");
}

#[test]
fn a_table_of_another_version_is_refused_with_both_versions() {
    let place = Place::new("version", SCENARIO);
    place.run(&["simulate", "s.toml", "--out", "out"]).succeeds();
    let flows = place.path("out/flows.parquet");
    write_as(&flows, Some(&TABLES_VERSION.to_string()));
    place.run(&["summary", "out"]).succeeds();
    write_as(&flows, Some("99"));
    let reads = format!("reads version {TABLES_VERSION}");
    let words = ["out/flows.parquet", "of version 99", &reads];
    place.run(&["summary", "out"]).fails(3, &words);
    write_as(&flows, None);
    place.run(&["summary", "out"]).fails(3, &["out/flows.parquet", "no table of ontempo"]);
    fs::copy(place.path("out/links.parquet"), &flows).unwrap();
    place.run(&["summary", "out"]).fails(3, &["out/flows.parquet", "its columns"]);
    fs::write(&flows, "PAR1, or not").unwrap();
    place.run(&["summary", "out"]).fails(3, &["out/flows.parquet", "not a whole Parquet file"]);
    fs::remove_file(&flows).unwrap();
    place.run(&["summary", "out", "--json"]).fails(3, &["out/flows.parquet"]);
}

#[test]
fn a_manifest_of_another_version_is_refused() {
    let place = Place::new("manifest", SCENARIO);
    place.run(&["simulate", "s.toml", "--out", "out"]).succeeds();
    let path = place.path("out/run.json");
    let text = fs::read_to_string(&path).unwrap();
    let written = |version: u32| format!("\"tables_version\": {version}");
    fs::write(&path, text.replace(&written(TABLES_VERSION), &written(99))).unwrap();
    let reads = format!("reads version {TABLES_VERSION}");
    place.run(&["summary", "out"]).fails(3, &["out/run.json", "of version 99", &reads]);
    fs::write(&path, "{").unwrap();
    place.run(&["summary", "out"]).fails(3, &["out/run.json"]);
}
