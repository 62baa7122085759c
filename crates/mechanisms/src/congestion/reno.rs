//! Reno: slow start, congestion avoidance, halving (RFC 5681).

use ontempo_foundation::RandomStream;

use super::{
    Ack, CongestionControl, Field, Loss, Parameter, Parameters, Registered, Snapshot, Start,
    Timeout, Window,
};

/// The unit in which acknowledgements grow the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckCounting {
    /// One step per ACK, whatever it covers (RFC 5681, section 3.1; ns-2). Delayed ACKs
    /// then slow the growth.
    #[default]
    Acks,
    /// One step for each packet acknowledged (RFC 3465, with L unlimited).
    Packets,
}

impl AckCounting {
    /// The keywords, with their meanings.
    pub(super) const WORDS: &'static [(&'static str, &'static str)] = &[
        ("acks", "One step for each ACK, whatever it covers (RFC 5681, section 3.1)."),
        ("packets", "One step for each packet acknowledged (RFC 3465)."),
    ];

    /// Index of the keyword.
    pub(super) const fn place(self) -> usize {
        match self {
            Self::Acks => 0,
            Self::Packets => 1,
        }
    }

    /// The keyword at an index.
    pub(super) const fn at(place: usize) -> Self {
        if place == 0 { Self::Acks } else { Self::Packets }
    }
}

/// Reno's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RenoParameters {
    /// The unit in which the window grows.
    pub counting: AckCounting,
    /// The factor on the window at a loss (RFC 5681: one half).
    pub decrease: f64,
}

impl Default for RenoParameters {
    fn default() -> Self {
        Self { counting: AckCounting::Acks, decrease: 0.5 }
    }
}

impl Parameters for RenoParameters {
    const ALL: &'static [Parameter<Self>] = &[
        Parameter {
            name: "counting",
            doc: "What a step of the window's growth is counted by.",
            field: Field::Choice {
                words: AckCounting::WORDS,
                get: |all| all.counting.place(),
                set: |all, place| all.counting = AckCounting::at(place),
            },
        },
        Parameter {
            name: "decrease",
            doc: "The factor on the window at a loss (RFC 5681).",
            field: Field::Number { of: |all| &mut all.decrease, unit: "share", min: 0.1, max: 1.0 },
        },
    ];
}

/// Reno's state: it reacts to each reported loss.
#[derive(Clone, Debug)]
pub struct Reno {
    parameters: RenoParameters,
    start: Start,
    cwnd: f64,
    ssthresh: f64,
    reductions: u64,
}

impl Reno {
    /// A controller at the start of its connection.
    pub fn new(start: Start, parameters: RenoParameters) -> Self {
        Self {
            parameters,
            start,
            cwnd: start.initial_window.packets(),
            ssthresh: start.initial_ssthresh.packets(),
            reductions: 0,
        }
    }

    /// The window grows by an ACK that newly acknowledges `packets`, outside loss episodes.
    #[inline]
    pub fn grow(&mut self, packets: f64) {
        let steps = match self.parameters.counting {
            AckCounting::Acks => 1.0,
            AckCounting::Packets => packets,
        };
        if self.cwnd < self.ssthresh {
            self.cwnd += steps;
        } else {
            self.cwnd += steps / self.cwnd;
        }
    }

    fn reduce(&mut self) {
        self.ssthresh = (self.cwnd * self.parameters.decrease).max(Window::FLOOR.packets());
        self.reductions += 1;
    }
}

impl Registered for Reno {
    type Parameters = RenoParameters;

    fn start(start: Start, parameters: RenoParameters, _: RandomStream) -> Self {
        Self::new(start, parameters)
    }
}

