//! Flows and units.

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
pub use ontempo_mechanisms::delivery::DeliveryOrder;

/// What happens to lost units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reliability {
    /// Retransmitted until they arrive.
    #[default]
    Full,
    /// Retransmitted until their deadline, then dropped; both sides agree which.
    Deadline,
    /// Not retransmitted: each is sent in datagrams.
    None,
}

impl Reliability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Full, Self::Deadline, Self::None];

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Deadline => "deadline",
            Self::None => "none",
        }
    }

    /// Whether units of such a flow may have a deadline: [`Full`](Self::Full) never drops a unit,
    /// so that a deadline would have no effect, and sending one is
    /// [`SendError::Deadline`](crate::SendError::Deadline).
    #[must_use]
    pub const fn allows_deadlines(self) -> bool {
        !matches!(self, Self::Full)
    }
}

/// Configuration of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowConfig {
    /// Delivery order. Without retransmission nothing waits for a lost unit: in order then
    /// means that a unit that arrives after a later one is dropped, unless both are read at once.
    pub order: DeliveryOrder,
    /// What happens to lost units.
    pub reliability: Reliability,
    /// Description for the peer's application; at most 256 bytes.
    pub label: String,
}

/// Id of a flow: its sender, and its number among that side's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// True for a sending flow of this side.
    pub outgoing: bool,
    /// From 0, in the order of opening.
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
    /// Deadline: the unit is dropped then if it has not arrived. Only for flows whose reliability
    /// [allows deadlines](Reliability::allows_deadlines).
    pub deadline: Option<Time>,
    /// A larger number is more important. Below 5, a unit with a deadline is dropped before it is
    /// begun if the path does not bear all that is queued.
    pub priority: u8,
    /// Units of the same flow without which it is of no use: numbers that
    /// [`send`](crate::Connection::send) returned; at most 32.
    pub depends_on: Vec<u64>,
    /// The unit of the same flow that it continues: both are parts of one frame, which is kept or
    /// dropped whole. Its header is shortest if it depends on that unit alone.
    pub continues: Option<u64>,
}

/// A received unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number in the flow.
    pub id: u64,
    /// Its data.
    pub data: Bytes,
    /// When it was passed to the sender, by this side's clock; `None` until the clocks have
    /// been compared.
    pub sent: Option<Time>,
    /// When it had arrived completely.
    pub arrived: Time,
    /// Deadline, as a duration since its sending.
    pub lifetime: Option<Duration>,
    /// Its priority.
    pub priority: u8,
    /// The unit that it continues, as the sender said.
    pub continues: Option<u64>,
    /// Units that it depends on, as the sender said.
    pub depends_on: Vec<u64>,
    /// Those of them that will never arrive: it may be of no use.
    pub missing: Vec<u64>,
}

/// What a receiving flow delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A unit.
    Unit(Unit),
    /// The unit with this number was dropped and will not arrive. While 4,096 deliveries are
    /// queued, drops are counted but no longer delivered.
    Dropped(u64),
}
