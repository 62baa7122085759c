//! The messages between a page and its program, and the units: all JSON.

use ontempo_window::Impairment;
use serde::{Deserialize, Serialize};

use crate::object::{Bounds, Object};

/// What a page asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The first message.
    Come,
    /// Put an object on the board.
    Draw {
        /// The object.
        object: Object,
        /// PageEvent again with it, so that the page knows its own.
        mark: u32,
    },
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
        match request {
            Self::Draw { object, mark } => Ok(Self::Draw { object: object.check()?, mark }),
            Self::Path { impairment } => Ok(Self::Path { impairment: impairment.check()? }),
            Self::Come => Ok(Self::Come),
        }
    }
}

/// What a unit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// The participant who drew it.
    pub by: u32,
    /// Its page's mark for it.
    pub mark: u32,
    /// The object.
    pub object: Object,
}

/// An event for a page, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum PageEvent {
    /// The first message.
    Welcome {
        /// The participant's number.
        you: u32,
        /// Units that were there before it came.
        units: usize,
        /// How the path is impaired.
        impairment: Impairment,
    },
    /// Units sent so far, joints included.
    Sent {
        /// How many.
        units: usize,
    },
    /// A lane is connected: the board begins its way.
    Open {
        /// The lane's delivery order.
        lane: &'static str,
    },
    /// A lane has delivered a unit.
    Shown {
        /// Its delivery order.
        lane: &'static str,
        /// Its number.
        number: u64,
        /// From its arrival at the program to its delivery here, milliseconds.
        ms: f64,
        /// It was drawn before the participant came.
        is_old: bool,
        /// What it says; nothing if it only joins others.
        drawn: Option<Drawn>,
        /// Where it paints.
        bounds: Option<Bounds>,
    },
    /// How things stand, twice a second from each lane.
    Status {
        /// The lane's delivery order.
        lane: &'static str,
        /// Units of the lane that have arrived and wait for others.
        waiting: u64,
        /// Units sent so far.
        units: usize,
        /// Participants at this moment.
        participants: usize,
        /// How the path is impaired.
        impairment: Impairment,
    },
    /// A lane is lost: who comes again gets a new one.
    Broken {
        /// Why.
        why: String,
    },
    /// A message was refused.
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
