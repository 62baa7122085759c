//! `ontempo emulate` and `ontempo shell`: a scenario with real packets, in real time.

use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;

use ontempo_emulator::{
    Control, Emulation, EmulationError, ForwardingReport, Options, Results, Version,
};
use ontempo_scenario::{Overrides, load_with};
use ontempo_simulator::RunFolder;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::{Emulate, Hosts, Shell};
use crate::check::load;
use crate::failure::Failure;
use crate::manifest::{Manifest, StoredManifest, WorkEntry};
use crate::output::{emit, emit_json, write_stderr};
use crate::place::check_output;
use crate::progress::RealTimeProgress;
use crate::runs::Finished;
use crate::show::show;
use crate::signals::set_by;
use crate::simulate::document;
use crate::summary::Summary;

pub(crate) fn emulate(arguments: &Emulate) -> Result<(), Failure> {
    let scenario = load(&arguments.input)?;
    let seed = arguments.seed.unwrap_or(scenario.seed);
    remove_leftovers();
    let control = stop_on_signal()?;
    let writing = |error| Failure::writing(&error);
    let options = options(seed, &arguments.hosts);
    let emulation = Emulation::new(&scenario, options)?;
    emulation.warnings().iter().for_each(|warning| write_stderr(warning));
    check_output(&format!("--out {}", arguments.out.display()), &arguments.out)?;
    let mut files = RunFolder::begin(&arguments.out).map_err(writing)?;
    let progress = RealTimeProgress::start(&scenario);
    let results = emulation.run(&control);
    progress.end();
    let Results { tables, report, logs } = results?;
    report.warnings().iter().for_each(|warning| write_stderr(warning));
    for log in &logs {
        let mut file = files.create(&format!("{}.log", log.label)).map_err(writing)?;
        file.write_all(&log.text).map_err(writing)?;
    }
    files.write_tables(&tables).map_err(writing)?;
    let manifest = Manifest::new(&scenario, seed, &tables, work(&report), &[]).to_text()?;
    let earlier = StoredManifest::read(&arguments.out).ok().flatten();
    files.keep(Some(&manifest)).map_err(writing)?;
    if let Some(earlier) = earlier {
        earlier.remove_other_traces(&arguments.out, &[]);
    }
    let finished = Finished { seed, folder: arguments.out.clone(), summary: Summary::of(&tables) };
    if arguments.input.json {
        return emit_json(&document(&scenario.title, &[finished], true));
    }
    let title = &scenario.title;
    let title = if title.is_empty() { String::new() } else { format!("{title}\n\n") };
    let summary = show(&[finished.summary]);
    let place = arguments.out.display();
    emit(&format!("{title}{summary}\n\n{}\n\nWritten to {place}", forwarded(&report)))
}

fn options(seed: u64, hosts: &Hosts) -> Options {
    let version = if hosts.ipv6 { Version::V6 } else { Version::V4 };
    Options { seed, version, name: hosts.name.clone() }
}

/// Removes namespaces of killed runs. A failure is only a warning.
fn remove_leftovers() {
    match ontempo_emulator::remove_leftovers() {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => {
            write_stderr(&format!("removed what a killed run left: {}", removed.join(", ")))
        }
        Err(error) => write_stderr(&format!("cannot look for leftovers of killed runs: {error}")),
    }
}

/// SIGINT, SIGTERM and SIGHUP end the run, which then removes its namespaces.
fn stop_on_signal() -> Result<Control, Failure> {
    let control = Control::default();
    set_by(&[SIGINT, SIGTERM, SIGHUP], &control.flag())?;
    Ok(control)
}

/// `ontempo shell`: runs a program on one host of the network.
pub(crate) fn shell(arguments: &Shell) -> Result<ExitCode, Failure> {
    let overrides = Overrides::parse(&arguments.set)?;
    let scenario = load_with(&arguments.file, &overrides)?;
    remove_leftovers();
    let control = Control::default();
    // Ignore Ctrl-C: the program receives it from the terminal.
    set_by(&[SIGINT], &Arc::default())?;
    set_by(&[SIGTERM, SIGHUP], &control.flag())?;
    let emulation = Emulation::new(&scenario, options(scenario.seed, &arguments.hosts))?;
    emulation.warnings().iter().for_each(|warning| write_stderr(warning));
    let shell = || std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let command =
        if arguments.command.is_empty() { vec![shell()] } else { arguments.command.clone() };
    if arguments.command.is_empty() {
        write_stderr(&format!(
            "{}\nWhen this shell exits, the network is removed.",
            hosts(&emulation)
        ));
    }
    let status = emulation.shell(&arguments.host, &command, &control)?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn hosts(emulation: &Emulation<'_>) -> String {
    let line = |(name, namespace, addresses): (&str, &str, Vec<IpAddr>)| {
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        format!("{name}: {} (namespace {namespace})", addresses.join(", "))
    };
    emulation.hosts().map(line).collect::<Vec<_>>().join("\n")
}

fn work(report: &ForwardingReport) -> WorkEntry {
    WorkEntry::Emulated {
        packets: report.packets,
        refused_packets: report.refused,
        lateness_p50_s: report.lateness.quantile(0.5).as_secs_f64(),
        lateness_p99_s: report.lateness.quantile(0.99).as_secs_f64(),
    }
}

/// One sentence about the emulator's own delay of packets.
fn forwarded(report: &ForwardingReport) -> String {
    let late = |share| report.lateness.quantile(share);
    format!(
        "{} packets forwarded; lateness of the emulator: median {}, 99th percentile {}.",
        report.packets,
        late(0.5),
        late(0.99)
    )
}

impl From<EmulationError> for Failure {
    fn from(error: EmulationError) -> Self {
        match error {
            EmulationError::Input(what) => Self::Input(what),
            EmulationError::System(what) => Self::Environment(what),
            EmulationError::Cancelled => {
                Self::Interrupted("interrupted; nothing was written".to_owned())
            }
        }
    }
}
