//! A constant cwnd.

use ontempo_mechanisms::congestion::{Ack, CongestionControl, Loss, Snapshot, Timeout, Window};

/// The static window of experiments without congestion control (rr3216, appendix).
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticWindow(pub(crate) Window);

impl CongestionControl for StaticWindow {
    fn on_ack(&mut self, _: &Ack) {}

    fn on_loss(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, _: &Timeout) {}

    fn on_idle_restart(&mut self) {}

    fn window(&self) -> Window {
        self.0
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: self.0,
            ssthresh: self.0,
            alpha: None,
            queueing_delay: None,
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: 0,
            reductions: 0,
            bears: None,
        }
    }
}
