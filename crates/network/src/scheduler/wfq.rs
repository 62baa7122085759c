//! Weighted fair queueing: packets leave in the order in which a fluid model would finish them.

use ontempo_foundation::{Rate, Time};

use super::classes::{ClassParameters, ClassQueue, ClassesError, check, together};
use crate::{DropReason, Occupancy, Queued};

/// Packet-by-packet generalized processor sharing (Demers, Keshav and Shenker, 1989; Parekh and
/// Gallager, 1993).
///
/// The fluid model serves all backlogged classes of the link at once, each
/// in proportion to its rate. A packet is tagged on arrival with the virtual time at which the
/// fluid would finish it, and the smallest tag leaves first. Virtual time advances at the link's
/// rate over the sum of the rates of the classes that the fluid still serves, so that a lone
/// class gets the full rate. No packet leaves later than in the fluid by more than the
/// transmission of one largest packet.
#[derive(Clone, Debug)]
pub struct Wfq {
    classes: Vec<Class>,
    /// The link's rate since `updated`, in bits per second.
    link: f64,
    /// Virtual time: bits that the fluid has served per unit of rate, in seconds.
    virtual_time: f64,
    /// When `virtual_time` was last updated.
    updated: Time,
}

#[derive(Clone, Debug)]
struct Class {
    /// In bits per second.
    rate: f64,
    queue: ClassQueue<f64>,
    /// The virtual time at which the fluid finishes the last packet that arrived; the fluid serves
    /// the class until then.
    finish: f64,
}

impl Wfq {
    /// A scheduler of these classes on a link of this rate.
    ///
    /// # Errors
    /// If there is no class, a class without a rate, or the rates exceed the link's.
    pub fn new(link: Rate, classes: &[ClassParameters]) -> Result<Self, ClassesError> {
        check(classes, link)?;
        let class = |parameters: &ClassParameters| Class {
            rate: parameters.rate.as_bits_per_sec() as f64,
            queue: ClassQueue::new(parameters),
            finish: 0.0,
        };
        Ok(Self {
            classes: classes.iter().map(class).collect(),
            link: link.as_bits_per_sec() as f64,
            virtual_time: 0.0,
            updated: Time::ZERO,
        })
    }

    /// See [`Scheduler::set_rate`](super::Scheduler::set_rate).
    pub(super) fn set_rate(&mut self, rate: Rate) {
        self.link = rate.as_bits_per_sec() as f64;
    }

    /// See [`Scheduler::enqueue`](super::Scheduler::enqueue).
    pub(super) fn enqueue(
        &mut self,
        now: Time,
        class: usize,
        packet: Queued,
    ) -> Result<(), DropReason> {
        self.advance(now);
        let class = self.classes.get_mut(class).ok_or(DropReason::QueueFull)?;
        let begins = class.finish.max(self.virtual_time);
        let finish = begins + packet.size.get() as f64 * 8.0 / class.rate;
        class.queue.push(packet, finish)?;
        class.finish = finish;
        Ok(())
    }

    /// See [`Scheduler::dequeue`](super::Scheduler::dequeue).
    pub(super) fn dequeue(&mut self, now: Time) -> Option<Queued> {
        self.advance(now);
        let tag = |class: &Class| class.queue.front().map(|(_, finish)| *finish);
        let tags = self.classes.iter().enumerate();
        let tags = tags.filter_map(|(place, class)| Some((tag(class)?, place)));
        // Of equal tags, the first class goes first.
        let (_, first) = tags.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        self.classes[first].queue.pop()
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        together(self.classes.iter().map(|class| class.queue.occupancy()))
    }

    /// Advances the fluid model to `now`: in steps, since its rate rises as it finishes a class.
    fn advance(&mut self, now: Time) {
        let mut left = now.since(self.updated).as_secs_f64();
        self.updated = now;
        loop {
            let served = |class: &&Class| class.finish > self.virtual_time;
            let weight: f64 = self.classes.iter().filter(served).map(|class| class.rate).sum();
            if weight == 0.0 {
                break;
            }
            let finishes = self.classes.iter().filter(served).map(|class| class.finish);
            let next = finishes.fold(f64::INFINITY, f64::min);
            let span = (next - self.virtual_time) * weight / self.link;
            if span > left {
                self.virtual_time += left * self.link / weight;
                return;
            }
            self.virtual_time = next;
            left -= span;
        }
        if self.classes.iter().all(|class| class.queue.is_empty()) {
            // A busy period ends: reset, so that virtual time keeps its precision.
            self.virtual_time = 0.0;
            self.classes.iter_mut().for_each(|class| class.finish = 0.0);
        }
    }
}
