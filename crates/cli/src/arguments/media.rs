//! `ontempo media`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Media {
    /// The film: a transport stream (.ts), or any file that ffmpeg reads
    #[arg(value_name = "FILE", required_unless_present = "generate")]
    pub(crate) file: Option<PathBuf>,
    /// Make up a film instead, of NAME=VALUE with commas between them: rate, pictures, key, b, sizes,
    /// vary, cbr, sound, duration, seed, codec (docs/media.md)
    #[arg(long, value_name = "PARAMETERS", conflicts_with = "file", num_args = 0..=1, default_missing_value = "")]
    pub(crate) generate: Option<String>,
    /// Write the table of its frames: time, type, size and dependencies of each
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) frames: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
