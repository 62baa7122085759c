use std::path::PathBuf;

use clap::Args;

use super::Input;
use crate::seeds::Seeds;

#[derive(Debug, Args)]
pub(crate) struct Emulate {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Folder for the results, created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Seed of the random streams; default: the scenario's seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    /// Several seeds, one run after another, each in a folder DIR/seed-N: 1..4 (inclusive), or 0,3,5..7
    #[arg(long, value_name = "LIST")]
    pub(crate) seeds: Option<Seeds>,
    /// Capture the packets of a link in LINK.pcapng; may be given several times
    #[arg(long, value_name = "LINK")]
    pub(crate) trace: Vec<String>,
    /// Take commands of `ontempo link` while it runs, and write repeat.toml
    #[arg(long, conflicts_with = "seeds")]
    pub(crate) control: bool,
    /// Run it even if its results are estimated to take more memory than is free
    #[arg(long)]
    pub(crate) any_size: bool,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
}

#[derive(Debug, Args)]
#[command(override_usage = "ontempo link [OPTIONS] [RUN] [LINK] [KEY=VALUE]...")]
pub(crate) struct Link {
    /// The emulation, unless only one runs; the link; its new values: rate, delay, loss
    #[arg(value_name = "RUN|LINK|KEY=VALUE")]
    pub(crate) words: Vec<String>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// The scenario file, or the name of a running emulation
    #[arg(value_name = "FILE|RUN")]
    pub(crate) file: PathBuf,
    /// The host: GROUP.INDEX.source or GROUP.INDEX.sink, or a node of a graph
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The command to run there; default: $SHELL
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// Set a value of the scenario; may be given several times
    #[arg(long = "set", value_name = "KEY.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
}

/// Options for the hosts of an emulation.
#[derive(Debug, Args)]
pub(crate) struct Hosts {
    /// Let flows use IPv6; hosts have addresses of both versions
    #[arg(long)]
    pub(crate) ipv6: bool,
    /// Name of the run, part of its namespaces' names; default: a number
    #[arg(long, value_name = "RUN", value_parser = run_name)]
    pub(crate) name: Option<String>,
}

/// Whether a text is a run's name: 1 to 32 letters, digits and underscores, as it becomes part of file
/// names.
pub(crate) fn is_run_name(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (1..=32).contains(&text.len()) && text.chars().all(is_plain)
}

fn run_name(text: &str) -> Result<String, String> {
    if is_run_name(text) {
        return Ok(text.to_owned());
    }
    Err("a name of 1 to 32 letters, digits and underscores is needed".to_owned())
}
