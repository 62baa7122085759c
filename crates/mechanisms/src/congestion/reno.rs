//! Reno: slow start, congestion avoidance, halving (RFC 5681).

use super::{Ack, CongestionControl, Loss, Snapshot, Start, Timeout, Window};

/// How acknowledgements move the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckCounting {
    /// One step for each ACK, whatever it covers (RFC 5681, section 3.1; ns-2). Delayed ACKs
    /// then slow the growth.
    #[default]
    Acks,
    /// One step for each packet acknowledged (RFC 3465, with L unlimited).
    Packets,
}

/// What of Reno may be set.
#[derive(Clone, Copy, Debug)]
pub struct RenoParameters {
    /// What a step of the window's growth is counted by.
    pub counting: AckCounting,
    /// The factor on the window at a loss (RFC 5681: one half).
    pub decrease: f64,
}

impl Default for RenoParameters {
    fn default() -> Self {
        Self { counting: AckCounting::Acks, decrease: 0.5 }
    }
}

/// Reno's window: it reacts to each loss that it is told of.
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

    fn reduce(&mut self) {
        self.ssthresh = (self.cwnd * self.parameters.decrease).max(Window::FLOOR.packets());
        self.reductions += 1;
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, ack: &Ack) {
        if ack.in_recovery || ack.packets <= 0.0 {
            return;
        }
        let steps = match self.parameters.counting {
            AckCounting::Acks => 1.0,
            AckCounting::Packets => ack.packets,
        };
        if self.cwnd < self.ssthresh {
            self.cwnd += steps;
        } else {
            self.cwnd += steps / self.cwnd;
        }
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

    fn on_idle_restart(&mut self) {
        self.cwnd = self.cwnd.min(self.start.initial_window.packets());
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
            early_responses: 0,
            reductions: self.reductions,
        }
    }
}
