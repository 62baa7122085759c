//! Options of a QoS socket, and what it returns about messages.

use std::sync::Arc;
use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Rate};
use ontempo_mechanisms::congestion::Congestion;
use ontempo_mechanisms::qos::{Hysteresis, Specification};
use ontempo_monitor::Carrier;

use super::network;
use super::outgoing::LadderOptions;
use super::setup::{self, SetupError};
use super::wire::{Figures, Offer};
use ontempo_transport::Buffers;
use ontempo_udp::Dscp;

/// A direction of a connection, as seen from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What this end sends.
    Sending,
    /// What this end receives.
    Receiving,
}

/// The service to reserve. Both ends must request it: the sender's daemon sends PATH, the
/// receiver's RESV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Nothing.
    #[default]
    None,
    /// Controlled load (RFC 2211).
    ControlledLoad,
    /// Guaranteed service (RFC 2212), if `max_delay` is agreed and the path offers it.
    Guaranteed,
}

/// Options of one end.
#[derive(Clone, Debug)]
pub struct QosOptions {
    /// Name of the connection in reports.
    pub name: String,
    /// Specification of the sending direction.
    pub send: Specification,
    /// Specification of the receiving direction.
    pub receive: Specification,
    /// DSCP of the packets; `None`: what the network asks for with the reservation (DCLASS, RFC 2996), else
    /// as RFC 4594 recommends for the agreed specification.
    pub dscp: Option<Dscp>,
    /// Congestion control of what this end sends over QUIC; `None`: the transport's default. Over
    /// TCP the kernel chooses it and UDP has none, so that `Some` is an error there.
    pub congestion: Option<Congestion>,
    /// The service to reserve.
    pub reserve: Reserve,
    /// Take no connection without a reservation, at either end: one whose other end does not reserve
    /// is refused in the handshake. Where the network refuses, or does not answer within
    /// `setup_timeout`, connecting fails; an accepted connection ends, and receiving and sending
    /// return the reason. Otherwise connections continue without a reservation.
    pub must_reserve: bool,
    /// Number of intervals after which a violation begins and ends.
    pub hysteresis: Hysteresis,
    /// Specifications to step down to during a violation.
    pub ladder: Option<LadderOptions>,
    /// Timeout of the handshake: 5 s. It may be [`Duration::MAX`](Wall::MAX), which stands for 30 years.
    pub setup_timeout: Wall,
    /// Over QUIC: what this end sends is retransmitted until it arrives and delivered in order, and
    /// what it receives must be, whatever `loss` and `permutable` of the specification permit: both
    /// ends ask for it. The specification is still what is reserved for and monitored. TCP does this
    /// always; over UDP it is an error.
    pub reliable: bool,
    /// Over QUIC: memory that connections share. `None`: each has the transport's own limits.
    pub buffers: Option<Arc<Buffers>>,
    /// Over QUIC: maximum connections of a listener, also of one host. `None`: the transport's.
    pub connections: Option<usize>,
}

impl Default for QosOptions {
    fn default() -> Self {
        let nothing = Specification::default();
        Self {
            name: String::new(),
            send: nothing,
            receive: nothing,
            dscp: None,
            congestion: None,
            reserve: Reserve::None,
            must_reserve: false,
            hysteresis: Hysteresis::default(),
            ladder: None,
            setup_timeout: Wall::from_secs(5),
            reliable: false,
            buffers: None,
            connections: None,
        }
    }
}

impl QosOptions {
    /// Only the sending direction is specified.
    pub fn sending(specification: Specification) -> Self {
        Self { send: specification, ..Self::default() }
    }

    /// Only the receiving direction is specified.
    pub fn receiving(specification: Specification) -> Self {
        Self { receive: specification, ..Self::default() }
    }

    /// Both directions have the same specification.
    pub fn both(specification: Specification) -> Self {
        Self { send: specification, receive: specification, ..Self::default() }
    }

    /// # Errors
    /// If the specifications contradict themselves, or an option does not fit the carrier.
    pub(super) fn check(&self, carrier: Carrier) -> Result<(), SetupError> {
        if self.congestion.is_some() && carrier != Carrier::Quic {
            return Err(SetupError::CongestionNotChoosable(carrier));
        }
        if self.reliable && carrier == Carrier::Udp {
            return Err(SetupError::NotReliable);
        }
        setup::check(&self.offer())
    }

    pub(super) fn offer(&self) -> Offer {
        Offer {
            send: self.send,
            receive: self.receive,
            reserves: self.reserve != Reserve::None,
            must_reserve: self.must_reserve,
            recovers: false,
        }
    }

    pub(super) fn dscp_of(&self, agreed: &Specification) -> Dscp {
        self.dscp.unwrap_or_else(|| network::dscp(agreed))
    }
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its length in bytes, at the start of the buffer.
    pub length: usize,
    /// Its sequence number, from 0; missing numbers were lost.
    pub sequence: u64,
    /// From sending to delivery (equation 4), if the clock offset is known.
    pub delay: Duration,
}

/// Statistics of one direction, measured by its receiver; a sender has them from the
/// receiver's reports, twice a second.
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
    /// Equation (3) in the last interval, per cent; `None` if nothing was sent.
    pub loss: Option<f64>,
    /// Mean of equation (4) in the last interval.
    pub delay: Option<Duration>,
    /// Error bound of the delay, from the clock offset.
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
