//! The protocol's bytes; numbers are big-endian.
//!
//! Handshake, the same over TCP and UDP: `OnQS`, version, kind, length of the body (2 bytes), body.
//!
//! | kind | body |
//! | --- | --- |
//! | 1 hello | session, cookie (zeros over TCP and in the first over UDP), time, offer |
//! | 2 challenge | session, cookie |
//! | 3 accept | session, hello's time, its arrival time, sending time, offer |
//! | 4 refuse | session, reason, offer |
//! | 5 return | session, token, number of the attempt, messages received |
//! | 6 returned | session, messages received |
//!
//! Over TCP the cookie of a hello is a token by which the client may return if its connection breaks; an
//! accept says by a flag of its offer that the server will know it, and only then are there acknowledgements,
//! an end and a bye (`Kind`), 5 and 6. Before that, servers ignored the cookie and sent no such flag.
//!
//! An offer is two specifications: of the sending and of the receiving direction. As both ends
//! then have all four, each computes the agreement, or the refusal, itself. No answer is longer
//! than a hello.
//!
//! Afterwards every message has a header: over TCP kind (1 byte), length of the body (3), sequence
//! number (4), time (8); over UDP `0xa7`, version, kind, 0, sequence number (4), session (8), time
//! (8), and before a message of more than 4,096 bytes 8 zeros. Times are nanoseconds of the sending end's clock, with an arbitrary zero.

mod control;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Parameter, Specification, Term};

use ontempo_foundation::octets::{Octets, Short};
pub use ontempo_udp::Cookie;

use control::{CHANGE, COUNT, NONE, REFUSED, STATUS};
pub use control::{Change, Counted, Figures, Pong, Refused, Status};

/// Protocol version.
pub const VERSION: u8 = 3;

/// Bytes before the body of a handshake message.
pub const PREFACE: usize = 8;

/// Maximum bytes of a handshake message.
pub const MAX_SETUP: usize = PREFACE + 8 + 24 + OFFER;

/// Bytes of a message's header over TCP.
pub const TCP_HEADER: usize = 16;

/// Bytes of a message's header over UDP.
pub const UDP_HEADER: usize = 24;

/// Zeros after the header of a datagram whose message is longer than [`UDP_SHORT`]: the system copies the
/// message from and to places that are aligned alike, which takes a fifth of the time off.
pub const UDP_PADDING: usize = 8;

/// The longest message without [`UDP_PADDING`], in bytes.
pub const UDP_SHORT: usize = 4 * 1024;

/// Maximum length of a message that the header can hold over TCP.
pub const MAX_MESSAGE_LEN: usize = (1 << 24) - 1;

/// Maximum bytes of a control message's body.
pub const MAX_CONTROL_LEN: usize = STATUS;

const MAGIC: [u8; 4] = *b"OnQS";
const MARK: u8 = 0xa7;
const SPECIFICATION: usize = Parameter::ALL.len() * 9;
const OFFER: usize = 2 * SPECIFICATION + 1;

/// Specifications of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Of its sending direction.
    pub send: Specification,
    /// Of its receiving direction.
    pub receive: Specification,
    /// Whether it reserves: a reservation takes both ends.
    pub reserves: bool,
    /// Whether it takes no connection without a reservation.
    pub must_reserve: bool,
    /// In an accept over TCP to a hello with a token: whether a connection that breaks can return.
    pub recovers: bool,
}

/// Why an end refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The specifications contradict each other.
    Specification,
    /// The versions differ.
    Version,
    /// It has its maximum number of connections.
    Busy,
    /// One end must reserve, and one does not.
    Reservation,
    /// It has no connection to return to: another token, or it has ended.
    Unknown,
}

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The table above has them.
pub enum Setup {
    Hello { session: u64, cookie: Cookie, sent: u64, offer: Offer },
    Challenge { session: u64, cookie: Cookie },
    Accept { session: u64, echo: u64, arrived: u64, sent: u64, offer: Offer },
    Refuse { session: u64, reason: Reason, offer: Offer },
    Return { session: u64, token: Cookie, attempt: u32, received: u64 },
    Returned { session: u64, received: u64 },
}

