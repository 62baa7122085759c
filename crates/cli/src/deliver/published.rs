//! The figures of `send`, `receive` and `relay`, published for `ontempo top` and `ontempo export`.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_monitor::{
    DELAY_BUCKETS, DelayReport, DeliveryPublisher, FlowReport, FlowRole, ReportFolder,
    ViewersReport,
};
use ontempo_session::message::Report;
use ontempo_session::{Delays, Viewers};
use serde_json::Value;

use crate::arguments::Place;

/// Figures come once a second; after this time without any, or without media in them, nothing flows.
const SILENCE: Wall = Wall::from_millis(2_500);

/// Publishes on a thread of its own: media do not wait for a slow file system.
pub(super) struct Published(Option<SyncSender<Vec<FlowReport>>>);

impl Published {
    /// Publishes these flows, in which nothing flows yet. Where no folder is, nothing is published.
    pub(super) fn start(first: Vec<FlowReport>) -> Self {
        let Some(folder) = ReportFolder::to_publish() else { return Self(None) };
        let (to, figures) = sync_channel(1);
        let publisher = DeliveryPublisher::new(folder);
        let spawned = thread::Builder::new()
            .name("published figures".to_owned())
            .spawn(move || run(publisher, &figures, first));
        Self(spawned.is_ok().then_some(to))
    }

    /// Replaces what is published, unless the last figures are still being written.
    pub(super) fn publish(&self, flows: Vec<FlowReport>) {
        if let Some(to) = &self.0 {
            let _ = to.try_send(flows);
        }
    }
}

