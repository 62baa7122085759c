//! The receiver's side: each message once, from whichever path it comes first.

use ontempo_foundation::Time;
use ontempo_transport::Unit;

use super::label::split;
use crate::message::{Content, Report, read};

/// Numbers below the highest that are remembered one by one: 2 KiB. Copies of older ones are handed on;
/// the depacketizer, which knows the datagrams, drops them.
const WINDOW: u64 = 1 << 14;

const BITS: u64 = u64::BITS as u64;

/// Which numbers have come.
struct Seen {
    /// Bit `number % WINDOW` of those of the window.
    bits: Box<[u64]>,
    /// The highest number plus 1.
    next: u64,
}

impl Seen {
    fn new() -> Self {
        Self { bits: vec![0; (WINDOW / BITS) as usize].into(), next: 0 }
    }

    const fn place(number: u64) -> (usize, u64) {
        let bit = number % WINDOW;
        ((bit / BITS) as usize, 1 << (bit % BITS))
    }

    /// True if it is the first of this number, or older than the window.
    fn is_new(&mut self, number: u64) -> bool {
        if number >= self.next {
            if number - self.next >= WINDOW {
                self.bits.fill(0);
            } else {
                for skipped in self.next..number {
                    let (word, bit) = Self::place(skipped);
                    self.bits[word] &= !bit;
                }
            }
            self.next = number.saturating_add(1);
            let (word, bit) = Self::place(number);
            self.bits[word] |= bit;
            return true;
        }
        if self.next - number > WINDOW {
            return true;
        }
        let (word, bit) = Self::place(number);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }
}

/// Joins the paths of a stream.
pub(crate) struct Joined {
    seen: Seen,
    report: Report,
    delay_sum_s: f64,
    delays: u64,
}

impl Joined {
    pub(crate) fn new() -> Self {
        Self { seen: Seen::new(), report: Report::default(), delay_sum_s: 0.0, delays: 0 }
    }

    /// What a unit of a path says; `None` if it came before on another one.
    pub(crate) fn take(&mut self, unit: &Unit) -> Option<Result<Content, String>> {
        let Some((number, message)) = split(self.seen.next, &unit.data) else {
            return Some(Err("a message without a number".to_owned()));
        };
        if !self.seen.is_new(number) {
            self.report.copies += 1;
            return None;
        }
        self.report.units += 1;
        self.report.bytes += message.len() as u64;
        self.count_delay(unit);
        Some(read(number, &message))
    }

    fn count_delay(&mut self, unit: &Unit) {
        let Some(sent) = unit.sent.filter(|sent| *sent > Time::ZERO) else { return };
        let delay = unit.arrived.since(sent);
        let is_late = unit.lifetime.is_some_and(|lifetime| delay > lifetime);
        self.report.late_units += u64::from(is_late);
        self.delays += 1;
        self.delay_sum_s += delay.as_secs_f64();
        self.report.mean_delay_s = self.delay_sum_s / self.delays as f64;
        self.report.max_delay_s = self.report.max_delay_s.max(delay.as_secs_f64());
    }

    /// Counters, without those of datagrams.
    pub(crate) fn report(&self) -> Report {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_number_of_the_window_is_new_once(steps in proptest::collection::vec(-40i64..60, 1..400)) {
            let (mut seen, mut all, mut at) = (Seen::new(), BTreeSet::new(), 0u64);
            for step in steps {
                at = at.saturating_add_signed(step);
                prop_assert_eq!(seen.is_new(at), all.insert(at), "{}", at);
            }
        }

        #[test]
        fn any_numbers_are_taken(numbers in proptest::collection::vec(any::<u64>(), 1..50)) {
            let mut seen = Seen::new();
            for number in numbers {
                seen.is_new(number);
                prop_assert!(seen.next > number || number == u64::MAX);
            }
        }

        #[test]
        fn what_the_window_forgets_is_new_again_and_what_it_holds_is_not(
            first in 0u64..1 << 40, ahead in 1u64..3 * WINDOW,
        ) {
            let mut seen = Seen::new();
            seen.is_new(first);
            seen.is_new(first + ahead);
            prop_assert_eq!(seen.is_new(first), ahead >= WINDOW);
        }
    }
}
