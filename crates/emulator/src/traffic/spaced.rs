//! UDP with packet spacing: constant, or adapted to the receiver's reports.

use ontempo_foundation::{Duration, Packets, Time};
use ontempo_mechanisms::spacing::{Report, ReportCounter};
use ontempo_runtime::{Distance, FlowTotals, Pace};

use super::sending::Sending;
use super::udp::{Udp, take, words};

/// The packet number that marks an RTT probe or its answer.
const PROBE: u64 = u64::MAX;

/// How long to wait for the answer to a probe before sending another.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

/// Both ends of a spaced flow; reports use the same two sockets.
pub(crate) struct Spaced {
    pub(crate) udp: Udp,
    pace: Pace,
    distance: Distance,
    last_sent: Option<Time>,
    /// When the sender may send again.
    wake: Time,
    /// Reports that reached the sender.
    reports: u64,
    /// The last of them, and when it came: a copy that a link made would be a report of no arrivals.
    last_report: Option<(u64, u64, Time)>,
    // The receiver's end.
    counter: ReportCounter,
    /// The base RTT, as measured by the sender.
    told_rtt: Option<Duration>,
    /// When the next report is due.
    report_at: Time,
}

impl Spaced {
    pub(crate) fn new(udp: Udp, pace: Pace, distance: Distance, start: Time) -> Self {
        Self {
            udp,
            pace,
            distance,
            last_sent: None,
            wake: start,
            reports: 0,
            last_report: None,
            counter: ReportCounter::default(),
            told_rtt: None,
            report_at: Time::NEVER,
        }
    }

    /// Sends what is due by `now`; returns when to call again.
    pub(super) fn on_time(&mut self, now: Time, sending: &mut Sending) -> Time {
        if self.report_at <= now {
            self.report(now);
        }
        if self.wake <= now {
            self.send_allowed(now, sending);
        }
        self.wake.min(self.report_at)
    }

    fn send_allowed(&mut self, now: Time, sending: &mut Sending) {
        let next = match self.pace.spacing().map(|spacing| self.distance.interval(spacing)) {
            None => {
                let probe = words(PROBE, now.as_nanos());
                // A probe that fails to be sent is repeated like a lost one.
                let _ = self.udp.sockets.source.send(&probe);
                now + PROBE_AGAIN
            }
            Some(interval) => {
                let due = self.last_sent.map_or(now, |sent| sent + interval);
                if due > now {
                    due
                } else if self.udp.send_next(now, Some(self.wake), sending) {
                    self.last_sent = Some(now);
                    self.udp.blocked = false;
                    now + interval
                } else {
                    self.udp.next(now)
                }
            }
        };
        self.wake = if self.udp.has_stopped(next) { Time::NEVER } else { next };
    }

    /// Receives the data packets that arrived by `now`.
    pub(super) fn receive(&mut self, now: Time, sending: &mut Sending) -> Time {
        while let Some((number, stamp)) = take(&self.udp.sockets.sink) {
            if number == PROBE {
                // Treated as lost on the network.
                let _ = self.udp.sockets.sink.send(&words(PROBE, stamp));
                continue;
            }
            if self.udp.on_packet(now, number, stamp) {
                self.counter.on_packet(number);
            }
            if let Some(rtt) = self.told_rtt
                && self.report_at == Time::NEVER
            {
                self.report_at = now + rtt;
            }
        }
        self.on_time(now, sending)
    }

    fn report(&mut self, now: Time) {
        let Report { next, received } = self.counter.report();
        // Treated as lost on the network.
        let _ = self.udp.sockets.sink.send(&words(next, received.get()));
        let again = self.told_rtt.filter(|_| !self.udp.has_stopped(now));
        self.report_at = again.map_or(Time::NEVER, |rtt| now + rtt);
    }

    /// Receives the reports that reached the sender by `now`.
    pub(super) fn take_reports(&mut self, now: Time, sending: &mut Sending) -> Time {
        while let Some((number, value)) = take(&self.udp.sockets.source) {
            if number == PROBE {
                let base_rtt = now.since(Time::from_nanos(value));
                if self.pace.begin(base_rtt) {
                    self.told_rtt = Some(base_rtt);
                    self.wake = now;
                }
                continue;
            }
            // Reports are a round trip apart, copies come at once.
            let is_copy = self.last_report.is_some_and(|(next, received, came)| {
                let round_trip = self.told_rtt.unwrap_or_default();
                (next, received) == (number, value) && now.since(came) < round_trip / 2
            });
            if is_copy {
                continue;
            }
            self.last_report = Some((number, value, now));
            self.reports += 1;
            let report = Report { next: number, received: Packets::new(value) };
            self.pace.on_report(report, self.udp.sent());
        }
        self.on_time(now, sending)
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals { acks: self.reports, reductions: self.pace.losses(), ..self.udp.totals() }
    }

    pub(crate) fn controller_name(&self) -> Option<&'static str> {
        self.pace.name()
    }

    /// Names and values of its sampled quantities.
    pub(crate) fn quantities(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let sent = self.udp.sent() * self.udp.packet_size();
        let spacing = self.pace.spacing().map(|spacing| ("spacing_s", spacing.as_secs_f64()));
        [("sent_bytes", sent as f64)].into_iter().chain(spacing)
    }
}