fn run(
    mut publisher: DeliveryPublisher,
    figures: &Receiver<Vec<FlowReport>>,
    first: Vec<FlowReport>,
) {
    let mut last = first;
    let mut media = Media::default();
    loop {
        // A full disk is not fatal; the next document may succeed.
        let _ = publisher.publish(last.clone());
        loop {
            match figures.recv_timeout(SILENCE) {
                Ok(flows) => {
                    last = flows;
                    media.check(Instant::now(), &mut last);
                    break;
                }
                Err(RecvTimeoutError::Timeout) if last.iter().any(|flow| flow.flowing) => {
                    last.iter_mut().for_each(still);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// How far each flow's media have come, by id, and when they last did. Only of flows that there are.
#[derive(Default)]
struct Media(BTreeMap<u32, (u64, Option<Instant>)>);

impl Media {
    /// Clears `flowing` where no media come: a connection that carries none is kept up, and has figures.
    fn check(&mut self, now: Instant, flows: &mut [FlowReport]) {
        let before = take(&mut self.0);
        for flow in flows.iter_mut() {
            let count = media_of(flow);
            let (known, moved) = before.get(&flow.id).copied().unwrap_or_default();
            // A stream that begins anew counts anew: what it has by then has come.
            let moved = if count != known && count > 0 { Some(now) } else { moved };
            flow.flowing &= moved.is_some_and(|at| now.duration_since(at) < SILENCE);
            self.0.insert(flow.id, (count, moved));
        }
        let carries = |flow: &FlowReport| flow.role == FlowRole::Stream && flow.flowing;
        let is_flowing = flows.iter().any(carries);
        for relay in flows.iter_mut().filter(|flow| flow.role == FlowRole::Relay) {
            relay.flowing = is_flowing;
        }
    }
}

/// What rises only with media. Bytes of the network rise with what keeps a connection up, too.
fn media_of(flow: &FlowReport) -> u64 {
    match flow.role {
        // Units, too: a file that has been read is still being sent.
        FlowRole::Sender => flow.input_bytes.saturating_add(flow.units),
        FlowRole::Receiver | FlowRole::Stream => flow.units.saturating_add(flow.dropped_units),
        // Its streams have them.
        FlowRole::Relay => 0,
    }
}

/// Nothing flows; what has flowed stays.
fn still(flow: &mut FlowReport) {
    flow.flowing = false;
    flow.input_bps = 0.0;
    flow.output_bps = flow.output_bps.map(|_| 0.0);
    (flow.loss, flow.target_bps, flow.round_trip_s) = (None, None, None);
}

/// A place as others may see it: of a file no folders, and its name as far as it is text.
pub(super) fn shown(place: &Place) -> String {
    match place {
        Place::Udp(address) => format!("udp://{address}"),
        Place::Rtp(address) => format!("rtp://{address}"),
        Place::Pipe => "-".to_owned(),
        Place::File(path) => {
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
    }
}

pub(super) fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(Duration::as_secs_f64)
}

/// `input_bps`, `output_bps` and `loss` of a document's rates.
pub(super) fn with_rates(flow: FlowReport, rates: &Value) -> FlowReport {
    let rate = |name: &str| rates[name].as_f64();
    FlowReport {
        input_bps: rate("input_bps").unwrap_or(0.0),
        output_bps: rate("output_bps"),
        loss: rate("loss"),
        ..flow
    }
}

/// The counters of a receiver's report.
pub(super) fn with_report(flow: FlowReport, report: &Report) -> FlowReport {
    FlowReport {
        late_units: report.late_units,
        whole_datagrams: Some(report.whole_datagrams),
        damaged_datagrams: Some(report.damaged_datagrams),
        missing_datagrams: Some(report.missing_datagrams),
        ..flow
    }
}

pub(super) fn viewers(viewers: &Viewers) -> ViewersReport {
    let has_reports = viewers.reporting > 0;
    // From a relay's report, which anybody may have written who is a relay.
    let share = |share: f64| has_reports.then_some(share).filter(|it| (0.0..=1.0).contains(it));
    ViewersReport {
        count: viewers.count,
        median_bad_share: share(viewers.median_bad_share),
        worst_bad_share: share(viewers.worst_bad_share),
        late_units: viewers.late_units,
        dropped_units: viewers.dropped_units,
    }
}

pub(super) fn delays(delays: &Delays) -> DelayReport {
    let mut cumulative = [0; DELAY_BUCKETS];
    let mut all = 0_u64;
    for (up_to, count) in cumulative.iter_mut().zip(delays.counts) {
        all = all.saturating_add(count);
        *up_to = all;
    }
    DelayReport { cumulative, sum_s: delays.sum.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use ontempo_monitor::DELAY_BOUNDS_S;
    use ontempo_session::DELAY_BOUNDS;

    use super::*;

    #[test]
    fn the_session_counts_in_the_buckets_that_are_published() {
        let bounds = DELAY_BOUNDS.map(|bound| bound.as_secs_f64());
        assert_eq!(bounds, DELAY_BOUNDS_S);
        let mut some = Delays::default();
        (some.counts[0], some.counts[3], some.counts[12]) = (2, 3, 1);
        let cumulative = delays(&some).cumulative;
        assert_eq!(cumulative, [2, 2, 2, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6]);
    }

    #[test]
    fn what_is_silent_does_not_flow_and_keeps_its_counters() {
        let mut flow = FlowReport {
            flowing: true,
            input_bps: 4e6,
            output_bps: Some(3e6),
            loss: Some(0.1),
            units: 9,
            ..FlowReport::default()
        };
        still(&mut flow);
        let expected = FlowReport { output_bps: Some(0.0), units: 9, ..FlowReport::default() };
        assert_eq!(flow, expected);
    }

    /// A flow over a connection that stands.
    fn connected(role: FlowRole, id: u32) -> FlowReport {
        FlowReport { id, role, flowing: true, ..FlowReport::default() }
    }

    #[test]
    fn a_connection_without_media_does_not_flow() {
        let start = Instant::now();
        for role in [FlowRole::Sender, FlowRole::Receiver, FlowRole::Stream] {
            let mut media = Media::default();
            // What keeps the connection up is counted at a sender as output, else as input.
            let report = |second, count| match role {
                FlowRole::Sender => FlowReport {
                    input_bytes: count,
                    output_bytes: Some(second),
                    ..connected(role, 1)
                },
                _ => FlowReport { units: count, input_bytes: second, ..connected(role, 1) },
            };
            let mut flows = |second, count| {
                let mut flows = [report(second, count)];
                media.check(start + Wall::from_secs(second), &mut flows);
                flows[0].flowing
            };
            assert!(!flows(0, 0), "nothing has come yet");
            // The encoder dies after a second, comes again, and a new stream counts anew.
            let shown: Vec<_> = [50, 100, 100, 100, 100, 100, 101, 101, 0, 0, 7]
                .into_iter()
                .zip(1..)
                .map(|(count, second)| flows(second, count))
                .collect();
            let expected = [true, true, true, true, false, false, true, true, true, false, true];
            assert_eq!(shown, expected, "{role:?}");
        }
    }

    #[test]
    fn a_relay_flows_while_one_of_its_streams_does() {
        let mut media = Media::default();
        let start = Instant::now();
        let mut check = |second: u64, units: &[u64]| {
            let streams = units.iter().zip(1..);
            let stream = |(units, id): (&u64, u32)| FlowReport {
                units: *units,
                ..connected(FlowRole::Stream, id)
            };
            let mut flows = vec![connected(FlowRole::Relay, 0)];
            flows.extend(streams.map(stream));
            media.check(start + Wall::from_secs(second), &mut flows);
            let shown: Vec<_> = flows.iter().map(|flow| flow.flowing).collect();
            (shown, media.0.len())
        };
        assert_eq!(check(0, &[5, 5]), (vec![true; 3], 3));
        assert_eq!(check(3, &[5, 9]), (vec![true, false, true], 3));
        assert_eq!(check(6, &[5, 9]), (vec![false; 3], 3));
        // Nothing is kept of one that is gone.
        assert_eq!(check(7, &[6]), (vec![true; 2], 2));
    }

    #[test]
    fn a_file_is_shown_without_its_folders() {
        assert_eq!(shown(&Place::File("/home/ada/private/film.ts".into())), "film.ts");
        assert_eq!(shown(&Place::Udp(":5000".to_owned())), "udp://:5000");
    }
}
