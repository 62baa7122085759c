//! `run.json`: the contents of a run's folder, its scenario and seed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use ontempo_place::read_regular;
use ontempo_scenario::model::Scenario;
use ontempo_scenario::tables::TABLES_VERSION;
use ontempo_simulator::{MANIFEST, MAX_MANIFEST, ResultTable, RunFolder};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::failure::Failure;
use crate::summary::Standstill;

/// What the emulator is called there.
const EMULATOR: &str = "emulator";

/// The manifest of a run. A simulation of the same scenario and seed gives the same text, so it has
/// no time stamp, host or wall clock duration.
#[derive(Serialize)]
pub(crate) struct Manifest<'a> {
    pub(crate) title: &'a str,
    pub(crate) seed: u64,
    engine: Engine<'a>,
    tables_version: u32,
    tables: Vec<TableEntry<'a>>,
    work: WorkEntry,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) standstills: &'a [Standstill],
    traces: &'a [TraceEntry],
    /// With defaults filled in.
    scenario: &'a Scenario,
}

#[derive(Serialize)]
struct Engine<'a> {
    name: &'a str,
    version: &'a str,
}

/// Amount of work of the run, by world.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum WorkEntry {
    /// In virtual time.
    Simulated { events: u64, most_packets_under_way: u64 },
    /// In real time.
    Emulated(EmulatedWork),
}

/// The work of an emulated run, and how late packets and units were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EmulatedWork {
    pub(crate) packets: u64,
    pub(crate) refused_packets: u64,
    /// Of packets that left the network.
    pub(crate) lateness_p50_s: f64,
    pub(crate) lateness_p99_s: f64,
    pub(crate) lateness_max_s: f64,
    /// Units that applications sent, which had a due time and were not prevented.
    pub(crate) units: u64,
    /// Of those.
    pub(crate) sending_lateness_p50_s: f64,
    pub(crate) sending_lateness_p99_s: f64,
    pub(crate) sending_lateness_max_s: f64,
}

impl WorkEntry {
    fn engine(&self) -> Engine<'static> {
        match self {
            Self::Simulated { .. } => {
                Engine { name: "simulator", version: ontempo_simulator::VERSION }
            }
            Self::Emulated(_) => Engine { name: EMULATOR, version: ontempo_emulator::VERSION },
        }
    }
}

#[derive(Serialize)]
struct TableEntry<'a> {
    name: &'a str,
    file: String,
    rows: usize,
}

/// One trace.
#[derive(Serialize)]
pub(crate) struct TraceEntry {
    pub(crate) link: String,
    pub(crate) file: String,
    pub(crate) packets: u64,
}

impl<'a> Manifest<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        tables: &'a [ResultTable],
        work: WorkEntry,
        traces: &'a [TraceEntry],
    ) -> Self {
        let entry = |table: &'a ResultTable| TableEntry {
            name: table.name,
            file: format!("{}.parquet", table.name),
            rows: table.batch.num_rows(),
        };
        Self {
            title: &scenario.title,
            seed,
            engine: work.engine(),
            tables_version: TABLES_VERSION,
            tables: tables.iter().map(entry).collect(),
            work,
            standstills: &[],
            traces,
            scenario,
        }
    }

    pub(crate) fn to_text(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|error| Failure::Environment(format!("cannot write {MANIFEST}: {error}")))
    }
}

/// The fields that are read from a manifest.
#[derive(Deserialize)]
pub(crate) struct StoredManifest {
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) seed: u64,
    pub(crate) tables_version: u32,
    #[serde(default)]
    pub(crate) standstills: Vec<Standstill>,
    #[serde(default)]
    traces: Vec<StoredTrace>,
    /// Of a simulated run nothing is read.
    #[serde(default)]
    work: EmulatedWork,
    #[serde(default)]
    engine: StoredEngine,
    #[serde(default)]
    pub(crate) scenario: StoredScenario,
}

/// Of a scenario, whether it is that of another run: a scenario may hold a trace, and a folder many runs.
/// The seed does not count, which a run has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredScenario(u64);

impl StoredScenario {
    fn new(mut scenario: Value) -> Self {
        if let Some(fields) = scenario.as_object_mut() {
            fields.remove("seed");
        }
        let mut hasher = DefaultHasher::new();
        scenario.to_string().hash(&mut hasher);
        Self(hasher.finish())
    }

    /// As it will be read from a manifest.
    pub(crate) fn of(scenario: &Scenario) -> Result<Self, Failure> {
        let text = serde_json::to_string(scenario);
        text.and_then(|text| serde_json::from_str(&text))
            .map_err(|error| Failure::Environment(format!("cannot write {MANIFEST}: {error}")))
    }
}

impl<'de> Deserialize<'de> for StoredScenario {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

#[derive(Default, Deserialize)]
struct StoredEngine {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct StoredTrace {
    file: String,
}

impl StoredManifest {
    /// The work of an emulated run.
    pub(crate) fn emulated(&self) -> Option<EmulatedWork> {
        (self.engine.name == EMULATOR).then(|| self.work.clone())
    }

    /// Reads the manifest in `folder`; `None` if it does not exist.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(MANIFEST);
        let text = match read_regular(&path, MAX_MANIFEST) {
            Err(error) if is_not_found(&error) => return Ok(None),
            read => read,
        };
        let failure = |error: &dyn std::fmt::Display| {
            Failure::Environment(format!("{}: {error}", path.display()))
        };
        let text = text.map_err(|error| failure(&error))?;
        serde_json::from_slice(&text).map(Some).map_err(|error| failure(&error))
    }

    /// The files of the traces of the earlier run in `folder`, if there is one, without those of `traces`.
    pub(crate) fn traces_besides(folder: &RunFolder, traces: &[TraceEntry]) -> Vec<String> {
        // An unreadable manifest, or one of another user, lists no traces of ours.
        let text = folder.read_earlier(MANIFEST).ok();
        let earlier = text.and_then(|text| serde_json::from_str::<Self>(&text).ok());
        let files = earlier.into_iter().flat_map(|earlier| earlier.traces).map(|old| old.file);
        // A name with a path was not written by us.
        let is_ours = |file: &String| file.ends_with(".pcapng") && !file.contains('/');
        files.filter(|old| is_ours(old) && traces.iter().all(|new| new.file != *old)).collect()
    }
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
