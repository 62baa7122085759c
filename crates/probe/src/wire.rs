//! The packets, byte by byte; numbers are big-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..2 | `OS` |
//! | 2 | version, 1 |
//! | 3 | kind |
//! | 4..12 | session |
//! | 12.. | by kind, as [`Message`] has it |

use std::fmt;

use super::Totals;
use ontempo_foundation::octets::{Octets, Short};
pub use ontempo_udp::Cookie;

/// What each packet begins with.
const MAGIC: [u8; 2] = *b"OS";

/// The version that we speak.
pub const VERSION: u8 = 1;

/// Bytes of a packet of data before its payload.
pub const DATA_HEADER: usize = 34;

/// Bytes of the first packet: no answer to it is longer.
pub const HELLO: usize = 64;

/// Why a receiver refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The sender does not know the token.
    Token,
    /// As many sessions as it takes are under way.
    Busy,
    /// It speaks another version.
    Version,
}

/// What a packet says, beside its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'a> {
    /// May I send? Kind 1: the sender's time in nanoseconds, and zeros up to [`HELLO`] bytes.
    Hello {
        /// The sender's time, ns.
        stamp: u64,
    },
    /// Prove that you are there. Kind 2.
    Challenge {
        /// Of the packet that this answers.
        stamp: u64,
        /// To be sent back.
        cookie: Cookie,
    },
    /// Here I am. Kind 3.
    Start {
        /// The sender's time, ns.
        stamp: u64,
        /// As the challenge had it.
        cookie: Cookie,
        /// Made from the token and the cookie; zeros without a token.
        proof: Cookie,
    },
    /// Send. Kind 4.
    Accept {
        /// Of the packet that this answers.
        stamp: u64,
    },
    /// Do not. Kind 5.
    Refuse(Reason),
    /// Kind 6.
    Data(Data<'a>),
    /// Tell what has come, though no report is due. Kind 7.
    Ask {
        /// What is asked about.
        stretch: u16,
        /// Counts the questions, from 1.
        round: u16,
    },
    /// What has come. Kind 8.
    Report(Report),
    /// The session is over. Kind 9.
    End,
}

/// A packet of data: 34 bytes, and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Which of the session's stretches it belongs to: numbers begin anew in each.
    pub stretch: u16,
    /// Counts packets from 0.
    pub number: u64,
    /// The base round trip, us.
    pub base_rtt_us: u32,
    /// The sender's time, ns.
    pub stamp: u64,
    /// What it carries.
    pub payload: &'a [u8],
}

/// What a receiver tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Which stretch this tells of.
    pub stretch: u16,
    /// The question that this answers; 0: none.
    pub round: u16,
    /// Of the newest packet, as it was stamped.
    pub stamp: u64,
    /// How long ago that came, ns.
    pub held: u64,
    /// What has come.
    pub totals: Totals,
}

/// Why bytes are no packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Something else.
    NotOurs,
    /// Ours, of another version.
    Version {
        /// The version that it says.
        version: u8,
        /// Its session.
        session: u64,
    },
    /// Shorter than what its kind needs, or of values that cannot be.
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

/// Reads a packet: its session and what it says.
///
/// # Errors
/// It is not ours, of another version, or damaged. Bytes behind a message are ignored.
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
            stretch: reader.u16()?,
            number: reader.u64()?,
            base_rtt_us: reader.u32()?,
            stamp: reader.u64()?,
            payload: reader.rest(),
        }),
        7 => Message::Ask { stretch: reader.u16()?, round: reader.u16()? },
        8 => Message::Report(read_report(&mut reader)?),
        9 => Message::End,
        _ => return Err(WireError::Malformed),
    };
    Ok((session, message))
}

fn read_report(reader: &mut Octets<'_>) -> Result<Report, WireError> {
    let report = Report {
        stretch: reader.u16()?,
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
    // Each number below `next` comes at most once.
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
        Message::Ask { .. } => 7,
        Message::Report(_) => 8,
        Message::End => 9,
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
            to.extend(data.stretch.to_be_bytes());
            to.extend(data.number.to_be_bytes());
            to.extend(data.base_rtt_us.to_be_bytes());
            to.extend(data.stamp.to_be_bytes());
            to.extend(data.payload);
        }
        Message::Ask { stretch, round } => {
            to.extend(stretch.to_be_bytes());
            to.extend(round.to_be_bytes());
        }
        Message::Report(report) => write_report(report, to),
        Message::End => {}
    }
}

fn write_report(report: &Report, to: &mut Vec<u8>) {
    let totals = &report.totals;
    to.extend(report.stretch.to_be_bytes());
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
