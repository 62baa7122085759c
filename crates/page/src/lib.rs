//! One HTML page of one or several runs: figures that say what happened, then charts over time.
//!
//! [`read`] reads a run's folder, of a simulation or an emulation, the folders `seed-N` of a study,
//! or a trace that `ontempo send --qlog` wrote. [`Page::of`] lays several on the same axes, reduces
//! their lines to a bounded number of points and writes one file ([`Page::html`]) that needs no
//! network: style, script (with the chart library uPlot) and data are in it. What runs say is
//! treated as a stranger's: it is escaped, and the page's content security policy lets no script
//! run but its own, by its hash. The same runs give the same bytes.

mod columns;
mod error;
mod film;
mod films_html;
mod folder;
mod html;
mod model;
mod numbers;
mod page;
mod qlog;
mod reduce;

use std::fs;
use std::path::Path;

pub use error::PageError;
pub use html::is_page;
pub use model::{Chart, ReadPart, Run};
pub use page::{ChartContents, Contents, MAX_RUNS, Missing, Page, RunContents};

/// Reads what `path` names: a run's folder, a study with folders `seed-N`, a trace (`.sqlog`), or a
/// folder of traces.
///
/// # Errors
/// If it is none of these, holds more than [`MAX_RUNS`] runs, or a file of it cannot be read.
pub fn read(path: &Path) -> Result<Vec<Run>, PageError> {
    let metadata = fs::metadata(path)
        .map_err(|error| PageError::Input(format!("cannot read {}: {error}", path.display())))?;
    if !metadata.is_dir() {
        if qlog::is_trace(path) {
            return Ok(vec![qlog::read(path)?]);
        }
        return Err(PageError::Input(format!(
            "{}: neither a run's folder nor a qlog trace (.sqlog)",
            path.display()
        )));
    }
    if let Some(folders) = folder::find(path)? {
        few(path, folders.len())?;
        return folders.iter().map(|folder| folder::read(folder)).collect();
    }
    let mut traces = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| PageError::reading(path, &error))? {
        let entry = entry.map_err(|error| PageError::reading(path, &error))?;
        traces.extend(Some(entry.path()).filter(|path| qlog::is_trace(path)));
    }
    traces.sort();
    few(path, traces.len())?;
    if traces.is_empty() {
        return Err(PageError::Input(format!(
            "{}: no complete run here: {} is missing, also in its folders seed-N; nor is there a \
             qlog trace (.sqlog)",
            path.display(),
            ontempo_runtime::MANIFEST
        )));
    }
    traces.iter().map(|trace| qlog::read(trace)).collect()
}

fn few(path: &Path, runs: usize) -> Result<(), PageError> {
    if runs > MAX_RUNS {
        return Err(PageError::Input(format!(
            "{}: it holds {runs} runs; a page shows at most {MAX_RUNS}: name some of them",
            path.display()
        )));
    }
    Ok(())
}