/// Why bytes are not a message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Another protocol.
    NotOurs,
    /// Another version.
    Version(u8),
    /// A wrong length for its kind, or impossible values.
    Malformed,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotOurs => f.write_str("the other end does not speak QoSockets"),
            Self::Version(version) => {
                write!(f, "the other end speaks version {version} of QoSockets, this is {VERSION}")
            }
            Self::Malformed => f.write_str("a damaged message of a QoS socket"),
        }
    }
}

impl std::error::Error for WireError {}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message of the application.
    Data = 0,
    /// A [`Status`].
    Status = 1,
    /// A [`Pong`].
    Pong = 2,
    /// A [`Change`].
    Change = 3,
    /// Nothing follows. Where a broken connection can return: each end has received and acknowledged all of the other's,
    /// with its [`End`](Self::End); before that, this end breaks off and does not come back.
    Bye = 4,
    /// A [`Refused`].
    Refused = 5,
    /// How many messages have been received, their [`End`](Self::End) as one more: only where a broken
    /// connection can return.
    Ack = 6,
    /// How many messages were sent: no more follow. Likewise.
    End = 7,
}

impl Kind {
    fn of(byte: u8) -> Result<Self, WireError> {
        match byte {
            0 => Ok(Self::Data),
            1 => Ok(Self::Status),
            2 => Ok(Self::Pong),
            3 => Ok(Self::Change),
            4 => Ok(Self::Bye),
            5 => Ok(Self::Refused),
            6 => Ok(Self::Ack),
            7 => Ok(Self::End),
            _ => Err(WireError::Malformed),
        }
    }

    /// Bytes of its body; `None` for the application's.
    const fn length(self) -> Option<usize> {
        match self {
            Self::Data => None,
            Self::Status => Some(STATUS),
            Self::Pong => Some(16),
            Self::Change => Some(CHANGE),
            Self::Bye => Some(0),
            Self::Refused => Some(REFUSED),
            Self::Ack | Self::End => Some(COUNT),
        }
    }
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its kind.
    pub kind: Kind,
    /// Bytes of the body.
    pub length: usize,
    /// Sequence number of the application's messages, modulo 2^32.
    pub sequence: u32,
    /// Sending time, ns.
    pub sent: u64,
}

impl Header {
    /// As sent over TCP; a length above [`MAX_MESSAGE_LEN`] is a caller's error and is truncated.
    #[inline]
    pub fn to_tcp(&self) -> [u8; TCP_HEADER] {
        let mut bytes = [0; TCP_HEADER];
        let first = (self.kind as u32) << 24 | (self.length.min(MAX_MESSAGE_LEN) as u32);
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sent.to_be_bytes());
        bytes
    }

    /// Parses it; `most` is the agreed maximum message size.
    ///
    /// # Errors
    /// An unknown kind, or a wrong length for its kind.
    #[inline]
    pub fn of_tcp(bytes: &[u8; TCP_HEADER], most: usize) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let first = read.u32()?;
        let kind = Kind::of((first >> 24) as u8)?;
        let length = (first & 0xff_ffff) as usize;
        if kind.length().map_or(length > most, |fixed| length != fixed) {
            return Err(WireError::Malformed);
        }
        Ok(Self { kind, length, sequence: read.u32()?, sent: read.u64()? })
    }

    /// As sent over UDP.
    #[inline]
    pub fn to_udp(&self, session: u64) -> [u8; UDP_HEADER] {
        let mut bytes = [0; UDP_HEADER];
        bytes[..4].copy_from_slice(&[MARK, VERSION, self.kind as u8, 0]);
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..16].copy_from_slice(&session.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sent.to_be_bytes());
        bytes
    }

    /// Parses the start of a datagram, followed by `length` bytes.
    ///
    /// # Errors
    /// Another session or version, an unknown kind, or a wrong length for its kind.
    #[inline]
    pub fn of_udp(bytes: &[u8], length: usize, session: u64) -> Result<Self, WireError> {
        let mut read = Octets(bytes);
        let [mark, version, kind, zero] = read.array()?;
        if mark != MARK {
            return Err(WireError::NotOurs);
        }
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let kind = Kind::of(kind)?;
        let sequence = read.u32()?;
        let is_ours = read.u64()? == session;
        let fits = kind.length().is_none_or(|fixed| fixed == length);
        match (is_ours, zero, fits) {
            (false, ..) => Err(WireError::NotOurs),
            (true, 0, true) => Ok(Self { kind, length, sequence, sent: read.u64()? }),
            _ => Err(WireError::Malformed),
        }
    }
}

