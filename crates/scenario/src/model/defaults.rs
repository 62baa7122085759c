//! Values of keys that are left out.

use ontempo_foundation::{Bytes, Duration, Packets};

use super::QueueLimit;

pub(crate) fn seed() -> u64 {
    1
}
/// Twice the mean time from a datagram's arrival to the reply of a waiting program, rounded
/// (docs/mechanisms/host-jitter.md).
pub(crate) fn host_jitter() -> Duration {
    Duration::from_micros(100)
}
pub(crate) fn yes() -> bool {
    true
}
/// Whether a probability is the default of those that are 0 where not given.
pub(crate) fn is_zero(probability: &f64) -> bool {
    *probability == 0.0
}
pub(crate) fn one() -> u32 {
    1
}
pub(crate) fn unity() -> f64 {
    1.0
}
pub(crate) fn packet() -> Bytes {
    Bytes::new(1000)
}
/// The size of the packets that CellReplay records with (its `cellular_queue`, `PACKET_SIZE`).
pub(crate) fn cellreplay_opportunity() -> Bytes {
    Bytes::new(1400)
}
pub(crate) fn red_max_p() -> f64 {
    0.1
}
pub(crate) fn red_mean_packet() -> Bytes {
    Bytes::new(500)
}
pub(crate) fn reservable() -> f64 {
    0.75
}
pub(crate) fn smallest() -> Bytes {
    Bytes::new(40)
}
pub(crate) fn largest() -> Bytes {
    Bytes::new(1500)
}
pub(crate) fn aqm_limit() -> QueueLimit {
    QueueLimit::Packets(Packets::new(1000))
}
pub(crate) fn codel_target() -> Duration {
    Duration::from_millis(5)
}
pub(crate) fn codel_interval() -> Duration {
    Duration::from_millis(100)
}
pub(crate) fn dualpi2_limit() -> QueueLimit {
    QueueLimit::Packets(Packets::new(10_000))
}
pub(crate) fn dualpi2_update() -> Duration {
    Duration::from_millis(16)
}
pub(crate) fn dualpi2_step() -> Duration {
    Duration::from_millis(1)
}
pub(crate) fn dualpi2_coupling() -> f64 {
    2.0
}
pub(crate) fn dualpi2_classic_share() -> f64 {
    0.1
}
pub(crate) fn fq_limit() -> QueueLimit {
    QueueLimit::Packets(Packets::new(10_240))
}
pub(crate) fn fq_quantum() -> Bytes {
    Bytes::new(1514)
}
pub(crate) fn fq_queues() -> u32 {
    1024
}
pub(crate) fn pie_target() -> Duration {
    Duration::from_millis(15)
}
pub(crate) fn pie_burst() -> Duration {
    Duration::from_millis(150)
}
pub(crate) fn ack_timeout() -> Duration {
    Duration::from_millis(100)
}
/// Linux's TCP_DELACK_MIN.
pub(crate) fn linux_ack_timeout() -> Duration {
    Duration::from_millis(40)
}
pub(crate) fn ack_most() -> Packets {
    Packets::new(4)
}
pub(crate) fn media_latency() -> Vec<Duration> {
    [100, 200, 400, 1000].map(Duration::from_millis).to_vec()
}
pub(crate) fn http_think() -> Duration {
    Duration::from_secs(10)
}
pub(crate) fn http_think_shape() -> f64 {
    1.4
}
pub(crate) fn http_objects() -> f64 {
    1.7
}
pub(crate) fn http_objects_shape() -> f64 {
    2.43
}
pub(crate) fn http_size() -> Bytes {
    Bytes::new(12_000)
}
pub(crate) fn http_size_shape() -> f64 {
    1.2
}
