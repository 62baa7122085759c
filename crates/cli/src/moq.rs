//! `ontempo publish` and `ontempo subscribe`: run `ontempo-moq`, a program of its own.
//!
//! Media over QUIC brings a QUIC stack and demultiplexers of its own, which would be linked into this program for everybody.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::Failure;

const PROGRAM: &str = "ontempo-moq";

/// Becomes `ontempo-moq`, that beside this program or else that of `PATH`; returns if there is none.
pub(crate) fn moq(command: &str, arguments: &[OsString]) -> Result<(), Failure> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let found = beside.filter(|program| program.is_file());
    let program = found.as_deref().map_or(OsStr::new(PROGRAM), |program| program.as_os_str());
    let error = Command::new(program).arg(command).args(arguments).exec();
    let what = match error.kind() {
        ErrorKind::NotFound => format!(
            "{PROGRAM} is neither beside this program nor in PATH: `make moq` builds it, and `make \
             install-moq` installs it"
        ),
        _ => format!("{}: {error}", program.to_string_lossy()),
    };
    Err(Failure::Environment(format!("ontempo {command}: {what}")))
}
