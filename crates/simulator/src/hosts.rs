//! Processing time of the hosts at which routes begin.

use ontempo_foundation::{Duration, RandomStream, Time};

/// The start of each route, the host there sending late by a random time.
///
/// A deterministic simulation of equal flows is dominated by phase effects: whose packet finds
/// the place in a drop-tail queue that another has just left is decided by nanoseconds, always
/// in favour of the same flow. Real hosts are not that exact (Floyd and Jacobson, 1992, "On
/// traffic phase effects in packet-switched gateways", section 3; ns-2's `overhead_`).
pub(crate) struct Hosts {
    /// Processing time is uniform between zero and this.
    jitter: Duration,
    exits: Vec<Exit>,
}

/// Where the packets of one route leave their host.
struct Exit {
    random: RandomStream,
    /// When the last packet was to be sent.
    asked: Time,
    /// When it leaves.
    leaves: Time,
}

impl Hosts {
    /// Hosts at the start of the routes of the flows `names`: two a flow, data and replies.
    pub(crate) fn new(jitter: Duration, seed: u64, names: impl Iterator<Item = String>) -> Self {
        let exit = |name: String| Exit {
            random: RandomStream::new(seed, &name),
            asked: Time::NEVER,
            leaves: Time::ZERO,
        };
        let both =
            |name| [format!("flow {name} sender jitter"), format!("flow {name} receiver jitter")];
        Self { jitter, exits: names.flat_map(both).map(exit).collect() }
    }

    /// When a packet that is to be sent at `now` leaves its host: in order, and together with
    /// those of the same moment.
    #[inline]
    pub(crate) fn leaves(&mut self, now: Time, flow: u32, is_reply: bool) -> Time {
        let exit = &mut self.exits[2 * flow as usize + usize::from(is_reply)];
        if exit.asked != now {
            exit.asked = now;
            let processing = exit.random.duration_between(Duration::ZERO, self.jitter);
            exit.leaves = exit.leaves.max(now + processing);
        }
        exit.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_in_order_within_the_bound_and_those_of_a_moment_together() {
        let jitter = Duration::from_micros(100);
        let mut hosts = Hosts::new(jitter, 1, ["a.0".to_owned()].into_iter());
        let (mut last, mut sum) = (Time::ZERO, 0.0);
        for step in 0..10_000 {
            let now = Time::ZERO + Duration::from_micros(150) * step;
            let leaves = hosts.leaves(now, 0, false);
            assert!(leaves >= now && leaves <= now + jitter && leaves >= last);
            assert_eq!(hosts.leaves(now, 0, false), leaves);
            last = leaves;
            sum += leaves.since(now).as_secs_f64();
        }
        assert!((sum / 10_000.0 - 50e-6).abs() < 1e-6, "{sum}");
        let close = (0..1000).map(|step| Time::from_nanos(step * 10));
        let leaves: Vec<Time> = close.map(|now| hosts.leaves(now, 0, true)).collect();
        assert!(leaves.is_sorted());
    }
}
