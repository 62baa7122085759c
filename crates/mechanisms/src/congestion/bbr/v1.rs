//! BBR version 1, as Linux 6 has it (`net/ipv4/tcp_bbr.c`), without its long-term bandwidth, which is
//! for policers.

use ontempo_foundation::{Duration, Time};

use super::filter::RoundMaximum;
use super::flow::{Event, Flow, MIN_PIPE};
use crate::recovery::Repair;

/// Pacing gains of the cycle, each for a least round trip (`bbr_pacing_gain`).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// The cycle begins at one of so many phases, never at that of 3/4 (`bbr_cycle_rand`).
const CYCLE_STARTS: u64 = 7;

/// Pacing gain of Drain: the inverse of Startup's, in 256ths (`bbr_drain_gain`).
const DRAIN_GAIN: f64 = 88.0 / 256.0;

/// The bandwidth is the maximum of this round and so many before it (`bbr_bw_rtts`).
const BANDWIDTH_ROUNDS: u64 = 10;

/// Startup goes on while the bandwidth grows by this factor within so many rounds
/// (`bbr_full_bw_thresh`, `bbr_full_bw_cnt`).
const GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;

/// Below this pacing rate single packets leave, above it at least two at a time
/// (`bbr_min_tso_rate`), in bits a second.
const SINGLE_PACKETS_BELOW: f64 = 1_200_000.0;

/// The most packets of one large segment that are counted on (`bbr_tso_segs_goal`).
const MAX_TOGETHER: f64 = 127.0;

/// The share of a second that a large segment lasts (`sk_pacing_shift`).
const SEGMENT_SECONDS: f64 = 1.0 / 1024.0;

/// The window without a round trip (`TCP_INIT_CWND`).
const WINDOW_WITHOUT_RTT: f64 = 10.0;

/// So many packets leave unpaced at first (`tcp_update_skb_after_send`).
const UNPACED: u64 = 10;

/// Rounds for which excess acknowledgements are remembered, at least and twice that at most
/// (`bbr_extra_acked_win_rtts`), the longest time that they fill (`bbr_extra_acked_max_us`), and the
/// count at which it begins anew (`bbr_ack_epoch_acked_reset_thresh`).
const AGGREGATION_ROUNDS: u32 = 5;
const AGGREGATION_MOST: Duration = Duration::from_millis(100);
const AGGREGATION_RESET: f64 = 1_048_576.0;

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Startup,
    Drain,
    /// In this phase of the cycle since that time.
    ProbeBw(usize, Time),
    ProbeRtt,
}

/// Acknowledgements beyond what the bandwidth would give (`bbr_update_ack_aggregation`).
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    since: Time,
    acked: f64,
    extra: [f64; 2],
    slot: usize,
    rounds: u32,
}

/// Version 1's model of the path.
#[derive(Clone, Debug)]
pub(super) struct V1 {
    pub(super) mode: Mode,
    bandwidth: RoundMaximum,
    full_bandwidth: f64,
    without_growth: u32,
    pub(super) is_filled: bool,
    packet_conservation: bool,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    aggregation: Aggregation,
}

impl V1 {
    pub(super) fn new() -> Self {
        Self {
            mode: Mode::Startup,
            bandwidth: RoundMaximum::default(),
            full_bandwidth: 0.0,
            without_growth: 0,
            is_filled: false,
            packet_conservation: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            aggregation: Aggregation::default(),
        }
    }

    /// The estimated bandwidth in packets a second.
    pub(super) fn bandwidth(&self) -> f64 {
        self.bandwidth.largest(BANDWIDTH_ROUNDS)
    }

    fn pacing_gain(&self, flow: &Flow) -> f64 {
        match self.mode {
            Mode::Startup => flow.parameters.startup_gain,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw(phase, _) => CYCLE[phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self, flow: &Flow) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => flow.parameters.startup_gain,
            Mode::ProbeBw(..) => flow.parameters.cwnd_gain,
            Mode::ProbeRtt => 1.0,
        }
    }

    /// `bbr_main`.
    pub(super) fn on_ack(&mut self, flow: &mut Flow, event: &Event) {
        self.update_bandwidth(flow, event);
        let bandwidth = self.bandwidth();
        self.update_aggregation(flow, event, bandwidth);
        self.update_cycle(flow, event, bandwidth);
        self.check_filled(flow, event, bandwidth);
        self.check_drain(flow, event, bandwidth);
        self.update_min_rtt(flow, event);
        flow.pace(bandwidth, self.pacing_gain(flow), self.is_filled);
        flow.quantum = self.together(flow);
        self.set_cwnd(flow, event, bandwidth);
    }

    /// `bbr_update_bw`.
    fn update_bandwidth(&mut self, flow: &mut Flow, event: &Event) {
        flow.round_start = false;
        let (Some(sample), Some(rate)) = (event.sample, event.rate()) else { return };
        flow.update_round(&sample);
        if flow.round_start {
            self.packet_conservation = false;
        }
        if !sample.is_application_limited || rate >= self.bandwidth() {
            self.bandwidth.add(flow.rounds, rate);
        }
    }

