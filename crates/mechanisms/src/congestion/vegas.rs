//! Vegas: keep a small number of packets in the queue (Brakmo and Peterson, "TCP
//! Vegas: End to End Congestion Avoidance on a Global Internet", IEEE JSAC 13(8), 1995).

use ontempo_foundation::{Duration, RandomStream};

use super::{
    Ack, CongestionControl, Field, Loss, Parameter, ParameterError, Parameters, RecoveryPoint,
    Registered, Snapshot, Start, Timeout, Window,
};

/// Vegas' parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VegasParameters {
    /// With fewer than this many of its packets in the queue, the window grows (ns-2: 1).
    pub alpha: f64,
    /// With more, it shrinks (ns-2: 3).
    pub beta: f64,
    /// With more, slow start ends (ns-2: 1).
    pub gamma: f64,
    /// The factor on the window at a loss: three quarters, since Vegas detects losses early and
    /// is at a small queue then (section 3.1 of the paper; ns-2). A timeout halves
    /// ssthresh and leaves one packet (RFC 5681; ns-2 leaves two).
    pub decrease: f64,
}

impl Default for VegasParameters {
    fn default() -> Self {
        Self { alpha: 1.0, beta: 3.0, gamma: 1.0, decrease: 0.75 }
    }
}

/// Upper limit of the thresholds, in packets.
const MAX_QUEUED: f64 = 1000.0;

impl Parameters for VegasParameters {
    const ALL: &'static [Parameter<Self>] = &[
        Parameter {
            name: "alpha",
            doc: "Below this many packets of its own in the queue, the window grows.",
            field: Field::Number {
                of: |all| &mut all.alpha,
                unit: "packets",
                min: 0.0,
                max: MAX_QUEUED,
            },
        },
        Parameter {
            name: "beta",
            doc: "Above this many packets of its own in the queue, the window shrinks.",
            field: Field::Number {
                of: |all| &mut all.beta,
                unit: "packets",
                min: 0.0,
                max: MAX_QUEUED,
            },
        },
        Parameter {
            name: "gamma",
            doc: "Above this many packets of its own in the queue, slow start ends.",
            field: Field::Number {
                of: |all| &mut all.gamma,
                unit: "packets",
                min: 0.0,
                max: MAX_QUEUED,
            },
        },
        Parameter {
            name: "decrease",
            doc: "The factor on the window at a loss.",
            field: Field::Number { of: |all| &mut all.decrease, unit: "share", min: 0.1, max: 1.0 },
        },
    ];

    fn check(&self) -> Result<(), ParameterError> {
        if self.alpha > self.beta {
            let what = format!("{} is less than `alpha`, {}", self.beta, self.alpha);
            return Err(ParameterError::new("beta", what));
        }
        Ok(())
    }
}

/// The samples of one RTT.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// It ends with the acknowledgement of this packet, the first one sent in it.
    end: u64,
    /// Sum of its samples.
    sum: Duration,
    samples: u64,
}

/// Vegas' state; the window changes by at most one packet per round trip.
#[derive(Clone, Debug)]
pub struct Vegas {
    parameters: VegasParameters,
    initial_window: f64,
    /// Congestion window in packets.
    cwnd: f64,
    /// Slow-start threshold in packets.
    ssthresh: f64,
    /// `BaseRTT`: the smallest sample.
    base_rtt: Option<Duration>,
    /// `None` before the first acknowledgement.
    round: Option<Round>,
    /// Whether the window grows in this round of slow start: it does in every other round.
    growing: bool,
    /// Queueing delay in the last round.
    queueing_delay: Option<Duration>,
    recovery: RecoveryPoint,
    reductions: u64,
}

impl Vegas {
    /// The fraction by which the window is reduced on leaving slow start (ns-2; the paper's
    /// text has no number).
    const OVERSHOOT: f64 = 1.0 / 8.0;

    /// A controller at the start of its connection.
    pub fn new(start: Start, parameters: VegasParameters) -> Self {
        Self {
            parameters,
            initial_window: start.initial_window.packets(),
            cwnd: start.initial_window.packets(),
            ssthresh: start.initial_ssthresh.packets(),
            base_rtt: None,
            round: None,
            growing: true,
            queueing_delay: None,
            recovery: RecoveryPoint::default(),
            reductions: 0,
        }
    }

    /// Adds the sample; returns the round trip that ended with `ack`, if one did.
    fn measure(&mut self, ack: &Ack) -> Option<Round> {
        let fresh = Round { end: ack.next, sum: Duration::ZERO, samples: 0 };
        let round = self.round.get_or_insert(fresh);
        if let Some(rtt) = ack.rtt {
            self.base_rtt = Some(self.base_rtt.map_or(rtt, |base| base.min(rtt)));
            round.sum += rtt;
            round.samples += 1;
        }
        if ack.acked < round.end {
            return None;
        }
        self.round.replace(fresh)
    }

