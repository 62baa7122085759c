//! Lines that strangers cause: a few at once, then one in each interval; the others are counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::output::{counted, try_stderr};

/// How many lines of a kind are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Lines at once, at least 1.
    pub(crate) burst: u32,
    /// Time between two lines after them.
    pub(crate) interval: Duration,
}

/// Sentences about refused peers, and about units and networks that fail: 16, then one in 5 s.
pub(crate) const SENTENCES: Share = Share { burst: 16, interval: Duration::from_secs(5) };

/// A token bucket of lines.
#[derive(Debug)]
pub(crate) struct LineLimit {
    share: Share,
    tokens: u32,
    filled: Instant,
    not_shown: u64,
}

impl LineLimit {
    pub(crate) fn new(now: Instant, share: Share) -> Self {
        Self { share, tokens: share.burst, filled: now, not_shown: 0 }
    }

    /// Whether a line may be written now; otherwise it is counted.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        self.fill(now);
        // The last one is for the number of the others.
        let allows = self.tokens > u32::from(self.not_shown > 0);
        if allows {
            self.tokens -= 1;
        } else {
            self.not_shown += 1;
        }
        allows
    }

    /// The number of lines that were not allowed since the last call, if there are any and a line
    /// may be written now.
    pub(crate) fn not_shown(&mut self, now: Instant) -> Option<u64> {
        self.fill(now);
        if self.not_shown == 0 || self.tokens == 0 {
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.not_shown))
    }

    /// The same at the end, when no more lines follow.
    pub(crate) fn rest(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.not_shown)).filter(|count| *count > 0)
    }

    /// Counts lines that were dropped before they could ask.
    pub(crate) fn count(&mut self, dropped: u64) {
        self.not_shown += dropped;
    }

    /// The sentences to write for one about `what`, such as `refusals`: the number of those that
    /// were not shown before it, then itself; none if there are too many.
    pub(crate) fn lines(&mut self, now: Instant, what: &str, sentence: &str) -> Vec<String> {
        let count = self.not_shown(now);
        let counted = count.map(|count| not_shown(count, what));
        let own = self.allows(now).then(|| sentence.to_owned());
        counted.into_iter().chain(own).collect()
    }

    fn fill(&mut self, now: Instant) {
        while self.tokens < self.share.burst
            && now.saturating_duration_since(self.filled) >= self.share.interval
        {
            self.tokens += 1;
            self.filled += self.share.interval;
        }
        if self.tokens == self.share.burst {
            self.filled = now;
        }
    }
}

/// The sentence for so many lines about `what`, such as `refusals`.
pub(crate) fn not_shown(count: u64, what: &str) -> String {
    let were = if count == 1 { "was" } else { "were" };
    format!("{} about {what} {were} not shown", counted(count, "more line"))
}

/// Sentences of one kind on standard error, from any thread.
#[derive(Debug)]
pub(crate) struct Sentences {
    what: &'static str,
    limit: Mutex<LineLimit>,
}

impl Sentences {
    /// About `what`, such as `refusals`.
    pub(crate) fn about(what: &'static str) -> Self {
        Self { what, limit: Mutex::new(LineLimit::new(Instant::now(), SENTENCES)) }
    }

    pub(crate) fn say(&self, sentence: &str) {
        // Whatever a thread that panicked has left is valid.
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = limit.lines(Instant::now(), self.what, sentence);
        drop(limit);
        // Who is refused makes nobody wait who is not.
        let unread = lines.iter().filter(|line| !try_stderr(line)).count();
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.count(u64::try_from(unread).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_many_as_time_allows_and_the_others_are_counted() {
        let start = Instant::now();
        let share = Share { burst: 4, interval: Duration::from_secs(1) };
        let mut limit = LineLimit::new(start, share);
        let mut shown = 0;
        let mut counted = 0;
        for millis in 0..10_000 {
            let now = start + Duration::from_millis(millis);
            shown += u64::from(limit.allows(now));
            counted += limit.not_shown(now).unwrap_or(0);
        }
        let end = start + Duration::from_secs(20);
        let late = limit.not_shown(end).expect("the last ones");
        assert_eq!(limit.not_shown(end), None);
        assert!(shown <= 4 + 10, "{shown}");
        assert_eq!(shown + counted + late, 10_000);
        assert!(limit.allows(end), "as before");
        limit.count(7);
        assert_eq!((limit.rest(), limit.rest()), (Some(7), None));
    }

    #[test]
    fn one_line_is_singular() {
        assert_eq!(super::not_shown(1, "refusals"), "1 more line about refusals was not shown");
        assert_eq!(super::not_shown(2, "refusals"), "2 more lines about refusals were not shown");
    }

    #[test]
    fn sentences_say_how_many_were_not_shown_before_them() {
        let start = Instant::now();
        let mut limit = LineLimit::new(start, SENTENCES);
        let at = |seconds| start + Duration::from_secs(seconds);
        let shown: Vec<String> =
            (0..100).flat_map(|_| limit.lines(start, "refusals", "refused")).collect();
        assert_eq!(shown, vec!["refused"; 16]);
        assert!(limit.lines(at(4), "refusals", "refused").is_empty());
        let later = limit.lines(at(30), "refusals", "again");
        assert_eq!(later, ["85 more lines about refusals were not shown", "again"]);
    }
}
