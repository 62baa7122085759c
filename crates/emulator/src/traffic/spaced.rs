//! UDP whose packets keep a distance: constant, or adapted to the receiver's reports.

use ontempo_foundation::{Duration, Packets, Time};
use ontempo_mechanisms::spacing::{Report, ReportCounter};
use ontempo_runtime::{Distance, FlowTotals, Pace};

use super::udp::{Udp, take, words};

/// The number that makes a packet a probe of the round trip, or its answer.
const PROBE: u64 = u64::MAX;

/// How long the answer to a probe is waited for.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

/// Both ends of a flow of spaced packets; reports go back between the same two sockets.
pub(crate) struct Spaced {
    pub(crate) udp: Udp,
    pace: Pace,
    distance: Distance,
    last_sent: Option<Time>,
    /// When the sender may send again.
    wake: Time,
    /// Reports that reached the sender.
    reports: u64,
    // The receiver's end.
    counter: ReportCounter,
    /// The base round trip, as the sender found it.
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
            counter: ReportCounter::default(),
            told_rtt: None,
            report_at: Time::NEVER,
        }
    }

    /// Sends what is due by `now`; answers when to ask again.
    pub(crate) fn on_time(&mut self, now: Time) -> Time {
        if self.report_at <= now {
            self.report(now);
        }
        if self.wake <= now {
            self.send_what_may_go(now);
        }
        self.wake.min(self.report_at)
    }

    fn send_what_may_go(&mut self, now: Time) {
        let next = match self.pace.spacing().map(|spacing| self.distance.interval(spacing)) {
            None => {
                let probe = words(PROBE, now.as_nanos());
                // One that is not sent is sent again, as one that is lost is.
                let _ = self.udp.sockets.source.send(&probe);
                now + PROBE_AGAIN
            }
            Some(interval) => {
                let due = self.last_sent.map_or(now, |sent| sent + interval);
                if due > now {
                    due
                } else if self.udp.send_next(now) {
                    self.last_sent = Some(now);
                    now + interval
                } else {
                    self.udp.next(now)
                }
            }
        };
        self.wake = if self.udp.has_stopped(next) { Time::NEVER } else { next };
    }

    /// Takes what has come to the receiver by `now`.
    pub(crate) fn receive(&mut self, now: Time) -> Time {
        while let Some((number, stamp)) = take(&self.udp.sockets.sink) {
            if number == PROBE {
                // As one that is lost on its way.
                let _ = self.udp.sockets.sink.send(&words(PROBE, stamp));
                continue;
            }
            self.udp.on_packet(now, number, stamp);
            self.counter.on_packet(number);
            if let Some(rtt) = self.told_rtt
                && self.report_at == Time::NEVER
            {
                self.report_at = now + rtt;
            }
        }
        self.on_time(now)
    }

    fn report(&mut self, now: Time) {
        let Report { next, received } = self.counter.report();
        // As one that is lost on its way.
        let _ = self.udp.sockets.sink.send(&words(next, received.get()));
        let again = self.told_rtt.filter(|_| !self.udp.has_stopped(now));
        self.report_at = again.map_or(Time::NEVER, |rtt| now + rtt);
    }

    /// Takes the reports that have come to the sender by `now`.
    pub(crate) fn take_reports(&mut self, now: Time) -> Time {
        while let Some((number, value)) = take(&self.udp.sockets.source) {
            if number == PROBE {
                let base_rtt = now.since(Time::from_nanos(value));
                if self.pace.begin(base_rtt) {
                    self.told_rtt = Some(base_rtt);
                    self.wake = now;
                }
                continue;
            }
            self.reports += 1;
            let report = Report { next: number, received: Packets::new(value) };
            self.pace.on_report(report, self.udp.sent());
        }
        self.on_time(now)
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals { acks: self.reports, reductions: self.pace.losses(), ..self.udp.totals() }
    }

    pub(crate) fn controller_name(&self) -> Option<&'static str> {
        self.pace.name()
    }

    /// What the tables call its quantities.
    pub(crate) fn quantities(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let sent = self.udp.sent() * self.udp.packet_size();
        let spacing = self.pace.spacing().map(|spacing| ("spacing_s", spacing.as_secs_f64()));
        [("sent_bytes", sent as f64)].into_iter().chain(spacing)
    }
}
