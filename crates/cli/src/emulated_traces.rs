//! The packet traces of an emulation.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ontempo_emulator::{Control, Emulation, Trace, Traced};
use ontempo_simulator::RunFolder;

use crate::failure::Failure;
use crate::manifest::TraceEntry;
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

    /// Ends the traces after the run; an interruption, if it was cancelled and the disk hangs.
    pub(crate) fn finish(self) -> Result<Vec<TraceEntry>, Failure> {
        let mut entries = Vec::new();
        for (link, file, path, trace) in self.0 {
            let path = path.display();
            let ended = trace.finish().map_err(|error| match error.kind() {
                ErrorKind::TimedOut => Failure::Interrupted(format!(
                    "interrupted while the disk takes nothing: {path} is not written"
                )),
                _ => Failure::Environment(format!("cannot write {path}: {error}")),
            });
            let Traced { packets, missed } = ended?;
            if missed > 0 {
                write_stderr(&format!(
                    "{file} lacks {missed} packets: the disk was slower than the link"
                ));
            }
            entries.push(TraceEntry { link, file, packets });
        }
        Ok(entries)
    }
}
