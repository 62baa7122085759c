//! The rate at which the path delivers packets, seen also by a flow that does not fill it.
//!
//! A picture's packets leave together and arrive as fast as the bottleneck lets them: their
//! acknowledgements show its rate, though the flow's own rate is far lower (packet trains: Dovrolis et
//! al., IEEE/ACM ToN 12(6), 2004). A sample is never above the rate at which the packets were sent.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

/// Acknowledgements that are remembered, and the least distance between two of them.
const POINTS: usize = 32;
const APART: Duration = Duration::from_millis(1);

/// A train has at least so many packets, and lasts at least so long.
const TRAIN: f64 = 12.0;
const LASTS: Duration = Duration::from_millis(5);

/// The estimate is the largest sample of one to two of these.
const WINDOW: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Point {
    at: Time,
    /// When the packet acknowledged last was sent.
    sent: Time,
    delivered: f64,
}

/// The estimate, in packets a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    points: VecDeque<Point>,
    before: f64,
    current: f64,
    until: Time,
}

impl Capacity {
    /// The estimate; 0 before the first.
    pub(super) fn get(&self) -> f64 {
        self.before.max(self.current)
    }

    /// An acknowledgement of a packet that was sent then; `delivered` since the start.
    pub(super) fn on_ack(&mut self, now: Time, sent: Time, delivered: f64) {
        let mut best = 0.0_f64;
        for point in &self.points {
            let packets = delivered - point.delivered;
            let span = now.since(point.at).max(sent.since(point.sent));
            if packets >= TRAIN && span >= LASTS {
                best = best.max(packets / span.as_secs_f64());
            }
        }
        if best > 0.0 {
            self.add(now, best);
        }
        if self.points.back().is_none_or(|last| now >= last.at + APART) {
            if self.points.len() >= POINTS {
                self.points.pop_front();
            }
            self.points.push_back(Point { at: now, sent, delivered });
        }
    }

    /// A sample from elsewhere.
    pub(super) fn add(&mut self, now: Time, rate: f64) {
        if now >= self.until {
            self.before =
                if now >= self.until + WINDOW { self.before.min(rate) } else { self.current };
            self.current = 0.0;
            self.until = now + WINDOW;
        }
        self.current = self.current.max(rate);
    }

    /// The path delivers no more than that.
    pub(super) fn limit(&mut self, rate: f64) {
        self.before = self.before.min(rate);
        self.current = self.current.min(rate);
    }
}
