//! `ontempo qos run`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::qosockets::Service;

#[derive(Debug, Args)]
pub(crate) struct Qos {
    #[command(subcommand)]
    pub(crate) command: QosCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QosCommand {
    /// Run a program that knows nothing of quality of service with marking, reservation and monitoring
    #[command(after_help = "\
The sockets of the program and of all that it starts are marked with the code point that fits the \
specification, from a few hundredths of a second after they are made; those that it accepts, at once. \
With --reserve controlled-load its connections are announced to this host's RSVP daemon, and reserved for: the program at \
the other end is to be run in the same way. `ontempo monitor` shows the throughput of its TCP connections.

All ends with the program; the exit code is the program's.

Example:
  ontempo qos run --spec video.toml --reserve controlled-load --direction send -- curl -T film.ts host.example")]
    Run(WrappedRun),
}

#[derive(Debug, Args)]
pub(crate) struct WrappedRun {
    /// The specification of what each connection carries: a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: PathBuf,
    /// What this host's RSVP daemon is asked for
    #[arg(long, value_name = "SERVICE", default_value = "none")]
    pub(crate) reserve: Service,
    /// Which direction of its connections is meant
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub(crate) direction: FlowDirection,
    /// The program and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<String>,
}

/// Directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlowDirection {
    /// What the client of a connection, or the program, sends
    Send,
    /// What it receives
    Receive,
    /// Both
    Both,
}
