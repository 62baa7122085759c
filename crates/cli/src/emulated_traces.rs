//! The packet traces of an emulation.

use std::path::{Path, PathBuf};

use ontempo_emulator::{Control, Emulation, EmulationError, Trace, TraceError, Traced};
use ontempo_simulator::{RunFolder, TraceEntry};

use crate::failure::Failure;
use crate::output::write_stderr;

/// Traces in progress: link, file, and where it will be.
pub(crate) struct Traces(Vec<(String, String, PathBuf, Trace)>);

impl Traces {
    /// Begins the traces of `links`, each with its file in `files`, the folder `out`.
    pub(crate) fn begin(
        emulation: &mut Emulation<'_>,
        files: &mut RunFolder,
        links: &[(String, String)],
        out: &Path,
        control: &Control,
    ) -> Result<Self, Failure> {
        let mut open = Vec::new();
        for (link, name) in links {
            let file = files.create(name).map_err(|error| Failure::writing(&error))?;
            let trace = emulation.trace(link, file, control)?;
            open.push((link.clone(), name.clone(), out.join(name), trace));
        }
        Ok(Self(open))
    }

    /// Ends the traces after the run.
    pub(crate) fn finish(self) -> Result<Vec<TraceEntry>, Unfinished> {
        let mut entries = Vec::new();
        let mut cancelled = None;
        for (link, file, path, trace) in self.0 {
            let Traced { packets, missed } = match trace.finish() {
                Ok(traced) => traced,
                Err(why @ TraceError::Cancelled) => {
                    // The disk of the next may hang.
                    cancelled = Some(Unfinished { path, why });
                    continue;
                }
                Err(why) => return Err(Unfinished { path, why }),
            };
            if missed > 0 {
                write_stderr(&format!(
                    "{file} lacks {missed} packets: the disk was slower than the link"
                ));
            }
            entries.push(TraceEntry { link, file, packets });
        }
        cancelled.map_or(Ok(entries), Err)
    }
}

/// A trace that is not whole: where it would be, and why.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
    why: TraceError,
}

impl Unfinished {
    /// Whether the disk takes nothing.
    pub(crate) fn hangs(&self) -> bool {
        matches!(self.why, TraceError::Hangs)
    }
}

impl From<Unfinished> for Failure {
    fn from(Unfinished { path, why }: Unfinished) -> Self {
        let path = path.display();
        match why {
            TraceError::Cancelled => EmulationError::Cancelled.into(),
            TraceError::Hangs => Self::Interrupted(format!(
                "interrupted while the disk takes nothing: {path} is not written"
            )),
            TraceError::Write(error) => Self::Environment(format!("cannot write {path}: {error}")),
        }
    }
}

/// What a run and its traces came to. A run that fails cancels its traces, so that its own error comes
/// before theirs.
pub(crate) fn both<T>(
    run: Result<T, EmulationError>,
    traces: Result<Vec<TraceEntry>, Unfinished>,
) -> Result<(T, Vec<TraceEntry>), Failure> {
    match (run, traces) {
        (Ok(results), Ok(traces)) => Ok((results, traces)),
        (Ok(_) | Err(EmulationError::Cancelled), Err(unfinished)) => Err(unfinished.into()),
        (Err(error), _) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    fn failure(run: Result<(), EmulationError>, why: TraceError) -> Failure {
        let unfinished = Unfinished { path: "run/a.pcapng".into(), why };
        both(run, Err(unfinished)).expect_err("a failure")
    }

    #[test]
    fn a_disk_that_times_out_is_no_interruption() {
        let timed_out = || TraceError::Write(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        assert_eq!(io::Error::from_raw_os_error(libc::ETIMEDOUT).kind(), ErrorKind::TimedOut);
        for run in [Ok(()), Err(EmulationError::Cancelled)] {
            let failure = failure(run, timed_out());
            assert!(
                matches!(&failure, Failure::Environment(what) if what.starts_with("cannot write run/a.pcapng: ")),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn why_a_run_failed_is_said_before_that_its_traces_were_cancelled_by_that() {
        for why in [TraceError::Hangs, TraceError::Cancelled] {
            let failure = failure(Err(EmulationError::System("no device".to_owned())), why);
            assert!(
                matches!(&failure, Failure::Environment(what) if what == "no device"),
                "{failure:?}"
            );
        }
        for run in [Ok(()), Err(EmulationError::Cancelled)] {
            let failure = failure(run, TraceError::Hangs);
            assert!(
                matches!(&failure, Failure::Interrupted(what) if what.contains("run/a.pcapng")),
                "{failure:?}"
            );
        }
    }
}
