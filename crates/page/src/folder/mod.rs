//! Reads a run's folder, of a simulation or an emulation.

mod events;
mod films;
mod network;
mod packets;
mod samples;
mod totals;
mod units;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use ontempo_foundation::printable;
use ontempo_place::read_regular;
use ontempo_runtime::{MANIFEST, MAX_MANIFEST};
use ontempo_scenario::tables::{TABLES_VERSION, Table};
use serde::Deserialize;
use serde_json::Value;

use crate::columns::Columns;
use crate::error::PageError;
use crate::model::{ReadPart, Run};
use network::Network;
pub(crate) use packets::{summed, width_of};

/// Groups and links beyond these are not drawn.
pub(crate) const MAX_GROUPS: usize = 12;
pub(crate) const MAX_LINKS: usize = 8;

/// The fields of `run.json` that are read.
#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    title: String,
    #[serde(default)]
    seed: u64,
    tables_version: u32,
    #[serde(default)]
    engine: Engine,
    #[serde(default)]
    work: Work,
    #[serde(default)]
    scenario: Value,
}

#[derive(Default, Deserialize)]
struct Engine {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

#[derive(Default, Deserialize)]
struct Work {
    lateness_p99_s: Option<f64>,
    sending_lateness_p99_s: Option<f64>,
}

/// One flow, as the table `flows` has it.
pub(crate) struct FlowPlace {
    /// Place of its group.
    pub(crate) group: usize,
    pub(crate) index: u64,
}

/// A run being read: what its tables name.
pub(crate) struct Reading<'a> {
    folder: &'a Path,
    pub(crate) run: Run,
    /// Names of the groups, in the order of the table `flows`.
    pub(crate) groups: Vec<String>,
    /// The flows by number.
    pub(crate) flows: Vec<FlowPlace>,
    pub(crate) network: Network,
}

impl Reading<'_> {
    /// Reads a whole table.
    pub(crate) fn table(&mut self, table: &'static Table) -> Result<Columns, PageError> {
        let read = Columns::read(self.folder, table)?;
        self.note_part(table.name, read.len());
        Ok(read)
    }

    /// Reads a column of a table that may be large.
    pub(crate) fn column(&self, table: &'static Table, column: &str) -> Result<Columns, PageError> {
        Columns::read_one(self.folder, table, column)
    }

    /// Reads a table if this version has it and the folder, too.
    pub(crate) fn known_table(&mut self, name: &'static str) -> Result<Option<Columns>, PageError> {
        let read = Columns::read_known(self.folder, name)?;
        if let Some(table) = &read {
            self.note_part(name, table.len());
        }
        Ok(read)
    }

    pub(crate) fn note_part(&mut self, name: &str, rows: usize) {
        self.run.parts.push(ReadPart { name: name.to_owned(), rows });
    }

    /// Groups that are drawn.
    pub(crate) fn drawn_groups(&self) -> usize {
        self.groups.len().min(MAX_GROUPS)
    }

    /// How many flows each group has.
    pub(crate) fn group_sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.groups.len()];
        self.flows.iter().for_each(|flow| sizes[flow.group] += 1);
        sizes
    }

    /// The flow of each subject `GROUP.INDEX`.
    pub(crate) fn subjects(&self) -> HashMap<String, usize> {
        let name = |flow: &FlowPlace| format!("{}.{}", self.groups[flow.group], flow.index);
        self.flows.iter().enumerate().map(|(number, flow)| (name(flow), number)).collect()
    }
}

/// The runs named by `folder`: its own, or those of its folders `seed-N`, by number. `None` if it
/// holds neither.
pub(crate) fn find(folder: &Path) -> Result<Option<Vec<PathBuf>>, PageError> {
    if folder.join(MANIFEST).exists() {
        return Ok(Some(vec![folder.to_owned()]));
    }
    let entries = fs::read_dir(folder).map_err(|error| PageError::reading(folder, &error))?;
    let mut seeds = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| PageError::reading(folder, &error))?;
        let name = entry.file_name();
        let seed = name.to_str().and_then(|name| name.strip_prefix("seed-")?.parse::<u64>().ok());
        if let Some(seed) = seed
            && entry.path().join(MANIFEST).exists()
        {
            seeds.push((seed, entry.path()));
        }
    }
    seeds.sort();
    Ok((!seeds.is_empty()).then(|| seeds.into_iter().map(|(_, path)| path).collect()))
}

/// Reads the run in `folder`.
pub(crate) fn read(folder: &Path) -> Result<Run, PageError> {
    let manifest = manifest(folder)?;
    let mut run = Run {
        name: printable(&folder.display().to_string()).into_owned(),
        short: printable(&folder.file_name().unwrap_or_default().to_string_lossy()).into_owned(),
        title: printable(&manifest.title).into_owned(),
        ..Run::default()
    };
    run.facts = facts(&manifest);
    let (groups, flows, network) = (Vec::new(), Vec::new(), Network::default());
    let mut reading = Reading { folder, run, groups, flows, network };
    totals::flows(&mut reading)?;
    totals::links(&mut reading)?;
    network::read(&mut reading, &manifest.scenario, manifest.seed)?;
    films::read(&mut reading)?;
    samples::read(&mut reading)?;
    packets::read(&mut reading)?;
    units::read(&mut reading)?;
    totals::playout(&mut reading)?;
    units::draw_startups(&mut reading);
    events::read(&mut reading)?;
    // Those that a viewer waits for come first.
    reading.run.headlines.sort_by_key(|row| (row.late.is_empty(), row.delays.is_none()));
    let more = reading.groups.len().saturating_sub(MAX_GROUPS);
    if more > 0 {
        let sentence =
            format!("the charts show the first {MAX_GROUPS} groups; {more} are left out");
        reading.run.notes.push(sentence);
    }
    Ok(reading.run)
}

fn manifest(folder: &Path) -> Result<Manifest, PageError> {
    let path = folder.join(MANIFEST);
    let text =
        read_regular(&path, MAX_MANIFEST).map_err(|error| PageError::reading(&path, &error))?;
    let failed = |what: String| PageError::Environment(format!("{}: {what}", path.display()));
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
    if manifest.tables_version != TABLES_VERSION {
        return Err(failed(format!(
            "its tables are of version {}; this program reads version {TABLES_VERSION}",
            manifest.tables_version
        )));
    }
    Ok(manifest)
}

fn facts(manifest: &Manifest) -> Vec<(&'static str, String)> {
    let engine = format!("{} {}", manifest.engine.name, manifest.engine.version);
    let mut facts =
        vec![("", printable(engine.trim()).into_owned()), ("seed", manifest.seed.to_string())];
    if let Some(lateness) = manifest.work.lateness_p99_s {
        facts.push(("clock late, p99", crate::numbers::seconds(lateness)));
    }
    if let Some(lateness) = manifest.work.sending_lateness_p99_s {
        facts.push(("sent late, p99", crate::numbers::seconds(lateness)));
    }
    facts
}
