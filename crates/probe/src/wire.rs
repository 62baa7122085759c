//! The packets, byte by byte; numbers are big-endian.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `OS` |
//! | 2 | version, 1 |
//! | 3 | kind |
//! | 4..12 | session |
//! | 12.. | fields of the kind, see [`Message`] |

use std::fmt;

use super::Totals;
use ontempo_foundation::octets::{Octets, Short};
pub use ontempo_udp::Cookie;

/// The first bytes of each packet.
const MAGIC: [u8; 2] = *b"OS";

/// Protocol version.
pub const VERSION: u8 = 1;

/// Bytes of a data packet before its payload.
pub const DATA_HEADER: usize = 34;

/// Bytes of the first packet: the answers to it and to its successor are shorter.
pub const HELLO: usize = 64;

/// Bytes of a report.
pub const REPORT: usize = 104;

/// Bytes of a load packet before its payload.
pub const LOAD_HEADER: usize = 25;

/// Bytes of an arrivals packet before its records.
pub const ARRIVALS_HEADER: usize = 28;
/// Bytes of one record.
pub const RECORD: usize = 12;

/// Why a receiver refuses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The sender has another token.
    Token,
    /// The maximum number of sessions is reached.
    Busy,
    /// The versions differ.
    Version,
}

/// Content of a packet beside its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'a> {
    /// Request for a session. Kind 1: the sender's time in nanoseconds, and zeros up to [`HELLO`]
    /// bytes.
    Hello {
        /// The sender's time, ns.
        stamp: u64,
    },
    /// Request to prove the source address. Kind 2.
    Challenge {
        /// Time stamp of the packet that this answers.
        stamp: u64,
        /// To be returned.
        cookie: Cookie,
    },
    /// The cookie, returned. Kind 3.
    Start {
        /// The sender's time, ns.
        stamp: u64,
        /// As in the challenge.
        cookie: Cookie,
        /// Keyed hash of the cookie with the token; zeros without a token.
        proof: Cookie,
    },
    /// The session is accepted. Kind 4.
    Accept {
        /// Time stamp of the packet that this answers.
        stamp: u64,
    },
    /// The session is refused. Kind 5.
    Refuse(Reason),
    /// Data. Kind 6.
    Data(Data<'a>),
    /// Request for a report. Kind 7.
    RequestReport {
        /// The step.
        step: u16,
        /// Number of the request, from 1.
        round: u16,
    },
    /// Receiver report. Kind 8.
    Report(Report),
    /// End of the session. Kind 9.
    End,
    /// Data whose arrival is reported, packet by packet. Kind 10.
    Load(Load<'a>),
    /// Arrivals of load packets. Kind 11.
    Arrivals(Arrivals<'a>),
}

/// A load packet: 25 bytes and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// Whether the report is wanted at once.
    pub is_urgent: bool,
    /// Packet number, from 0.
    pub number: u32,
    /// The sender's time, ns.
    pub stamp: u64,
    /// The payload.
    pub payload: &'a [u8],
}

/// Arrivals of load packets, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals<'a> {
    /// How many load packets had arrived before the first of these.
    pub first: u64,
    /// The receiver's time as it sent this, ns.
    pub clock: u64,
    /// Whole records.
    records: &'a [u8],
}

impl<'a> Arrivals<'a> {
    /// Arrivals with these records, which [`push_record`] wrote.
    pub fn new(first: u64, clock: u64, records: &'a [u8]) -> Self {
        Self { first, clock, records: &records[..records.len() / RECORD * RECORD] }
    }

    /// Each packet's number, and the receiver's time of its arrival, ns.
    pub fn records(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        self.records.as_chunks::<RECORD>().0.iter().map(|record| {
            let [n0, n1, n2, n3, at @ ..] = *record;
            (u32::from_be_bytes([n0, n1, n2, n3]), u64::from_be_bytes(at))
        })
    }
}

/// Appends a record of an arrivals packet.
pub fn push_record(number: u32, at: u64, to: &mut Vec<u8>) {
    to.extend(number.to_be_bytes());
    to.extend(at.to_be_bytes());
}

/// A data packet: 34 bytes and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The step that it belongs to; packet numbers start anew in each.
    pub step: u16,
    /// Packet number, from 0.
    pub number: u64,
    /// The base round trip, us.
    pub base_rtt_us: u32,
    /// The sender's time, ns.
    pub stamp: u64,
    /// The payload.
    pub payload: &'a [u8],
}

/// A receiver report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// The step that it is about.
    pub step: u16,
    /// The request that this answers; 0: none.
    pub round: u16,
    /// Time stamp of the newest packet.
    pub stamp: u64,
    /// Time since the arrival of that packet, ns.
    pub held: u64,
    /// Counters.
    pub totals: Totals,
}

/// Why bytes are not a packet of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Another protocol.
    NotOurs,
    /// Another version.
    Version {
        /// Its version.
        version: u8,
        /// Its session.
        session: u64,
    },
    /// Shorter than its kind requires, or with impossible values.
    Malformed,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("no packet of a spaced session"),
            Self::Version { version, .. } => {
                write!(f, "a spaced session of version {version}; this is version {VERSION}")
            }
            Self::Malformed => f.write_str("a damaged packet of a spaced session"),
        }
    }
}

impl std::error::Error for WireError {}

impl From<Short> for WireError {
    fn from(_: Short) -> Self {
        Self::Malformed
    }
}

