//! Reliable transport of application data units (ADUs), whatever the order of their delivery.
//!
//! The protocol of rr3216 (section 3.1 and appendix): the sender emits one ADU each interval R
//! while its window W is open; the receiver acknowledges selectively after every A ADUs; what
//! the acknowledgements reveal to be lost is sent again. Order is not its business: that is
//! [`delivery`](crate::delivery)'s.
//!
//! Every transmission has a number of its own, as in QUIC (RFC 9000, section 12.3), and
//! acknowledgements speak of transmissions. A retransmission that is lost is thereby revealed
//! like any other, and no acknowledgement is ambiguous. Rr3216 models neither lost
//! acknowledgements nor a lost end of the data; here a timer sees to both (RFC 9002, section
//! 6.2): it sends a probe that requests an immediate acknowledgement.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::AduReceiver;
pub use sender::{AduSender, AduSenderParameters, Next, Retransmission, Transmission};

/// How many transmissions one acknowledgement reports.
pub const REPORTED: u64 = u128::BITS as u64;

/// What the window limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowRule {
    /// Buffers: an ADU leaves the window when the receiving application takes it. What waits
    /// for an ADU before it keeps its buffer.
    #[default]
    Buffers,
    /// Numbers: an ADU may be sent where it is less than a window beyond the lowest one not
    /// acknowledged, whether or not the application has taken it.
    Sequence,
}

/// A selective acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AduAck {
    /// The highest transmission that has arrived.
    pub largest: u64,
    /// Bit `i`: transmission `largest - i` has arrived.
    pub received: u128,
    /// How many ADUs the receiving application has taken, since the start.
    pub freed: u64,
}

impl AduAck {
    /// True where it reports that `transmission` has arrived.
    pub fn reports(&self, transmission: u64) -> bool {
        let Some(back) = self.largest.checked_sub(transmission) else { return false };
        back < REPORTED && self.received & (1 << back) != 0
    }
}
