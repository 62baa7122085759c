//! Control messages.
//!
//! Each is its length, its kind, and its fields in the order of declaration.

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::delivery::DeliveryOrder;

use super::number::{Reader, write, write_bytes};
use super::unit::MAX_MICROS;
use super::{VERSION, WireError};
use crate::flow::Reliability;

/// Maximum size of a message, in bytes, without its length.
pub const MAX_MESSAGE: usize = 4096;

/// Maximum size of a token, in bytes.
pub const MAX_TOKEN: usize = 256;

/// Maximum size of a flow's label, in bytes.
pub const MAX_LABEL: usize = 256;

/// Maximum units in one `Dropped` message.
pub const MAX_DROPPED: usize = 128;

/// Maximum bytes buffered of an incomplete message.
const MAX_FRAME: usize = MAX_MESSAGE + 8;

/// Receive limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows that are open, or that have ended and were not taken by the program.
    pub flows: u64,
    /// Units of one flow in transit or not taken.
    pub units: u64,
    /// Bytes of one flow in transit or not taken.
    pub bytes: u64,
    /// Size of one unit, bytes.
    pub unit_bytes: u64,
}

impl Limits {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for number in [self.flows, self.units, self.bytes, self.unit_bytes] {
            write(out, number);
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            flows: reader.number()?,
            units: reader.number()?,
            bytes: reader.number()?,
            unit_bytes: reader.number()?,
        })
    }
}

/// How a sender asks for acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckRequest {
    /// Every packet immediately.
    Immediate,
    /// Every second packet, or after 25 ms (RFC 9000, section 13.2).
    Delayed,
    /// One for one to four packets, depending on the stream's regularity (thesis, ch. IV).
    #[default]
    Adaptive,
}

/// Opens a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowOpened {
    /// Its number, counted from 0 by its sender.
    pub flow: u64,
    /// Delivery order.
    pub order: DeliveryOrder,
    /// What happens to lost units.
    pub reliability: Reliability,
    /// Description by the application.
    pub label: String,
}

/// A unit dropped by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedUnit {
    /// Its number.
    pub id: u64,
    /// Bytes of the flow's credit that it used; 0 if its sending had not begun.
    pub bytes: u64,
}

/// Receiver report of a flow, cumulative since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverReport {
    /// Units received completely.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Units that arrived after their deadline, by the receiver's estimate of the sender's clock.
    pub late: u64,
    /// Delay of the last unit, from sending until it could be delivered.
    pub delay: Duration,
}

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of the client.
    Hello {
        /// The token; may be empty.
        token: Vec<u8>,
        /// Its receive limits.
        limits: Limits,
        /// How its packets are to be acknowledged.
        acknowledge: AckRequest,
    },
    /// The server's answer to a valid token.
    Welcome {
        /// Its receive limits.
        limits: Limits,
        /// How its packets are to be acknowledged.
        acknowledge: AckRequest,
    },
    /// Opens a flow.
    FlowOpened(FlowOpened),
    /// End of a flow.
    FlowFinished {
        /// Its number.
        flow: u64,
        /// Number of its units: their numbers are below this.
        units: u64,
    },
    /// Units were dropped by the sender. Units that had arrived completely are kept by the
    /// receiver.
    Dropped {
        /// The flow.
        flow: u64,
        /// The units, at most [`MAX_DROPPED`].
        units: Vec<DroppedUnit>,
    },
    /// Answer to the oldest unanswered `Dropped` of the flow.
    Settled {
        /// The flow.
        flow: u64,
        /// Those of its units that had arrived completely, and so are not dropped.
        arrived: Vec<u64>,
    },
    /// New credit of a flow.
    Credit {
        /// The flow.
        flow: u64,
        /// Units with a number below this.
        units: u64,
        /// Bytes since the beginning of the flow.
        bytes: u64,
    },
    /// Request for a clock comparison.
    Clock {
        /// Time of sending, by the sender's clock.
        asked: Time,
    },
    /// Answer to `Clock`.
    ClockAnswer {
        /// Its `asked`, returned.
        asked: Time,
        /// Arrival of the request, by this side's clock.
        came: Time,
        /// Sending of the answer, by this side's clock.
        left: Time,
    },
    /// Receiver report.
    ReceiverReport {
        /// The flow.
        flow: u64,
        /// The report.
        report: ReceiverReport,
    },
    /// New credit for flows.
    FlowCredit {
        /// Flows with a number below this may be opened.
        flows: u64,
    },
}

