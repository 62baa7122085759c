//! The handshake: both ends negotiate before the first message.

use std::fmt;
use std::io;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::qos::{Contradiction, Refusal, Specification, agree};

use ontempo_monitor::Carrier;
use ontempo_transport::Closed;

use super::offset::Sample;
use super::wire::{Cookie, Offer, PREFACE, Reason, Setup, WireError, setup_length};

/// The result of a negotiation, as seen from one end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Established {
    pub(super) session: u64,
    pub(super) sending: Specification,
    pub(super) receiving: Specification,
    pub(super) peer: Offer,
    pub(super) clock: Sample,
    /// Whether the clocks were compared; otherwise the first message is assumed to have had no
    /// delay.
    pub(super) is_measured: bool,
    /// By which the client of a TCP connection returns if it breaks; `None` if it cannot.
    pub(super) token: Option<Cookie>,
}

impl Established {
    /// How long a broken connection may take to recover: the longer time of both directions.
    pub(super) fn rec_time(&self) -> Option<Duration> {
        self.sending.rec_time.value.max(self.receiving.rec_time.value)
    }
}

/// The disagreements of a negotiation, as seen from one end; at least one is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// In the sending direction.
    pub sending: Option<Refusal>,
    /// In the receiving direction.
    pub receiving: Option<Refusal>,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = [("sending", &self.sending), ("receiving", &self.receiving)];
        let refusals =
            both.into_iter().filter_map(|(name, refusal)| Some((name, refusal.as_ref()?)));
        for (place, (name, refusal)) in refusals.enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}{name}: {refusal}")?;
        }
        Ok(())
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum SetupError {
    /// The specification at this end is invalid.
    Contradiction(Contradiction),
    /// A congestion control is given for a carrier other than QUIC.
    CongestionNotChoosable(Carrier),
    /// `reliable` is set for UDP.
    NotReliable,
    /// The ends do not agree; both have the reason.
    Disagreement(Box<Disagreement>),
    /// The peer has its maximum number of connections.
    Busy,
    /// The peer violates the protocol.
    Wire(WireError),
    /// The handshake timed out.
    Silent,
    /// So many other connections were being set up by this caller during all of the time for the set-up.
    Crowded(usize),
    /// `must_reserve` is set, and there is no reservation.
    NotReserved(String),
    /// Over TCP, at the listener: a peer wanted to return to a connection that it does not know: its token
    /// is another one, or the connection has ended.
    Unknown,
    /// Over QUIC, at the listener: the client was refused before it said what it asks for, because
    /// of its token for example.
    NotAdmitted(Closed),
    /// The system's error.
    Io(io::Error),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction(contradiction) => contradiction.fmt(f),
            Self::CongestionNotChoosable(Carrier::Udp) => {
                f.write_str("congestion: a UDP socket has none; only QUIC's can be chosen")
            }
            Self::CongestionNotChoosable(_) => f.write_str(
                "congestion: that of TCP is the kernel's (sysctl \
                 net.ipv4.tcp_congestion_control); only QUIC's can be chosen",
            ),
            Self::NotReliable => f.write_str(
                "reliable: a UDP socket retransmits nothing; only QUIC's and TCP's messages all arrive",
            ),
            Self::Disagreement(both) => write!(f, "the two ends do not agree: {both}"),
            Self::Busy => f.write_str("the other end takes no more connections"),
            Self::Wire(error) => error.fmt(f),
            Self::Silent => f.write_str("the other end did not answer the set-up in time"),
            Self::Crowded(others) => {
                write!(f, "{others} other connections were being set up all the while: try again")
            }
            Self::Unknown => {
                f.write_str("it wanted to return to a connection that is not known: another token, or too late")
            }
            Self::NotReserved(reason) => write!(f, "nothing is reserved: {reason}"),
            Self::NotAdmitted(closed) => closed.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetupError {}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

impl From<WireError> for SetupError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// So that `?` works as with sockets of the standard library.
impl From<SetupError> for io::Error {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Io(error) => error,
            SetupError::Silent | SetupError::Crowded(_) => {
                Self::new(io::ErrorKind::TimedOut, error)
            }
            SetupError::Contradiction(_) | SetupError::NotReliable => {
                Self::new(io::ErrorKind::InvalidInput, error)
            }
            SetupError::Wire(_) => Self::new(io::ErrorKind::InvalidData, error),
            _ => Self::new(io::ErrorKind::ConnectionRefused, error),
        }
    }
}

/// Negotiates both directions: sending and receiving. Both ends get the same result.
fn settle(own: &Offer, peer: &Offer) -> Result<(Specification, Specification), Disagreement> {
    let sending = agree(&own.send, &peer.receive);
    let receiving = agree(&peer.send, &own.receive);
    match (sending, receiving) {
        (Ok(sending), Ok(receiving)) => Ok((sending, receiving)),
        (sending, receiving) => {
            Err(Disagreement { sending: sending.err(), receiving: receiving.err() })
        }
    }
}

/// Why two ends of which one must reserve get no connection, as this end says it.
fn unreserved(own: &Offer, peer: &Offer) -> Option<String> {
    let is_must = own.must_reserve || peer.must_reserve;
    let why = match (own.reserves, peer.reserves) {
        (true, true) => return None,
        (true, false) => "the other end does not reserve",
        (false, true) => "the other end must reserve, and this end does not",
        (false, false) => "neither end reserves, and one must",
    };
    is_must.then(|| why.to_owned())
}

/// Whether an offer is valid.
pub(super) fn check(own: &Offer) -> Result<(), SetupError> {
    own.send.check().map_err(SetupError::Contradiction)?;
    own.receive.check().map_err(SetupError::Contradiction)
}

