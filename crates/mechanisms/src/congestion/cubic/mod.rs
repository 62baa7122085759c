//! CUBIC: the window as a cubic function of the time since the last loss (RFC 9438).
//!
//! Three laws of growth share the epochs and the reductions: that of the RFC, the same as Linux 6
//! has it, and that of the Linux 2.6 module which ns-2 2.35 runs (`kernel`), for comparison with ns-2.

mod hystart;
mod kernel;

use ontempo_foundation::{Duration, RandomStream, Time, math};

use self::hystart::HyStart;
use self::kernel::Kernel;
use super::{
    Ack, AckCounting, CongestionControl, Field, Loss, Parameter, Parameters, RecoveryPoint,
    Registered, Snapshot, Start, Timeout, Variant, Window,
};

/// How the window grows in congestion avoidance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// RFC 9438, section 4: in fractions of a packet, bounded by one and a half windows.
    Rfc9438,
    /// The same as Linux 6 has it (`bictcp_update`): W_est keeps its increase beyond the window
    /// before the last reduction, before the first loss the window grows by at least 5 % a round
    /// trip, and the curve is looked up the least RTT ahead, not the smoothed one.
    Linux6,
    /// Linux 2.6.22 (CUBIC 2.1): in whole packets, by a count of ACKs.
    Linux26,
}

/// CUBIC's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicParameters {
    /// C, the curve's steepness in packets per cubic second (RFC 9438, section 5.1: 0.4).
    pub c: f64,
    /// The factor on the window at a loss, 0 to 1 (RFC 9438, section 4.6: 0.7).
    pub beta: f64,
    /// Fast convergence: release bandwidth to newer flows by a lower plateau after a loss below
    /// the last maximum (RFC 9438, section 4.7).
    pub fast_convergence: bool,
    /// The law of growth. That of Linux 2.6 depends on whether ACKs echo timestamps
    /// ([`Start::timestamps`]): without them it has no minimum RTT, and grows beyond the
    /// plateau without bound.
    pub growth: Growth,
    /// The unit in which acknowledgements grow the window in slow start (RFC 9438, section 4: as
    /// Reno; Linux: packets). Congestion avoidance counts packets in any case.
    pub counting: AckCounting,
    /// Leave slow start before the queue overflows, by HyStart as Linux has it.
    pub hystart: bool,
}

impl Default for CubicParameters {
    /// The values of RFC 9438.
    fn default() -> Self {
        Self {
            c: 0.4,
            beta: 0.7,
            fast_convergence: true,
            growth: Growth::Rfc9438,
            counting: AckCounting::Acks,
            hystart: false,
        }
    }
}

impl CubicParameters {
    /// The module of Linux 2.6.22 that ns-2 2.35's `Agent/TCP/Linux` runs as `cubic`: `beta`
    /// 819/1024; C from `bic_scale` 41 over 1024, in tenths of a second; fast convergence and
    /// the Reno-friendly region on.
    pub fn linux_2_6() -> Self {
        Self {
            c: 41.0 * 10.0 / 1024.0,
            beta: 819.0 / 1024.0,
            fast_convergence: true,
            growth: Growth::Linux26,
            ..Self::default()
        }
    }

    /// Linux 6: HyStart, slow start by packets, and its law of growth.
    pub fn linux() -> Self {
        Self {
            growth: Growth::Linux6,
            counting: AckCounting::Packets,
            hystart: true,
            ..Self::default()
        }
    }

    /// Additive increase that, with `beta`, gives a Reno-like flow Reno's mean window, in
    /// packets per round trip (RFC 9438, section 4.3).
    pub fn reno_friendly_increase(&self) -> f64 {
        3.0 * (1.0 - self.beta) / (1.0 + self.beta)
    }
}

impl Parameters for CubicParameters {
    const ALL: &'static [Parameter<Self>] = &[
        Parameter {
            name: "c",
            doc: "C, the curve's steepness in packets per cubic second (RFC 9438, section 5.1).",
            field: Field::Number {
                of: |all| &mut all.c,
                unit: "packets per cubic second",
                min: 0.001,
                max: 1000.0,
            },
        },
        Parameter {
            name: "beta",
            doc: "The factor on the window at a loss (RFC 9438, section 4.6).",
            field: Field::Number { of: |all| &mut all.beta, unit: "share", min: 0.1, max: 0.99 },
        },
        Parameter {
            name: "fast-convergence",
            doc: "Aim lower after a second loss below the last maximum (RFC 9438, section 4.7).",
            field: Field::Flag { of: |all| &mut all.fast_convergence },
        },
        Parameter {
            name: "counting",
            doc: "What a step of slow start is counted by.",
            field: Field::Choice {
                words: AckCounting::WORDS,
                get: |all| all.counting.place(),
                set: |all, place| all.counting = AckCounting::at(place),
            },
        },
        Parameter {
            name: "hystart",
            doc: "Leave slow start when ACKs in a row last half of the least RTT, or the RTT has \
                  grown by an eighth of it (HyStart, as in Linux).",
            field: Field::Flag { of: |all| &mut all.hystart },
        },
    ];
    const VARIANTS: &'static [Variant<Self>] = &[
        Variant { name: "rfc9438", doc: "RFC 9438.", make: Self::default },
        Variant { name: "linux", doc: "Linux 6.", make: Self::linux },
        Variant { name: "linux-2.6", doc: "Linux 2.6, as ns-2 carries it.", make: Self::linux_2_6 },
    ];
}

