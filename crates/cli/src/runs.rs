//! Runs a scenario with many seeds in parallel, each run into its own folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ontempo_scenario::model::Scenario;
use ontempo_simulator::{Control, RunFolder, Simulation};

use crate::failure::Failure;
use crate::manifest::{Manifest, StoredManifest, TraceEntry, WorkEntry};
use crate::progress::Progress;
use crate::summary::Summary;

/// Interval between progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The runs of one command.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    /// Seed and folder of each run.
    pub(crate) runs: Vec<(u64, PathBuf)>,
    /// Link and file of each trace.
    pub(crate) traces: Vec<(String, String)>,
    pub(crate) jobs: usize,
}

/// A run whose results are written.
pub(crate) struct Finished {
    pub(crate) seed: u64,
    pub(crate) folder: PathBuf,
    pub(crate) summary: Summary,
}

/// The finished runs, in the order of the plan, and why others are missing.
pub(crate) struct Outcome {
    pub(crate) finished: Vec<Finished>,
    pub(crate) stopped: Option<Failure>,
}

/// Runs the plan. An interrupt or a failure ends all runs; finished ones are kept.
pub(crate) fn run_all(plan: &Plan) -> Result<Outcome, Failure> {
    let jobs = plan.jobs.min(plan.runs.len()).max(1);
    let controls: Arc<[Control]> = (0..jobs).map(|_| Control::default()).collect();
    let interrupted = stop_on_interrupt(&controls)?;
    let progress = Progress::new(&plan.scenario, plan.runs.len());
    let next = AtomicUsize::new(0);
    let (report, reports) = mpsc::channel();
    let mut finished = Vec::new();
    let mut failure = None;
    thread::scope(|scope| {
        for control in controls.iter() {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                while !control.is_cancelled()
                    && let place = next.fetch_add(1, Ordering::Relaxed)
                    && let Some((seed, folder)) = plan.runs.get(place)
                {
                    let outcome = run(plan, *seed, folder, control);
                    // The receiver waits for every worker.
                    let _ = report.send((place, outcome));
                }
            });
        }
        drop(report);
        loop {
            match reports.recv_timeout(PROGRESS_INTERVAL) {
                Ok((place, Ok(Some(run)))) => finished.push((place, run)),
                Ok((_, Ok(None))) | Err(RecvTimeoutError::Timeout) => {}
                Ok((_, Err(error))) => {
                    failure.get_or_insert(error);
                    controls.iter().for_each(Control::cancel);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress.show(&controls, finished.len());
        }
    });
    progress.end();
    finished.sort_by_key(|(place, _)| *place);
    let finished: Vec<Finished> = finished.into_iter().map(|(_, run)| run).collect();
    // An interrupt after the last run has no effect.
    let is_partial = interrupted.load(Ordering::Relaxed) && finished.len() < plan.runs.len();
    let stopped =
        failure.or_else(|| is_partial.then(|| Failure::Interrupted("interrupted".to_owned())));
    Ok(Outcome { finished, stopped })
}

/// The first Ctrl-C ends the runs, the second one the program.
fn stop_on_interrupt(controls: &Arc<[Control]>) -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (controls, flag) = (controls.clone(), interrupted.clone());
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        controls.iter().for_each(Control::cancel);
    })
    .map_err(|error| Failure::Environment(format!("cannot catch Ctrl-C: {error}")))?;
    Ok(interrupted)
}

/// One run, written to `folder`; `None` if cancelled.
fn run(
    plan: &Plan,
    seed: u64,
    folder: &Path,
    control: &Control,
) -> Result<Option<Finished>, Failure> {
    let writing = |error| Failure::writing(&error);
    let mut simulation = Simulation::new(&plan.scenario, seed)?;
    let mut files = RunFolder::begin(folder).map_err(writing)?;
    let mut open = Vec::new();
    for (link, name) in &plan.traces {
        let file = files.create(name).map_err(writing)?;
        let copy = file.try_clone().map_err(writing)?;
        open.push((link, name, simulation.trace(link, copy)?, file));
    }
    let results = simulation.run(control);
    let mut traces = Vec::new();
    for (link, name, trace, file) in open {
        let packets = trace.finish().and_then(|packets| file.sync_all().map(|()| packets));
        let packets = packets.map_err(|error| {
            Failure::Environment(format!("cannot write {}: {error}", folder.join(name).display()))
        })?;
        traces.push(TraceEntry { link: link.clone(), file: name.clone(), packets });
    }
    let Ok(results) = results else { return Ok(None) };
    files.write_tables(&results.tables).map_err(writing)?;
    let work = WorkEntry::Simulated {
        events: results.work.events,
        most_packets_under_way: results.work.most_packets_under_way,
    };
    let manifest = Manifest::new(&plan.scenario, seed, &results.tables, work, &traces).to_text()?;
    // An unreadable manifest is not ours, so it lists no traces of ours.
    let earlier = StoredManifest::read(folder).ok().flatten();
    files.keep(Some(&manifest)).map_err(writing)?;
    if let Some(earlier) = earlier {
        earlier.remove_other_traces(folder, &traces);
    }
    let summary = Summary::of(&results.tables);
    Ok(Some(Finished { seed, folder: folder.to_owned(), summary }))
}
