//! What an application says, and what it is told of a message.

use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Rate};
use ontempo_mechanisms::qos::{Hysteresis, Specification};

use super::network;
use super::outgoing::LadderOptions;
use super::wire::{Figures, Offer};
use ontempo_udp::Dscp;

/// One of the two of a connection, as this end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What this end sends.
    Sending,
    /// What it receives.
    Receiving,
}

/// What the host's RSVP daemon is asked for. Both ends have to ask: the sender's announces the
/// flow, the receiver's reserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Nothing.
    #[default]
    None,
    /// Controlled load (RFC 2211).
    ControlledLoad,
    /// Guaranteed service (RFC 2212), where a `max_delay` is agreed and the path offers it.
    Guaranteed,
}

/// What one end asks for.
#[derive(Clone, Debug)]
pub struct QosOptions {
    /// What reports call the connection.
    pub name: String,
    /// What is asked of what this end sends.
    pub send: Specification,
    /// What is asked of what it receives.
    pub receive: Specification,
    /// The code point of the packets; that of RFC 4594 for what is agreed where not given.
    pub dscp: Option<Dscp>,
    /// What is to be reserved.
    pub reserve: Reserve,
    /// Whether to connect fails where nothing is reserved within `patience`; else it goes on,
    /// without.
    pub must_reserve: bool,
    /// After how many intervals a violation begins and ends.
    pub hysteresis: Hysteresis,
    /// What to ask for instead while it is violated.
    pub ladder: Option<LadderOptions>,
    /// How long the set-up may take: 5 s.
    pub patience: Wall,
}

impl Default for QosOptions {
    fn default() -> Self {
        let nothing = Specification::default();
        Self {
            name: String::new(),
            send: nothing,
            receive: nothing,
            dscp: None,
            reserve: Reserve::None,
            must_reserve: false,
            hysteresis: Hysteresis::default(),
            ladder: None,
            patience: Wall::from_secs(5),
        }
    }
}

impl QosOptions {
    /// Asks for this of what is sent, and nothing of what is received.
    pub fn sending(specification: Specification) -> Self {
        Self { send: specification, ..Self::default() }
    }

    /// Asks for this of what is received, and nothing of what is sent.
    pub fn receiving(specification: Specification) -> Self {
        Self { receive: specification, ..Self::default() }
    }

    /// Asks for the same in both directions.
    pub fn both(specification: Specification) -> Self {
        Self { send: specification, receive: specification, ..Self::default() }
    }

    pub(super) fn offer(&self) -> Offer {
        Offer { send: self.send, receive: self.receive }
    }

    pub(super) fn dscp_of(&self, agreed: &Specification) -> Dscp {
        self.dscp.unwrap_or_else(|| network::dscp(agreed))
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Bytes of it, at the start of the buffer.
    pub length: usize,
    /// The sender's count, from 0: what is missing was lost.
    pub sequence: u64,
    /// From sending to arrival at the application (equation 4), as far as the clocks are known.
    pub delay: Duration,
}

/// What was delivered in one direction, as its receiver has measured it; a sender knows what
/// that has told, which it does twice a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// Messages sent.
    pub sent_messages: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
    /// Messages lost.
    pub lost_messages: u64,
    /// Equation (2) in the last interval.
    pub throughput: Rate,
    /// Equation (3) in the last interval, per cent; `None` where nothing was sent.
    pub loss: Option<f64>,
    /// Mean of equation (4) in the last interval.
    pub delay: Option<Duration>,
    /// How far that may be off, for the clocks' sake.
    pub delay_error: Option<Duration>,
    /// Mean of equation (5) in the last interval.
    pub jitter: Option<Duration>,
}

impl Delivery {
    pub(super) fn of(sent_messages: u64, figures: &Figures) -> Self {
        Self {
            sent_messages,
            messages: figures.messages,
            bytes: figures.bytes,
            lost_messages: figures.lost,
            throughput: Rate::from_bits_per_sec(figures.throughput),
            loss: figures.loss.map(|loss| f64::from(loss) / 1_000.0),
            delay: figures.delay.map(|(delay, _)| Duration::from_nanos(delay)),
            delay_error: figures.delay.map(|(_, error)| Duration::from_nanos(error)),
            jitter: figures.jitter.map(Duration::from_nanos),
        }
    }
}