/// One congestion-avoidance stage, from the first growth after a reduction to the next.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began, moved forward by the times in which the sender was application-limited.
    start: Time,
    /// K: seconds from the start to the plateau.
    k: f64,
    /// W_max of this epoch: the height of the plateau in packets.
    plateau: f64,
    /// W_est: the window that Reno would have, in packets.
    reno: f64,
}

impl Epoch {
    /// RFC 9438, section 4.2: K is 0 if the window is already at the maximum.
    fn begin(now: Time, cwnd: f64, w_max: f64, c: f64) -> Self {
        let (k, plateau) =
            if w_max > cwnd { (math::cbrt((w_max - cwnd) / c), w_max) } else { (0.0, cwnd) };
        Self { start: now, k, plateau, reno: cwnd }
    }

    /// How far the curve lies from the plateau `elapsed` after the start, in packets.
    fn offset(&self, elapsed: Duration, c: f64) -> f64 {
        let from_plateau = elapsed.as_secs_f64() - self.k;
        c * from_plateau * from_plateau * from_plateau
    }
}

/// CUBIC's state.
#[derive(Clone, Debug)]
pub struct Cubic {
    parameters: CubicParameters,
    initial_window: f64,
    /// Congestion window in packets.
    cwnd: f64,
    /// Slow-start threshold in packets.
    ssthresh: f64,
    /// W_max in packets; zero before the first loss and after a timeout, when the next epoch
    /// sets its own (RFC 9438, section 4.8).
    w_max: f64,
    /// The window before the last reduction, in packets.
    cwnd_prior: f64,
    /// Whether a loss has been found since the start, or since the last timeout.
    has_lost: bool,
    /// `None` from a reduction to the first growth after it.
    epoch: Option<Epoch>,
    /// When the last acknowledgement in congestion avoidance arrived.
    last_ack: Time,
    kernel: Kernel,
    hystart: Option<HyStart>,
    recovery: RecoveryPoint,
    reductions: u64,
}

impl Cubic {
    /// Maximum target in windows (RFC 9438, section 4.2).
    const STEEPEST: f64 = 1.5;
    /// Least growth before the first loss, in windows a round trip (Linux: a packet for 20
    /// acknowledged).
    const PROBING: f64 = 0.05;

    /// A controller at the start of its connection.
    pub fn new(start: Start, parameters: CubicParameters) -> Self {
        Self {
            parameters,
            initial_window: start.initial_window.packets(),
            cwnd: start.initial_window.packets(),
            ssthresh: start.initial_ssthresh.packets(),
            w_max: 0.0,
            cwnd_prior: 0.0,
            has_lost: false,
            epoch: None,
            last_ack: Time::ZERO,
            kernel: Kernel::new(start.timestamps),
            hystart: parameters.hystart.then(|| HyStart::new(start.packet_size)),
            recovery: RecoveryPoint::default(),
            reductions: 0,
        }
    }

    fn in_slow_start(&self) -> bool {
        match self.parameters.growth {
            Growth::Rfc9438 | Growth::Linux6 => self.cwnd < self.ssthresh,
            Growth::Linux26 => self.cwnd <= self.ssthresh,
        }
    }

    /// Slow start by packets acknowledged, up to the threshold; returns those left over, which grow
    /// the window by congestion avoidance (Linux, `tcp_slow_start`).
    fn grow_by_packets(&mut self, packets: f64) -> f64 {
        let grown = (self.cwnd + packets).min(self.ssthresh).max(self.cwnd);
        let left = packets - (grown - self.cwnd);
        self.cwnd = grown;
        left
    }

    fn leave_slow_start_if_due(&mut self, ack: &Ack) {
        let in_slow_start = self.cwnd < self.ssthresh;
        // Samples of the first second of an epoch follow a loss, and are not used (Linux,
        // `cubictcp_acked`).
        let settled =
            self.epoch.is_none_or(|epoch| ack.now.since(epoch.start) >= Duration::from_secs(1));
        if let (Some(hystart), Some(rtt), true) = (&mut self.hystart, ack.rtt, settled)
            && hystart.on_sample(ack, rtt, in_slow_start.then_some(self.cwnd))
        {
            self.ssthresh = self.cwnd;
        }
    }

    /// The current epoch, begun by `ack` if there is none.
    fn epoch_at(&mut self, ack: &Ack) -> Epoch {
        let begin = || Epoch::begin(ack.now, self.cwnd, self.w_max, self.parameters.c);
        let epoch = *self.epoch.get_or_insert_with(begin);
        if self.parameters.growth != Growth::Linux26 {
            self.w_max = epoch.plateau;
        }
        epoch
    }

