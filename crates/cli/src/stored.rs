//! `ontempo summary`: the summary of finished runs, read back from their tables.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use ontempo_scenario::model::Scenario;
use ontempo_scenario::tables::{FLOWS, LINKS, MEDIA, PACKETS, PLAYOUT, QUEUES, TABLES_VERSION};
use ontempo_simulator::{MANIFEST, read_column, read_table};

use crate::arguments;
use crate::failure::Failure;
use crate::manifest::{StoredManifest, StoredScenario};
use crate::output::{emit, emit_json};
use crate::runs::Finished;
use crate::show::show;
use crate::simulate::document;
use crate::summary::Summary;

pub(crate) fn summary(arguments: &arguments::Summary) -> Result<(), Failure> {
    let stored = find(&arguments.folder)?;
    let title = stored.first().map(|(_, manifest)| manifest.title.clone()).unwrap_or_default();
    let runs = stored
        .into_iter()
        .map(|(folder, manifest)| read(folder, &manifest))
        .collect::<Result<Vec<_>, _>>()?;
    if arguments.json {
        return emit_json(&document(&title, &runs, true));
    }
    let summaries: Vec<Summary> = runs.into_iter().map(|run| run.summary).collect();
    let title = if title.is_empty() { title } else { format!("{title}\n\n") };
    emit(&format!("{title}{}", show(&summaries)))
}

/// The run in `folder`, or the runs of one scenario in its folders `seed-N`, by seed.
fn find(folder: &Path) -> Result<Vec<(PathBuf, StoredManifest)>, Failure> {
    if let Some(manifest) = StoredManifest::read(folder)? {
        return Ok(vec![(folder.to_owned(), manifest)]);
    }
    let mut runs = Vec::new();
    for path in of_seeds(folder)? {
        if let Some(manifest) = StoredManifest::read(&path)? {
            runs.push((path, manifest));
        }
    }
    if runs.is_empty() {
        return Err(Failure::Input(format!(
            "{}: no complete run here: {MANIFEST} is missing, also in its folders seed-N",
            folder.display()
        )));
    }
    runs.sort_by_key(|(_, manifest)| manifest.seed);
    let (first, of_first) = &runs[0];
    // Those of another version are refused when they are read.
    let is_other = |(_, manifest): &&(PathBuf, StoredManifest)| {
        manifest.scenario != of_first.scenario && manifest.tables_version == of_first.tables_version
    };
    if let Some((other, _)) = runs.iter().find(is_other) {
        return Err(Failure::Input(format!(
            "{}: its scenario is another than that of {}, so that they have no mean: write the runs of each \
             scenario to a folder of their own, or name the folder of one run",
            other.display(),
            first.display()
        )));
    }
    Ok(runs)
}

/// The folders `seed-N` in a folder.
fn of_seeds(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", folder.display())))?;
    let is_run = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("seed-"));
    let entries = entries.flatten().filter(|entry| is_run(&entry.file_name()));
    Ok(entries.map(|entry| entry.path()).collect())
}

/// Refuses to write the runs of a study, in `runs`, to a folder where runs of another scenario would be
/// left beside them.
pub(crate) fn require_same_scenario(
    out: &Path,
    scenario: &Scenario,
    runs: &[(u64, PathBuf)],
) -> Result<(), Failure> {
    if !out.is_dir() {
        return Ok(());
    }
    let replaced: BTreeSet<&Path> = runs.iter().map(|(_, folder)| folder.as_path()).collect();
    let scenario = StoredScenario::of(scenario)?;
    for path in of_seeds(out)? {
        // One that cannot be read is none of a study's runs.
        if !replaced.contains(path.as_path())
            && let Ok(Some(manifest)) = StoredManifest::read(&path)
            && manifest.scenario != scenario
        {
            return Err(Failure::Input(format!(
                "{}: its scenario is another than the one to be run, and both would be in one study: name \
                 another folder with --out, or remove it",
                path.display()
            )));
        }
    }
    Ok(())
}

fn read(folder: PathBuf, manifest: &StoredManifest) -> Result<Finished, Failure> {
    if manifest.tables_version != TABLES_VERSION {
        return Err(Failure::Environment(format!(
            "{}: its tables are of version {}; this program reads version {TABLES_VERSION}",
            folder.join(MANIFEST).display(),
            manifest.tables_version
        )));
    }
    let mut tables = Vec::new();
    for table in [&FLOWS, &LINKS, &QUEUES, &PLAYOUT, &MEDIA] {
        tables.push(read_table(&folder, table)?);
    }
    // The packet table may be large, and only the link names are needed.
    tables.push(read_column(&folder, &PACKETS, "link")?);
    let summary = Summary { standstills: manifest.standstills.clone(), ..Summary::of(&tables) };
    Ok(Finished { seed: manifest.seed, summary, folder, work: manifest.emulated() })
}
