//! What a receiver reports.

use std::time::Duration as Wall;

use ontempo_transport::ReceiveStatistics;
use ontempo_transport::live::{Message, SendFlow};

use crate::message::Report;
use crate::sink::Counts;

/// Sends a report, or skips it if the send queue is full: the next one has the sums, too.
pub(crate) fn send(reports: &SendFlow, report: &impl serde::Serialize) {
    if let Ok(text) = serde_json::to_vec(report) {
        let _ = reports.send_within(Message::from(bytes::Bytes::from(text)), Wall::ZERO);
    }
}

/// A report of `before` plus the statistics of the current flow.
pub(crate) fn with_flow(before: Report, now: &ReceiveStatistics) -> Report {
    Report {
        units: before.units + now.units,
        bytes: before.bytes + now.bytes,
        late_units: before.late_units + now.late,
        dropped_units: before.dropped_units + now.dropped,
        mean_delay_s: now.delay.mean().as_secs_f64(),
        max_delay_s: before.max_delay_s.max(now.delay.max.as_secs_f64()),
        ..before
    }
}

/// Sets the datagram counters of a report.
pub(crate) fn with_counts(report: Report, counts: Counts) -> Report {
    Report {
        whole_datagrams: counts.whole,
        damaged_datagrams: counts.damaged,
        missing_datagrams: counts.missing(),
        ..report
    }
}