impl CongestionControl for Reno {
    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        if ack.in_recovery || ack.packets <= 0.0 || !ack.window_limited {
            return;
        }
        self.grow(ack.packets);
    }

    fn on_loss(&mut self, _loss: &Loss) {
        self.reduce();
        self.cwnd = self.ssthresh;
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        if !timeout.repeated {
            self.reduce();
        }
        self.cwnd = 1.0;
    }

    fn on_spurious_timeout(&mut self, before: &Snapshot) {
        self.cwnd = self.cwnd.max(before.cwnd.packets());
        self.ssthresh = self.ssthresh.max(before.ssthresh.packets());
    }

    fn on_idle_restart(&mut self) {
        self.cwnd = self.cwnd.min(self.start.initial_window.packets());
    }

    fn on_idle_decay(&mut self, timeouts: u64) {
        let initial = self.start.initial_window.packets();
        // RFC 2861, section 3.1: three quarters of the window remain known to be possible.
        self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
        self.cwnd = self.window().decayed(initial, timeouts).packets();
    }

    #[inline]
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
mod tests {
    use super::super::tests::{ack, loss, start_with, timeout};
    use super::*;

    fn reno(window: f64, counting: AckCounting) -> Reno {
        Reno::new(start_with(window), RenoParameters { counting, ..RenoParameters::default() })
    }

    #[test]
    fn slow_start_adds_one_and_congestion_avoidance_a_windowth() {
        let start = Start {
            initial_window: Window::of_packets(2.0),
            initial_ssthresh: Window::of_packets(4.0),
            ..Start::default()
        };
        let mut reno = Reno::new(start, RenoParameters::default());
        let windows: Vec<f64> = (0..3)
            .map(|_| {
                reno.on_ack(&ack(2.0));
                reno.window().packets()
            })
            .collect();
        assert_eq!(windows, [3.0, 4.0, 4.25]);
    }

    #[test]
    fn counting_packets_makes_up_for_delayed_acks() {
        let mut by_acks = reno(10.0, AckCounting::Acks);
        let mut by_packets = reno(10.0, AckCounting::Packets);
        by_acks.on_ack(&ack(2.0));
        by_packets.on_ack(&ack(2.0));
        assert_eq!(by_acks.window().packets(), 10.1);
        assert_eq!(by_packets.window().packets(), 10.2);
    }

    #[test]
    fn each_loss_halves_down_to_two_packets() {
        let mut reno = reno(10.0, AckCounting::Acks);
        let windows = [1, 2, 3].map(|packet| {
            reno.on_loss(&loss(packet, 20));
            reno.window().packets()
        });
        assert_eq!(windows, [5.0, 2.5, 2.0]);
    }

    #[test]
    fn a_repeated_timeout_leaves_the_threshold() {
        let mut reno = reno(16.0, AckCounting::Acks);
        reno.on_timeout(&timeout(20));
        reno.on_timeout(&Timeout { repeated: true, ..timeout(20) });
        assert_eq!(reno.window().packets(), 1.0);
        assert_eq!(reno.snapshot().ssthresh.packets(), 8.0);
        assert_eq!(reno.snapshot().reductions, 1);
    }

    #[test]
    fn an_idle_window_halves_for_each_timeout_down_to_the_initial_one() {
        for (window, timeouts, expected) in [(40.0, 1, 20.0), (40.0, 2, 10.0), (40.0, 9, 10.0)] {
            let mut reno = reno(10.0, AckCounting::Acks);
            reno.cwnd = window;
            reno.ssthresh = 8.0;
            reno.on_idle_decay(timeouts);
            assert_eq!(reno.window().packets(), expected);
            assert_eq!(reno.snapshot().ssthresh.packets(), 30.0);
        }
        let mut small = reno(10.0, AckCounting::Acks);
        small.cwnd = 4.0;
        small.on_idle_decay(3);
        assert_eq!(small.window().packets(), 4.0);
    }

    #[test]
    fn the_window_does_not_grow_during_recovery() {
        let mut reno = reno(16.0, AckCounting::Acks);
        reno.on_ack(&Ack { in_recovery: true, ..ack(1.0) });
        assert_eq!(reno.window().packets(), 16.0);
    }
}
