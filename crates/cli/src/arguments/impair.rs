//! `ontempo impair`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Impair {
    /// Port to listen at: on the loopback, or on the address given before it
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    pub(crate) listen: String,
    /// The server: a name or an address, and a port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// The scenario file
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: PathBuf,
    /// Set a value of the scenario; may be given several times
    #[arg(long = "set", value_name = "KEY.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The flow whose path is used; needed if the scenario has several flows
    #[arg(long, value_name = "GROUP.INDEX")]
    pub(crate) flow: Option<String>,
    /// Seed of the random streams; default: the scenario's seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print JSON, one document a line: where it listens, and the counters at the end
    #[arg(long)]
    pub(crate) json: bool,
}
