//! Closing a connection and notifying the peer.

use bytes::Bytes as Buffer;
use noq_proto::{ConnectionError, Transmit, VarInt};
use ontempo_foundation::Time;

use super::receiving::Receiving;
use super::{Connection, ConnectionEvent, Stage};
use crate::close::{CLOSED, CloseReason, Closed, MAX_SENTENCE, REFUSED};

/// Probe timeouts that the closing period lasts (RFC 9000, section 10.2).
const CLOSING_PERIOD: u64 = 3;

/// QUIC's error of a server that takes no connection (RFC 9000, section 20.1).
const CONNECTION_REFUSED: u64 = 0x02;

/// QUIC's error of an application that closes before the handshake is over (RFC 9000, section 10.2.3).
const APPLICATION_ERROR: u64 = 0x0c;

/// The TLS alert of two ends without a protocol in common (RFC 7301, section 3.2), as QUIC's error.
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// The closing datagram, and when it is repeated. In the closing period an
/// endpoint answers packets with the packet that it sent (RFC 9000, section 10.2.1), and
/// so does the stack; but a peer that only waits sends nothing. It is therefore sent twice more
/// without being asked, which that section neither requires nor forbids.
#[derive(Default)]
pub(super) struct LastWord {
    said: Option<(Transmit, Vec<u8>)>,
    /// Times of repetition, latest first.
    times: Vec<Time>,
    /// The peer has no state of the connection: nothing is sent (RFC 9000, section 10.3.1).
    is_unwanted: bool,
}

impl LastWord {
    /// For a closing period from `now` to `ends`: one repetition after each probe timeout within
    /// it.
    fn new(now: Time, ends: Time) -> Self {
        let probe_timeout = ends.since(now) / CLOSING_PERIOD;
        let times = (1..CLOSING_PERIOD).rev().map(|count| now + probe_timeout * count).collect();
        Self { said: None, times, is_unwanted: false }
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.is_unwanted
    }

    /// Time of the next repetition; [`Time::NEVER`] if there is none.
    pub(super) fn next(&self) -> Time {
        self.times.last().copied().unwrap_or(Time::NEVER)
    }

    /// Records the stack's packet; after closing there is no other.
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
    /// Closes the connection for a reason of the application, with a sentence of at most
    /// 200 bytes. A reason without a code is sent as [`CloseReason::Done`].
    pub fn close_with(&mut self, now: Time, reason: CloseReason, sentence: &str) {
        if self.stage == Stage::Closed {
            return;
        }
        let code = reason.code().and_then(|code| VarInt::from_u64(code).ok()).unwrap_or_default();
        self.stage = Stage::Closed;
        self.touched = true;
        self.urgent = true;
        let is_proved = self.is_proved();
        let sentence = &sentence.as_bytes()[..sentence.len().min(MAX_SENTENCE)];
        self.stack.close(self.epoch.instant(now), code, Buffer::copy_from_slice(sentence));
        if is_proved {
            let ends = self.stack.poll_timeout().map_or(now, |at| self.epoch.time(at));
            self.last_word = LastWord::new(now, ends);
        }
        self.end_sending(now);
        self.receiving = Receiving::default();
    }

    /// Ends the connection because of the peer: the application gets `sentence`, the peer `said`.
    pub(super) fn end(&mut self, now: Time, reason: CloseReason, sentence: String, said: &str) {
        self.events.push_back(ConnectionEvent::Closed(Closed::found(reason, sentence)));
        let is_lost = self.stage == Stage::Open
            && matches!(reason, CloseReason::Reset | CloseReason::NoAnswer);
        let receiving = std::mem::take(&mut self.receiving);
        self.close_with(now, reason, said);
        if is_lost {
            // The peer was told that these units had arrived: the application can still take them.
            self.receiving = receiving;
        }
    }

