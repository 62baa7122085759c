//! Flows and their units, as the application sees them.

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
pub use ontempo_mechanisms::delivery::DeliveryOrder;

/// What becomes of units that are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reliability {
    /// They are sent again until they arrive.
    #[default]
    Full,
    /// They are sent again until their deadline, and then dropped; both sides agree which.
    UntilDeadline,
    /// They are not sent again: each travels in datagrams.
    None,
}

impl Reliability {
    /// Whether units of such a flow may have a deadline: [`Full`](Self::Full) never drops a unit,
    /// so that a deadline would have no effect, and sending one is
    /// [`SendError::Deadline`](crate::SendError::Deadline).
    #[must_use]
    pub const fn allows_deadlines(self) -> bool {
        !matches!(self, Self::Full)
    }
}

/// How a flow's units are delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowConfig {
    /// The order. Where lost units are not sent again, nothing waits for them: in sequence then
    /// means that what comes after a later one is dropped.
    pub order: DeliveryOrder,
    /// What becomes of units that are lost.
    pub reliability: Reliability,
    /// What it carries, for the peer's application; at most 256 bytes.
    pub label: String,
}

/// A flow: who sends it and its number among that side's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// True for a flow that this side sends.
    pub outgoing: bool,
    /// Counted from 0, in the order of opening.
    pub number: u64,
}

impl FlowId {
    pub(crate) fn outgoing(number: u64) -> Self {
        Self { outgoing: true, number }
    }

    pub(crate) fn incoming(number: u64) -> Self {
        Self { outgoing: false, number }
    }
}

/// A unit to be sent.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// Its data.
    pub data: Bytes,
    /// When it is of use at the latest; it is dropped then if it has not arrived. Only for flows
    /// whose reliability [allows deadlines](Reliability::allows_deadlines).
    pub deadline: Option<Time>,
    /// More important units have a larger one.
    pub priority: u8,
    /// Units of the same flow that it is of no use without: numbers that
    /// [`send`](crate::Connection::send) returned; at most 32.
    pub depends_on: Vec<u64>,
}

/// A unit that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number within the flow.
    pub id: u64,
    /// Its data.
    pub data: Bytes,
    /// When it was handed over for sending, by this side's clock; `None` until the clocks have
    /// been compared.
    pub sent: Option<Time>,
    /// When it arrived whole.
    pub arrived: Time,
    /// How long after its sending it was wanted at the latest.
    pub lifetime: Option<Duration>,
    /// Its priority.
    pub priority: u8,
    /// Units that it depends on and that will never come: it may be of no use.
    pub missing: Vec<u64>,
}

/// What a receiver is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A unit.
    Unit(Unit),
    /// The unit of this number will not come: it was dropped. Where 4,096 deliveries wait,
    /// drops are counted and no longer delivered.
    Dropped(u64),
}
