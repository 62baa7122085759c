//! What a relay adds to its report to the source: figures of all viewers.

use serde::{Deserialize, Serialize};

use crate::message::Report;

/// Figures of the viewers of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Viewers {
    /// Viewers that are served now.
    pub count: u64,
    /// Of these, those that have reported.
    pub reporting: u64,
    /// Share of datagrams that are damaged or missing, 0 to 1: of the median viewer and of the worst.
    pub median_bad_share: f64,
    /// See `median_bad_share`.
    pub worst_bad_share: f64,
    /// The mean delay of a viewer's units, seconds: of the median viewer and of the worst.
    pub median_delay_s: f64,
    /// See `median_delay_s`.
    pub worst_delay_s: f64,
    /// Units received late, and units dropped at their deadline, of all viewers together.
    pub late_units: u64,
    /// See `late_units`.
    pub dropped_units: u64,
}

/// A relay's report: that of the median viewer, by its share of bad datagrams, and the figures of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayReport {
    /// The median viewer's, as a source without a relay would read it.
    #[serde(flatten)]
    pub report: Report,
    /// All viewers.
    pub viewers: Viewers,
}

/// The part of a report's datagrams that are damaged or missing, 0 to 1.
fn bad_share(report: &Report) -> f64 {
    let (all, wrong) = report.datagrams();
    wrong as f64 / all.max(1) as f64
}

impl RelayReport {
    /// Of `count` viewers, of which those of `reports` have reported.
    pub fn of(count: u64, reports: &mut [Report]) -> Self {
        reports.sort_by(|one, other| bad_share(one).total_cmp(&bad_share(other)));
        let median = reports.get(reports.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let mut delays: Vec<f64> = reports.iter().map(|report| report.mean_delay_s).collect();
        delays.sort_by(f64::total_cmp);
        let sum = |of: fn(&Report) -> u64| {
            reports.iter().fold(0u64, |sum, report| sum.saturating_add(of(report)))
        };
        let viewers = Viewers {
            count,
            reporting: reports.len() as u64,
            median_bad_share: bad_share(&median),
            worst_bad_share: reports.last().map_or(0.0, bad_share),
            median_delay_s: delays
                .get(delays.len().saturating_sub(1) / 2)
                .copied()
                .unwrap_or_default(),
            worst_delay_s: delays.last().copied().unwrap_or_default(),
            late_units: sum(|report| report.late_units),
            dropped_units: sum(|report| report.dropped_units),
        };
        Self { report: Report { is_final: false, ..median }, viewers }
    }
}

/// The viewers of a report, if a relay has written it.
pub(crate) fn read(report: &[u8]) -> Option<Viewers> {
    serde_json::from_slice::<RelayReport>(report).ok().map(|all| all.viewers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_viewer_is_what_a_source_reads_and_the_worst_is_told_beside_it() {
        let viewer = |missing, delay| Report {
            whole_datagrams: 100 - missing,
            missing_datagrams: missing,
            late_units: missing,
            mean_delay_s: delay,
            ..Report::default()
        };
        let mut reports = [viewer(50, 0.3), viewer(1, 0.1), viewer(0, 0.2)];
        let all = RelayReport::of(4, &mut reports);
        let text = serde_json::to_vec(&all).expect("JSON");
        assert_eq!(serde_json::from_slice::<Report>(&text).expect("a report"), viewer(1, 0.1));
        let viewers = read(&text).expect("viewers");
        assert_eq!((viewers.count, viewers.reporting, viewers.late_units), (4, 3, 51));
        assert_eq!((viewers.median_bad_share, viewers.worst_bad_share), (0.01, 0.5));
        assert_eq!((viewers.median_delay_s, viewers.worst_delay_s), (0.2, 0.3));
        assert_eq!(read(&serde_json::to_vec(&viewer(1, 0.1)).expect("JSON")), None);
    }
}
