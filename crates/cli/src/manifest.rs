//! `run.json`: the contents of a run's folder, its scenario and seed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use ontempo_place::read_regular;
use ontempo_scenario::model::Scenario;
use ontempo_simulator::{
    MANIFEST, MAX_MANIFEST, Manifest, ResultTable, RunFolder, StandstillEntry, TraceEntry,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::failure::Failure;

/// What the emulator is called there.
const EMULATOR: &str = "emulator";

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

/// The text of the manifest of an emulated `run` of a scenario with a seed.
pub(crate) fn of_emulation(
    run: (&Scenario, u64),
    tables: &[ResultTable],
    work: &EmulatedWork,
    standstills: &[StandstillEntry],
    traces: &[TraceEntry],
) -> Result<String, Failure> {
    let engine = (EMULATOR, ontempo_emulator::VERSION);
    let manifest = Manifest::new(run, engine, tables, work);
    manifest.with(standstills, traces).to_text().map_err(|error| unwritten(&error))
}

/// A manifest that cannot be written.
pub(crate) fn unwritten(error: &io::Error) -> Failure {
    Failure::Environment(format!("cannot write {MANIFEST}: {error}"))
}

/// The fields that are read from a manifest.
#[derive(Deserialize)]
pub(crate) struct StoredManifest {
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) seed: u64,
    pub(crate) tables_version: u32,
    #[serde(default)]
    pub(crate) standstills: Vec<StandstillEntry>,
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
