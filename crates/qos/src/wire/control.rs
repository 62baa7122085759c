//! Control messages between the two ends.

use ontempo_mechanisms::qos::{Parameter, Specification};

use super::{Fields as _, SPECIFICATION, WireError, put_specification};
use ontempo_foundation::octets::Octets;
use ontempo_foundation::printable;

pub(super) const STATUS: usize = (11 + Parameter::ALL.len()) * 8 + 10;
pub(super) const CHANGE: usize = 4 + SPECIFICATION;
pub(super) const REFUSED: usize = 160;
pub(super) const COUNT: usize = 8;

/// Means: not measured.
pub(super) const NONE: u64 = u64::MAX;

/// Report of an end, twice a second: what it has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Messages sent so far.
    pub sent_messages: u64,
    /// Their payload.
    pub sent_bytes: u64,
    /// The peer's clock minus this one's, ns, as measured here, and its
    /// error bound.
    pub offset: Option<(i64, u64)>,
    /// Number of the last [`Change`] received.
    pub change: u32,
    /// Statistics of the receiving direction.
    pub figures: Figures,
}

/// A receiver report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages received so far.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
    /// Messages lost.
    pub lost: u64,
    /// Throughput of the last interval, in bits per second.
    pub throughput: u64,
    /// Loss of the last interval in thousandths of a per cent; `None` if nothing was sent.
    pub loss: Option<u32>,
    /// Mean delay in the last interval, ns, and its error bound.
    pub delay: Option<(u64, u64)>,
    /// Mean jitter in the last interval, ns.
    pub jitter: Option<u64>,
    /// Bit mask of violated parameters, the first of the paper in the lowest bit.
    pub violated: u16,
    /// Delivered value of each parameter, in the units of the MIB.
    pub delivered: [Option<u64>; Parameter::ALL.len()],
}

/// The answer to a [`Status`], to compare the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// Sending time of the status, by its sender's clock.
    pub echo: u64,
    /// Its arrival time, by this end's clock.
    pub arrived: u64,
}

/// The sender asks for another specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number of the change, from 1.
    pub number: u32,
    /// The new specification.
    pub send: Specification,
}

/// The receiver's reservation was refused: the reason, padded with zeros on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason, of which 160 bytes are sent.
    pub reason: String,
}

/// A number of messages: received, in an acknowledgement, or sent, at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The number.
    pub messages: u64,
}

impl Status {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let figures = &self.figures;
        let mut bytes = Vec::with_capacity(STATUS);
        let (offset, error) = self.offset.unwrap_or((0, NONE));
        let (delay, delay_error) = figures.delay.unwrap_or((NONE, NONE));
        let numbers = [
            self.sent_messages,
            self.sent_bytes,
            offset.cast_unsigned(),
            error,
            figures.messages,
            figures.bytes,
            figures.lost,
            figures.throughput,
            delay,
            delay_error,
            figures.jitter.unwrap_or(NONE),
        ];
        let delivered = figures.delivered.iter().map(|value| value.unwrap_or(NONE));
        for number in numbers.into_iter().chain(delivered) {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(self.change.to_be_bytes());
        bytes.extend(figures.loss.unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(figures.violated.to_be_bytes());
        bytes
    }

    /// Parses it.
    ///
    /// # Errors
    /// A wrong length.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let (sent_messages, sent_bytes) = (read.u64()?, read.u64()?);
        let (offset, error) = (read.u64()?.cast_signed(), read.measured()?);
        let mut figures = Figures {
            messages: read.u64()?,
            bytes: read.u64()?,
            lost: read.u64()?,
            throughput: read.u64()?,
            ..Figures::default()
        };
        figures.delay = read.measured()?.zip(read.measured()?);
        figures.jitter = read.measured()?;
        for delivered in &mut figures.delivered {
            *delivered = read.measured()?;
        }
        let change = read.u32()?;
        figures.loss = Some(read.u32()?).filter(|loss| *loss <= 100_000);
        figures.violated = read.u16()?;
        read.end()?;
        let offset = error.map(|error| (offset, error));
        Ok(Self { sent_messages, sent_bytes, offset, change, figures })
    }
}

impl Pong {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.echo.to_be_bytes(), self.arrived.to_be_bytes()].concat()
    }

    /// Parses it.
    ///
    /// # Errors
    /// A wrong length.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let pong = Self { echo: read.u64()?, arrived: read.u64()? };
        read.end().map(|()| pong)
    }
}

impl Change {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.number.to_be_bytes().to_vec();
        put_specification(&mut bytes, &self.send);
        bytes
    }

    /// Parses it.
    ///
    /// # Errors
    /// A wrong length, or an invalid specification.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let change = Self { number: read.u32()?, send: read.specification()? };
        read.end().map(|()| change)
    }
}

impl Refused {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut end = self.reason.len().min(REFUSED);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = self.reason.as_bytes()[..end].to_vec();
        bytes.resize(REFUSED, 0);
        bytes
    }

    /// Parses it: what a terminal would obey is escaped.
    ///
    /// # Errors
    /// A wrong length, or not UTF-8.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() == REFUSED);
        let text = text.ok_or(WireError::Malformed)?;
        Ok(Self { reason: printable(text.trim_end_matches('\0')).into_owned() })
    }
}

impl Counted {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.messages.to_be_bytes().to_vec()
    }

    /// Parses it.
    ///
    /// # Errors
    /// A wrong length.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let counted = Self { messages: read.u64()? };
        read.end().map(|()| counted)
    }
}
