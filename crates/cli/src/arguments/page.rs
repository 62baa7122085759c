//! `ontempo show`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Folder of a run, of a study with its folders seed-N, or of qlog traces; or a trace (.sqlog).
    /// Several are drawn on the same axes
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// The page; default: RUN/show.html, or show.html here for several runs or a trace
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file even if it is no page of this command
    #[arg(long)]
    pub(crate) force: bool,
    /// Open the page in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Print what was read and written as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
