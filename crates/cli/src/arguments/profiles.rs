//! `ontempo profiles`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Profiles {
    /// The profile to show; all are listed without one
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Write what it generates: time, rate, delay and loss as a table
    #[arg(long, value_name = "FILE", requires = "name")]
    pub(crate) csv: Option<PathBuf>,
    /// How many seconds of it
    #[arg(
        long,
        value_name = "N",
        requires = "csv",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub(crate) seconds: u64,
    /// The direction from the subscriber instead of the one to the subscriber
    #[arg(long, requires = "csv")]
    pub(crate) uplink: bool,
    /// Seed of the random streams
    #[arg(long, value_name = "N", requires = "csv", default_value_t = 1)]
    pub(crate) seed: u64,
}
