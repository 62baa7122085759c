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
    /// Run an unmodified program with DSCP marking, reservation and monitoring
    #[command(after_help = "\
The sockets of the program and its child processes are marked with the DSCP that fits the \
specification: accepted connections at once, other sockets a few tens of ms after they are created. \
With --reserve controlled-load, this host's RSVP daemon reserves for its connections; the program at the \
other end must be run in the same way. What is reserved is marked as the network asks for, if it does. `ontempo monitor` shows the throughput of its TCP connections.

Marking and reservations end with the program; the exit code is the program's.

Example:
  ontempo qos run --spec video.toml --reserve controlled-load --direction send -- curl -T film.ts host.example")]
    Run(WrappedRun),
}

#[derive(Debug, Args)]
pub(crate) struct WrappedRun {
    /// The specification of each connection: a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: PathBuf,
    /// Service to reserve through this host's RSVP daemon
    #[arg(long, value_name = "SERVICE", default_value = "none")]
    pub(crate) reserve: Service,
    /// Direction of the connections that the specification applies to
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

/// Direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlowDirection {
    /// Sent by the client of the connection, or by the program
    Send,
    /// Received by it
    Receive,
    /// Both
    Both,
}