    /// `bbr_update_ack_aggregation`.
    fn update_aggregation(&mut self, flow: &Flow, event: &Event, bandwidth: f64) {
        if event.newly <= 0.0 || event.rate().is_none() {
            return;
        }
        let all = &mut self.aggregation;
        if flow.round_start {
            all.rounds += 1;
            if all.rounds >= AGGREGATION_ROUNDS {
                all.rounds = 0;
                all.slot = 1 - all.slot;
                all.extra[all.slot] = 0.0;
            }
        }
        let mut expected = bandwidth * event.now.since(all.since).as_secs_f64();
        if all.acked <= expected || all.acked + event.newly >= AGGREGATION_RESET {
            all.acked = 0.0;
            all.since = event.now;
            expected = 0.0;
        }
        all.acked += event.newly;
        let extra = (all.acked - expected).floor().clamp(0.0, flow.cwnd);
        all.extra[all.slot] = all.extra[all.slot].max(extra);
    }

    /// `bbr_update_cycle_phase`.
    fn update_cycle(&mut self, flow: &Flow, event: &Event, bandwidth: f64) {
        let Mode::ProbeBw(phase, since) = self.mode else { return };
        let least = flow.min_rtt.map_or(Duration::ZERO, |(rtt, _)| rtt);
        let is_full_length = flow.rates.delivered_at().since(since) > least;
        let gain = CYCLE[phase];
        let ends = if gain == 1.0 {
            is_full_length
        } else {
            let prior = flow.rates.prior_in_flight();
            let in_flight = self.at_departure(flow, event.now, prior, bandwidth);
            if gain > 1.0 {
                let target = self.inflight(flow, bandwidth, gain);
                is_full_length && (event.lost > 0.0 || in_flight >= target)
            } else {
                is_full_length || in_flight <= self.inflight(flow, bandwidth, 1.0)
            }
        };
        if ends {
            self.mode = Mode::ProbeBw((phase + 1) % CYCLE.len(), flow.rates.delivered_at());
        }
    }

    /// Packets in flight when the next one leaves (`bbr_packets_in_net_at_edt`).
    fn at_departure(&self, flow: &Flow, now: Time, in_flight: f64, bandwidth: f64) -> f64 {
        let delivered = (bandwidth * flow.departs.since(now).as_secs_f64()).floor();
        let leaving = if self.pacing_gain(flow) > 1.0 { self.together(flow) } else { 0.0 };
        (in_flight + leaving - delivered).max(0.0)
    }

    /// `bbr_check_full_bw_reached`.
    fn check_filled(&mut self, flow: &Flow, event: &Event, bandwidth: f64) {
        if self.is_filled || !flow.round_start || event.is_application_limited() {
            return;
        }
        if bandwidth >= self.full_bandwidth * GROWTH {
            self.full_bandwidth = bandwidth;
            self.without_growth = 0;
            return;
        }
        self.without_growth += 1;
        self.is_filled = self.without_growth >= ROUNDS_WITHOUT_GROWTH;
    }

    /// `bbr_check_drain`.
    fn check_drain(&mut self, flow: &mut Flow, event: &Event, bandwidth: f64) {
        if self.mode == Mode::Startup && self.is_filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain {
            let in_flight = self.at_departure(flow, event.now, event.in_flight, bandwidth);
            if in_flight <= self.inflight(flow, bandwidth, 1.0) {
                self.enter_probe_bw(flow);
            }
        }
    }

    /// `bbr_reset_probe_bw_mode`.
    fn enter_probe_bw(&mut self, flow: &mut Flow) {
        let drawn = (flow.random.uniform() * CYCLE_STARTS as f64) as usize;
        let phase = CYCLE.len() - drawn.min(CYCLE_STARTS as usize - 1);
        self.mode = Mode::ProbeBw(phase % CYCLE.len(), flow.rates.delivered_at());
    }

