use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_foundation::Time;

use super::boundary::InterfaceId;
use crate::message::{Sender, Session};

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// PATH of a sender is sent again.
    Path(Session, Sender),
    /// RESV to a previous hop is sent again.
    Resv(Session, InterfaceId, IpAddr),
    /// Something of the session may have ended.
    Expiry(Session),
    /// A message is not acknowledged yet.
    Retransmit(u32),
    /// A neighbour's numbers are refreshed.
    Summary(InterfaceId, IpAddr),
}

/// All timers of a node. Each is set at most once; its time is kept by who set it.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, Timer)>);

impl Timers {
    /// Sets the timer, which stood at `*at` before.
    pub(super) fn set(&mut self, at: &mut Time, new: Time, timer: Timer) {
        self.clear(at, timer);
        *at = new;
        if new != Time::NEVER {
            self.0.insert((new, timer));
        }
    }

    /// Takes the timer away.
    pub(super) fn clear(&mut self, at: &mut Time, timer: Timer) {
        if *at != Time::NEVER {
            self.0.remove(&(*at, timer));
            *at = Time::NEVER;
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|&(at, _)| at)
    }

    /// Takes the next timer that is due. Who set it is told by its name, and sets its own time to
    /// [`Time::NEVER`] by setting it anew.
    pub(super) fn due(&mut self, now: Time) -> Option<Timer> {
        let &(at, timer) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(timer)
    }
}