/// The first message of the connecting end. Over TCP the cookie is the token of its connection.
pub(super) fn hello(own: &Offer, session: u64, cookie: Cookie, now: Time) -> Setup {
    Setup::Hello { session, cookie, sent: now.as_nanos(), offer: plain(own) }
}

/// The offer in messages other than an accept: those of older versions refuse the flag.
fn plain(own: &Offer) -> Offer {
    Offer { recovers: false, ..*own }
}

/// The listening end's answer to a hello that arrived at `now`.
pub(super) fn answer(
    own: &Offer,
    (session, cookie): (u64, Cookie),
    sent: u64,
    peer: Offer,
    now: Time,
) -> (Setup, Result<Established, SetupError>) {
    match settle(own, &peer) {
        Ok(_) if unreserved(own, &peer).is_some() => {
            let why = unreserved(own, &peer).unwrap_or_default();
            let refuse = Setup::Refuse { session, reason: Reason::Reservation, offer: plain(own) };
            (refuse, Err(SetupError::NotReserved(why)))
        }
        Ok((sending, receiving)) => {
            let at = now.as_nanos();
            let token = Some(cookie).filter(|token| own.recovers && *token != Cookie::default());
            let offer = Offer { recovers: token.is_some(), ..*own };
            let accept = Setup::Accept { session, echo: sent, arrived: at, sent: at, offer };
            let clock = Sample::assumed(sent, now);
            let is_measured = false;
            let established =
                Established { session, sending, receiving, peer, clock, is_measured, token };
            (accept, Ok(established))
        }
        Err(disagreement) => {
            let reason = Reason::Specification;
            let error = SetupError::Disagreement(Box::new(disagreement));
            (Setup::Refuse { session, reason, offer: plain(own) }, Err(error))
        }
    }
}

/// Takes the answer at the connecting end; `None` if it is of another session or
/// not an answer.
pub(super) fn conclude(
    own: &Offer,
    (asked, cookie): (u64, Cookie),
    answer: &Setup,
    now: Time,
) -> Option<Result<Established, SetupError>> {
    match *answer {
        Setup::Accept { session, echo, arrived, sent, offer } if session == asked => {
            let Ok((sending, receiving)) = settle(own, &offer) else {
                return Some(Err(WireError::Malformed.into()));
            };
            let Some(clock) = Sample::of_exchange(echo, arrived, sent, now) else {
                return Some(Err(WireError::Malformed.into()));
            };
            let (peer, is_measured) = (offer, true);
            let token = Some(cookie).filter(|_| offer.recovers);
            Some(Ok(Established { session, sending, receiving, peer, clock, is_measured, token }))
        }
        Setup::Refuse { session, reason, offer } if session == asked => {
            Some(Err(match (reason, settle(own, &offer)) {
                (Reason::Specification, Err(both)) => SetupError::Disagreement(Box::new(both)),
                (Reason::Busy, _) => SetupError::Busy,
                (Reason::Reservation, _) => match unreserved(own, &offer) {
                    Some(why) => SetupError::NotReserved(why),
                    None => SetupError::Wire(WireError::Malformed),
                },
                _ => SetupError::Wire(WireError::Malformed),
            }))
        }
        _ => None,
    }
}

/// The bytes of a handshake message, as they come over a stream.
#[derive(Debug, Default)]
pub(super) struct SetupBytes(Vec<u8>);

impl SetupBytes {
    /// How many bytes to read next: 0 once the message is complete, and never more than belong to
    /// it.
    ///
    /// # Errors
    /// If it is of another protocol or version, or its length is impossible.
    pub(super) fn missing(&self) -> Result<usize, WireError> {
        let length = match self.0.first_chunk::<PREFACE>() {
            None => PREFACE,
            Some(preface) => PREFACE + setup_length(preface)?,
        };
        Ok(length.saturating_sub(self.0.len()))
    }

    /// Takes bytes, at most [as many as are missing](Self::missing).
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The complete message.
    ///
    /// # Errors
    /// If it is damaged.
    pub(super) fn read(&self) -> Result<Setup, WireError> {
        Setup::read(&self.0)
    }
}

/// What the listening end does about a handshake message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing: the peer speaks another protocol.
    Ignore,
    /// It sends the reason.
    Refuse(Setup, SetupError),
    /// It sends the answer, and the connection begins.
    Accept(Setup, Box<Established>),
    /// A connection that broke returns, if the token is its own.
    Return(Returning),
}

/// What a client says that returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returning {
    pub(super) session: u64,
    pub(super) token: Cookie,
    pub(super) attempt: u32,
    /// Messages that it has received.
    pub(super) received: u64,
}

impl Verdict {
    /// About a peer of another version, to which the reason can be said.
    pub(super) fn on_error(own: &Offer, error: WireError) -> Self {
        match error {
            WireError::Version(_) => {
                let (reason, offer) = (Reason::Version, plain(own));
                Self::Refuse(Setup::Refuse { session: 0, reason, offer }, error.into())
            }
            _ => Self::Ignore,
        }
    }

    /// About a message that arrived at `now`.
    pub(super) fn on_message(now: Time, own: &Offer, message: &Setup) -> Self {
        let (session, cookie, sent, offer) = match *message {
            Setup::Hello { session, cookie, sent, offer } => (session, cookie, sent, offer),
            Setup::Return { session, token, attempt, received } if own.recovers => {
                return Self::Return(Returning { session, token, attempt, received });
            }
            _ => return Self::Ignore,
        };
        match answer(own, (session, cookie), sent, offer, now) {
            (accept, Ok(established)) => Self::Accept(accept, Box::new(established)),
            (refuse, Err(error)) => Self::Refuse(refuse, error),
        }
    }
}
