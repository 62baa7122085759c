//! `ontempo simulate`: from a scenario to tables, traces and a summary.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use ontempo_scenario::model::Scenario;
use serde_json::json;

use crate::arguments::Simulate;
use crate::check::load;
use crate::failure::Failure;
use crate::means::Means;
use crate::output::{emit, emit_json, scenario_failure};
use crate::place::{StudyFolder, check_output};
use crate::runs::{Finished, Outcome, Plan, run_all};
use crate::seeds;
use crate::show::show;
use crate::size::{report_time, require_bearable};
use crate::stored::require_same_scenario;

pub(crate) fn simulate(arguments: &Simulate) -> Result<(), Failure> {
    let scenario = load(&arguments.input)?;
    let plan = plan(arguments, scenario)?;
    for (_, folder) in &plan.runs {
        check_output(&format!("--out {}", folder.display()), folder)?;
    }
    if !arguments.any_size {
        require_bearable(&plan.scenario, plan.jobs.min(plan.runs.len()))?;
    }
    let _locked = match arguments.seeds {
        Some(_) => Some(begin_study(&arguments.out, &plan.scenario, &plan.runs)?),
        None => None,
    };
    report_time(&plan.scenario, plan.runs.len(), plan.jobs);
    let Outcome { finished, stopped } = run_all(&plan)?;
    let printed = if arguments.input.json {
        emit_json(&document(&plan.scenario.title, &finished, stopped.is_none()))
    } else if finished.is_empty() {
        Ok(())
    } else {
        emit(&text(&plan.scenario.title, &finished, &arguments.out, None))
    };
    match stopped {
        Some(failure) => Err(failure.and(&kept_runs(plan.runs.len(), &finished))),
        None => printed,
    }
}

/// Locks the folder of a study, in which no runs of another scenario may be left.
pub(crate) fn begin_study(
    out: &Path,
    scenario: &Scenario,
    runs: &[(u64, PathBuf)],
) -> Result<StudyFolder, Failure> {
    let locked = StudyFolder::open(out)?;
    require_same_scenario(out, scenario, runs)?;
    Ok(locked)
}

fn plan(arguments: &Simulate, scenario: Scenario) -> Result<Plan, Failure> {
    let seed = arguments.seed.unwrap_or(scenario.seed);
    let runs = seeds::runs(arguments.seeds.as_ref(), seed, &arguments.out);
    let traces = traces(&scenario, &arguments.trace, arguments.input.json)?;
    let cores = || available_parallelism().map_or(1, NonZero::get);
    let jobs = arguments.jobs.map_or_else(cores, usize::from);
    Ok(Plan { scenario, runs, traces, jobs })
}

/// The traced links and their file names, in which `_` replaces `/`.
pub(crate) fn traces(
    scenario: &Scenario,
    links: &[String],
    json: bool,
) -> Result<Vec<(String, String)>, Failure> {
    let mut by_file: BTreeMap<String, String> = BTreeMap::new();
    for link in links {
        scenario.check_link(link, "--trace").map_err(|error| scenario_failure(error, json))?;
        let file = format!("{}.pcapng", link.replace('/', "_"));
        let other = by_file.insert(file.clone(), link.clone());
        if let Some(other) = other.filter(|other| other != link) {
            return Err(Failure::Input(format!(
                "--trace: `{other}` and `{link}` would both be written to `{file}`; trace one \
                 of them"
            )));
        }
    }
    Ok(by_file.into_iter().map(|(file, link)| (link, file)).collect())
}

/// The text output; `more` stands below the summary.
pub(crate) fn text(title: &str, finished: &[Finished], out: &Path, more: Option<&str>) -> String {
    let summaries: Vec<_> = finished.iter().map(|run| run.summary.clone()).collect();
    let title = if title.is_empty() { String::new() } else { format!("{title}\n\n") };
    let place = match finished {
        [only] => only.folder.display().to_string(),
        _ => format!("{} folders in {}", finished.len(), out.display()),
    };
    let more = more.map_or_else(String::new, |more| format!("\n\n{more}"));
    format!("{title}{}{more}\n\nWritten to {place}", show(&summaries))
}

/// The JSON output; `complete` is false if the study was stopped.
pub(crate) fn document(title: &str, finished: &[Finished], complete: bool) -> serde_json::Value {
    let entry = |run: &Finished| {
        let folder = run.folder.to_string_lossy();
        let mut entry = json!({ "seed": run.seed, "folder": folder, "summary": run.summary });
        if let Some(work) = &run.work {
            entry["work"] = json!(work);
        }
        entry
    };
    let runs: Vec<_> = finished.iter().map(entry).collect();
    let mut document = json!({ "title": title, "complete": complete, "runs": runs });
    if finished.len() > 1 {
        let summaries: Vec<_> = finished.iter().map(|run| run.summary.clone()).collect();
        document["means"] = json!(Means::of(&summaries));
    }
    document
}

/// The message after a stop: which runs are finished and kept.
pub(crate) fn kept_runs(planned: usize, finished: &[Finished]) -> String {
    const MAX_NAMED: usize = 10;
    if finished.is_empty() {
        return "no run was finished; nothing was written".to_owned();
    }
    let mut names: Vec<String> =
        finished.iter().take(MAX_NAMED).map(|run| run.folder.display().to_string()).collect();
    if finished.len() > MAX_NAMED {
        names.push(format!("and {} more", finished.len() - MAX_NAMED));
    }
    format!("kept {} of {} runs: {}", finished.len(), planned, names.join(", "))
}
