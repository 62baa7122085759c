//! Classes of a scheduler, their queues, and the packets in them.

use std::collections::VecDeque;
use std::fmt;

use ontempo_foundation::{Bytes, Packets, Rate};

use crate::{DropReason, Limit, Occupancy, Queued};

/// One class of a scheduled link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassParameters {
    /// The class's rate: its weight in fair queueing, its allocation in
    /// class-based queueing. More than zero.
    pub rate: Rate,
    /// Limit of its queue; a packet that would exceed it is dropped.
    pub limit: Limit,
    /// If set, a class that has dropped a packet accepts no other until fewer than this wait
    /// in it.
    pub resume: Option<Packets>,
    /// Class-based queueing: classes of a smaller number go first.
    pub priority: u8,
    /// Class-based queueing: whether it may borrow what others leave unused.
    pub borrows: bool,
}

/// Why a set of classes is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassesError {
    /// There is none.
    NoClass,
    /// A class (by index) has a rate of zero.
    NoRate(usize),
    /// The sum of their rates exceeds the link's rate.
    TooMuch {
        /// Sum of their rates.
        given: Rate,
        /// The link's rate.
        link: Rate,
    },
    /// The link is unlimited, so that there is no rate to share.
    Unlimited,
}

impl fmt::Display for ClassesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClass => f.write_str("a scheduler needs at least one class"),
            Self::NoRate(class) => write!(f, "class {class} has a rate of zero"),
            Self::TooMuch { given, link } => {
                write!(f, "the classes are given {given} of a link of {link}")
            }
            Self::Unlimited => f.write_str("an unlimited link has no rate to share"),
        }
    }
}

impl std::error::Error for ClassesError {}

/// Checks whether `classes` can share a link of `rate`.
pub(super) fn check(classes: &[ClassParameters], rate: Rate) -> Result<(), ClassesError> {
    if rate == Rate::UNLIMITED {
        return Err(ClassesError::Unlimited);
    }
    if classes.is_empty() {
        return Err(ClassesError::NoClass);
    }
    if let Some(class) = classes.iter().position(|class| class.rate.as_bits_per_sec() == 0) {
        return Err(ClassesError::NoRate(class));
    }
    let sum =
        |total: u64, class: &ClassParameters| total.saturating_add(class.rate.as_bits_per_sec());
    let given = Rate::from_bits_per_sec(classes.iter().fold(0, sum));
    if given > rate {
        return Err(ClassesError::TooMuch { given, link: rate });
    }
    Ok(())
}

/// A first-in first-out queue with a limit; each packet with a tag of the discipline.
#[derive(Clone, Debug)]
pub(super) struct ClassQueue<Tag> {
    waiting: VecDeque<(Queued, Tag)>,
    bytes: Bytes,
    limit: Limit,
    resume: Option<Packets>,
    /// Whether it has dropped a packet and waits until it may accept others again.
    refusing: bool,
}

impl<Tag: Copy> ClassQueue<Tag> {
    pub(super) fn new(parameters: &ClassParameters) -> Self {
        let ClassParameters { limit, resume, .. } = *parameters;
        Self { waiting: VecDeque::new(), bytes: Bytes::ZERO, limit, resume, refusing: false }
    }

    /// Whether a packet of this size exceeds the limit.
    pub(super) fn is_full_for(&self, size: Bytes) -> bool {
        self.limit.is_exceeded_by(self.occupancy(), size)
    }

    pub(super) fn push(&mut self, packet: Queued, tag: Tag) -> Result<(), DropReason> {
        let waiting = self.occupancy().packets;
        self.refusing &= self.resume.is_some_and(|resume| waiting >= resume);
        if self.refusing || self.is_full_for(packet.size) {
            self.refusing = self.resume.is_some();
            return Err(DropReason::QueueFull);
        }
        self.bytes += packet.size;
        self.waiting.push_back((packet, tag));
        Ok(())
    }

    pub(super) fn front(&self) -> Option<&(Queued, Tag)> {
        self.waiting.front()
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        let (packet, _) = self.waiting.pop_front()?;
        self.bytes -= packet.size;
        Some(packet)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy { packets: Packets::new(self.waiting.len() as u64), bytes: self.bytes }
    }
}

/// The sum of several queues.
pub(super) fn together(each: impl Iterator<Item = Occupancy>) -> Occupancy {
    each.fold(Occupancy::default(), |sum, one| Occupancy {
        packets: sum.packets + one.packets,
        bytes: sum.bytes + one.bytes,
    })
}
