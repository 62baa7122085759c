//! What all versions of BBR keep of a flow.

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};

use super::super::{Ack, Start};
use super::inherent::InherentLoss;
use super::parameters::BbrParameters;
use crate::recovery::{DeliveryRates, RateSample, Repair};

/// The least window, in packets, with which a receiver that acknowledges every other packet keeps
/// the path busy (BBR.MinPipeCwnd; `bbr_cwnd_min_target`).
pub(super) const MIN_PIPE: f64 = 4.0;

/// The share of the bandwidth at which packets are paced: 1 % less drains queues
/// (BBR.PacingMarginPercent; `bbr_pacing_margin_percent`).
pub(super) const PACED_SHARE: f64 = 0.99;

/// The round trip assumed before the first sample (InitPacingRate; `bbr_init_pacing_rate_from_rtt`).
const NOMINAL_RTT: Duration = Duration::from_millis(1);

/// An acknowledgement with its sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) now: Time,
    /// Packets newly acknowledged.
    pub(super) newly: f64,
    /// Packets found lost by it.
    pub(super) lost: f64,
    /// Packets in flight after it.
    pub(super) in_flight: f64,
    pub(super) rtt: Option<Duration>,
    pub(super) sample: Option<RateSample>,
    pub(super) repair: Repair,
}

impl Event {
    /// The sample's rate in packets a second, if there is one.
    pub(super) fn rate(&self) -> Option<f64> {
        self.sample.and_then(|sample| sample.rate)
    }

    /// Whether its sample is limited by the application.
    pub(super) fn is_application_limited(&self) -> bool {
        self.sample.is_some_and(|sample| sample.is_application_limited)
    }
}

/// The state of a flow that does not depend on BBR's version.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) parameters: BbrParameters,
    pub(super) rates: DeliveryRates,
    pub(super) random: RandomStream,
    pub(super) packet_size: Bytes,
    /// In packets.
    pub(super) initial_window: f64,
    /// Congestion window in packets.
    pub(super) cwnd: f64,
    /// The window before a loss episode or ProbeRTT.
    pub(super) prior_cwnd: f64,
    /// In packets a second.
    pub(super) pacing: f64,
    /// Packets that leave at once.
    pub(super) quantum: f64,
    /// When the next packet leaves, as far as pacing decides.
    pub(super) departs: Time,
    has_seen_rtt: bool,
    /// The least round trip, and when it was seen.
    pub(super) min_rtt: Option<(Duration, Time)>,
    /// A packet sent when as much was delivered ends the round.
    next_round: f64,
    pub(super) rounds: u64,
    pub(super) round_start: bool,
    /// Whether losses were being repaired before.
    pub(super) repair: Repair,
    pub(super) idle_restart: bool,
    pub(super) reductions: u64,
    /// What the path loses anyway, if the parameters ask for it.
    pub(super) inherent: InherentLoss,
}

impl Flow {
    pub(super) fn new(
        start: Start,
        parameters: BbrParameters,
        random: RandomStream,
        keeps_losses: bool,
    ) -> Self {
        let initial_window = start.initial_window.packets().max(1.0);
        Self {
            parameters,
            rates: DeliveryRates::new(keeps_losses),
            random,
            packet_size: start.packet_size,
            initial_window,
            cwnd: initial_window,
            prior_cwnd: 0.0,
            pacing: parameters.startup_gain * initial_window / NOMINAL_RTT.as_secs_f64(),
            quantum: 2.0,
            departs: Time::ZERO,
            has_seen_rtt: false,
            min_rtt: None,
            next_round: 0.0,
            rounds: 0,
            round_start: false,
            repair: Repair::None,
            idle_restart: false,
            reductions: 0,
            inherent: InherentLoss::default(),
        }
    }

    /// Takes the sample of an acknowledgement.
    pub(super) fn event(&mut self, ack: &Ack) -> Event {
        if let Some(rtt) = ack.rtt {
            self.rates.on_rtt(rtt);
        }
        if ack.srtt > Duration::ZERO {
            self.see_rtt(ack.srtt);
        }
        Event {
            now: ack.now,
            newly: self.rates.newly_delivered(),
            lost: self.rates.newly_lost(),
            in_flight: ack.in_flight,
            rtt: ack.rtt,
            sample: self.rates.sample(),
            repair: self.rates.repair(),
        }
    }

    /// The first round trip is known: the pacing rate is that of the initial window in it.
    pub(super) fn see_rtt(&mut self, srtt: Duration) {
        if !self.has_seen_rtt {
            self.has_seen_rtt = true;
            let rtt = srtt.max(Duration::from_micros(1)).as_secs_f64();
            self.pacing = self.parameters.startup_gain * self.cwnd / rtt;
        }
    }

    /// Whether the round ends with this sample; if so, the next one begins (UpdateRound).
    pub(super) fn update_round(&mut self, sample: &RateSample) {
        self.round_start = sample.prior_delivered >= self.next_round;
        if self.round_start {
            self.start_round();
            self.rounds += 1;
        }
    }

    /// A round begins now.
    pub(super) fn start_round(&mut self) {
        self.next_round = self.rates.total_delivered();
    }

    /// A packet of a `size` in full packets is sent: when the next one leaves.
    pub(super) fn note_departure(&mut self, now: Time, size: f64) {
        let interval = Duration::from_secs_f64(size / self.pacing.max(1e-3));
        self.departs = self.departs.max(now) + interval;
    }

    /// The pacing rate for `gain` times `bandwidth` packets a second; it falls only where the pipe has
    /// been filled (SetPacingRateWithGain; `bbr_set_pacing_rate`).
    pub(super) fn pace(&mut self, bandwidth: f64, gain: f64, is_filled: bool) {
        let rate = gain * bandwidth * PACED_SHARE;
        if rate > 0.0 && (is_filled || rate > self.pacing) {
            self.pacing = rate;
        }
    }

    /// The pacing rate.
    pub(super) fn pacing_rate(&self) -> Rate {
        let bits = self.pacing * 8.0 * self.packet_size.get() as f64;
        Rate::from_bits_per_sec((bits as u64).max(1))
    }

    /// `seconds` of the pacing rate, at most 64 KB, in packets.
    pub(super) fn paced_in(&self, seconds: f64) -> f64 {
        /// The largest segment that is handed to an interface (SetSendQuantum).
        const LARGEST: f64 = 65_536.0;
        (self.pacing * seconds).min(LARGEST / self.packet_size.get().max(1) as f64)
    }

    /// Remembers the window for the time after an episode, or after ProbeRTT (SaveCwnd).
    pub(super) fn save_cwnd(&mut self, is_probing_rtt: bool) {
        let is_good = self.repair == Repair::None && !is_probing_rtt;
        self.prior_cwnd = if is_good { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    /// RestoreCwnd.
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }
}
