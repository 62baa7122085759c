//! What the two ends tell each other beside the application's messages.

use ontempo_mechanisms::qos::{Parameter, Specification};

use super::{Fields as _, SPECIFICATION, WireError, put_specification};
use ontempo_foundation::octets::Octets;

pub(super) const STATUS: usize = (11 + Parameter::ALL.len()) * 8 + 10;
pub(super) const CHANGE: usize = 4 + SPECIFICATION;
pub(super) const REFUSED: usize = 160;

/// Stands for nothing measured.
pub(super) const NONE: u64 = u64::MAX;

/// What an end tells twice a second: what it has sent, what has come and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Messages sent so far.
    pub sent_messages: u64,
    /// Their payload.
    pub sent_bytes: u64,
    /// The other end's clock less this one's, ns, as measured by this one; and how far it may
    /// be off.
    pub offset: Option<(i64, u64)>,
    /// The last [`Change`] that came.
    pub change: u32,
    /// What has come.
    pub figures: Figures,
}

/// What a receiver has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages so far.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
    /// Messages known to be lost.
    pub lost: u64,
    /// Payload of the last interval over its time, in bits per second.
    pub throughput: u64,
    /// Loss of the last interval in thousandths of a per cent; `None` where nothing was sent.
    pub loss: Option<u32>,
    /// Mean delay in the last interval, ns; and how far it may be off.
    pub delay: Option<(u64, u64)>,
    /// Mean jitter in the last interval, ns.
    pub jitter: Option<u64>,
    /// The parameters that are violated, the first of the paper in the lowest bit.
    pub violated: u16,
    /// What was delivered of each parameter, in the units of the MIB.
    pub delivered: [Option<u64>; Parameter::ALL.len()],
}

/// The answer to a [`Status`], for the clocks' sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// When the status left, by the clock of its end.
    pub echo: u64,
    /// When it came, by that of this end.
    pub arrived: u64,
}

/// The sender asks for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Counts the changes from 1.
    pub number: u32,
    /// What it asks for now.
    pub send: Specification,
}

/// The receiver's reservation was refused: why, filled up with zeros on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A sentence, of which 160 bytes are told.
    pub reason: String,
}

impl Status {
    /// Its bytes.
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

    /// Reads it.
    ///
    /// # Errors
    /// Another length.
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
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.echo.to_be_bytes(), self.arrived.to_be_bytes()].concat()
    }

    /// Reads it.
    ///
    /// # Errors
    /// Another length.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let pong = Self { echo: read.u64()?, arrived: read.u64()? };
        read.end().map(|()| pong)
    }
}

impl Change {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.number.to_be_bytes().to_vec();
        put_specification(&mut bytes, &self.send);
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// Another length, or a specification that cannot be.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let change = Self { number: read.u32()?, send: read.specification()? };
        read.end().map(|()| change)
    }
}

impl Refused {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut end = self.reason.len().min(REFUSED);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = self.reason.as_bytes()[..end].to_vec();
        bytes.resize(REFUSED, 0);
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// Another length, or no text.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() == REFUSED);
        let text = text.ok_or(WireError::Malformed)?;
        Ok(Self { reason: text.trim_end_matches('\0').replace(char::is_control, " ") })
    }
}
