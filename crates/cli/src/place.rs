//! Outputs that a user names, also where others can write.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use ontempo_place::{Output, OutputFolder};
use ontempo_simulator::{RunFolder, lock_folder};

use crate::failure::Failure;
use crate::signals::{is_stopped, stop_flag};

/// Whether an output is refused because another user could have put there what has its name.
pub(crate) fn is_of_another_user(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

/// The failure of an output: of the command line, if another user could have put there what has its name.
pub(crate) fn output_failure(named: &str, error: &io::Error) -> Failure {
    if is_of_another_user(error) {
        Failure::Input(format!("{named}: {error}"))
    } else if error.kind() == ErrorKind::Interrupted {
        Failure::Interrupted(format!("{named}: {error}"))
    } else {
        Failure::Environment(format!("{named}: cannot be created: {error}"))
    }
}

/// Refuses an output that another user could have put there; `named` says whose it is. Other errors are
/// those of the one that makes it.
pub(crate) fn check_output(named: &str, path: &Path) -> Result<(), Failure> {
    match Output::at(path, true).map_err(|error| output_failure(named, &error)) {
        Err(failure @ Failure::Input(_)) => Err(failure),
        _ => Ok(()),
    }
}

/// The folder of `--out`, made if it is missing.
fn opened(out: &Path) -> Result<OutputFolder, Failure> {
    let path = out.display();
    OutputFolder::create(out).map_err(|error| {
        if is_of_another_user(&error) {
            return output_failure(&format!("--out {path}"), &error);
        }
        Failure::Environment(format!("cannot write {path}: {error}"))
    })
}

/// Begins a run in the folder of `--out`, which is opened once: what is checked is what is written to,
/// whatever takes its name.
pub(crate) fn begin_run(out: &Path) -> Result<RunFolder, Failure> {
    RunFolder::begin_in(opened(out)?, out).map_err(|error| Failure::writing(&error))
}

/// The folder of a study, in which each run has its own: locked as long as this is kept, so that no other
/// study writes some of the same runs.
#[must_use = "it is locked as long as this is kept"]
pub(crate) struct StudyFolder(OutputFolder);

impl StudyFolder {
    pub(crate) fn open(out: &Path) -> Result<Self, Failure> {
        let folder = opened(out)?;
        lock_folder(&folder).map_err(|error| {
            Failure::Environment(format!("cannot write {}: {error}", out.display()))
        })?;
        Ok(Self(folder))
    }
}

impl Drop for StudyFolder {
    fn drop(&mut self) {
        // Where no run was finished.
        self.0.abandon();
    }
}

/// Writes a new file, or over one that is not of another user in a folder that others can write to.
/// `named` says whose it is.
pub(crate) fn write_new(named: &str, path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| output_failure(named, &error);
    stop_flag()?;
    let place = Output::at(path, true).map_err(failed)?;
    let mut file = match place.create_new(0o666) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            place.open(is_stopped).map_err(failed)?
        }
        made => made.map_err(failed)?,
    };
    let cannot = |error| Failure::Environment(format!("cannot write {}: {error}", path.display()));
    // A pipe or a device has no length.
    if file.metadata().map_err(cannot)?.is_file() {
        file.set_len(0).map_err(cannot)?;
    }
    file.write_all(text.as_bytes()).map_err(cannot)
}
