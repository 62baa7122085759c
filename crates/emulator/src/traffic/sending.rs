//! How late applications send: when they call `send` or `write`, minus when their units were due.

use std::collections::VecDeque;

use ontempo_foundation::Time;
use ontempo_runtime::Source;

use crate::clock::Clock;
use crate::lateness::Lateness;

/// The most units of one flow whose due times are held: more wait only where the kernel takes none.
const MAX_DUE: usize = 10_000;

/// The lateness of all flows' units.
pub(crate) struct Sending {
    clock: Clock,
    pub(crate) lateness: Lateness,
}

impl Sending {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, lateness: Lateness::default() }
    }

    /// The time at which a call begins.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// A unit due at `due` was sent by a call that began at `called`.
    #[inline]
    pub(crate) fn note(&mut self, called: Time, due: Time) {
        self.lateness.note(called.since(due));
    }
}

/// When the next unit after the first `offered` is due; `None` where that is not by `now`, or no
/// matter of time.
pub(crate) fn next_due(source: &Source, offered: u64, now: Time) -> Option<Time> {
    let due = source.due(offered).unwrap_or_else(|| source.next_offer(now));
    (due <= now).then_some(due)
}

/// The units of a stream of bytes that are offered and not yet written, with their due times.
///
/// While the kernel takes no more, or the connection is not open, the application is prevented: what it
/// offers then has no due time here, since its wait is that of the transport.
pub(crate) struct Due {
    /// Position of a unit's first byte, and when it was due.
    waiting: VecDeque<(u64, Time)>,
    /// Units offered.
    offered: u64,
    is_prevented: bool,
}

impl Default for Due {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), offered: 0, is_prevented: true }
    }
}

impl Due {
    /// Units of `payload` bytes that `source` has offered by `now`.
    pub(crate) fn offered(&mut self, source: &mut Source, payload: u64, now: Time) -> u64 {
        while !self.is_prevented
            && self.waiting.len() < MAX_DUE
            && let Some(due) = next_due(source, self.offered, now)
        {
            self.waiting.push_back((self.offered.saturating_mul(payload), due));
            // Only as far as this one, so that the next has its own due time.
            self.offered = source.offered(due);
        }
        self.offered = source.offered(now);
        self.offered
    }

    /// Makes `source` answer a message; the answer is due at `due`.
    pub(crate) fn prompt(&mut self, source: &mut Source, payload: u64, now: Time, due: Time) {
        let begins = self.offered(source, payload, now);
        source.prompt(now);
        if !self.is_prevented && source.offered(now) > begins {
            self.waiting.push_back((begins.saturating_mul(payload), due));
        }
    }

    /// A call that began at `called` wrote all bytes before `written`.
    pub(crate) fn written(&mut self, sending: &mut Sending, called: Time, written: u64) {
        while let Some(&(first, due)) = self.waiting.front()
            && first < written
        {
            self.waiting.pop_front();
            sending.note(called, due);
        }
    }

    /// The kernel takes no more.
    pub(crate) fn prevent(&mut self) {
        self.is_prevented = true;
        self.waiting.clear();
    }

    /// All that was offered is written.
    pub(crate) fn is_idle(&mut self) {
        self.is_prevented = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ontempo_foundation::Duration;
    use ontempo_scenario::model::Scenario;

    const PAYLOAD: u64 = 100;

    /// A unit every 10 ms from 1 s on, of packets of 100 bytes.
    fn source() -> Source {
        let text = r#"
            duration = "9 s"
            [topology]
            kind = "dumbbell"
            bottleneck = { rate = "10 Mbit/s", delay = "1 ms" }
            access = { rate = "1 Gbit/s", delay = "1 ms" }
            [flows.f]
            application = { kind = "cbr", interval = "10 ms" }
            transport = { kind = "udp", packet = "100 B" }
        "#;
        let scenario: Scenario = ontempo_scenario::parse(text, "t.toml").expect("it is valid");
        let random = ontempo_foundation::RandomStream::new(1, "test");
        let packet = ontempo_foundation::Bytes::new(PAYLOAD);
        let none = ontempo_foundation::Bytes::ZERO;
        ontempo_runtime::source(&scenario.flows["f"], at(1_000), (packet, none), random)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn sending() -> Sending {
        Sending::new(Clock::starting_in(Duration::ZERO))
    }

    #[test]
    fn each_unit_of_a_late_call_is_late_by_its_own_due_time() {
        let (mut source, mut due, mut sending) = (source(), Due::default(), sending());
        assert_eq!(due.offered(&mut source, PAYLOAD, at(0)), 0);
        due.is_idle();
        assert_eq!(due.offered(&mut source, PAYLOAD, at(1_025)), 3);
        due.written(&mut sending, at(1_026), 3 * PAYLOAD);
        let late = [26, 16, 6].map(Duration::from_millis);
        assert_eq!((sending.lateness.count(), sending.lateness.most()), (3, late[0]));
        assert_eq!(sending.lateness.quantile(0.3), late[2]);
        assert_eq!(sending.lateness.quantile(0.5), late[1]);
    }

    #[test]
    fn what_the_transport_prevents_is_not_late() {
        let (mut source, mut due, mut sending) = (source(), Due::default(), sending());
        // Before the connection is open.
        let offered = due.offered(&mut source, PAYLOAD, at(1_015));
        due.written(&mut sending, at(1_016), offered * PAYLOAD);
        assert_eq!(sending.lateness.count(), 0);
        due.is_idle();
        // The kernel takes half of the third unit, and the rest, with the fourth, 10 ms later.
        due.offered(&mut source, PAYLOAD, at(1_020));
        due.prevent();
        let offered = due.offered(&mut source, PAYLOAD, at(1_030));
        due.written(&mut sending, at(1_030), offered * PAYLOAD);
        assert_eq!(sending.lateness.count(), 0);
        due.is_idle();
        let offered = due.offered(&mut source, PAYLOAD, at(1_040));
        due.written(&mut sending, at(1_041), offered * PAYLOAD);
        assert_eq!((offered, sending.lateness.count()), (5, 1));
        assert_eq!(sending.lateness.most(), Duration::from_millis(1));
    }
}
