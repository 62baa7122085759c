//! The delay of a path without a queue, from small packets sent while the queue is empty.

/// Scouts closer together than this say nothing about a queue between them, ns.
const MIN_GAP: i64 = 1_000_000;

/// Finds runs of scouts that met no queue.
///
/// Scouts behind a queue leave the bottleneck one behind the other, those that meet none arrive as
/// far apart as they were sent. What is looked for is not the smallest of all delays, because the
/// delay without a queue may grow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BaseFinder {
    /// When the last arrival was sent and arrived, ns, if it was a scout.
    last: Option<(i64, i64)>,
    /// Scouts in a row without a queue, and the smallest transit of them, ns.
    run: Option<(u32, i64)>,
}

impl BaseFinder {
    /// Takes an arrival, in the order of arrival: when it was sent by the sender's clock, when it
    /// arrived by the receiver's, ns. Answers the transit of scouts without a queue, ns, if this
    /// is at least the second of them in a row.
    pub(super) fn on_arrival(&mut self, sent: i64, at: i64, is_scout: bool) -> Option<i64> {
        let last = std::mem::replace(&mut self.last, is_scout.then_some((sent, at)));
        let is_clear = is_scout
            && last.is_some_and(|(last_sent, last_at)| {
                let gap = sent - last_sent;
                gap >= MIN_GAP && at - last_at >= gap / 2
            });
        let transit = at - sent;
        self.run = is_clear.then(|| match self.run {
            Some((count, least)) => (count.saturating_add(1), least.min(transit)),
            None => (1, transit),
        });
        self.run.filter(|(count, _)| *count >= 2).map(|(_, least)| least)
    }
}
