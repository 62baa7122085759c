use std::net::IpAddr;

use ontempo_foundation::Duration;

use super::parts::{Descriptor, ErrorSpec, Hop, Sender, Session, Style};
use super::service::{AdSpec, TrafficSpec};

/// One RSVP message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The IP TTL that it was sent with (header field Send_TTL).
    pub send_ttl: u8,
    /// The sender understands refresh reduction (RFC 2961 section 2).
    pub refresh_reduction: bool,
    /// Its number (RFC 2961 section 4.1), if it has one.
    pub id: Option<MessageId>,
    /// Acknowledgements that travel with it; all that an Ack message has.
    pub acks: Vec<Ack>,
    /// What it says.
    pub body: Body,
    /// Objects to be passed on as they are: policy data, and unknown ones whose class number
    /// begins with the bits 11 (RFC 2205 section 3.10).
    pub forwarded: Vec<RawObject>,
    /// The first object for which the message must be refused (RFC 2205 section 3.10); never
    /// written.
    pub unknown: Option<Unknown>,
}

/// A message's kind and its contents.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is told at its struct
pub enum Body {
    Path(Path),
    Resv(Resv),
    PathErr(PathErr),
    ResvErr(ResvErr),
    PathTear(PathTear),
    ResvTear(ResvTear),
    ResvConf(ResvConf),
    /// Messages in one packet (RFC 2961 section 3); none of them is a bundle.
    Bundle(Vec<Message>),
    /// Acknowledgements alone (RFC 2961 section 4.5).
    Ack,
    Srefresh(Srefresh),
    /// A cookie to be answered, for the key named (RFC 2747 section 4.3).
    Challenge {
        /// The key, 48 bits.
        key: u64,
        /// The cookie; its length is a multiple of 4.
        cookie: Vec<u8>,
    },
    /// The answer to a challenge: the same contents, with an INTEGRITY object.
    Response {
        /// The key, 48 bits.
        key: u64,
        /// The cookie of the challenge.
        cookie: Vec<u8>,
    },
}

/// A sender tells the way that its flow takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The flow's destination.
    pub session: Session,
    /// The node that this comes from.
    pub hop: Hop,
    /// How often it comes: whole milliseconds.
    pub refresh: Duration,
    /// The flow's sender.
    pub sender: Sender,
    /// Its traffic.
    pub traffic: TrafficSpec,
    /// What the path has to offer so far.
    pub adspec: Option<AdSpec>,
}

/// A receiver's reservation, hop by hop towards the senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Resv {
    /// The flows' destination.
    pub session: Session,
    /// The node that this comes from; `interface` as that node was told in PATH.
    pub hop: Hop,
    /// How often it comes: whole milliseconds.
    pub refresh: Duration,
    /// Who wants a ResvConf.
    pub confirm: Option<IpAddr>,
    /// Senders that a wildcard reservation is forwarded to, where several ways lead there.
    pub scope: Vec<IpAddr>,
    /// Which senders.
    pub style: Style,
    /// What for whom: one under SE and WF, one or more under FF.
    pub flows: Vec<Descriptor>,
}

/// A PATH failed; on its way to the sender.
#[derive(Clone, Debug, PartialEq)]
pub struct PathErr {
    /// The flow's destination.
    pub session: Session,
    /// What failed.
    pub error: ErrorSpec,
    /// The flow's sender.
    pub sender: Sender,
    /// Its traffic.
    pub traffic: TrafficSpec,
}

/// A RESV failed; on its way to the receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvErr {
    /// The flows' destination.
    pub session: Session,
    /// The node that this comes from.
    pub hop: Hop,
    /// What failed.
    pub error: ErrorSpec,
    /// Senders' addresses of a wildcard reservation.
    pub scope: Vec<IpAddr>,
    /// The style of what failed.
    pub style: Style,
    /// What failed.
    pub flow: Descriptor,
}

/// A sender is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTear {
    /// The flow's destination.
    pub session: Session,
    /// The node that this comes from.
    pub hop: Hop,
    /// The flow's sender.
    pub sender: Sender,
}

/// A reservation is given up.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvTear {
    /// The flows' destination.
    pub session: Session,
    /// The node that this comes from.
    pub hop: Hop,
    /// Senders' addresses of a wildcard reservation.
    pub scope: Vec<IpAddr>,
    /// The style of what is given up.
    pub style: Style,
    /// For whom; none under WF.
    pub filters: Vec<Sender>,
}

/// A reservation stands, as far as the node that says so.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvConf {
    /// The flows' destination.
    pub session: Session,
    /// The node that confirms.
    pub error: ErrorSpec,
    /// Who asked.
    pub confirm: IpAddr,
    /// The style of what is confirmed.
    pub style: Style,
    /// What is confirmed.
    pub flows: Vec<Descriptor>,
}

/// Refreshes many states by their messages' numbers (RFC 2961 section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srefresh {
    /// The epoch of all the numbers, 24 bits.
    pub epoch: u32,
    /// The numbers; at least one.
    pub ids: Vec<u32>,
}

/// A message's number, unique at its sender within an epoch (RFC 2961 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId {
    /// The receiver is asked for an acknowledgement.
    pub ack_desired: bool,
    /// Changes when the sender restarts; 24 bits.
    pub epoch: u32,
    /// The number.
    pub id: u32,
}

/// A message has come, or its number means nothing here (RFC 2961 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The number is not known: its state is to be sent in full.
    pub negative: bool,
    /// The number's epoch, 24 bits.
    pub epoch: u32,
    /// The number.
    pub id: u32,
}

/// An object as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawObject {
    /// Its class number.
    pub class: u8,
    /// Its C-Type.
    pub ctype: u8,
    /// Its contents; the length is a multiple of 4.
    pub body: Vec<u8>,
}

/// An object that we do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Its class number.
    pub class: u8,
    /// Its C-Type.
    pub ctype: u8,
    /// The class is known, its C-Type is not.
    pub class_known: bool,
}

impl Message {
    /// A message that carries nothing but `body`.
    pub fn new(body: Body) -> Self {
        Self {
            send_ttl: 0,
            refresh_reduction: false,
            id: None,
            acks: Vec::new(),
            body,
            forwarded: Vec::new(),
            unknown: None,
        }
    }
}

impl Body {
    /// The message type in the common header (RFC 2205 section 3.1.1, RFC 2961, RFC 3097).
    pub fn kind(&self) -> u8 {
        match self {
            Self::Path(_) => 1,
            Self::Resv(_) => 2,
            Self::PathErr(_) => 3,
            Self::ResvErr(_) => 4,
            Self::PathTear(_) => 5,
            Self::ResvTear(_) => 6,
            Self::ResvConf(_) => 7,
            Self::Bundle(_) => BUNDLE,
            Self::Ack => 13,
            Self::Srefresh(_) => 15,
            Self::Challenge { .. } => 25,
            Self::Response { .. } => 26,
        }
    }
}

/// The message type of a bundle.
pub(super) const BUNDLE: u8 = 12;
/// Bits of a key's number.
pub(super) const KEY_BITS: u32 = 48;
/// Bits of an epoch.
pub(super) const EPOCH_BITS: u32 = 24;
