//! `ontempo publish` and `ontempo subscribe`: a transport stream through a relay for Media over QUIC.
//!
//! The protocol and the conversion of MPEG-TS are the libraries' of moq-dev (`moq-net`, `moq-mux`); here is how they are
//! called, and what the user is told.

mod arguments;
mod connecting;
mod failure;
mod publish;
mod sink;
mod source;
mod subscribe;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Command, Program};
use failure::Failure;

fn main() -> ExitCode {
    let program = Program::parse();
    let json = match &program.command {
        Command::Publish(arguments) => arguments.relay.json,
        Command::Subscribe(arguments) => arguments.relay.json,
    };
    match run(&program.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may read it any more; the exit code says it, too.
            let _ = writeln!(std::io::stderr(), "ontempo: {failure}");
            if json {
                let text = failure.to_string();
                let document = serde_json::json!({ "event": "failed", "text": text, "exit_code": failure.number() });
                let _ = writeln!(std::io::stdout(), "{document}");
            }
            ExitCode::from(failure.number())
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Environment(format!("no threads: {error}")))?;
    let done = runtime.block_on(async {
        match command {
            Command::Publish(arguments) => publish::publish(arguments).await,
            Command::Subscribe(arguments) => subscribe::subscribe(arguments).await,
        }
    });
    // A read of standard input cannot be interrupted: it is left behind.
    runtime.shutdown_background();
    done
}
