//! The receiver: what has arrived, and when to acknowledge it.

use super::{AduAck, WindowRule};

/// Acknowledges selectively after every A ADUs.
#[derive(Clone, Debug)]
pub struct AduReceiver {
    ack_every: u64,
    rule: WindowRule,
    tells_space: bool,
    largest: Option<u64>,
    /// Bit `i`: transmission `largest - i` has arrived.
    received: u128,
    freed: u64,
    /// ADUs arrived and taken since the last acknowledgement.
    arrived_since: u64,
    freed_since: u64,
}

impl AduReceiver {
    /// A receiver that acknowledges after `ack_every` ADUs, at least 1. If it `tells_space` and the
    /// window counts buffers, it does so again when the application has taken more than so many:
    /// without new arrivals, nothing else would inform the sender of free space.
    pub fn new(ack_every: u64, rule: WindowRule, tells_space: bool) -> Self {
        Self {
            ack_every: ack_every.max(1),
            rule,
            tells_space,
            largest: None,
            received: 0,
            freed: 0,
            arrived_since: 0,
            freed_since: 0,
        }
    }

    /// A transmission has arrived, which `asks` to be acknowledged at once or not; true where
    /// an acknowledgement is due.
    pub fn on_transmission(&mut self, number: u64, asks: bool) -> bool {
        self.arrived_since += 1;
        let largest = self.largest.unwrap_or(number);
        if number >= largest {
            let ahead = u32::try_from(number - largest).unwrap_or(u32::MAX);
            self.received = self.received.checked_shl(ahead).unwrap_or(0) | 1;
            self.largest = Some(number);
        } else {
            let back = u32::try_from(largest - number).unwrap_or(u32::MAX);
            self.received |= 1u128.checked_shl(back).unwrap_or(0);
        }
        asks || self.arrived_since >= self.ack_every
    }

    /// The application has taken an ADU out of its buffer; true where an acknowledgement is due.
    pub fn on_freed(&mut self) -> bool {
        self.freed += 1;
        self.freed_since += 1;
        let tells = self.tells_space && self.rule == WindowRule::Buffers;
        tells && self.freed_since > self.ack_every
    }

    /// The acknowledgement to send now; none before anything has arrived.
    pub fn acknowledge(&mut self) -> Option<AduAck> {
        let largest = self.largest?;
        self.arrived_since = 0;
        self.freed_since = 0;
        Some(AduAck { largest, received: self.received, freed: self.freed })
    }
}
