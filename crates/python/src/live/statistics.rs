//! Statistics, converted to dictionaries from which Python makes its data classes.

use ontempo_foundation::Duration;
use pyo3::prelude::*;

#[derive(IntoPyObject)]
pub(super) struct DelayStatistics {
    units: u64,
    last_s: f64,
    min_s: f64,
    max_s: f64,
    mean_s: f64,
    mean_jitter_s: f64,
    uncertainty_s: Option<f64>,
}

impl DelayStatistics {
    fn of(all: &ontempo_transport::DelayStatistics) -> Self {
        Self {
            units: all.units,
            last_s: all.last.as_secs_f64(),
            min_s: all.min.as_secs_f64(),
            max_s: all.max.as_secs_f64(),
            mean_s: all.mean().as_secs_f64(),
            mean_jitter_s: all.mean_jitter().as_secs_f64(),
            uncertainty_s: all.uncertainty.map(Duration::as_secs_f64),
        }
    }
}

#[derive(IntoPyObject)]
pub(super) struct SendStatistics {
    units: u64,
    bytes: u64,
    written: u64,
    written_bytes: u64,
    arrived: u64,
    dropped: u64,
    blocked_s: f64,
    held_units: u64,
    held_bytes: u64,
    oldest_s: f64,
    settled: u64,
    reported_units: u64,
    reported_bytes: u64,
    reported_late: u64,
    reported_delay_s: f64,
}

impl SendStatistics {
    pub(super) fn of(all: &ontempo_transport::SendStatistics) -> Self {
        Self {
            units: all.units,
            bytes: all.bytes,
            written: all.written,
            written_bytes: all.written_bytes,
            arrived: all.arrived,
            dropped: all.dropped,
            blocked_s: all.blocked.as_secs_f64(),
            held_units: all.held_units,
            held_bytes: all.held_bytes,
            oldest_s: all.oldest.as_secs_f64(),
            settled: all.settled,
            reported_units: all.report.units,
            reported_bytes: all.report.bytes,
            reported_late: all.report.late,
            reported_delay_s: all.report.delay.as_secs_f64(),
        }
    }
}

#[derive(IntoPyObject)]
pub(super) struct ReceiveStatistics {
    units: u64,
    bytes: u64,
    late: u64,
    dropped: u64,
    discarded: u64,
    waiting: u64,
    ready: u64,
    held_bytes: u64,
    max_held_bytes: u64,
    blocked_s: f64,
    throughput_bps: u64,
    delay: DelayStatistics,
}

impl ReceiveStatistics {
    pub(super) fn of(all: &ontempo_transport::ReceiveStatistics) -> Self {
        Self {
            units: all.units,
            bytes: all.bytes,
            late: all.late,
            dropped: all.dropped,
            discarded: all.unwanted,
            waiting: all.waiting,
            ready: all.ready,
            held_bytes: all.held_bytes,
            max_held_bytes: all.most_held_bytes,
            blocked_s: all.blocked.as_secs_f64(),
            throughput_bps: all.throughput.as_bits_per_sec(),
            delay: DelayStatistics::of(&all.delay),
        }
    }
}

#[derive(IntoPyObject)]
pub(super) struct ConnectionStatistics {
    packets_sent: u64,
    packets_lost: u64,
    bytes_sent: u64,
    bytes_received: u64,
    datagrams_sent: u64,
    datagrams_received: u64,
    packets_refused: u64,
    congestion_events: u64,
    spurious_congestion_events: u64,
    round_trip_s: Option<f64>,
    window_bytes: u64,
    target_bps: Option<u64>,
    pacing_rate_bps: Option<u64>,
    spacing_s: Option<f64>,
    burst_packets: u64,
    acks_sent: u64,
    acks_received: u64,
}

impl ConnectionStatistics {
    pub(super) fn of(all: &ontempo_transport::ConnectionStatistics) -> Self {
        Self {
            packets_sent: all.packets_sent,
            packets_lost: all.packets_lost,
            bytes_sent: all.bytes_sent,
            bytes_received: all.bytes_received,
            datagrams_sent: all.datagrams_sent,
            datagrams_received: all.datagrams_received,
            packets_refused: all.packets_refused,
            congestion_events: all.congestion_events,
            spurious_congestion_events: all.spurious_congestion_events,
            round_trip_s: all.round_trip.map(Duration::as_secs_f64),
            window_bytes: all.window.get(),
            target_bps: all.target.map(|rate| rate.as_bits_per_sec()),
            pacing_rate_bps: all.pacing_rate.map(|rate| rate.as_bits_per_sec()),
            spacing_s: all.spacing.map(Duration::as_secs_f64),
            burst_packets: all.burst.get(),
            acks_sent: all.acks_sent,
            acks_received: all.acks_received,
        }
    }
}
