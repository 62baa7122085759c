//! `ontempo publish` and `ontempo subscribe`: run `ontempo-moq`, a program of its own.
//!
//! Media over QUIC brings a QUIC stack and demultiplexers of its own, which would be linked into this program for everybody.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::emit;

const PROGRAM: &str = "ontempo-moq";

/// Becomes `ontempo-moq`, that beside this program or else that of `PATH`. Where there is none, it prints the help that
/// was asked for, or fails.
pub(crate) fn moq(command: &str, arguments: &[OsString]) -> Result<(), Failure> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let found = beside.filter(|program| program.is_file());
    let program = found.as_deref().map_or(OsStr::new(PROGRAM), |program| program.as_os_str());
    let error = Command::new(program).arg(command).args(arguments).exec();
    let asks_help = arguments.iter().any(|word| word == "--help" || word == "-h");
    let what = match error.kind() {
        ErrorKind::NotFound if asks_help => return emit(&help(command)),
        ErrorKind::NotFound => format!(
            "{PROGRAM} is neither beside this program nor in PATH: `make moq` builds it, and `make \
             install-moq` installs it"
        ),
        _ => format!("{}: {error}", program.to_string_lossy()),
    };
    Err(Failure::Environment(format!("ontempo {command}: {what}")))
}

/// What this program knows of a command that it does not do itself.
fn help(command: &str) -> String {
    let mut all = Arguments::command();
    let found = all.find_subcommand_mut(command);
    let help = found.map_or_else(String::new, |found| {
        found.clone().bin_name(format!("ontempo {command}")).render_long_help().to_string()
    });
    format!("{help}\n{PROGRAM} is not installed here: `make moq` builds it.\n")
}