    /// `bbr_update_min_rtt`.
    fn update_min_rtt(&mut self, flow: &mut Flow, event: &Event) {
        let interval = flow.parameters.probe_rtt_interval;
        let is_expired = flow.min_rtt.is_some_and(|(_, at)| event.now > at + interval);
        if let Some(rtt) = event.rtt
            && (is_expired || flow.min_rtt.is_none_or(|(least, _)| rtt < least))
        {
            flow.min_rtt = Some((rtt, event.now));
        }
        if is_expired && !flow.idle_restart && self.mode != Mode::ProbeRtt {
            flow.save_cwnd(false);
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            flow.rates.limit_by_application(event.in_flight);
            if self.probe_rtt_done.is_none() && event.in_flight <= MIN_PIPE {
                self.probe_rtt_done = Some(event.now + flow.parameters.probe_rtt_duration);
                self.probe_rtt_round_done = false;
                flow.start_round();
            } else if self.probe_rtt_done.is_some() {
                self.probe_rtt_round_done |= flow.round_start;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(flow, event.now);
                }
            }
        }
        if event.sample.is_some() {
            flow.idle_restart = false;
        }
    }

    /// `bbr_check_probe_rtt_done`.
    fn check_probe_rtt_done(&mut self, flow: &mut Flow, now: Time) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        if let Some((_, at)) = &mut flow.min_rtt {
            *at = now;
        }
        flow.restore_cwnd();
        if self.is_filled {
            self.enter_probe_bw(flow);
        } else {
            self.mode = Mode::Startup;
        }
    }

    /// Packets that leave at once (`bbr_tso_segs_goal`).
    fn together(&self, flow: &Flow) -> f64 {
        let rate = flow.pacing * 8.0 * flow.packet_size.get() as f64;
        let least = if rate < SINGLE_PACKETS_BELOW { 1.0 } else { 2.0 };
        flow.paced_in(SEGMENT_SECONDS).floor().clamp(least, MAX_TOGETHER)
    }

    /// `bbr_bdp`.
    fn bdp(&self, flow: &Flow, bandwidth: f64, gain: f64) -> f64 {
        match flow.min_rtt {
            Some((least, _)) => (bandwidth * least.as_secs_f64() * gain).ceil(),
            None => WINDOW_WITHOUT_RTT,
        }
    }

    /// `bbr_quantization_budget`.
    fn quantized(&self, flow: &Flow, window: f64) -> f64 {
        let window = window.floor() + 3.0 * self.together(flow);
        let even = (window / 2.0).ceil() * 2.0;
        let is_probing = matches!(self.mode, Mode::ProbeBw(0, _));
        even + if is_probing { 2.0 } else { 0.0 }
    }

    /// `bbr_inflight`.
    fn inflight(&self, flow: &Flow, bandwidth: f64, gain: f64) -> f64 {
        self.quantized(flow, self.bdp(flow, bandwidth, gain))
    }

    /// `bbr_set_cwnd`.
    fn set_cwnd(&mut self, flow: &mut Flow, event: &Event, bandwidth: f64) {
        if event.newly > 0.0 && !self.recovers(flow, event) {
            let excess = if self.is_filled {
                let most = bandwidth * AGGREGATION_MOST.as_secs_f64();
                self.aggregation.extra[0].max(self.aggregation.extra[1]).min(most).floor()
            } else {
                0.0
            };
            let target = self.bdp(flow, bandwidth, self.cwnd_gain(flow)) + excess;
            let target = self.quantized(flow, target);
            let is_young = flow.rates.total_delivered() < WINDOW_WITHOUT_RTT;
            if self.is_filled {
                flow.cwnd = (flow.cwnd + event.newly).min(target);
            } else if flow.cwnd < target || is_young {
                flow.cwnd += event.newly;
            }
            flow.cwnd = flow.cwnd.max(MIN_PIPE);
        }
        if self.mode == Mode::ProbeRtt {
            flow.cwnd = flow.cwnd.min(MIN_PIPE);
        }
    }

    /// `bbr_set_cwnd_to_recover_or_restore`: true where a packet leaves for each that is delivered.
    fn recovers(&mut self, flow: &mut Flow, event: &Event) -> bool {
        if event.repair == Repair::Episode && flow.repair != Repair::Episode {
            // `bbr_ssthresh`, which is called before.
            flow.save_cwnd(self.mode == Mode::ProbeRtt);
        }
        if event.lost > 0.0 {
            flow.cwnd = (flow.cwnd - event.lost).max(1.0);
        }
        let before = std::mem::replace(&mut flow.repair, event.repair);
        if event.repair == Repair::Episode && before != Repair::Episode {
            self.packet_conservation = true;
            flow.start_round();
            flow.cwnd = event.in_flight + event.newly;
        } else if before != Repair::None && event.repair == Repair::None {
            flow.restore_cwnd();
            self.packet_conservation = false;
        }
        if self.packet_conservation {
            flow.cwnd = flow.cwnd.max(event.in_flight + event.newly);
        }
        self.packet_conservation
    }

    /// `tcp_enter_loss` and `bbr_set_state`.
    pub(super) fn on_timeout(&mut self, flow: &mut Flow, in_flight: f64) {
        flow.save_cwnd(self.mode == Mode::ProbeRtt);
        flow.repair = Repair::AfterTimeout;
        flow.cwnd = in_flight + 1.0;
        self.full_bandwidth = 0.0;
    }

    /// `bbr_undo_cwnd`.
    pub(super) fn on_spurious_timeout(&mut self) {
        self.full_bandwidth = 0.0;
        self.without_growth = 0;
    }

    /// Sending begins again after idleness (`bbr_cwnd_event`).
    pub(super) fn on_restart(&mut self, flow: &mut Flow, now: Time) {
        flow.idle_restart = true;
        self.aggregation.since = now;
        self.aggregation.acked = 0.0;
        match self.mode {
            Mode::ProbeBw(..) => {
                let bandwidth = self.bandwidth();
                flow.pace(bandwidth, 1.0, self.is_filled);
            }
            Mode::ProbeRtt => self.check_probe_rtt_done(flow, now),
            Mode::Startup | Mode::Drain => {}
        }
    }

    /// Packets that may leave back to back.
    pub(super) fn burst(&self, flow: &Flow) -> f64 {
        if flow.rates.total_delivered() == 0.0 { UNPACED as f64 } else { flow.quantum }
    }
}
