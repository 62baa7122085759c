//! NewReno: Reno's law, once per window of data (RFC 6582; RFC 9002, section 7.3.2).

use ontempo_foundation::RandomStream;

use super::{
    Ack, CongestionControl, Loss, RecoveryPoint, Registered, Reno, RenoParameters, Snapshot, Start,
    Timeout, Window,
};

/// Reno that reacts only to the first loss of a window of data.
#[derive(Clone, Debug)]
pub struct NewReno {
    reno: Reno,
    recovery: RecoveryPoint,
}

impl NewReno {
    /// A controller at the start of its connection.
    pub fn new(start: Start, parameters: RenoParameters) -> Self {
        Self { reno: Reno::new(start, parameters), recovery: RecoveryPoint::default() }
    }
}

impl Registered for NewReno {
    type Parameters = RenoParameters;

    fn start(start: Start, parameters: RenoParameters, _: RandomStream) -> Self {
        Self::new(start, parameters)
    }
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, ack: &Ack) {
        self.reno.on_ack(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        if self.recovery.begins_with(loss) {
            self.reno.on_loss(loss);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.recovery.restart(timeout.next);
        self.reno.on_timeout(timeout);
    }

    fn on_spurious_timeout(&mut self, before: &Snapshot) {
        self.recovery = RecoveryPoint::default();
        self.reno.on_spurious_timeout(before);
    }

    fn on_idle_restart(&mut self) {
        self.reno.on_idle_restart();
    }

    fn on_idle_decay(&mut self, timeouts: u64) {
        self.reno.on_idle_decay(timeouts);
    }

    fn window(&self) -> Window {
        self.reno.window()
    }

    fn snapshot(&self) -> Snapshot {
        self.reno.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, loss, start_with, timeout};
    use super::*;

    #[test]
    fn several_losses_of_one_window_halve_it_once() {
        let mut newreno = NewReno::new(start_with(16.0), RenoParameters::default());
        for packet in [100, 103, 115] {
            newreno.on_loss(&loss(packet, 116));
        }
        assert_eq!(newreno.window().packets(), 8.0);
        newreno.on_loss(&loss(116, 130));
        assert_eq!(newreno.window().packets(), 4.0);
        assert_eq!(newreno.snapshot().reductions, 2);
    }

    #[test]
    fn a_timeout_covers_the_losses_of_the_window_before_it() {
        let mut newreno = NewReno::new(start_with(16.0), RenoParameters::default());
        newreno.on_timeout(&timeout(116));
        newreno.on_loss(&loss(110, 116));
        assert_eq!(newreno.window().packets(), 1.0);
        assert_eq!(newreno.snapshot().ssthresh.packets(), 8.0);
        newreno.on_ack(&ack(1.0));
        assert_eq!(newreno.window().packets(), 2.0);
    }
}
