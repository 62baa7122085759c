//! Messages and their properties (RFC 9622, section 9.1).

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_transport::{DeliveryOrder, FlowConfig, Reliability, Unit, live};

use crate::error::{NOT_HERE, PropertyError};
use crate::properties::{CapacityProfile, DEFAULT_PRIORITY};

/// What a checksum covers (RFC 9622, sections 8.1.1 and 9.1.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumLength {
    /// All.
    #[default]
    Full,
    /// So many bytes.
    Bytes(u32),
}

/// Properties of a message that is sent: the MessageContext of RFC 9622.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageProperties {
    /// After so long, above 0, it is of no use and dropped where it has not arrived; `None`: never.
    pub msg_lifetime: Option<Duration>,
    /// The smaller, the more important; all above 255 are alike. Messages in order keep it.
    pub msg_priority: u32,
    /// `None`: as the connection's `preserve_order`; any other value must say the same.
    pub msg_ordered: Option<bool>,
    /// Without effect: nothing is sent before the handshake.
    pub safely_replayable: bool,
    /// `final`, a word of Rust's: the last one of this connection, this way.
    pub is_final: bool,
    /// Full only.
    pub msg_checksum_len: ChecksumLength,
    /// `None`: as the connection's `reliability`; any other value must say the same.
    pub msg_reliable: Option<bool>,
    /// `None`: the connection's; no other can be had.
    pub msg_capacity_profile: Option<CapacityProfile>,
    /// Not there: a unit may be longer than a packet.
    pub no_fragmentation: bool,
    /// Not there.
    pub no_segmentation: bool,
    /// Ours, not of RFC 9622: numbers of earlier messages without which it is of no use; at most 32.
    pub depends_on: Vec<u64>,
}

impl Default for MessageProperties {
    fn default() -> Self {
        Self {
            msg_lifetime: None,
            msg_priority: DEFAULT_PRIORITY,
            msg_ordered: None,
            safely_replayable: false,
            is_final: false,
            msg_checksum_len: ChecksumLength::Full,
            msg_reliable: None,
            msg_capacity_profile: None,
            no_fragmentation: false,
            no_segmentation: false,
            depends_on: Vec::new(),
        }
    }
}

impl MessageProperties {
    /// # Errors
    /// One is out of its range, asks for what no transport of ours has, or is not the connection's.
    pub(crate) fn check(&self, is_ordered: bool, is_reliable: bool) -> Result<(), PropertyError> {
        if self.msg_lifetime == Some(Duration::from_secs(0)) {
            return Err(PropertyError::out_of_range("msg_lifetime", "0 s: above 0 s"));
        }
        if self.msg_checksum_len != ChecksumLength::Full {
            let why = "a checksum always covers all of a message";
            return Err(PropertyError::not_provided("msg_checksum_len", why));
        }
        let absent = [
            ("no_fragmentation", self.no_fragmentation),
            ("no_segmentation", self.no_segmentation),
            ("msg_capacity_profile", self.msg_capacity_profile.is_some()),
        ];
        if let Some((name, _)) = absent.into_iter().find(|(_, is_asked)| *is_asked) {
            return Err(PropertyError::not_provided(name, NOT_HERE));
        }
        let fixed = [
            ("msg_ordered", self.msg_ordered, is_ordered),
            ("msg_reliable", self.msg_reliable, is_reliable),
        ];
        for (name, asked, there) in fixed {
            if asked.is_some_and(|asked| asked != there) {
                let why = format!("it is the connection's, {there}, for all messages");
                return Err(PropertyError::not_provided(name, why));
            }
        }
        Ok(())
    }

    /// The unit with this data on this flow.
    pub(crate) fn unit(
        &self,
        data: Bytes,
        flow: &FlowConfig,
    ) -> Result<live::Message, PropertyError> {
        let is_ordered = flow.order == DeliveryOrder::InOrder;
        self.check(is_ordered, flow.reliability != Reliability::None)?;
        if self.msg_lifetime.is_some() && flow.reliability == Reliability::Full {
            return Err(PropertyError::not_provided(
                "msg_lifetime",
                "a connection that requires reliability drops no message; let its reliability be \
                 Preference::Prefer",
            ));
        }
        Ok(live::Message {
            data,
            lifetime: self.msg_lifetime,
            // There a larger number is the more important.
            priority: u8::MAX - u8::try_from(self.msg_priority).unwrap_or(u8::MAX),
            depends_on: self.depends_on.clone(),
            continues: None,
        })
    }
}

/// A message that was received (RFC 9622, section 9.3.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its data, whole.
    pub data: Bytes,
    /// Its number this way, from 0.
    pub number: u64,
    /// How long it was on its way; `None` until the clocks have been compared.
    pub age: Option<Duration>,
    /// Numbers of the messages that it depends on and that expired.
    pub missing: Vec<u64>,
}

impl From<Unit> for Message {
    fn from(unit: Unit) -> Self {
        let age = unit.sent.map(|sent| unit.arrived.since(sent));
        Self { data: unit.data, number: unit.id, age, missing: unit.missing }
    }
}
