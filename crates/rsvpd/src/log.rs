//! Lines for the operator.

use serde::{Deserialize, Deserializer};

use crate::written::word;

/// How much a line matters, as syslog(3) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work until somebody acts.
    Error,
    /// Something was refused or dropped.
    Warning,
    /// The daemon, its interfaces or neighbours have changed.
    Notice,
    /// State of a flow has changed.
    Info,
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = [
            ("error", Self::Error),
            ("warning", Self::Warning),
            ("notice", Self::Notice),
            ("info", Self::Info),
        ];
        word(deserializer, r#""error", "warning", "notice" or "info""#, &words)
    }
}

impl Level {
    /// Its number in syslog(3), which journald reads from the prefix of a line (sd-daemon(3)).
    pub fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Notice => 5,
            Self::Info => 6,
        }
    }
}

/// Where lines go.
pub(crate) type Log<'a> = &'a mut dyn FnMut(Level, &str);
