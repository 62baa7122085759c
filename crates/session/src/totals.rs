//! The statistics of a sender, over all its connections.

use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::{ConnectionStatistics, SendStatistics};

use crate::backlog::Overflow;
use crate::connection::Session;
use crate::message::Report;
use crate::sender::{Sender, SenderHandler};
use crate::viewers::Viewers;

/// Statistics over all connections of a [`Sender`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderTotals {
    /// Units, bytes, arrived and dropped are sums; the others are of the current connection.
    pub flow: SendStatistics,
    /// Units dropped before they were sent, because the backlog was full.
    pub overflow: Overflow,
    /// Bytes of all units of the source, also of those that were dropped.
    pub input_bytes: u64,
    /// The latency of the stream; `None` with full reliability.
    pub latency: Option<Duration>,
    /// Bytes in the backlog and in the flow's send queue.
    pub waiting_bytes: u64,
    /// Connections after the first.
    pub reconnected: u64,
    /// How long nothing came of the receiver before them, in all, and the longest of these times.
    pub interrupted: Duration,
    /// The longest of these times.
    pub longest_interruption: Duration,
    /// Datagrams of the source so far: those of the backlog are not counted.
    pub datagrams: u64,
    /// The receiver's last report.
    pub report: Report,
    /// What receivers had reported that were started anew since, the sums.
    pub earlier: Report,
    /// The viewers of a relay.
    pub viewers: Option<Viewers>,
}

impl SenderTotals {
    /// Number of the stream's datagrams, and of those that no report has as whole. A receiver that was
    /// killed has not reported its last second, which counts as missing. Through a relay both are the median viewer's,
    /// to whom nothing was sent before it came.
    pub fn datagrams(&self) -> (u64, u64) {
        let (all, wrong) = self.report.datagrams();
        if self.viewers.is_some() {
            return (all, wrong);
        }
        let whole = (all - wrong).saturating_add(self.earlier.whole_datagrams);
        let all = all.max(whole).max(self.datagrams);
        (all, all - whole)
    }

    /// Number of the datagrams that the receiver was to have, of which `sent` were sent, and of those that it lacks.
    pub(crate) fn lacking(&self, sent: u64) -> (u64, u64) {
        match self.viewers {
            Some(_) => self.report.datagrams(),
            None => (sent, sent.saturating_sub(self.report.whole_datagrams)),
        }
    }

    /// Units that the receiver has reported, also before it was started anew.
    pub(crate) fn arrived_units(&self) -> u64 {
        self.report.units.saturating_add(self.earlier.units)
    }

    /// A receiver that was started anew counts anew.
    pub(crate) fn note_restart(&mut self, report: &Report) {
        if report.is_before(&self.report) {
            self.earlier.units += self.report.units;
            self.earlier.whole_datagrams += self.report.whole_datagrams;
            self.report = Report::default();
        }
    }
}

impl<H: SenderHandler> Sender<H> {
    /// Statistics so far.
    pub fn totals(&self) -> SenderTotals {
        let flow = self.sum();
        let waiting_bytes = self.backlog.waiting() as u64 + flow.held_bytes;
        let (overflow, input_bytes) = (self.backlog.overflow(), self.backlog.input_bytes());
        let latency = self.latency.stream().map(|stream| stream.latency);
        let datagrams = self.datagrams;
        SenderTotals {
            flow,
            overflow,
            input_bytes,
            latency,
            waiting_bytes,
            datagrams,
            ..self.totals
        }
    }

    /// What a relay reports is now of one viewer, now of another, and says of no restart.
    pub(crate) fn note_restart(&mut self, session: &Session, report: &Report) {
        if session.viewers().is_none() {
            self.totals.note_restart(report);
        }
    }

    pub(crate) fn note_heard(&mut self, session: &Session, connection: &ConnectionStatistics) {
        self.round_trip = connection.round_trip.or(self.round_trip);
        let silent = session.connection.clock().now().since(connection.heard);
        let now = Instant::now();
        self.heard = now.checked_sub(Wall::from_nanos(silent.as_nanos())).unwrap_or(now);
    }

    /// Adds a closed connection to the sums.
    pub(crate) fn add_to_totals(&mut self, session: &mut Session) {
        self.now = session.statistics().unwrap_or(self.now);
        self.note_report(session);
        self.before = self.sum();
        self.now = SendStatistics::default();
    }

    /// Adds the last report over a connection.
    pub(crate) fn note_report(&mut self, session: &Session) {
        if let Some(report) = session.report() {
            self.note_restart(session, &report);
            self.totals.report = report;
        }
        self.totals.viewers = session.viewers().or(self.totals.viewers);
    }

    fn sum(&self) -> SendStatistics {
        let (a, b) = (&self.before, &self.now);
        let mut all = self.now;
        all.units = a.units + b.units;
        all.bytes = a.bytes + b.bytes;
        all.arrived = a.arrived + b.arrived;
        all.dropped = a.dropped + b.dropped;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(whole_datagrams: u64, missing_datagrams: u64) -> Report {
        Report {
            units: whole_datagrams / 2,
            whole_datagrams,
            missing_datagrams,
            ..Report::default()
        }
    }

    #[test]
    fn what_was_sent_before_a_relay_s_viewer_came_is_not_missing() {
        let viewers = Some(Viewers { count: 1, reporting: 1, ..Viewers::default() });
        let mut totals = SenderTotals { datagrams: 1_000, viewers, ..SenderTotals::default() };
        assert_eq!(totals.datagrams(), (0, 0));
        totals.report = report(380, 2);
        assert_eq!(totals.datagrams(), (382, 2));
        assert_eq!(totals.lacking(1_000), (382, 2));
        totals.viewers = None;
        assert_eq!(totals.datagrams(), (1_000, 620));
        assert_eq!(totals.lacking(1_000), (1_000, 620));
    }

    #[test]
    fn what_a_receiver_had_before_it_was_started_anew_is_not_missing() {
        let mut totals = SenderTotals { datagrams: 1_000, ..SenderTotals::default() };
        for one in [report(500, 10), report(600, 10), report(5, 0), report(380, 0)] {
            totals.note_restart(&one);
            totals.report = one;
        }
        assert_eq!(totals.datagrams(), (1_000, 20));
        assert_eq!(totals.arrived_units(), 490);
    }
}
