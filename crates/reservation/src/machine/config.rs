use ontempo_foundation::Duration;

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// R: mean time between refreshes; each is between half and one and a half of it (RFC 2205
    /// section 3.7: 30 s).
    pub refresh: Duration,
    /// K: refreshes in a row that may be lost before state ends (3).
    pub refreshes_lost: u32,
    /// Kb: how many refresh periods a refused request stays out of the merge (3).
    pub blockade_periods: u32,
    /// Rf: the first wait for an acknowledgement (RFC 2961 section 6: 500 ms); doubled each time.
    pub retransmit_after: Duration,
    /// Rl: how often a message is sent at most until it is acknowledged (RFC 2961: 3).
    pub most_transmissions: u32,
    /// TTL of the PATH messages of this node's own senders.
    pub ttl: u8,
    /// What one node keeps at most.
    pub limits: Limits,
}

/// Bounds of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions.
    pub sessions: usize,
    /// Senders of one session.
    pub senders: usize,
    /// Next hops with reservations, of one session.
    pub next_hops: usize,
    /// Neighbours whose numbered messages are remembered.
    pub neighbours: usize,
    /// Numbered messages remembered of one neighbour, and unacknowledged messages of our own.
    pub states: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(30),
            refreshes_lost: 3,
            blockade_periods: 3,
            retransmit_after: Duration::from_millis(500),
            most_transmissions: 3,
            ttl: 64,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 20_000, senders: 64, next_hops: 64, neighbours: 256, states: 65_536 }
    }
}

impl Config {
    /// L = (K + 0.5) * 1.5 * R (RFC 2205 section 3.7): how long state that is announced every
    /// `period` lives without a refresh.
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
