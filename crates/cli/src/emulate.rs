//! `ontempo emulate` and `ontempo shell`: a scenario with real packets, in real time.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ontempo_emulator::{
    Control, Emulation, EmulationError, ForwardingReport, Lateness, Options, Results, Version,
};
use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, load_with};
use ontempo_simulator::{REPEAT, RunFolder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::{Emulate, Hosts, Shell};
use crate::check::{load, not_emulated};
use crate::control::Control as Commands;
use crate::emulated_traces::{Traces, Unfinished, both};
use crate::failure::Failure;
use crate::manifest::{EmulatedWork, StoredManifest, of_emulation};
use crate::output::{emit, emit_json, write_stderr};
use crate::place::begin_run;
use crate::progress::RealTimeProgress;
use crate::running::{Running, code_of, command};
use crate::runs::Finished;
use crate::seeds;
use crate::signals::set_by;
use crate::simulate::{begin_study, document, kept_runs, text, traces};
use crate::size::require_bearable_in_emulation;
use crate::summary::Summary;

pub(crate) fn emulate(arguments: &Emulate) -> Result<(), Failure> {
    let scenario = load(&arguments.input)?;
    let seed = arguments.seed.unwrap_or(scenario.seed);
    let runs = seeds::runs(arguments.seeds.as_ref(), seed, &arguments.out);
    let traces = traces(&scenario, &arguments.trace, arguments.input.json)?;
    let given = (arguments.input.file.as_path(), &*arguments.input.set);
    if let Some(why) = not_emulated(&scenario, given, arguments.hosts.version())? {
        return Err(Failure::Input(why));
    }
    if !arguments.any_size {
        require_bearable_in_emulation(&scenario)?;
    }
    let _locked = match arguments.seeds {
        Some(_) => Some(begin_study(&arguments.out, &scenario, &runs)?),
        None => None,
    };
    remove_leftovers();
    let control = stop_on_signal()?;
    let mut finished = Vec::new();
    let mut reports = Vec::new();
    let mut stopped = None;
    for (seed, folder) in &runs {
        match run(arguments, &scenario, &traces, (*seed, folder), &control) {
            Ok((run, report)) => {
                finished.push(run);
                reports.push(forwarded(&report));
            }
            Err(failure) if arguments.seeds.is_none() => return Err(failure),
            Err(failure) => {
                stopped = Some(failure);
                break;
            }
        }
    }
    if arguments.input.json {
        emit_json(&document(&scenario.title, &finished, stopped.is_none()))?;
    } else if !finished.is_empty() && stopped.is_none() {
        emit(&text(&scenario.title, &finished, &arguments.out, Some(&reports.join("\n"))))?;
    }
    match stopped {
        Some(failure) => Err(failure.and(&kept_runs(runs.len(), &finished))),
        None => Ok(()),
    }
}

/// One run, written to its folder.
fn run(
    arguments: &Emulate,
    scenario: &Scenario,
    traces: &[(String, String)],
    (seed, out): (u64, &Path),
    control: &Control,
) -> Result<(Finished, ForwardingReport), Failure> {
    let writing = |error| Failure::writing(&error);
    let options = options(seed, &arguments.hosts);
    let mut emulation = Emulation::new(scenario, options)?;
    emulation.warnings().iter().for_each(|warning| write_stderr(warning));
    let mut files = begin_run(out)?;
    let traces = Traces::begin(&mut emulation, &mut files, traces, out, control)?;
    let commands = arguments.control.then(|| take_commands(&mut emulation)).transpose()?;
    let progress = RealTimeProgress::start(scenario);
    let results = emulation.run(control);
    progress.end();
    drop(commands);
    let traces = traces.finish();
    let hangs = traces.as_ref().is_err_and(Unfinished::hangs);
    let (results, traces) = match both(results, traces) {
        Err(failure) if hangs => {
            // To remove files would hang, too; the next run does.
            std::mem::forget(files);
            return Err(failure);
        }
        ended => ended?,
    };
    let Results { tables, report, logs, changed, standstills } = results;
    report.warnings().iter().for_each(|warning| write_stderr(warning));
    for log in &logs {
        let mut file = files.create(&format!("{}.log", log.label)).map_err(writing)?;
        file.write_all(&log.text).map_err(writing)?;
    }
    files.write_tables(&tables).map_err(writing)?;
    if let Some(changed) = changed {
        write_repeat(&mut files, &changed, arguments.hosts.ipv6).map_err(writing)?;
    }
    let work = work(&report);
    let mut summary = Summary::of(&tables);
    summary.standstills = standstills.into_iter().map(Into::into).collect();
    let standstills = &summary.standstills;
    let manifest = of_emulation((scenario, seed), &tables, &work, standstills, &traces)?;
    files.replaces(StoredManifest::traces_besides(&files, &traces));
    files.keep(Some(&manifest)).map_err(writing)?;
    let folder = out.to_owned();
    Ok((Finished { seed, folder, summary, work: Some(work) }, report))
}

/// Takes commands for `emulation`, and says how to give some.
fn take_commands(emulation: &mut Emulation<'_>) -> Result<Commands, Failure> {
    let links = emulation.links()?;
    let run = emulation.name();
    let commands = Commands::start(run, links)?;
    write_stderr(&format!("{run}: list and change its links with: ontempo link {run}"));
    Ok(commands)
}

/// Writes the scenario of a run that was changed while it ran.
fn write_repeat(files: &mut RunFolder, changed: &Scenario, ipv6: bool) -> io::Result<()> {
    let text = match changed.to_toml() {
        Ok(text) => text,
        Err(error) => {
            write_stderr(&format!("{REPEAT} cannot be written: {error}"));
            return Ok(());
        }
    };
    let option = if ipv6 { " --ipv6" } else { "" };
    let head = format!(
        "# The scenario of this run, with the changes that were made while it ran:\n\
         # sudo ontempo emulate {REPEAT} --out again{option}\n\n"
    );
    files.create(REPEAT)?.write_all((head + &text).as_bytes())
}

impl Hosts {
    fn version(&self) -> Version {
        if self.ipv6 { Version::V6 } else { Version::V4 }
    }
}

fn options(seed: u64, hosts: &Hosts) -> Options {
    Options { seed, version: hosts.version(), name: hosts.name.clone() }
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
    if let Some(running) = Running::called(&arguments.file)? {
        return running.shell(arguments);
    }
    let overrides = Overrides::parse(&arguments.set)?;
    let scenario = load_with(&arguments.file, &overrides)?;
    let given = (arguments.file.as_path(), &*arguments.set);
    if let Some(why) = not_emulated(&scenario, given, arguments.hosts.version())? {
        return Err(Failure::Input(why));
    }
    remove_leftovers();
    let control = Control::default();
    // Ignore Ctrl-C: the program receives it from the terminal.
    set_by(&[SIGINT], &Arc::default())?;
    set_by(&[SIGTERM, SIGHUP], &control.flag())?;
    let emulation = Emulation::new(&scenario, options(scenario.seed, &arguments.hosts))?;
    emulation.warnings().iter().for_each(|warning| write_stderr(warning));
    let command = command(arguments);
    if arguments.command.is_empty() {
        write_stderr(&format!(
            "{}\nWhen this shell exits, the network is removed.",
            hosts(&emulation)
        ));
    }
    let status = emulation.shell(&arguments.host, &command, &control)?;
    Ok(code_of(status))
}

fn hosts(emulation: &Emulation<'_>) -> String {
    let line = |(name, namespace, addresses): (&str, &str, Vec<IpAddr>)| {
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        format!("{name}: {} (namespace {namespace})", addresses.join(", "))
    };
    emulation.hosts().map(line).collect::<Vec<_>>().join("\n")
}

fn work(report: &ForwardingReport) -> EmulatedWork {
    let late = |lateness: &Lateness, share| lateness.quantile(share).as_secs_f64();
    let ForwardingReport { lateness, sending, .. } = report;
    EmulatedWork {
        packets: report.packets,
        refused_packets: report.refused,
        lateness_p50_s: late(lateness, 0.5),
        lateness_p99_s: late(lateness, 0.99),
        lateness_max_s: lateness.most().as_secs_f64(),
        units: sending.count(),
        sending_lateness_p50_s: late(sending, 0.5),
        sending_lateness_p99_s: late(sending, 0.99),
        sending_lateness_max_s: sending.most().as_secs_f64(),
    }
}

/// Sentences about how late packets left the network, and applications sent.
fn forwarded(report: &ForwardingReport) -> String {
    let late = |lateness: &Lateness| {
        let [median, most_of] = [0.5, 0.99].map(|share| lateness.quantile(share));
        format!("median {median}, 99th percentile {most_of}, at most {}", lateness.most())
    };
    let units = match report.sending.count() {
        0 => "no unit had a time at which to be sent.".to_owned(),
        units => format!("lateness of {units} units sent: {}.", late(&report.sending)),
    };
    format!(
        "{} packets forwarded; lateness of the emulator: {}.\nApplications: {units}",
        report.packets,
        late(&report.lateness),
    )
}

impl From<EmulationError> for Failure {
    fn from(error: EmulationError) -> Self {
        match error {
            EmulationError::Input(what) => Self::Input(what),
            refused @ EmulationError::Refused { .. } => Self::Input(refused.to_string()),
            EmulationError::System(what) => Self::Environment(what),
            EmulationError::Cancelled => {
                Self::Interrupted("interrupted; nothing was written".to_owned())
            }
        }
    }
}