impl From<Short> for WireError {
    fn from(_: Short) -> Self {
        Self::Malformed
    }
}

/// Composite fields.
trait Fields {
    /// Whether a parameter is present (1) and coerced (2), and its value.
    fn term<T>(&mut self, of: impl Fn(u64) -> Option<T>) -> Result<Term<T>, WireError>;

    fn specification(&mut self) -> Result<Specification, WireError>;

    fn offer(&mut self) -> Result<Offer, WireError>;

    /// A value that may not have been measured.
    fn measured(&mut self) -> Result<Option<u64>, WireError>;

    fn end(&self) -> Result<(), WireError>;
}

impl Fields for Octets<'_> {
    fn term<T>(&mut self, of: impl Fn(u64) -> Option<T>) -> Result<Term<T>, WireError> {
        let (flags, value) = (self.u8()?, self.u64()?);
        let coerced = flags & 2 != 0;
        match flags {
            1 | 3 => Ok(Term { value: Some(of(value).ok_or(WireError::Malformed)?), coerced }),
            0 | 2 if value == 0 => Ok(Term { value: None, coerced }),
            _ => Err(WireError::Malformed),
        }
    }

    fn specification(&mut self) -> Result<Specification, WireError> {
        let rate = |value| Some(MessageRate::from_thousandths(value));
        let span = |value| Some(Duration::from_nanos(value));
        let specification = Specification {
            min_rate: self.term(rate)?,
            max_rate: self.term(rate)?,
            peak_rate: self.term(rate)?,
            size: self.term(|value| Some(Bytes::new(value)))?,
            min_delay: self.term(span)?,
            max_delay: self.term(span)?,
            int_delay: self.term(span)?,
            jitter: self.term(span)?,
            loss: self.term(|value| {
                let share = u32::try_from(value).ok().filter(|share| *share <= 100_000);
                share.map(Percent::from_thousandths)
            })?,
            rec_time: self.term(span)?,
            permutable: self.term(|value| (value < 2).then_some(value == 1))?,
        };
        specification.check().map_err(|_| WireError::Malformed)?;
        Ok(specification)
    }

    fn offer(&mut self) -> Result<Offer, WireError> {
        let (send, receive) = (self.specification()?, self.specification()?);
        let flags = self.u8()?;
        if flags > 7 {
            return Err(WireError::Malformed);
        }
        let [reserves, must_reserve, recovers] = [1, 2, 4].map(|bit| flags & bit != 0);
        Ok(Offer { send, receive, reserves, must_reserve, recovers })
    }

    fn measured(&mut self) -> Result<Option<u64>, WireError> {
        Ok(Some(self.u64()?).filter(|value| *value != NONE))
    }

    fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Malformed) }
    }
}

fn put_specification(bytes: &mut Vec<u8>, asked: &Specification) {
    let mut put = |coerced: bool, value: Option<u64>| {
        bytes.push(u8::from(value.is_some()) | u8::from(coerced) << 1);
        bytes.extend(value.unwrap_or_default().to_be_bytes());
    };
    for rate in [asked.min_rate, asked.max_rate, asked.peak_rate] {
        put(rate.coerced, rate.value.map(MessageRate::as_thousandths));
    }
    put(asked.size.coerced, asked.size.value.map(Bytes::get));
    for span in [asked.min_delay, asked.max_delay, asked.int_delay, asked.jitter] {
        put(span.coerced, span.value.map(Duration::as_nanos));
    }
    put(asked.loss.coerced, asked.loss.value.map(|share| share.as_thousandths().into()));
    put(asked.rec_time.coerced, asked.rec_time.value.map(Duration::as_nanos));
    put(asked.permutable.coerced, asked.permutable.value.map(u64::from));
}