    /// RFC 9438, section 5.8: time in which the sender is application-limited does not count for
    /// the epoch.
    fn pause_epoch(&mut self, now: Time) {
        if let Some(epoch) = &mut self.epoch
            && self.parameters.growth != Growth::Linux26
        {
            epoch.start += now.since(self.last_ack.max(epoch.start));
        }
        self.last_ack = now;
    }

    /// RFC 9438, sections 4.2 to 4.5. Growth counts packets acknowledged, so that delayed
    /// ACKs do not slow it (as Linux since 4.0).
    fn grow_by_rfc(&mut self, ack: &Ack) {
        let mut epoch = self.epoch_at(ack);
        let before = self.cwnd;
        let CubicParameters { c, growth, .. } = self.parameters;
        let increase = if growth == Growth::Rfc9438 && epoch.reno >= self.cwnd_prior {
            1.0
        } else {
            self.parameters.reno_friendly_increase()
        };
        epoch.reno += increase * ack.packets / self.cwnd;
        self.epoch = Some(epoch);

        let elapsed = ack.now.since(epoch.start);
        if epoch.plateau + epoch.offset(elapsed, c) < epoch.reno {
            self.cwnd = self.cwnd.max(epoch.reno);
        } else {
            let ahead = match growth {
                Growth::Linux6 => self.kernel.least_rtt().unwrap_or(ack.srtt),
                Growth::Rfc9438 | Growth::Linux26 => ack.srtt,
            };
            let target = (epoch.plateau + epoch.offset(elapsed + ahead, c))
                .clamp(self.cwnd, self.cwnd * Self::STEEPEST);
            self.cwnd = (self.cwnd + ack.packets * (target - self.cwnd) / self.cwnd).min(target);
        }
        if growth == Growth::Linux6 && !self.has_lost {
            self.cwnd = self.cwnd.max(before + Self::PROBING * ack.packets);
        }
    }

    fn grow_by_kernel(&mut self, ack: &Ack) {
        let epoch = self.epoch_at(ack);
        let (grown, reno) = self.kernel.grow(ack.now, self.cwnd, &epoch, &self.parameters);
        self.cwnd = grown;
        self.epoch = Some(Epoch { reno, ..epoch });
    }

    fn reduce(&mut self) {
        let CubicParameters { beta, fast_convergence, growth, .. } = self.parameters;
        self.w_max = if fast_convergence && self.cwnd < self.w_max {
            self.cwnd * (1.0 + beta) / 2.0
        } else {
            self.cwnd
        };
        self.cwnd_prior = self.cwnd;
        self.has_lost = true;
        self.ssthresh = (self.cwnd * beta).max(Window::FLOOR.packets());
        if growth == Growth::Linux26 {
            self.w_max = self.w_max.floor();
            self.ssthresh = self.ssthresh.floor();
        }
        self.epoch = None;
        self.kernel.on_reduction();
        self.reductions += 1;
    }
}

impl Registered for Cubic {
    type Parameters = CubicParameters;

    fn start(start: Start, parameters: CubicParameters, _: RandomStream) -> Self {
        Self::new(start, parameters)
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &Ack) {
        self.kernel.on_ack(ack);
        self.leave_slow_start_if_due(ack);
        if ack.in_recovery || ack.packets <= 0.0 {
            return;
        }
        if !ack.window_limited {
            self.pause_epoch(ack.now);
            return;
        }
        let mut ack = *ack;
        if self.in_slow_start() {
            match self.parameters.counting {
                AckCounting::Acks => {
                    self.cwnd += 1.0;
                    return;
                }
                AckCounting::Packets => ack.packets = self.grow_by_packets(ack.packets),
            }
            if ack.packets <= 0.0 {
                return;
            }
        }
        match self.parameters.growth {
            Growth::Rfc9438 | Growth::Linux6 => self.grow_by_rfc(&ack),
            Growth::Linux26 => self.grow_by_kernel(&ack),
        }
        self.last_ack = ack.now;
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.recovery.begins_with(loss) {
            self.reduce();
            self.cwnd = self.ssthresh;
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.recovery.restart(timeout.next);
        if !timeout.repeated {
            self.reduce();
        }
        self.w_max = 0.0;
        self.has_lost = false;
        self.kernel.on_timeout();
        self.hystart.iter_mut().for_each(|hystart| hystart.restart(timeout));
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
        if self.parameters.growth != Growth::Linux26 {
            self.epoch = None;
        }
    }

    fn on_idle_decay(&mut self, timeouts: u64) {
        // Linux's `tcp_cwnd_restart` keeps three quarters of the window as the threshold.
        self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
        self.cwnd = self.window().decayed(self.initial_window, timeouts).packets();
        if self.parameters.growth != Growth::Linux26 {
            self.epoch = None;
        }
    }

    fn window(&self) -> Window {
        Window::of_packets(self.cwnd)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: Window::of_packets(self.cwnd),
            ssthresh: Window::of_packets(self.ssthresh),
            alpha: None,
            queueing_delay: None,
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: 0,
            reductions: self.reductions,
            bears: None,
        }
    }
}

#[cfg(test)]
mod tests;
