//! The end of a connection, and that the peer hears of it.

use bytes::Bytes as Buffer;
use noq_proto::{ConnectionError, Transmit, VarInt};
use ontempo_foundation::Time;

use super::receiving::Receiving;
use super::sending::Sending;
use super::{Connection, Stage, close_code};

/// Probe timeouts that the closing period lasts (RFC 9000, section 10.2).
const CLOSING_PERIOD: u64 = 3;

/// The datagram that closes a connection, and when it is sent again. In the closing period an
/// endpoint answers what comes with the very packet that it sent (RFC 9000, section 10.2.1), and
/// so does the stack; but a peer that waits for just this word sends nothing. It is said twice more
/// unasked, which that section neither asks for nor forbids.
#[derive(Default)]
pub(super) struct LastWord {
    said: Option<(Transmit, Vec<u8>)>,
    /// When it is due again, the last time first.
    times: Vec<Time>,
}

impl LastWord {
    /// Of a closing period from `now` to `ends`: once more after each probe timeout within it.
    fn new(now: Time, ends: Time) -> Self {
        let probe_timeout = ends.since(now) / CLOSING_PERIOD;
        let times = (1..CLOSING_PERIOD).rev().map(|count| now + probe_timeout * count).collect();
        Self { said: None, times }
    }

    /// When it is to be said again; never where it is not.
    pub(super) fn next(&self) -> Time {
        self.times.last().copied().unwrap_or(Time::NEVER)
    }

    /// What the stack sends; after the closing that is nothing else.
    pub(super) fn keep(&mut self, transmit: &Transmit, datagram: &[u8]) {
        if !self.times.is_empty() {
            self.said = Some((same(transmit), datagram[..transmit.size].to_vec()));
        }
    }
}

fn same(transmit: &Transmit) -> Transmit {
    let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
    Transmit { destination, ecn, size, segment_size, src_ip }
}

impl Connection {
    pub(super) fn close_with(&mut self, now: Time, code: u32, reason: &str) {
        if self.stage == Stage::Closed {
            return;
        }
        self.stage = Stage::Closed;
        self.touched = true;
        self.urgent = true;
        let is_proved = self.is_proved();
        let reason = Buffer::copy_from_slice(&reason.as_bytes()[..reason.len().min(200)]);
        self.stack.close(self.epoch.instant(now), VarInt::from_u32(code), reason);
        if is_proved {
            let ends = self.stack.poll_timeout().map_or(now, |at| self.epoch.time(at));
            self.last_word = LastWord::new(now, ends);
        }
        self.sending = Sending::default();
        self.receiving = Receiving::default();
    }

    /// The last word once more, where that is due and the peer has not closed, too.
    pub(super) fn say_again(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if now < self.last_word.next() {
            return None;
        }
        self.last_word.times.pop();
        if self.stack.stats().frame_rx.connection_close > 0 {
            self.last_word = LastWord::default();
        }
        let (transmit, datagram) = self.last_word.said.as_ref()?;
        out.extend_from_slice(datagram);
        Some(same(transmit))
    }
}

pub(super) fn told_reason(reason: &ConnectionError) -> String {
    match reason {
        ConnectionError::ApplicationClosed(close) => {
            let said = String::from_utf8_lossy(&close.reason).into_owned();
            match u32::try_from(close.error_code.into_inner()) {
                Ok(close_code::DONE) => format!("the peer closed: {said}"),
                Ok(close_code::TOKEN) => "the peer refused our token".to_owned(),
                _ => format!("the peer gave up: {said}"),
            }
        }
        ConnectionError::TransportError(error) if is_tls(error.code.into()) => {
            let said = error.reason.trim_start_matches("unexpected error: ");
            format!("the peer's certificate is not trusted, or TLS failed: {said}")
        }
        ConnectionError::ConnectionClosed(close) if is_tls(close.error_code.into()) => {
            "the peer does not trust our certificate, or TLS failed".to_owned()
        }
        ConnectionError::TimedOut => "nothing is heard of the peer any more".to_owned(),
        other => other.to_string(),
    }
}

/// True for QUIC's errors that stand for TLS alerts (RFC 9001, section 4.8).
fn is_tls(code: u64) -> bool {
    (0x100..0x200).contains(&code)
}
