use std::fmt;
use std::io;
use std::path::Path;

use ontempo_runtime::ReadError;

/// Why a run cannot be read.
#[derive(Debug)]
pub enum PageError {
    /// What was named is no run: the sentence names the path and what would be right.
    Input(String),
    /// A file that cannot be read, is damaged, or of another version.
    Environment(String),
}

impl PageError {
    pub(crate) fn reading(path: &Path, error: &io::Error) -> Self {
        Self::Environment(format!("cannot read {}: {error}", path.display()))
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(what) | Self::Environment(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PageError {}

impl From<ReadError> for PageError {
    fn from(error: ReadError) -> Self {
        Self::Environment(error.to_string())
    }
}
