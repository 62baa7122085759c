//! `ontempo summary`: the summary of finished runs, read back from their tables.

use std::fs;
use std::path::{Path, PathBuf};

use ontempo_scenario::tables::{FLOWS, LINKS, MEDIA, PACKETS, PLAYOUT, QUEUES, TABLES_VERSION};
use ontempo_simulator::{MANIFEST, read_column, read_table};

use crate::arguments;
use crate::failure::Failure;
use crate::manifest::StoredManifest;
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

/// The run in `folder`, or the runs in its folders `seed-N`, by seed.
fn find(folder: &Path) -> Result<Vec<(PathBuf, StoredManifest)>, Failure> {
    if let Some(manifest) = StoredManifest::read(folder)? {
        return Ok(vec![(folder.to_owned(), manifest)]);
    }
    let entries = fs::read_dir(folder)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", folder.display())))?;
    let mut runs = Vec::new();
    for entry in entries.flatten() {
        let is_run = entry.file_name().to_str().is_some_and(|name| name.starts_with("seed-"));
        if is_run && let Some(manifest) = StoredManifest::read(&entry.path())? {
            runs.push((entry.path(), manifest));
        }
    }
    if runs.is_empty() {
        return Err(Failure::Input(format!(
            "{}: no complete run here: {MANIFEST} is missing, also in its folders seed-N",
            folder.display()
        )));
    }
    runs.sort_by_key(|(_, manifest)| manifest.seed);
    Ok(runs)
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
