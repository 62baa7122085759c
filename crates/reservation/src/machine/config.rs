use ontempo_foundation::Duration;

/// The longest refresh period of neighbours, in those of this node.
const MAX_PERIOD_FACTOR: u64 = 10;
/// Neighbours may have at least this one.
const MIN_LONGEST_PERIOD: Duration = Duration::from_secs(300);

/// The protocol constants and limits of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// R: mean time between refreshes; each is between half and one and a half of it (RFC 2205
    /// section 3.7: 30 s).
    pub refresh: Duration,
    /// K: successive refreshes that may be lost before the cleanup timeout (3).
    pub refreshes_lost: u32,
    /// Kb: refresh periods that blockade state lives (3).
    pub blockade_periods: u32,
    /// Rf: rapid retransmission interval (RFC 2961 section 6: 500 ms); doubled each time.
    pub retransmit_after: Duration,
    /// Rl: rapid retry limit: transmissions of an unacknowledged message (RFC 2961: 3).
    pub max_transmissions: u32,
    /// Bytes of objects that are forwarded unchanged, kept for all paths together (RFC 2205 section
    /// 3.10); PATHs beyond are refused (16 MiB).
    pub forwarded_bytes: usize,
    /// TTL of the PATH messages of this node's own senders.
    pub ttl: u8,
    /// Interfaces without a key reserve for others, too: false serves this node's own applications
    /// alone there, since anybody on such a network can forge a message (true).
    pub trust_network: bool,
    /// Limits of its state.
    pub limits: Limits,
}

/// Bounds of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions.
    pub sessions: usize,
    /// Senders of all sessions (100,000: about 200 MB where none of their neighbours acknowledges).
    pub all_senders: usize,
    /// Flows that neighbours reserve, of all sessions and next hops: a flow descriptor each. Neighbours
    /// have seven eighths of them, applications of this host all.
    pub all_flows: usize,
    /// Senders of one session.
    pub senders: usize,
    /// Next hops with reservations, of one session.
    pub next_hops: usize,
    /// Neighbours whose MESSAGE_IDs are kept.
    pub neighbours: usize,
    /// MESSAGE_IDs kept of one neighbour; also own messages that await an acknowledgement.
    pub states: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(30),
            refreshes_lost: 3,
            blockade_periods: 3,
            retransmit_after: Duration::from_millis(500),
            max_transmissions: 3,
            forwarded_bytes: 16 << 20,
            ttl: 64,
            trust_network: true,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 20_000,
            all_senders: 100_000,
            all_flows: 32_768,
            senders: 64,
            next_hops: 64,
            neighbours: 256,
            states: 65_536,
        }
    }
}

impl Config {
    /// The refresh period that a neighbour's PATH or RESV counts with: at most 10 R of this node,
    /// or 5 minutes where that is more. RFC 2205 has no bound; without one a single PATH would last
    /// for 261 days.
    pub fn bounded_period(&self, period: Duration) -> Duration {
        period.min((self.refresh * MAX_PERIOD_FACTOR).max(MIN_LONGEST_PERIOD))
    }

    /// The cleanup timeout L = (K + 0.5) * 1.5 * R of state with this refresh period (RFC 2205
    /// section 3.7).
    pub fn lifetime(&self, period: Duration) -> Duration {
        Duration::from_nanos(
            period.as_nanos().saturating_mul(u64::from(self.refreshes_lost) * 2 + 1) / 4 * 3,
        )
    }

    /// How long blockade state lives (RFC 2205 section 3.5).
    pub fn blockade(&self) -> Duration {
        self.refresh * u64::from(self.blockade_periods)
    }
}