    /// Once per round trip: compares the throughput with that of an empty queue. A
    /// window that the application does not use does not grow (ns-2).
    fn on_round(&mut self, round: Round, window_limited: bool) {
        let Some(base) = self.base_rtt else { return };
        if round.samples == 0 {
            return;
        }
        let rtt = round.sum / round.samples;
        self.queueing_delay = Some(rtt - base);
        // (Expected - Actual) * BaseRTT, in packets.
        let queued = self.cwnd * (rtt - base).ratio(rtt.max(Duration::from_nanos(1)));
        if self.cwnd < self.ssthresh {
            if queued > self.parameters.gamma {
                self.cwnd -= self.cwnd * Self::OVERSHOOT;
                self.cwnd = self.cwnd.max(Window::FLOOR.packets());
                self.ssthresh = self.cwnd;
            }
            self.growing = !self.growing;
        } else if queued < self.parameters.alpha {
            self.cwnd += if window_limited { 1.0 } else { 0.0 };
        } else if queued > self.parameters.beta {
            self.cwnd = (self.cwnd - 1.0).max(Window::FLOOR.packets());
        }
    }

    fn reduce(&mut self, decrease: f64) {
        self.ssthresh = (self.cwnd * decrease).max(Window::FLOOR.packets());
        self.growing = true;
        self.reductions += 1;
    }
}

impl Registered for Vegas {
    type Parameters = VegasParameters;

    fn start(start: Start, parameters: VegasParameters, _: RandomStream) -> Self {
        Self::new(start, parameters)
    }
}

impl CongestionControl for Vegas {
    fn on_ack(&mut self, ack: &Ack) {
        let ended = self.measure(ack);
        if ack.in_recovery || ack.packets <= 0.0 {
            return;
        }
        if self.growing && ack.window_limited && self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
        }
        if let Some(round) = ended {
            self.on_round(round, ack.window_limited);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.recovery.begins_with(loss) {
            self.reduce(self.parameters.decrease);
            self.cwnd = self.ssthresh;
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.recovery.restart(timeout.next);
        if !timeout.repeated {
            self.reduce(0.5);
        }
        self.cwnd = 1.0;
    }

    fn on_spurious_timeout(&mut self, before: &Snapshot) {
        self.cwnd = self.cwnd.max(before.cwnd.packets());
        self.ssthresh = self.ssthresh.max(before.ssthresh.packets());
        // The next loss begins an episode, whatever was outstanding at the timeout.
        self.recovery = RecoveryPoint::default();
    }

    fn on_idle_restart(&mut self) {
        self.cwnd = self.cwnd.min(self.initial_window);
        self.round = None;
    }

    fn on_idle_decay(&mut self, timeouts: u64) {
        self.cwnd = self.window().decayed(self.initial_window, timeouts).packets();
        self.round = None;
    }

    fn window(&self) -> Window {
        Window::of_packets(self.cwnd)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: Window::of_packets(self.cwnd),
            ssthresh: Window::of_packets(self.ssthresh),
            alpha: None,
            queueing_delay: self.queueing_delay,
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: 0,
            reductions: self.reductions,
            bears: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Time;

    use super::super::tests::{ack_at, loss, start_with};
    use super::*;

    /// Runs whole rounds of one acknowledgement each with this RTT.
    fn rounds(vegas: &mut Vegas, count: u64, rtt: Duration) {
        for _ in 0..count {
            let acked = vegas.round.map_or(0, |round| round.end);
            vegas.on_ack(&Ack { acked, next: acked + 1, ..ack_at(Time::ZERO, rtt) });
        }
    }

    const BASE: Duration = Duration::from_millis(100);

    #[test]
    fn an_empty_queue_earns_one_packet_a_round_trip() {
        let mut vegas = Vegas::new(start_with(10.0), VegasParameters::default());
        rounds(&mut vegas, 1, BASE);
        assert_eq!(vegas.window().packets(), 10.0);
        rounds(&mut vegas, 3, BASE);
        assert_eq!(vegas.window().packets(), 13.0);
    }

    #[test]
    fn one_to_three_queued_packets_leave_the_window_and_more_take_one() {
        let mut vegas = Vegas::new(start_with(20.0), VegasParameters::default());
        rounds(&mut vegas, 1, BASE);
        vegas.cwnd = 20.0;
        // The first round is still the one begun above; at 125 ms, 20 * 25/125 = 4
        // packets are queued.
        vegas.round = None;
        rounds(&mut vegas, 2, Duration::from_micros(111_111));
        assert_eq!(vegas.window().packets(), 20.0);
        vegas.round = None;
        rounds(&mut vegas, 2, Duration::from_millis(125));
        assert_eq!(vegas.window().packets(), 19.0);
        assert_eq!(vegas.snapshot().queueing_delay, Some(Duration::from_millis(25)));
    }

    #[test]
    fn slow_start_grows_in_every_other_round_and_ends_at_the_first_queued_packet() {
        let start = Start { initial_window: Window::of_packets(8.0), ..Start::default() };
        let mut vegas = Vegas::new(start, VegasParameters::default());
        rounds(&mut vegas, 5, BASE);
        // Acknowledgements 1, 2, 4 and so on fall into growing rounds: 1, 2 | 3 | 4 | 5.
        assert_eq!(vegas.window().packets(), 11.0);
        rounds(&mut vegas, 1, BASE * 2);
        assert!(vegas.window() < Window::of_packets(11.0));
        assert_eq!(vegas.snapshot().ssthresh, vegas.window());
    }

    #[test]
    fn a_loss_takes_a_quarter_once_a_window() {
        let mut vegas = Vegas::new(start_with(16.0), VegasParameters::default());
        vegas.on_loss(&loss(3, 20));
        vegas.on_loss(&loss(9, 20));
        assert_eq!(vegas.window().packets(), 12.0);
    }
}
