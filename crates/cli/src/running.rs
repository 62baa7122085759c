//! `ontempo shell` in a host of a running emulation.

use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use ontempo_emulator::{Hosted, hosts_of, require_program};
use signal_hook::consts::SIGINT;

use crate::arguments::{Shell, is_run_name};
use crate::failure::{Failure, environment};
use crate::output::write_stderr;
use crate::signals::set_by;

/// An emulation that another process runs.
pub(crate) struct Running {
    run: String,
    hosts: Vec<Hosted>,
}

impl Running {
    /// The emulation called `name`, if one runs; `None` if it is the path of a file.
    pub(crate) fn called(name: &Path) -> Result<Option<Self>, Failure> {
        let Some(run) = name.to_str().filter(|name| is_run_name(name)) else { return Ok(None) };
        let hosts = hosts_of(run).map_err(environment)?;
        if hosts.is_none() && !name.exists() {
            return Err(Failure::Input(format!(
                "`{run}` is neither the name of a running emulation nor a file; write ontempo \
                 shell FILE HOST, or start one with: sudo ontempo emulate FILE --out DIR --name {run}"
            )));
        }
        Ok(hosts.map(|hosts| Self { run: run.to_owned(), hosts }))
    }

    /// Runs the command in a host, with this process's input and output.
    pub(crate) fn shell(&self, arguments: &Shell) -> Result<ExitCode, Failure> {
        let Shell { host, set, hosts, .. } = arguments;
        if !set.is_empty() || hosts.ipv6 || hosts.name.is_some() {
            return Err(Failure::Input(format!(
                "{} is a running emulation: --set, --ipv6 and --name are for a scenario's file",
                self.run
            )));
        }
        let Some(hosted) = self.hosts.iter().find(|hosted| hosted.is_called(&self.run, host))
        else {
            let known: Vec<&str> = self.hosts.iter().map(|hosted| hosted.name.as_str()).collect();
            let known = ontempo_scenario::known_names(known);
            return Err(Failure::Input(format!(
                "there is no host `{host}` in {}; hosts are: {known}",
                self.run
            )));
        };
        let words = command(arguments);
        require_program(&words)?;
        if arguments.command.is_empty() {
            let lines = self.hosts.iter();
            let lines = lines.map(|one| format!("{} (namespace {})", one.name, one.namespace));
            write_stderr(&format!(
                "{}\nThis shell ends with the emulation.",
                lines.collect::<Vec<_>>().join("\n")
            ));
        }
        // Ignore Ctrl-C: the program receives it from the terminal.
        set_by(&[SIGINT], &Arc::default())?;
        let status = Command::new("ip")
            .args(["netns", "exec", &hosted.namespace])
            .args(&words)
            .status()
            .map_err(|error| Failure::Environment(format!("{host}: {error}")))?;
        Ok(code_of(status))
    }
}

/// The command that was given, or a shell.
pub(crate) fn command(arguments: &Shell) -> Vec<String> {
    let shell = || std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    if arguments.command.is_empty() { vec![shell()] } else { arguments.command.clone() }
}

/// The exit code of a command that has ended.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
