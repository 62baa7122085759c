//! The command line.

use std::path::PathBuf;

use clap::Args;

/// What may be given.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Port to listen at: on the loopback, or on the address given before it
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub listen: String,
    /// The server: a name or an address, and a port
    #[arg(long, value_name = "HOST:PORT")]
    pub to: String,
    /// The scenario file
    #[arg(long, value_name = "FILE")]
    pub scenario: PathBuf,
    /// Set a value of the scenario; may be given several times
    #[arg(long = "set", value_name = "KEY.KEY=VALUE")]
    pub set: Vec<String>,
    /// The flow whose path is used; needed if the scenario has several flows
    #[arg(long, value_name = "GROUP.INDEX")]
    pub flow: Option<String>,
    /// Seed of the random streams; default: the scenario's seed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print JSON, one document a line: where it listens, and the counters at the end
    #[arg(long)]
    pub json: bool,
}

/// What `--help` says below the options, for a program called so.
#[macro_export]
macro_rules! impair_help {
    ($program:literal) => {
        concat!(
            "Datagrams of clients cross the forward links of one flow of the scenario to the server, answers its \
             reverse links. The scenario's own flows are not run, and its duration does not matter: Ctrl-C ends it \
             and prints the counters. Each client's address has a socket of its own towards the server. Without an \
             address, --listen means the loopback.\n\nExamples:\n  ",
            $program,
            " --listen :5000 --to 127.0.0.1:5001 --scenario line.toml\n  ",
            $program,
            " --listen 0.0.0.0:5000 --to media.example:4433 --scenario net.toml --flow video.0 --json"
        )
    };
}
