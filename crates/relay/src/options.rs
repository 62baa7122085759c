//! Budgets of a relay.

use std::num::NonZeroU8;

use ontempo_foundation::{Bytes, Duration};
use ontempo_transport::{Configuration, Limits, PacingConfig};

/// Places for connections beside those of viewers: sources, and viewers that are being refused.
const OTHER_PLACES: usize = 64;

/// Of these, those of one address.
const OTHER_PLACES_OF_HOST: usize = 8;

/// Memory counted for a connection that holds nothing, and the part of the receive memory that such
/// may use: as the endpoint counts ([`Configuration::receive_memory`]).
const CONNECTION: u64 = 48 << 10;

/// Bytes of units that wait for a viewer or are on their way to it.
const SEND: u64 = 2 << 20;

/// Of these, what is left for units that come while a viewer takes those that were kept for it.
const LIVE: u64 = 256 << 10;

/// Budgets of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayOptions {
    /// Viewers at a time.
    pub viewers: usize,
    /// Of these, those of one source of packets: an IPv4 address, or an IPv6 prefix of 56 bits.
    pub viewers_of_host: usize,
    /// Streams at a time, each of one source.
    pub streams: usize,
    /// Bytes of units that wait for viewers, or are on their way to them, of all streams together:
    /// a unit counts once, however many viewers it goes to. Those that are kept for new viewers
    /// count, too. Beyond it these are let go of first; then the viewer that holds most is closed.
    pub memory: Bytes,
    /// Bytes of units since the last key frame that are kept for a new viewer, of each stream; at most
    /// 1.75 MiB of one that must arrive whole, since a new viewer has to take them at once.
    pub start: Bytes,
    /// How long a viewer of a stream with deadlines may take nothing before it is closed.
    pub stalled: Duration,
    /// How long a stream waits for its source to connect again.
    pub away: Duration,
    /// Viewers present a token of their own, and cannot publish.
    pub has_viewers_token: bool,
    /// Threads among which clients are spread.
    pub threads: NonZeroU8,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            viewers: 2_000,
            viewers_of_host: 500,
            streams: 8,
            memory: Bytes::new(128 << 20),
            start: Bytes::new(4 << 20),
            stalled: Duration::from_secs(10),
            away: Duration::from_secs(60),
            has_viewers_token: false,
            threads: NonZeroU8::MIN,
        }
    }
}

impl RelayOptions {
    /// Bytes that are kept for a new viewer of a stream.
    pub(crate) fn kept(&self, is_reliable: bool) -> u64 {
        if is_reliable { self.start.get().min(SEND - LIVE) } else { self.start.get() }
    }
}

/// The transport configuration of a relay: places for all viewers and sources, and at most 2 MiB of
/// units on their way to a viewer.
pub fn configuration(options: &RelayOptions) -> Configuration {
    let session = ontempo_session::configuration();
    let connections = options.viewers + OTHER_PLACES;
    let idle = connections as u64 * CONNECTION;
    // Connections may use three quarters; what sources send has 40 MiB beside them, of which each thread
    // must have enough for a source whose two flows are full.
    let sent = (40 << 20).max(u64::from(options.threads.get()) * (10 << 20));
    let receive_memory = Bytes::new((idle / 3 * 4).max(idle + sent));
    Configuration {
        limits: Limits { flows: 2, units: 4096, bytes: 4 << 20, unit_bytes: 4 << 20 },
        send_bytes: Bytes::new(SEND),
        connections,
        connections_of_host: options.viewers_of_host + OTHER_PLACES_OF_HOST,
        receive_memory,
        // Frames of many viewers: fewer system calls are worth bursts of some packets.
        pacing: Some(PacingConfig { quantum: Duration::from_millis(4), ..PacingConfig::default() }),
        asks_once: true,
        // Each of thousands of idle viewers would be asked every second. The first comparisons follow
        // each other at once, and clocks drift by a quarter of a millisecond in this time.
        clock_interval: Duration::from_secs(5),
        // A client that is gone keeps its place for that long.
        idle_timeout: Duration::from_secs(8),
        ..session
    }
}
