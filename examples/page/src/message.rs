//! The messages between a page and its program, beside what is painted: JSON.

use ontempo_window::Impairment;
use serde::{Deserialize, Serialize};

use crate::page::Described;

/// What the page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The first message.
    Come,
    /// Load the page over both lanes.
    Load,
    /// Impair the path in this way.
    Path {
        /// How.
        impairment: Impairment,
    },
}

impl Request {
    /// Reads and checks a message.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let request: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if let Self::Path { impairment } = request {
            impairment.check()?;
        }
        Ok(request)
    }
}

/// An event for the page, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum PageEvent {
    /// How the path is impaired.
    Path {
        /// How.
        impairment: Impairment,
    },
    /// Both lanes begin to send now.
    Begin,
    /// A lane has delivered the page's first unit.
    Page {
        /// 0: in order; 1: in partial order.
        lane: u8,
        /// What it says.
        page: Described,
    },
    /// A lane has delivered everything.
    Whole {
        /// The lane.
        lane: u8,
        /// Since the beginning, milliseconds.
        ms: f64,
        /// Bytes of the units.
        bytes: usize,
        /// Units.
        units: usize,
    },
    /// The load is over: another may be asked for.
    Ended,
    /// Something was refused, or failed.
    Refused {
        /// Why.
        why: String,
    },
}

impl PageEvent {
    /// As it is sent.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