impl Message {
    /// Appends its encoding to `out`, with its length.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        self.write_body(&mut body);
        debug_assert!(body.len() <= MAX_MESSAGE);
        write_bytes(out, &body);
    }

    /// Parses the first message and returns its encoded length; `None` if it is incomplete.
    ///
    /// # Errors
    /// If it is too long or malformed.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, WireError> {
        let mut reader = Reader::new(&bytes[..bytes.len().min(MAX_FRAME)]);
        let body = match reader.bytes(MAX_MESSAGE, "a message's length") {
            Err(WireError::Short) => return Ok(None),
            body => body?,
        };
        let taken = bytes.len().min(MAX_FRAME) - reader.left();
        let mut body = Reader::new(body);
        let message = Self::read_body(&mut body)?;
        body.end()?;
        Ok(Some((message, taken)))
    }

    fn write_body(&self, out: &mut Vec<u8>) {
        let mut numbers = |kind: u64, numbers: &[u64]| {
            write(out, kind);
            numbers.iter().for_each(|number| write(out, *number));
        };
        match self {
            Self::Hello { token, limits, acknowledge } => {
                numbers(0, &[VERSION]);
                write_bytes(out, token);
                write_hello(out, limits, *acknowledge);
            }
            Self::Welcome { limits, acknowledge } => {
                numbers(1, &[VERSION]);
                write_hello(out, limits, *acknowledge);
            }
            Self::FlowOpened(opened) => {
                numbers(2, &[opened.flow, opened.order as u64, opened.reliability as u64]);
                write_bytes(out, opened.label.as_bytes());
            }
            Self::FlowFinished { flow, units } => numbers(3, &[*flow, *units]),
            Self::Dropped { flow, units } => {
                numbers(4, &[*flow, units.len() as u64]);
                for unit in units {
                    write(out, unit.id);
                    write(out, unit.bytes);
                }
            }
            Self::Settled { flow, arrived } => {
                numbers(5, &[*flow, arrived.len() as u64]);
                arrived.iter().for_each(|id| write(out, *id));
            }
            Self::Credit { flow, units, bytes } => numbers(6, &[*flow, *units, *bytes]),
            Self::Clock { asked } => numbers(7, &[micros(*asked)]),
            Self::ClockAnswer { asked, came, left } => {
                numbers(8, &[micros(*asked), micros(*came), micros(*left)]);
            }
            Self::ReceiverReport { flow, report } => {
                let delay = report.delay.as_nanos() / 1000;
                numbers(9, &[*flow, report.units, report.bytes, report.late, delay]);
            }
            Self::FlowCredit { flows } => numbers(10, &[*flows]),
        }
    }

    fn read_body(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match reader.number()? {
            0 => {
                read_version(reader)?;
                let token = reader.bytes(MAX_TOKEN, "a token's length")?.to_vec();
                let (limits, acknowledge) = read_hello(reader)?;
                Self::Hello { token, limits, acknowledge }
            }
            1 => {
                read_version(reader)?;
                let (limits, acknowledge) = read_hello(reader)?;
                Self::Welcome { limits, acknowledge }
            }
            2 => Self::FlowOpened(read_flow(reader)?),
            3 => Self::FlowFinished { flow: reader.number()?, units: reader.number()? },
            4 => {
                let flow = reader.number()?;
                let count = reader.at_most(MAX_DROPPED as u64, "the number of dropped units")?;
                let unit = |_| Ok(DroppedUnit { id: reader.number()?, bytes: reader.number()? });
                Self::Dropped { flow, units: (0..count).map(unit).collect::<Result<_, _>>()? }
            }
            5 => {
                let flow = reader.number()?;
                let count = reader.at_most(MAX_DROPPED as u64, "the number of settled units")?;
                let arrived = (0..count).map(|_| reader.number()).collect::<Result<_, _>>()?;
                Self::Settled { flow, arrived }
            }
            6 => Self::Credit {
                flow: reader.number()?,
                units: reader.number()?,
                bytes: reader.number()?,
            },
            7 => Self::Clock { asked: read_time(reader)? },
            8 => Self::ClockAnswer {
                asked: read_time(reader)?,
                came: read_time(reader)?,
                left: read_time(reader)?,
            },
            9 => {
                let flow = reader.number()?;
                let (units, bytes, late) = (reader.number()?, reader.number()?, reader.number()?);
                let delay = read_time(reader)?.since(Time::ZERO);
                Self::ReceiverReport { flow, report: ReceiverReport { units, bytes, late, delay } }
            }
            10 => Self::FlowCredit { flows: reader.number()? },
            unknown => return Err(WireError::UnknownMessage(unknown)),
        })
    }
}

fn micros(time: Time) -> u64 {
    time.as_nanos() / 1000
}

fn read_time(reader: &mut Reader<'_>) -> Result<Time, WireError> {
    Ok(Time::from_nanos(reader.at_most(MAX_MICROS, "a time")? * 1000))
}

fn read_version(reader: &mut Reader<'_>) -> Result<(), WireError> {
    match reader.number()? {
        VERSION => Ok(()),
        other => Err(WireError::Version(other)),
    }
}

fn write_hello(out: &mut Vec<u8>, limits: &Limits, acknowledge: AckRequest) {
    limits.write(out);
    write(out, acknowledge as u64);
}

fn read_hello(reader: &mut Reader<'_>) -> Result<(Limits, AckRequest), WireError> {
    let limits = Limits::take(reader)?;
    let acknowledge = match reader.number()? {
        0 => AckRequest::Immediate,
        1 => AckRequest::Delayed,
        2 => AckRequest::Adaptive,
        _ => return Err(WireError::OutOfRange("the way of acknowledging")),
    };
    Ok((limits, acknowledge))
}

fn read_flow(reader: &mut Reader<'_>) -> Result<FlowOpened, WireError> {
    let flow = reader.number()?;
    let order = match reader.number()? {
        0 => DeliveryOrder::InOrder,
        1 => DeliveryOrder::OutOfOrder,
        2 => DeliveryOrder::PartialOrder,
        _ => return Err(WireError::OutOfRange("a flow's order of delivery")),
    };
    let reliability = match reader.number()? {
        0 => Reliability::Full,
        1 => Reliability::Deadline,
        2 => Reliability::None,
        _ => return Err(WireError::OutOfRange("a flow's reliability")),
    };
    let label = reader.bytes(MAX_LABEL, "a flow's label")?;
    let label = std::str::from_utf8(label).map_err(|_| WireError::OutOfRange("a flow's label"))?;
    Ok(FlowOpened { flow, order, reliability, label: label.to_owned() })
}
