use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_foundation::Time;

use super::boundary::InterfaceId;
use crate::message::{Sender, Session};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Refresh of the PATH of a sender.
    Path(Session, Sender),
    /// Refresh of the RESV to a previous hop.
    Resv(Session, InterfaceId, IpAddr),
    /// Cleanup timeout of some state of the session.
    Expiry(Session),
    /// Retransmission of an unacknowledged message.
    Retransmit(u32),
    /// Summary refresh to a neighbour.
    Summary(InterfaceId, IpAddr),
}

/// All timers of a node. Each is set at most once; the state that it belongs to keeps its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, Timer)>);

impl Timers {
    /// Sets the timer, which was due at `*at` before.
    pub(super) fn set(&mut self, at: &mut Time, new: Time, timer: Timer) {
        self.clear(at, timer);
        *at = new;
        if new != Time::NEVER {
            self.0.insert((new, timer));
        }
    }

    /// Cancels the timer.
    pub(super) fn clear(&mut self, at: &mut Time, timer: Timer) {
        if *at != Time::NEVER {
            self.0.remove(&(*at, timer));
            *at = Time::NEVER;
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|&(at, _)| at)
    }

    /// Removes and returns the next timer that is due. The caller must set the time that it keeps
    /// of this timer to [`Time::NEVER`].
    pub(super) fn due(&mut self, now: Time) -> Option<Timer> {
        let &(at, timer) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(timer)
    }
}
