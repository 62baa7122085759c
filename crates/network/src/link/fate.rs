//! What becomes of a packet, and the counts of those that do not arrive.

use ontempo_foundation::{Packets, Time};

/// The outcome for a packet that is offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at the other end.
    Arrives {
        /// When its last bit arrives; [`Time::NEVER`] on a link of rate zero.
        at: Time,
        /// When its transmission starts, at the end of its wait in the queue.
        starts: Time,
        /// Whether the queue marked it (ECN).
        marked: bool,
        /// Whether it arrives with bit errors ([`Extras::corrupt`](crate::Extras::corrupt)).
        corrupted: bool,
        /// Whether a copy of it arrives right behind it ([`Extras::duplicate`](crate::Extras::duplicate)).
        duplicated: bool,
    },
    /// It is dropped or lost.
    Dropped(DropReason),
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue was at its limit.
    QueueFull,
    /// The queue discipline dropped it before the limit (RED, PIE, CoDel).
    Early,
    /// The loss model lost it on the wire, after the queue.
    Loss,
    /// It is larger than the link's maximum packet size.
    TooLarge,
    /// It did not conform to the rate and burst of the policer before the queue.
    Policer,
}

/// Packets that did not arrive, by reason; on a [`Link`](crate::Link) each is counted when it is offered,
/// on a [`ScheduledLink`](crate::ScheduledLink) when it is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// For [`DropReason::QueueFull`].
    pub queue_full: Packets,
    /// For [`DropReason::Early`].
    pub early: Packets,
    /// For [`DropReason::Loss`].
    pub loss: Packets,
    /// For [`DropReason::TooLarge`].
    pub too_large: Packets,
    /// For [`DropReason::Policer`].
    pub policer: Packets,
}

impl Drops {
    /// All packets dropped.
    pub fn total(&self) -> Packets {
        self.refused() + self.loss
    }

    /// Packets that were never transmitted: all drops except losses on the wire.
    pub fn refused(&self) -> Packets {
        self.queue_full + self.early + self.too_large + self.policer
    }

    pub(crate) fn count(&mut self, reason: DropReason) -> &mut Packets {
        match reason {
            DropReason::QueueFull => &mut self.queue_full,
            DropReason::Early => &mut self.early,
            DropReason::Loss => &mut self.loss,
            DropReason::TooLarge => &mut self.too_large,
            DropReason::Policer => &mut self.policer,
        }
    }
}