/// Parses a packet: its session and its content.
///
/// # Errors
/// If it is another protocol or version, or damaged. Trailing bytes are ignored.
pub fn read(bytes: &[u8]) -> Result<(u64, Message<'_>), WireError> {
    let mut reader = Octets(bytes);
    if !reader.array().is_ok_and(|first| first == MAGIC) {
        return Err(WireError::NotOurs);
    }
    let (version, kind, session) = (reader.u8()?, reader.u8()?, reader.u64()?);
    if version != VERSION {
        return Err(WireError::Version { version, session });
    }
    let message = match kind {
        1 if bytes.len() >= HELLO => Message::Hello { stamp: reader.u64()? },
        2 => Message::Challenge { stamp: reader.u64()?, cookie: reader.array()? },
        3 => {
            Message::Start { stamp: reader.u64()?, cookie: reader.array()?, proof: reader.array()? }
        }
        4 => Message::Accept { stamp: reader.u64()? },
        5 => Message::Refuse(match reader.u8()? {
            1 => Reason::Token,
            2 => Reason::Busy,
            3 => Reason::Version,
            _ => return Err(WireError::Malformed),
        }),
        6 => Message::Data(Data {
            step: reader.u16()?,
            number: reader.u64()?,
            base_rtt_us: reader.u32()?,
            stamp: reader.u64()?,
            payload: reader.rest(),
        }),
        7 => Message::RequestReport { step: reader.u16()?, round: reader.u16()? },
        8 => Message::Report(read_report(&mut reader)?),
        9 => Message::End,
        10 => Message::Load(Load {
            is_urgent: reader.u8()? & 1 != 0,
            number: reader.u32()?,
            stamp: reader.u64()?,
            payload: reader.rest(),
        }),
        11 => {
            let (first, clock) = (reader.u64()?, reader.u64()?);
            Message::Arrivals(Arrivals::new(first, clock, reader.rest()))
        }
        _ => return Err(WireError::Malformed),
    };
    Ok((session, message))
}

fn read_report(reader: &mut Octets<'_>) -> Result<Report, WireError> {
    let report = Report {
        step: reader.u16()?,
        round: reader.u16()?,
        stamp: reader.u64()?,
        held: reader.u64()?,
        totals: Totals {
            next: reader.u64()?,
            received: reader.u64()?,
            bytes: reader.u64()?,
            late: reader.u64()?,
            duplicates: reader.u64()?,
            marked: reader.u64()?,
            span_ns: reader.u64()?,
            gap_deviation_ns: reader.u64()?,
            queueing_ns: reader.u64()?,
        },
    };
    // Each number below `next` arrives at most once.
    if report.totals.received > report.totals.next { Err(WireError::Malformed) } else { Ok(report) }
}

/// Appends a packet.
pub fn write(session: u64, message: &Message<'_>, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend(MAGIC);
    to.push(VERSION);
    to.push(match message {
        Message::Hello { .. } => 1,
        Message::Challenge { .. } => 2,
        Message::Start { .. } => 3,
        Message::Accept { .. } => 4,
        Message::Refuse(_) => 5,
        Message::Data(_) => 6,
        Message::RequestReport { .. } => 7,
        Message::Report(_) => 8,
        Message::End => 9,
        Message::Load(_) => 10,
        Message::Arrivals(_) => 11,
    });
    to.extend(session.to_be_bytes());
    match message {
        Message::Hello { stamp } => {
            to.extend(stamp.to_be_bytes());
            to.resize(start + HELLO, 0);
        }
        Message::Challenge { stamp, cookie } => {
            to.extend(stamp.to_be_bytes());
            to.extend(cookie);
        }
        Message::Start { stamp, cookie, proof } => {
            to.extend(stamp.to_be_bytes());
            to.extend(cookie);
            to.extend(proof);
        }
        Message::Accept { stamp } => to.extend(stamp.to_be_bytes()),
        Message::Refuse(reason) => to.push(match reason {
            Reason::Token => 1,
            Reason::Busy => 2,
            Reason::Version => 3,
        }),
        Message::Data(data) => {
            to.extend(data.step.to_be_bytes());
            to.extend(data.number.to_be_bytes());
            to.extend(data.base_rtt_us.to_be_bytes());
            to.extend(data.stamp.to_be_bytes());
            to.extend(data.payload);
        }
        Message::RequestReport { step, round } => {
            to.extend(step.to_be_bytes());
            to.extend(round.to_be_bytes());
        }
        Message::Report(report) => write_report(report, to),
        Message::End => {}
        Message::Load(load) => {
            to.push(u8::from(load.is_urgent));
            to.extend(load.number.to_be_bytes());
            to.extend(load.stamp.to_be_bytes());
            to.extend(load.payload);
        }
        Message::Arrivals(arrivals) => {
            to.extend(arrivals.first.to_be_bytes());
            to.extend(arrivals.clock.to_be_bytes());
            to.extend(arrivals.records);
        }
    }
}

fn write_report(report: &Report, to: &mut Vec<u8>) {
    let totals = &report.totals;
    to.extend(report.step.to_be_bytes());
    to.extend(report.round.to_be_bytes());
    for number in [
        report.stamp,
        report.held,
        totals.next,
        totals.received,
        totals.bytes,
        totals.late,
        totals.duplicates,
        totals.marked,
        totals.span_ns,
        totals.gap_deviation_ns,
        totals.queueing_ns,
    ] {
        to.extend(number.to_be_bytes());
    }
}