    /// A stateless reset came. The stack recognises it only until the first restart of
    /// [`try_harder`](Self::try_harder): `handle_network_change` of noq-proto 1.4.0 takes another of
    /// the peer's connection ids into use, whose token it tells its endpoint, but not its connection.
    pub(crate) fn on_reset(&mut self, now: Time) {
        if self.stage == Stage::Closed || self.stack.is_closed() {
            return;
        }
        self.look_once_more(now);
        self.end(now, CloseReason::Reset, ConnectionError::Reset.to_string(), "");
        self.last_word = LastWord { is_unwanted: true, ..LastWord::default() };
    }

    /// Closes an accepted connection before the application knows of it.
    pub(crate) fn refuse(&mut self, now: Time, why: &str) {
        self.events.clear();
        self.close_with(now, CloseReason::Refused, why);
    }

    fn is_closed_by_peer(&mut self) -> bool {
        self.stack.stats().frame_rx.connection_close > 0
    }

    /// True if both sides have closed, and each has heard it of the other: the peer answers the packet that closes (RFC
    /// 9000, section 10.2.2).
    pub(crate) fn is_closed_by_both(&mut self) -> bool {
        self.is_closed_by_peer() && self.stack.stats().frame_tx.connection_close > 0
    }

    /// Repeats the closing packet if it is due and the peer has not closed, too.
    pub(super) fn close_again(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if now < self.last_word.next() {
            return None;
        }
        self.last_word.times.pop();
        if self.is_closed_by_peer() {
            self.last_word = LastWord::default();
        }
        let (transmit, datagram) = self.last_word.said.as_ref()?;
        out.extend_from_slice(datagram);
        Some(same(transmit))
    }
}

/// Converts the stack's reason.
pub(super) fn closed(reason: &ConnectionError) -> Closed {
    let (found, sentence) = match reason {
        ConnectionError::ApplicationClosed(close) => {
            return Closed::by_peer(close.error_code.into_inner(), &close.reason);
        }
        ConnectionError::TransportError(error) => match u64::from(error.code) {
            NO_APPLICATION_PROTOCOL => return incompatible(),
            code if is_tls(code) => {
                let said = error.reason.trim_start_matches("unexpected error: ");
                let sentence =
                    format!("the peer's certificate is not trusted, or TLS failed: {said}");
                (CloseReason::Untrusted, sentence)
            }
            _ => (CloseReason::Transport, reason.to_string()),
        },
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            NO_APPLICATION_PROTOCOL => return incompatible(),
            CONNECTION_REFUSED => (CloseReason::Refused, REFUSED.to_owned()),
            APPLICATION_ERROR => (CloseReason::Done, CLOSED.to_owned()),
            code if is_tls(code) => {
                let sentence = "the peer does not trust our certificate, or TLS failed";
                (CloseReason::Untrusted, sentence.to_owned())
            }
            _ => (CloseReason::Transport, reason.to_string()),
        },
        ConnectionError::VersionMismatch => return incompatible(),
        ConnectionError::TimedOut => {
            (CloseReason::TimedOut, "nothing is heard of the peer any more".to_owned())
        }
        ConnectionError::Reset => (CloseReason::Reset, reason.to_string()),
        ConnectionError::LocallyClosed => return Closed::by_this_side(),
        other => (CloseReason::Transport, other.to_string()),
    };
    Closed::found(found, sentence)
}

fn incompatible() -> Closed {
    let sentence = "the peer speaks no version of ontempo's protocol that this side does";
    Closed::found(CloseReason::IncompatibleVersion, sentence)
}

/// True for QUIC's errors that stand for TLS alerts (RFC 9001, section 4.8).
fn is_tls(code: u64) -> bool {
    (0x100..0x200).contains(&code)
}

#[cfg(test)]
mod tests {
    use noq_proto::{ConnectionClose, MaybeFrame, TransportErrorCode};

    use super::*;

    #[test]
    fn a_client_that_gives_an_attempt_up_has_closed_it() {
        let (error_code, frame_type) = (TransportErrorCode::APPLICATION_ERROR, MaybeFrame::None);
        let close = ConnectionClose { error_code, frame_type, reason: Buffer::new() };
        let closed = closed(&ConnectionError::ConnectionClosed(close));
        assert_eq!((closed.reason, closed.sentence.as_str()), (CloseReason::Done, CLOSED));
    }
}
