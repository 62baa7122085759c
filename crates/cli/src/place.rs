//! Outputs that a user names, also where others can write.

use std::io::{self, ErrorKind};
use std::path::Path;

use ontempo_place::{Output, OutputFolder};
use ontempo_simulator::RunFolder;

use crate::failure::Failure;

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

/// Begins a run in the folder of `--out`, which is opened once: what is checked is what is written to,
/// whatever takes its name.
pub(crate) fn begin_run(out: &Path) -> Result<RunFolder, Failure> {
    let path = out.display();
    let folder = OutputFolder::create(out).map_err(|error| {
        if is_of_another_user(&error) {
            return output_failure(&format!("--out {path}"), &error);
        }
        Failure::Environment(format!("cannot write {path}: {error}"))
    })?;
    RunFolder::begin_in(folder, out).map_err(|error| Failure::writing(&error))
}
