//! Selection properties (RFC 9622, section 6.2).

use std::collections::BTreeMap;

use ontempo_transport::{DeliveryOrder, FlowConfig, Reliability};

use crate::error::{NOT_HERE, PropertyError};

/// Begins the label of a flow; its connection's number in the group follows.
pub(crate) const LABEL: &str = "taps";

/// How much a selection property matters (RFC 9622, section 6.2), from the least to the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Select only what does not have it.
    Prohibit,
    /// Select what does not have it, where there is a choice.
    Avoid,
    /// It does not matter.
    #[default]
    NoPreference,
    /// Select what has it, where there is a choice.
    Prefer,
    /// Select only what has it.
    Require,
}

/// Which way data flows (RFC 9622, section 6.2.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both ways.
    #[default]
    Bidirectional,
    /// This side sends.
    UnidirectionalSend,
    /// This side receives.
    UnidirectionalReceive,
}

/// Whether several paths may be used (RFC 9622, section 6.2.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Multipath {
    /// One path.
    #[default]
    Disabled,
    /// This side opens paths.
    Active,
    /// The peer may.
    Passive,
}

/// Selection properties, with the defaults of RFC 9622. Those that this transport does not have are
/// there to be refused by their names when the [`Preconnection`](crate::Preconnection) is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportProperties {
    /// Require: lost messages are sent again until they arrive, and none has a lifetime. Prefer, no
    /// preference: until their lifetime has passed. Avoid, prohibit: never.
    pub reliability: Preference,
    /// Always preserved: a message is a unit.
    pub preserve_msg_boundaries: Preference,
    /// Not there: a message's lifetime is what may differ.
    pub per_msg_reliability: Preference,
    /// Require, prefer: in order. Otherwise as they arrive, or with
    /// [`partial_order`](Self::partial_order) each after those that it depends on.
    pub preserve_order: Preference,
    /// Ours, not of RFC 9622: see [`preserve_order`](Self::preserve_order) and
    /// [`MessageProperties::depends_on`](crate::MessageProperties::depends_on).
    pub partial_order: bool,
    /// Not there.
    pub zero_rtt_msg: Preference,
    /// Always there over QUIC: the connections of a group are flows of one of its connections.
    pub multistreaming: Preference,
    /// Always there.
    pub full_checksum_send: Preference,
    /// Always there.
    pub full_checksum_recv: Preference,
    /// Always there over QUIC and TCP.
    pub congestion_control: Preference,
    /// Avoid, prohibit: an idle connection sends nothing, and ends after its timeout.
    pub keep_alive: Preference,
    /// By an interface's name. Not there: the system's routes choose.
    pub interface: BTreeMap<String, Preference>,
    /// By a provisioning domain's name. Not there.
    pub pvd: BTreeMap<String, Preference>,
    /// Not there: the system chooses.
    pub use_temporary_local_address: Preference,
    /// Disabled only; `ontempo send` has several paths for a stream.
    pub multipath: Multipath,
    /// Not there.
    pub advertises_altaddr: bool,
    /// Which way this connection's messages go.
    pub direction: Direction,
    /// Not there.
    pub soft_error_notify: Preference,
    /// Always there: the side that initiates may receive first.
    pub active_read_before_send: Preference,
}

impl Default for TransportProperties {
    fn default() -> Self {
        use Preference::{NoPreference, Prefer, Require};
        Self {
            reliability: Require,
            preserve_msg_boundaries: NoPreference,
            per_msg_reliability: NoPreference,
            preserve_order: Require,
            partial_order: false,
            zero_rtt_msg: NoPreference,
            multistreaming: Prefer,
            full_checksum_send: Require,
            full_checksum_recv: Require,
            congestion_control: Require,
            keep_alive: NoPreference,
            interface: BTreeMap::new(),
            pvd: BTreeMap::new(),
            use_temporary_local_address: NoPreference,
            multipath: Multipath::Disabled,
            advertises_altaddr: false,
            direction: Direction::Bidirectional,
            soft_error_notify: NoPreference,
            active_read_before_send: NoPreference,
        }
    }
}

impl TransportProperties {
    /// Those that QUIC with units always has.
    pub(crate) fn always(&self) -> [(&'static str, Preference); 6] {
        [
            ("preserve_msg_boundaries", self.preserve_msg_boundaries),
            ("multistreaming", self.multistreaming),
            ("full_checksum_send", self.full_checksum_send),
            ("full_checksum_recv", self.full_checksum_recv),
            ("congestion_control", self.congestion_control),
            ("active_read_before_send", self.active_read_before_send),
        ]
    }

    /// # Errors
    /// One asks for what no transport of ours has.
    pub(crate) fn check_nowhere(&self) -> Result<(), PropertyError> {
        let never = [
            ("per_msg_reliability", self.per_msg_reliability),
            ("zero_rtt_msg", self.zero_rtt_msg),
            ("use_temporary_local_address", self.use_temporary_local_address),
            ("soft_error_notify", self.soft_error_notify),
        ];
        let named = [("interface", &self.interface), ("pvd", &self.pvd)];
        let named = named.iter().flat_map(|(name, all)| all.values().map(|one| (*name, *one)));
        for (name, preference) in never.into_iter().chain(named.clone()) {
            if preference == Preference::Require {
                return Err(PropertyError::not_provided(name, NOT_HERE));
            }
        }
        for (name, preference) in named {
            if preference == Preference::Prohibit {
                let why = "the system's routes choose, not this transport";
                return Err(PropertyError::not_provided(name, why));
            }
        }
        if self.multipath != Multipath::Disabled {
            let why = "a connection has one path; ontempo send has several";
            return Err(PropertyError::not_provided("multipath", why));
        }
        if self.advertises_altaddr {
            return Err(PropertyError::not_provided("advertises_altaddr", NOT_HERE));
        }
        Ok(())
    }

    /// # Errors
    /// One requires what units over QUIC do not have, or prohibits what they always have.
    pub fn check(&self) -> Result<(), PropertyError> {
        self.check_nowhere()?;
        let prohibited = |(_, preference): &(_, _)| *preference == Preference::Prohibit;
        match self.always().into_iter().find(prohibited) {
            Some((name, _)) => Err(PropertyError::not_provided(
                name,
                "it is always there and cannot be prohibited",
            )),
            None => Ok(()),
        }
    }

    /// The flow that carries the messages of connection `number` of a group, one way.
    pub fn flow(&self, number: u64) -> FlowConfig {
        let reliability = match self.reliability {
            Preference::Require => Reliability::Full,
            Preference::Prefer | Preference::NoPreference => Reliability::Deadline,
            Preference::Avoid | Preference::Prohibit => Reliability::None,
        };
        let order = match self.preserve_order {
            Preference::Require | Preference::Prefer => DeliveryOrder::InOrder,
            _ if self.partial_order => DeliveryOrder::PartialOrder,
            _ => DeliveryOrder::OutOfOrder,
        };
        FlowConfig { order, reliability, label: format!("{LABEL} {number}") }
    }

    /// Whether this side sends, and whether it receives.
    pub(crate) fn ways(&self) -> (bool, bool) {
        match self.direction {
            Direction::Bidirectional => (true, true),
            Direction::UnidirectionalSend => (true, false),
            Direction::UnidirectionalReceive => (false, true),
        }
    }
}
