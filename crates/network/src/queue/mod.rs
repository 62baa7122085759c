//! Queue disciplines: which packets wait for the link, which are marked, which are dropped.
//!
//! Those of [`Queue`] decide when a packet is offered; the others, each a
//! [`Discipline`](crate::Discipline), when the transmitter is ready for the next.

mod admitting;
mod codel;
mod droptail;
mod dualpi2;
mod fq_codel;
mod pie;
mod red;

pub use admitting::Admitting;
pub use codel::{CoDel, CoDelParameters};
pub use droptail::DropTail;
pub use dualpi2::{DualPi2, DualPi2Parameters};
pub use fq_codel::{FqCoDel, FqCoDelParameters};
use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};
pub use pie::{Pie, PieParameters};
pub use red::{Red, RedError, RedMeasure, RedParameters};

use crate::{DropReason, Occupancy};

/// The discipline of a link's queue.
///
/// An enum rather than a trait object: it is called once per packet, and the compiler can
/// inline the call.
#[derive(Clone, Debug)]
pub enum Queue {
    /// First in, first out; packets beyond the limit are dropped.
    DropTail(DropTail),
    /// Random early detection; boxed, since few links have it.
    Red(Box<Red>),
    /// PIE (RFC 8033); boxed likewise.
    Pie(Box<Pie>),
}

/// Limit of a queue; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Maximum packets waiting, not counting the one in transmission.
    pub packets: Option<Packets>,
    /// Maximum bytes waiting, not counting the packet in transmission.
    pub bytes: Option<Bytes>,
}

/// A packet offered to a queue, and the queue's state.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// When it is offered.
    pub now: Time,
    /// The packet's size.
    pub size: Bytes,
    /// Whether it is ECN-capable (RFC 3168).
    pub ecn_capable: bool,
    /// The queue ahead of it, not counting the packet in transmission.
    pub waiting: Occupancy,
    /// How long the link has been idle; `None` while it transmits.
    pub idle: Option<Duration>,
    /// Its wait for the link.
    pub wait: Duration,
    /// The link's rate.
    pub rate: Rate,
}

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may wait (or go, if the link is idle).
    Accept,
    /// Accepted with a congestion mark (CE of RFC 3168).
    Mark,
    /// Dropped.
    Drop(DropReason),
}

impl Queue {
    /// A drop-tail queue without limit, the cheapest queue.
    pub const fn unlimited() -> Self {
        Self::DropTail(DropTail::unlimited())
    }

    /// A drop-tail queue in which at most `packets` wait.
    pub const fn drop_tail(packets: Packets) -> Self {
        Self::DropTail(DropTail::new(Limit::packets(packets)))
    }

    /// Decides on one packet; drop-tail draws nothing from `random`.
    #[inline]
    pub fn admit(&mut self, offered: &Offered, random: &mut RandomStream) -> Verdict {
        match self {
            Self::DropTail(queue) => queue.admit(offered),
            Self::Red(queue) => queue.admit(offered, random),
            Self::Pie(queue) => queue.admit(offered, random),
        }
    }

    /// RED's average queue, in packets or bytes according to its [`RedMeasure`]; `None` for other
    /// disciplines.
    pub fn average(&self) -> Option<f64> {
        match self {
            Self::DropTail(_) | Self::Pie(_) => None,
            Self::Red(queue) => Some(queue.average()),
        }
    }
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self { packets: None, bytes: None };

    /// At most `packets` waiting.
    pub const fn packets(packets: Packets) -> Self {
        Self { packets: Some(packets), bytes: None }
    }

    /// At most `bytes` waiting.
    pub const fn bytes(bytes: Bytes) -> Self {
        Self { packets: None, bytes: Some(bytes) }
    }

    /// Whether `waiting` has reached a limit.
    #[inline]
    pub fn is_reached(&self, waiting: Occupancy) -> bool {
        self.packets.is_some_and(|limit| waiting.packets >= limit)
            || self.bytes.is_some_and(|limit| waiting.bytes >= limit)
    }

    /// Whether another packet of `size` in addition to `waiting` would exceed a limit.
    #[inline]
    pub fn is_exceeded_by(&self, waiting: Occupancy, size: Bytes) -> bool {
        self.packets.is_some_and(|limit| waiting.packets >= limit)
            || self.bytes.is_some_and(|limit| waiting.bytes + size > limit)
    }
}
