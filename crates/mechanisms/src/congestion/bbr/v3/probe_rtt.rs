//! The least round trip: its filter, and ProbeRTT (sections 5.3.4 and 5.4).

use ontempo_foundation::{Duration, Time};

use super::super::flow::{Event, Flow};
use super::super::inherent::is_without_queue;
use super::{AckPhase, MIN_RTT_FILTER, State, V3};

impl V3 {
    pub(super) fn update_min_rtt(&mut self, flow: &mut Flow, event: &Event) {
        let now = event.now;
        let interval = flow.parameters.probe_rtt_interval;
        if flow.parameters.skip_probe_rtt
            && let (Some((least, at)), Some(rtt)) = (&mut self.recent_rtt, event.rtt)
            && is_without_queue(rtt, *least)
        {
            *at = now;
        }
        self.is_rtt_stale = self.recent_rtt.is_some_and(|(_, at)| now > at + interval);
        if let Some(rtt) = event.rtt
            && (self.is_rtt_stale || self.recent_rtt.is_none_or(|(least, _)| rtt < least))
        {
            self.recent_rtt = Some((rtt, now));
        }
        let Some((recent, at)) = self.recent_rtt else { return };
        if flow.min_rtt.is_none_or(|(least, since)| recent < least || now > since + MIN_RTT_FILTER)
        {
            flow.min_rtt = Some((recent, at));
        }
    }

    /// The handshake took `rtt` (OnInit).
    pub(in super::super) fn on_handshake(&mut self, now: Time, rtt: Duration) {
        self.recent_rtt = Some((rtt, now));
        self.extra_since = now;
    }

    pub(super) fn check_probe_rtt(&mut self, flow: &mut Flow, event: &Event) {
        if self.state != State::ProbeRtt && self.is_rtt_stale && !flow.idle_restart {
            flow.save_cwnd(false);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            flow.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(flow, event);
        }
        if event.sample.is_some() {
            flow.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, flow: &mut Flow, event: &Event) {
        flow.rates.limit_by_application(event.in_flight);
        if self.probe_rtt_done.is_none() {
            if event.in_flight <= self.probe_rtt_cwnd(flow) {
                self.probe_rtt_done = Some(event.now + flow.parameters.probe_rtt_duration);
                self.probe_rtt_round_done = false;
                flow.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= flow.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(flow, event.now);
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT.
    fn check_probe_rtt_done(&mut self, flow: &mut Flow, now: Time) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        if let Some((_, at)) = &mut self.recent_rtt {
            *at = now;
        }
        flow.restore_cwnd();
        self.reset_short_term_model();
        if self.is_filled {
            self.start_down(flow, now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// Sending begins again after idleness (HandleRestartFromIdle).
    pub(in super::super) fn on_restart(&mut self, flow: &mut Flow, now: Time) {
        flow.idle_restart = true;
        self.extra_since = now;
        if self.state.is_probe_bw() {
            flow.pace(self.bandwidth, 1.0, self.is_filled);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(flow, now);
        }
    }
}
