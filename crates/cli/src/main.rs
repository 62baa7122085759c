//! `ontempo`: will this media arrive on time, over this network, with this transport?

mod access;
mod address;
mod adus;
mod arguments;
mod check;
mod columns;
mod control;
mod deliver;
mod descriptors;
mod emulate;
mod emulated_traces;
mod event_log;
mod export;
mod failure;
mod gateway;
mod impair;
mod json_errors;
mod kernel;
mod limited;
mod link;
mod manifest;
mod manual;
mod means;
mod media;
mod monitor;
mod moq;
mod netvideo;
mod output;
mod page;
mod place;
mod plot;
mod probe;
mod profiles;
mod progress;
mod quality;
mod rsvp;
mod running;
mod runs;
mod seeds;
mod show;
mod signals;
mod simulate;
mod size;
mod statistics;
mod stored;
mod summary;
mod top;
mod transports;
mod wrap;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::arguments::{Arguments, Command, Documented, Reference};
use crate::failure::Failure;
use crate::json_errors::Form;
use crate::output::{columns, emit};

/// Columns that the text of `--help` takes at most.
const HELP: usize = 100;

/// The exit code for a wrong command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<_> =
        std::env::args_os().skip(1).map(|word| word.display().to_string()).collect();
    let form = || Form::asked(&Arguments::command(), &words);
    let command = Arguments::command().term_width(columns().min(HELP));
    let parsed = command.try_get_matches().and_then(|found| Arguments::from_arg_matches(&found));
    let arguments = parsed.unwrap_or_else(|error| {
        if error.use_stderr()
            && let Some(form) = form()
        {
            form.report(error.to_string().trim_end(), USAGE);
        }
        error.exit()
    });
    match run(arguments.command) {
        Ok(code) => code,
        Err(failure) => {
            if let Some(form) = form() {
                form.report(failure.text(), failure.number());
            }
            failure.report();
            failure.code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Check(arguments) => check::check(&arguments),
        Command::Simulate(arguments) => simulate::simulate(&arguments),
        Command::Emulate(arguments) => emulate::emulate(&arguments),
        Command::Link(arguments) => link::link(&arguments),
        Command::Probe(arguments) => probe::probe(&arguments),
        Command::Adus(arguments) => adus::adus(&arguments.command),
        Command::Send(arguments) => return deliver::send(&arguments),
        Command::Receive(arguments) => return deliver::receive(&arguments),
        Command::Relay(arguments) => deliver::relay(&arguments),
        Command::Publish(given) => moq::moq("publish", &given.arguments),
        Command::Subscribe(given) => moq::moq("subscribe", &given.arguments),
        Command::Summary(arguments) => stored::summary(&arguments),
        Command::Impair(arguments) => impair::impair(&arguments),
        Command::Show(arguments) => page::show(&arguments),
        Command::Kernel(arguments) => kernel::kernel(&arguments.command),
        Command::Monitor(arguments) => monitor::monitor(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Netvideo(arguments) => netvideo::netvideo(&arguments.command),
        Command::Tg(arguments) => netvideo::tg(&arguments.command),
        Command::Gateway(arguments) => gateway::gateway(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Rsvpd(arguments) => rsvp::rsvpd(&arguments),
        Command::Rsvp(arguments) => rsvp::rsvp(&arguments),
        Command::Profiles(arguments) => profiles::profiles(&arguments),
        Command::Media(arguments) => media::media(&arguments),
        Command::Schema => output::emit_json(&ontempo_scenario::json_schema()),
        Command::Manual { folder } => manual::manual(&folder),
        Command::Reference(Reference { of: Documented::Scenario }) => {
            emit(&ontempo_scenario::reference())
        }
        Command::Reference(Reference { of: Documented::Profiles }) => {
            emit(&ontempo_scenario::profiles::page())
        }
        Command::Reference(Reference { of: Documented::Tables }) => {
            emit(&ontempo_scenario::tables::tables_reference())
        }
        // These exit with the code of the command that they run.
        Command::Shell(arguments) => return emulate::shell(&arguments),
        Command::Qos(arguments) => return wrap::qos(&arguments.command),
    };
    done.map(|()| ExitCode::SUCCESS)
}