fn put_offer(bytes: &mut Vec<u8>, offer: &Offer) {
    put_specification(bytes, &offer.send);
    put_specification(bytes, &offer.receive);
    let flags = [offer.reserves, offer.must_reserve, offer.recovers];
    bytes.push(flags.iter().rev().fold(0, |all, flag| all << 1 | u8::from(*flag)));
}

/// Parses the fixed part of a handshake message: returns the number of bytes that follow.
///
/// # Errors
/// If it is another protocol or version, or the length is impossible.
pub fn setup_length(preface: &[u8; PREFACE]) -> Result<usize, WireError> {
    let mut read = Octets(preface);
    if read.array()? != MAGIC {
        return Err(WireError::NotOurs);
    }
    let version = read.u8()?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    read.u8()?;
    let length = usize::from(read.u16()?);
    if PREFACE + length > MAX_SETUP { Err(WireError::Malformed) } else { Ok(length) }
}

impl Setup {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(MAX_SETUP);
        let kind = match self {
            Self::Hello { session, cookie, sent, offer } => {
                body.extend(session.to_be_bytes());
                body.extend(cookie);
                body.extend(sent.to_be_bytes());
                put_offer(&mut body, offer);
                1
            }
            Self::Challenge { session, cookie } => {
                body.extend(session.to_be_bytes());
                body.extend(cookie);
                2
            }
            Self::Accept { session, echo, arrived, sent, offer } => {
                for number in [session, echo, arrived, sent] {
                    body.extend(number.to_be_bytes());
                }
                put_offer(&mut body, offer);
                3
            }
            Self::Refuse { session, reason, offer } => {
                body.extend(session.to_be_bytes());
                body.push(match reason {
                    Reason::Specification => 1,
                    Reason::Version => 2,
                    Reason::Busy => 3,
                    Reason::Reservation => 4,
                    Reason::Unknown => 5,
                });
                put_offer(&mut body, offer);
                4
            }
            Self::Return { session, token, attempt, received } => {
                body.extend(session.to_be_bytes());
                body.extend(token);
                body.extend(attempt.to_be_bytes());
                body.extend(received.to_be_bytes());
                5
            }
            Self::Returned { session, received } => {
                body.extend(session.to_be_bytes());
                body.extend(received.to_be_bytes());
                6
            }
        };
        let mut bytes = Vec::with_capacity(PREFACE + body.len());
        bytes.extend(MAGIC);
        bytes.extend([VERSION, kind]);
        bytes.extend((body.len() as u16).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// Parses a whole message.
    ///
    /// # Errors
    /// If it is not valid in this version.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let (preface, body) = bytes.split_first_chunk().ok_or(WireError::NotOurs)?;
        if setup_length(preface)? != body.len() {
            return Err(WireError::Malformed);
        }
        let mut read = Octets(body);
        let session = read.u64()?;
        let setup = match preface[5] {
            1 => Self::Hello {
                session,
                cookie: read.array()?,
                sent: read.u64()?,
                offer: read.offer()?,
            },
            2 => Self::Challenge { session, cookie: read.array()? },
            3 => Self::Accept {
                session,
                echo: read.u64()?,
                arrived: read.u64()?,
                sent: read.u64()?,
                offer: read.offer()?,
            },
            4 => {
                let reason = match read.u8()? {
                    1 => Reason::Specification,
                    2 => Reason::Version,
                    3 => Reason::Busy,
                    4 => Reason::Reservation,
                    5 => Reason::Unknown,
                    _ => return Err(WireError::Malformed),
                };
                Self::Refuse { session, reason, offer: read.offer()? }
            }
            5 => Self::Return {
                session,
                token: read.array()?,
                attempt: read.u32()?,
                received: read.u64()?,
            },
            6 => Self::Returned { session, received: read.u64()? },
            _ => return Err(WireError::Malformed),
        };
        read.end()?;
        Ok(setup)
    }

    /// Whether bytes begin like a handshake message, and not like a later one.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }
}
