//! `run.json`: the contents of a run's folder, its scenario and seed.

use std::collections::BTreeMap;
use std::io;

use ontempo_scenario::model::Scenario;
use ontempo_scenario::tables::TABLES_VERSION;
use serde::{Deserialize, Serialize};

use crate::standstill::Standstill;
use crate::tables::ResultTable;

/// The manifest of a run; `W`: its work, as its engine counts it. A simulation of the same scenario and
/// seed gives the same text, so it has no time stamp, host or wall clock duration.
#[derive(Debug, Serialize)]
pub struct Manifest<'a, W> {
    /// That of the scenario.
    title: &'a str,
    seed: u64,
    engine: Engine<'a>,
    tables_version: u32,
    tables: Vec<TableEntry<'a>>,
    work: W,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    standstills: &'a [StandstillEntry],
    traces: &'a [TraceEntry],
    /// With defaults filled in.
    scenario: &'a Scenario,
}

#[derive(Debug, Serialize)]
struct Engine<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Debug, Serialize)]
struct TableEntry<'a> {
    name: &'a str,
    file: String,
    rows: usize,
}

/// One packet trace of a run.
#[derive(Clone, Debug, Serialize)]
pub struct TraceEntry {
    /// The link that was traced.
    pub link: String,
    /// The file in the run's folder.
    pub file: String,
    /// How many packets it has.
    pub packets: u64,
}

/// A [`Standstill`] as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandstillEntry {
    /// The link over which nothing passes to the end of the run.
    pub link: String,
    /// Since when, in seconds.
    pub since_s: f64,
    /// Packets that wait there at the end.
    pub waiting_packets: u64,
    /// Flows that cross it and have not finished, by group.
    pub unfinished_flows: BTreeMap<String, u64>,
}

impl From<Standstill> for StandstillEntry {
    fn from(found: Standstill) -> Self {
        Self {
            link: found.link,
            since_s: found.since.as_secs_f64(),
            waiting_packets: found.waiting,
            unfinished_flows: found.unfinished.into_iter().collect(),
        }
    }
}

impl<'a, W: Serialize> Manifest<'a, W> {
    /// Of a run of `scenario` with `seed` by the engine of this name and version, whose `tables` are in
    /// the folder.
    pub fn new(
        (scenario, seed): (&'a Scenario, u64),
        (name, version): (&'a str, &'a str),
        tables: &'a [ResultTable],
        work: W,
    ) -> Self {
        let entry = |table: &'a ResultTable| TableEntry {
            name: table.name,
            file: format!("{}.parquet", table.name),
            rows: table.batch.num_rows(),
        };
        Self {
            title: &scenario.title,
            seed,
            engine: Engine { name, version },
            tables_version: TABLES_VERSION,
            tables: tables.iter().map(entry).collect(),
            work,
            standstills: &[],
            traces: &[],
            scenario,
        }
    }

    /// With what stands still to the end, and with the traces in the folder.
    #[must_use]
    pub fn with(self, standstills: &'a [StandstillEntry], traces: &'a [TraceEntry]) -> Self {
        Self { standstills, traces, ..self }
    }

    /// The text of the file [`MANIFEST`](crate::MANIFEST).
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn to_text(&self) -> io::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
