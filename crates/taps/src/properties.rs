//! Connection properties (RFC 9622, section 8.1).

use ontempo_foundation::{Duration, Rate};
use ontempo_transport::live::Options;
use ontempo_udp::Dscp;

use crate::error::{NOT_HERE, PropertyError};
use crate::message::ChecksumLength;
use crate::selection::{Preference, TransportProperties};

/// The priority of connections and messages where none is given (RFC 9622, sections 8.1.2 and
/// 9.1.3.2).
pub(crate) const DEFAULT_PRIORITY: u32 = 100;

/// What the network is asked for (RFC 9622, section 8.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CapacityProfile {
    /// Nothing.
    #[default]
    Default,
    /// To come after all others.
    Scavenger,
    /// Low delay: somebody waits for an answer.
    LowLatencyInteractive,
    /// Low delay.
    LowLatencyNonInteractive,
    /// A steady rate.
    ConstantRateStreaming,
    /// As much as there is.
    CapacitySeeking,
}

impl CapacityProfile {
    /// Its DSCP, by the service classes of RFC 4594; of the scavenger RFC 8622.
    pub const fn dscp(self) -> Dscp {
        let number = match self {
            Self::Default => 0,
            Self::Scavenger => 1,
            Self::LowLatencyInteractive => 34,
            Self::LowLatencyNonInteractive => 18,
            Self::ConstantRateStreaming => 26,
            Self::CapacitySeeking => 10,
        };
        // The byte of a traffic class has the code point above two bits of ECN.
        Dscp::of(number << 2)
    }
}

/// How the connections of a group share the path (RFC 9622, section 8.1.5; RFC 8260, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // They are the names of RFC 8260.
pub enum Scheduler {
    FirstComeFirstServed,
    RoundRobin,
    RoundRobinPerPacket,
    Priority,
    FairCapacity,
    #[default]
    WeightedFairQueueing,
}

/// How several paths are used (RFC 9622, section 8.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MultipathPolicy {
    /// One, another where it fails.
    #[default]
    Handover,
    /// The one with the least delay.
    Interactive,
    /// All.
    Aggregate,
}

/// Connection properties, set before a connection begins. Those that this transport does not have
/// are there to be refused by their names: any value but the default is
/// [`PropertyError::NotProvided`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionProperties {
    /// How long nothing is heard of the peer before the connection is lost; above 0.
    pub conn_timeout: Duration,
    /// How often an idle connection sends a packet, above 0; `None`: never.
    pub keep_alive_timeout: Option<Duration>,
    /// What the network is asked for, by DSCP.
    pub conn_capacity_profile: CapacityProfile,
    /// Not there; 100.
    pub conn_priority: u32,
    /// Not there; full.
    pub recv_checksum_len: ChecksumLength,
    /// Not there; weighted fair queueing.
    pub conn_scheduler: Scheduler,
    /// Not there; handover.
    pub multipath_policy: MultipathPolicy,
    /// Not there; [`QosOptions`](ontempo_qos::QosOptions) have such.
    pub min_send_rate: Option<Rate>,
    /// Not there.
    pub min_recv_rate: Option<Rate>,
    /// Not there.
    pub max_send_rate: Option<Rate>,
    /// Not there.
    pub max_recv_rate: Option<Rate>,
    /// Not there.
    pub group_conn_limit: Option<u32>,
    /// Not there.
    pub isolate_session: bool,
}

impl Default for ConnectionProperties {
    fn default() -> Self {
        Self {
            conn_timeout: Duration::from_secs(10),
            keep_alive_timeout: Some(Duration::from_secs(3)),
            conn_capacity_profile: CapacityProfile::Default,
            conn_priority: DEFAULT_PRIORITY,
            recv_checksum_len: ChecksumLength::Full,
            conn_scheduler: Scheduler::WeightedFairQueueing,
            multipath_policy: MultipathPolicy::Handover,
            min_send_rate: None,
            min_recv_rate: None,
            max_send_rate: None,
            max_recv_rate: None,
            group_conn_limit: None,
            isolate_session: false,
        }
    }
}

impl ConnectionProperties {
    /// # Errors
    /// One is out of its range, or asks for what this transport does not have.
    pub fn check(&self) -> Result<(), PropertyError> {
        let times = [
            ("conn_timeout", Some(self.conn_timeout)),
            ("keep_alive_timeout", self.keep_alive_timeout),
        ];
        if let Some((name, _)) =
            times.iter().find(|(_, time)| *time == Some(Duration::from_secs(0)))
        {
            return Err(PropertyError::out_of_range(name, "0 s: above 0 s"));
        }
        let absent = Self::default();
        let same = [
            ("conn_priority", self.conn_priority == absent.conn_priority),
            ("recv_checksum_len", self.recv_checksum_len == absent.recv_checksum_len),
            ("conn_scheduler", self.conn_scheduler == absent.conn_scheduler),
            ("multipath_policy", self.multipath_policy == absent.multipath_policy),
            ("min_send_rate", self.min_send_rate.is_none()),
            ("min_recv_rate", self.min_recv_rate.is_none()),
            ("max_send_rate", self.max_send_rate.is_none()),
            ("max_recv_rate", self.max_recv_rate.is_none()),
            ("group_conn_limit", self.group_conn_limit.is_none()),
            ("isolate_session", !self.isolate_session),
        ];
        match same.into_iter().find(|(_, is_default)| !is_default) {
            Some((name, _)) => Err(PropertyError::not_provided(name, NOT_HERE)),
            None => Ok(()),
        }
    }

    /// The options of an endpoint with these, and for all else `base`.
    pub(crate) fn options(&self, transport: &TransportProperties, base: &Options) -> Options {
        let mut options = base.clone();
        let is_kept = transport.keep_alive >= Preference::NoPreference;
        options.configuration.idle_timeout = self.conn_timeout;
        options.configuration.keep_alive = self.keep_alive_timeout.filter(|_| is_kept);
        options.socket.dscp = self.conn_capacity_profile.dscp();
        options
    }
}
