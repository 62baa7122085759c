//! What a side does that hears nothing, or of which nothing is acknowledged.

use noq_proto::Transmit;
use ontempo_foundation::{Duration, Time};

use super::{Connection, MAX_PROBES, Stage};

/// Silence begins so long after the expected times.
const SILENCE: Duration = Duration::from_millis(500);

/// Interval of probes in silence, but no less than a round trip: media goes on so soon after the path
/// has come back, at eight packets a second. The stack's own interval doubles with each (RFC 9002, section
/// 6.2.1).
const PROBE: Duration = Duration::from_millis(250);

impl Connection {
    /// When a client that receives nothing sends more often. Everything sent is answered within a
    /// round trip: units soon, and something is sent at each clock comparison or keep-alive. A server
    /// that must validate the client's new address can only do so when it receives a packet.
    pub(super) fn silent_at(&self) -> Time {
        if self.stack.side().is_server() || self.stage != Stage::Open {
            return Time::NEVER;
        }
        if self.tried > self.heard {
            return self.tried + PROBE.max(self.round_trips(1));
        }
        let interval = self.config.clock_interval;
        let interval = self.config.keep_alive.map_or(interval, |alive| interval.min(alive));
        let expected = match self.asked {
            Some(asked) if asked > self.heard => asked,
            _ => self.heard + interval,
        };
        expected + self.round_trips(3) + SILENCE
    }

    /// Units were sent: the first after what was heard last begins a wait for an answer.
    pub(super) fn note_asked(&mut self, now: Time) {
        if self.asked.is_none_or(|asked| asked <= self.heard) {
            self.asked = Some(now);
        }
    }

    /// When a side of which nothing is acknowledged sends more often, though it may receive: the path of its own
    /// packets is interrupted, or it is a server, which hears no acknowledgement before it sends. The stack leaves
    /// even acknowledgements unsent while the window is full.
    pub(super) fn unacknowledged_at(&self) -> Time {
        let Some(since) = self.account.waits_since().filter(|_| self.stage == Stage::Open) else {
            return Time::NEVER;
        };
        // A client in silence does more.
        if self.stack.side().is_client() && self.heard <= since {
            return Time::NEVER;
        }
        if self.probed > since {
            return self.probed + PROBE.max(self.round_trips(1));
        }
        since + self.round_trips(3) + SILENCE
    }

    /// Restarts the stack's probing, whose interval grows with time, or sends a probe beside it.
    pub(super) fn try_harder(&mut self, now: Time) {
        if now >= self.silent_at() {
            self.tried = now;
            self.stack.handle_network_change(None, self.epoch.instant(now));
        } else if now >= self.unacknowledged_at() {
            self.probed = now;
            self.owes_probe = true;
            self.stack.ping();
        } else {
            return;
        }
        self.urgent = true;
        self.probes = MAX_PROBES;
    }

    /// A packet beyond the window that is owed as a probe (RFC 9002, section 7.5).
    pub(super) fn probe(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if !std::mem::take(&mut self.owes_probe) || self.stage != Stage::Open {
            return None;
        }
        self.beyond_window(now, out)
    }

    /// When a peer is given up that sends packets but answers nothing: a clock comparison is
    /// pending.
    pub(super) fn answerless_at(&self) -> Time {
        let interval = self.config.clock_interval;
        self.answered + self.config.idle_timeout.max(interval * 2) + interval
    }
}
