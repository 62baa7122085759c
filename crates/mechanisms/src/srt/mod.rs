//! SRT (Secure Reliable Transport) in live mode: what libsrt 1.5.1 does between two programs.
//!
//! [`SrtSender`] is the caller, which has the media; [`SrtReceiver`] is the listener, which delivers
//! them. Both behave as `srt-live-transmit` with its default options: unencrypted, one stream, a
//! datagram of the application in each packet, connected again when the connection breaks.
//!
//! A driver passes packets and the time in, and after each call takes packets out with
//! `poll_transmit` until there is none, and then waits until `next_timeout`.
//!
//! Sources: draft-sharabayko-srt-01, and where it is silent or libsrt differs, the behaviour of
//! libsrt 1.5.1; comments name its functions (`core.cpp` unless another file is named). Sequence
//! numbers and timestamps do not wrap here, and a new connection goes on with the sequence numbers
//! of the one before, so that a stray packet of the old one is merely old.

mod arrivals;
mod input;
mod liveness;
mod pacing;
mod packet;
mod parameters;
mod ranges;
mod receiver;
mod receiver_connection;
mod rtt;
mod sender;
mod sender_connection;
#[cfg(test)]
mod tests;
mod timebase;

use ontempo_foundation::Duration;

pub use packet::{FullAck, Handshake, HandshakeStep, SrtPacket};
pub use parameters::{MaxBandwidth, SrtParameters};
pub use receiver::{SrtReceiver, SrtReceiverStatistics};
pub use sender::{SrtSender, SrtSenderStatistics};

/// Timers are checked this long after the last check or packet, and a full ACK is due after it (10
/// ms; COMM_SYN_INTERVAL_US; the draft, section 4.8.1).
const SYN_INTERVAL: Duration = Duration::from_millis(10);

/// Control packets that wait for the driver at most; what is beyond is lost, as in a full socket.
const MAX_QUEUED_CONTROL: usize = 1_024;
