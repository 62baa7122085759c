//! What a sender over several paths knows of the stream.

use std::time::Instant;

use ontempo_transport::{ConnectionStatistics, Reliability, SendStatistics};

use super::PathSender;
use crate::connection::Session;
use crate::message::Report;
use crate::paths::PathFigures;
use crate::sender::SenderHandler;
use crate::totals::SenderTotals;

impl<H: SenderHandler> PathSender<H> {
    /// Statistics of the first path that carries; its counters are sums over all.
    pub(super) fn over(&self) -> Option<ConnectionStatistics> {
        let figures = self.figures();
        let first = figures.iter().position(|path| path.carries);
        let over = first.and_then(|path| self.dials[path].statistics);
        let statistics = || self.dials.iter().filter_map(|dial| dial.statistics);
        let over = over.or_else(|| statistics().next())?;
        Some(ConnectionStatistics {
            bytes_sent: figures.iter().map(|path| path.bytes_sent).sum(),
            packets_sent: figures.iter().map(|path| path.packets_sent).sum(),
            packets_lost: figures.iter().map(|path| path.packets_lost).sum(),
            // Of the current connections.
            bytes_lost: statistics().map(|one| one.bytes_lost).sum(),
            bytes_acknowledged: statistics().map(|one| one.bytes_acknowledged).sum(),
            ..over
        })
    }

    /// The receiver's last report, over whichever path it came.
    fn last_report(&self) -> Option<Report> {
        let sessions = self.dials.iter().filter_map(|dial| dial.session.as_ref());
        let reports = sessions.filter_map(Session::report);
        reports.max_by_key(|report| (report.is_final, report.units, report.copies))
    }

    /// The last report, unless it is older than that of the totals. A receiver that was started anew counts
    /// anew: all paths were opened since its last report then.
    pub(super) fn newer_report(&mut self) -> Option<Report> {
        let report = self.last_report()?;
        if report == self.totals.report {
            return Some(report);
        }
        if report.is_before(&self.totals.report) {
            let mut open = self.dials.iter().filter(|dial| dial.session.is_some());
            if !open.all(|dial| dial.opened_at.is_some_and(|at| at > self.reported_at)) {
                return None;
            }
            self.totals.note_restart(&report);
        }
        self.reported_at = Instant::now();
        Some(report)
    }

    /// The figures of each path.
    pub fn figures(&self) -> Vec<PathFigures> {
        (0..self.dials.len()).map(|path| self.group.figures(path)).collect()
    }

    /// Statistics so far; `flow` has what was given to paths.
    pub fn totals(&self) -> SenderTotals {
        let mut flow = SendStatistics::default();
        (flow.units, flow.bytes) = (self.group.next_number(), self.bytes);
        flow.arrived = self.totals.arrived_units();
        SenderTotals {
            flow,
            input_bytes: self.backlog.input_bytes(),
            latency: self.latency.filter(|_| self.options.reliability != Reliability::Full),
            waiting_bytes: self.backlog.waiting() as u64,
            datagrams: self.datagrams,
            ..self.totals
        }
    }
}
