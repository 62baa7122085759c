//! What a relay counts.

use serde::Serialize;

/// The counters of a relay since it began.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Seconds since it began.
    pub seconds: f64,
    /// Its clients.
    pub clients: ClientCounts,
    /// From clients to the server.
    pub forward: WayReport,
    /// From the server to clients.
    pub reverse: WayReport,
    /// How much later than due datagrams were sent, in seconds: half of them at most.
    pub late_p50_s: Option<f64>,
    /// 99 % of them at most.
    pub late_p99_s: Option<f64>,
}

/// Clients by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientCounts {
    /// Those that have a socket towards the server.
    pub now: u64,
    /// Those that ever had.
    pub admitted: u64,
    /// Those whose place a newcomer got.
    pub replaced: u64,
    /// Datagrams of clients that were not admitted.
    pub refused_packets: u64,
}

/// The datagrams of one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WayReport {
    /// Those that entered the path.
    pub packets: u64,
    /// Copies of them that links made.
    pub duplicated: u64,
    /// Those that were sent on.
    pub delivered: u64,
    /// Their bytes, headers not counted.
    pub delivered_bytes: u64,
    /// Those that were not, by cause.
    pub dropped: Dropped,
    /// Time on the path, in seconds: half of the datagrams at most.
    pub delay_p50_s: Option<f64>,
    /// 95 % of them at most.
    pub delay_p95_s: Option<f64>,
    /// 99 % of them at most.
    pub delay_p99_s: Option<f64>,
}

/// Datagrams that were not delivered, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// A queue was full.
    pub full: u64,
    /// By active queue management.
    pub early: u64,
    /// On the wire.
    pub loss: u64,
    /// Larger than the MTU of a link.
    pub too_large: u64,
    /// By a policer before a queue.
    pub policer: u64,
    /// For bit errors of a link, at the end of the path.
    pub corrupt: u64,
    /// More bytes were on the path than the relay holds.
    pub limit: u64,
    /// Its client was forgotten meanwhile, or has another address towards the server.
    pub gone: u64,
    /// The system did not take it: nobody listens, or its buffer is full.
    pub unsent: u64,
}

impl Dropped {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let of_links =
            [self.full, self.early, self.loss, self.too_large, self.policer, self.corrupt];
        of_links.iter().chain(&[self.limit, self.gone, self.unsent]).sum()
    }
}
