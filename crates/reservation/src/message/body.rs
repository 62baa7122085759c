use std::net::IpAddr;

use ontempo_foundation::Duration;

use super::dclass::Marked;
use super::parts::{Descriptor, ErrorSpec, Hop, Sender, Session, Style};
use super::service::{AdSpec, TrafficSpec};

/// One RSVP message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The IP TTL that it was sent with (header field Send_TTL).
    pub send_ttl: u8,
    /// Flag refresh-reduction-capable (RFC 2961 section 2).
    pub refresh_reduction: bool,
    /// MESSAGE_ID (RFC 2961 section 4.1).
    pub id: Option<MessageId>,
    /// MESSAGE_ID_ACK and MESSAGE_ID_NACK objects.
    pub acks: Vec<Ack>,
    /// The message's type and its objects.
    pub body: Body,
    /// Objects to be forwarded unchanged: POLICY_DATA, and unknown ones whose class number begins
    /// with the bits 11 (RFC 2205 section 3.10).
    pub forwarded: Vec<RawObject>,
    /// The first object for which the message must be refused (RFC 2205 section 3.10); never
    /// written.
    pub unknown: Option<Unknown>,
}

/// A message's kind and its contents.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // documented at each struct
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
    /// Integrity challenge (RFC 2747 section 4.3).
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

/// PATH: creates path state along the route from the sender to the receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The flow's destination.
    pub session: Session,
    /// The node that this comes from.
    pub hop: Hop,
    /// The refresh period R, in whole milliseconds.
    pub refresh: Duration,
    /// The flow's sender.
    pub sender: Sender,
    /// Its traffic.
    pub traffic: TrafficSpec,
    /// ADSPEC up to the sending node.
    pub adspec: Option<AdSpec>,
}

/// RESV: a reservation, sent hop by hop upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Resv {
    /// The flows' destination.
    pub session: Session,
    /// The sending node's address, with the LIH from the receiving node's PATH.
    pub hop: Hop,
    /// The refresh period R, in whole milliseconds.
    pub refresh: Duration,
    /// RESV_CONFIRM: the receiver to which ResvConf is sent.
    pub confirm: Option<IpAddr>,
    /// SCOPE: the senders to which a wildcard reservation is forwarded.
    pub scope: Vec<IpAddr>,
    /// Which senders.
    pub style: Style,
    /// Flow descriptors: one under SE and WF, one or more under FF.
    pub flows: Vec<Marked>,
}

/// PathErr: a PATH failed; sent upstream to the sender.
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

/// ResvErr: a RESV failed; sent downstream to the receivers.
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

/// PathTear: ends path state.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTear {
    /// The flow's destination.
    pub session: Session,
    /// The node that this comes from.
    pub hop: Hop,
    /// The flow's sender.
    pub sender: Sender,
}

/// ResvTear: ends reservation state.
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

/// ResvConf: a reservation stands up to the sending node.
#[derive(Clone, Debug, PartialEq)]
pub struct ResvConf {
    /// The flows' destination.
    pub session: Session,
    /// The node that confirms.
    pub error: ErrorSpec,
    /// The receiver that requested it.
    pub confirm: IpAddr,
    /// The style of what is confirmed.
    pub style: Style,
    /// What is confirmed.
    pub flows: Vec<Descriptor>,
}

/// Srefresh: refreshes state by MESSAGE_IDs (RFC 2961 section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srefresh {
    /// The epoch of all the numbers, 24 bits.
    pub epoch: u32,
    /// The numbers; at least one.
    pub ids: Vec<u32>,
}

/// MESSAGE_ID: identifies a message of a sender within an epoch (RFC 2961 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId {
    /// Flag ACK_Desired.
    pub ack_desired: bool,
    /// Changes when the sender restarts; 24 bits.
    pub epoch: u32,
    /// The number.
    pub id: u32,
}

/// MESSAGE_ID_ACK or MESSAGE_ID_NACK (RFC 2961 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// A NACK: the MESSAGE_ID is unknown, its state must be sent in full.
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
