//! Runs a scenario with many seeds in parallel, each run into its own folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ontempo_scenario::model::Scenario;
use ontempo_simulator::{Control, RunFolder, Simulation, TraceEntry};

use crate::failure::Failure;
use crate::manifest::{EmulatedWork, StoredManifest, unwritten};
use crate::place::begin_run;
use crate::progress::Progress;
use crate::summary::Summary;

/// Interval between progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Runs that wait for the disk at the same time, while others are simulated. One that waits holds three
/// descriptors and no table, and the disk takes several in little more than the time of one.
const KEEPERS: usize = 8;

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
    /// Of an emulated run.
    pub(crate) work: Option<EmulatedWork>,
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
    let (hand_on, written) = mpsc::sync_channel(0);
    let written = Arc::new(Mutex::new(written));
    let mut finished = Vec::new();
    let mut failure = None;
    thread::scope(|scope| {
        for control in controls.iter() {
            let (hand_on, report, next) = (hand_on.clone(), report.clone(), &next);
            scope.spawn(move || simulate_runs(plan, next, control, &hand_on, &report));
        }
        for _ in 0..KEEPERS.min(plan.runs.len()) {
            let (written, report) = (written.clone(), report.clone());
            scope.spawn(move || keep_runs(&written, &report));
        }
        // Only the threads hold the ends of the channels, so that these end with them.
        drop((hand_on, written));
        drop(report);
        loop {
            match reports.recv_timeout(PROGRESS_INTERVAL) {
                Ok((place, Ok(run))) => finished.push((place, run)),
                Err(RecvTimeoutError::Timeout) => {}
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

/// The place of a run in the plan, and what became of it.
type Report = (usize, Result<Finished, Failure>);

/// Simulates runs of the plan until there are no more, and hands them on to be kept.
fn simulate_runs<'a>(
    plan: &'a Plan,
    next: &AtomicUsize,
    control: &Control,
    hand_on: &SyncSender<(usize, Written<'a>)>,
    report: &Sender<Report>,
) {
    while !control.is_cancelled()
        && let place = next.fetch_add(1, Ordering::Relaxed)
        && let Some((seed, folder)) = plan.runs.get(place)
    {
        // The receivers wait for every worker.
        match run(plan, *seed, folder, control) {
            Ok(Some(written)) => drop(hand_on.send((place, written))),
            Ok(None) => {}
            Err(error) => drop(report.send((place, Err(error)))),
        }
    }
}

/// Keeps what is handed on, until nobody is left who would hand on more.
fn keep_runs(written: &Mutex<Receiver<(usize, Written<'_>)>>, report: &Sender<Report>) {
    let next = || written.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok((place, run)) = next() {
        // The receiver waits for every keeper.
        let _ = report.send((place, run.keep()));
    }
}

/// A run whose files are written, but neither on disk for certain nor under their final names.
struct Written<'a> {
    seed: u64,
    folder: &'a Path,
    files: RunFolder,
    manifest: String,
    traces: Vec<TraceEntry>,
    summary: Summary,
}

/// One run; `None` if cancelled.
fn run<'a>(
    plan: &Plan,
    seed: u64,
    folder: &'a Path,
    control: &Control,
) -> Result<Option<Written<'a>>, Failure> {
    let writing = |error| Failure::writing(&error);
    let mut simulation = Simulation::new(&plan.scenario, seed)?;
    let mut files = begin_run(folder)?;
    let mut open = Vec::new();
    for (link, name) in &plan.traces {
        let file = files.create(name).map_err(writing)?;
        open.push((link, name, simulation.trace(link, file)?));
    }
    let results = simulation.run(control);
    let mut traces = Vec::new();
    for (link, name, trace) in open {
        let packets = trace.finish().map_err(|error| {
            Failure::Environment(format!("cannot write {}: {error}", folder.join(name).display()))
        })?;
        traces.push(TraceEntry { link: link.clone(), file: name.clone(), packets });
    }
    let Ok(results) = results else { return Ok(None) };
    files.write_tables(&results.tables).map_err(writing)?;
    let manifest = results.manifest(&plan.scenario, seed, &traces);
    let manifest = manifest.map_err(|error| unwritten(&error))?;
    let mut summary = Summary::of(&results.tables);
    summary.standstills = results.standstills.into_iter().map(Into::into).collect();
    Ok(Some(Written { seed, folder, files, manifest, traces, summary }))
}

impl Written<'_> {
    /// Puts the files on disk and under their final names.
    fn keep(self) -> Result<Finished, Failure> {
        let Self { seed, folder, mut files, manifest, traces, summary } = self;
        files.replaces(StoredManifest::traces_besides(&files, &traces));
        files.keep(Some(&manifest)).map_err(|error| Failure::writing(&error))?;
        Ok(Finished { seed, folder: folder.to_owned(), summary, work: None })
    }
}
