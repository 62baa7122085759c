use core::fmt;

/// Why the daemon does not start, or ends.
#[derive(Debug)]
pub enum DaemonError {
    /// The configuration is wrong.
    Input(String),
    /// The system, or its user's rights.
    System(String),
}

impl DaemonError {
    pub(crate) fn system(what: &str, error: &dyn fmt::Display) -> Self {
        Self::System(format!("{what}: {error}"))
    }
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(what) | Self::System(what)) = self;
        f.write_str(what)
    }
}

impl core::error::Error for DaemonError {}
