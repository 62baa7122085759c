//! The stack's own BBR (version 3), paced by our pacer.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use ontempo_foundation::{Bytes, Duration, Packets, Rate};

use super::account::SharedAccount;
use super::adapter::Pacing;
use super::clock::span;

/// Creates controllers of another factory, and publishes their state.
pub(crate) struct ForeignFactory {
    /// The other factory.
    pub(crate) inner: Arc<dyn ControllerFactory + Send + Sync>,
    /// The shared state.
    pub(crate) account: SharedAccount,
}

impl ControllerFactory for ForeignFactory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, mtu);
        let foreign = Foreign { inner, account: self.account.clone(), mtu };
        foreign.record(None);
        Box::new(foreign)
    }
}

#[derive(Debug)]
struct Foreign {
    inner: Box<dyn Controller>,
    account: SharedAccount,
    mtu: u16,
}

impl Foreign {
    fn record(&self, srtt: Option<Duration>) {
        let metrics = self.inner.metrics();
        let bits = |bytes: u64| Rate::from_bits_per_sec(bytes.saturating_mul(8));
        let quantum = metrics.send_quantum.unwrap_or(0) / u64::from(self.mtu.max(1));
        self.account.write(|account| {
            account.window = Bytes::new(self.inner.window());
            account.rate = metrics.pacing_rate.map(bits);
            account.burst = Packets::new(quantum.max(1));
            account.srtt = srtt.or(account.srtt);
        });
    }
}

impl Controller for Foreign {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest: u64) {
        self.inner.on_sent(now, bytes, largest);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, number: u64) {
        self.inner.on_packet_sent(now, bytes, number);
        self.record(None);
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        number: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, number, app_limited, rtt);
        self.record(Some(span(rtt.get())));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, limited, largest);
        self.record(None);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        ecn: bool,
        lost_bytes: u64,
        largest_lost: u64,
    ) {
        self.inner.on_congestion_event(now, sent, persistent, ecn, lost_bytes, largest_lost);
        self.record(None);
    }

    fn on_packet_lost(&mut self, bytes: u16, number: u64, now: Instant) {
        self.inner.on_packet_lost(bytes, number, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.inner.on_mtu_update(mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, delay: std::time::Duration) {
        self.inner.on_ack_frequency_update(threshold, delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        metrics.pacing_rate = Some(Pacing::FASTEST.as_bits_per_sec() / 8);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let inner = self.inner.clone_box();
        Box::new(Self { inner, account: self.account.clone(), mtu: self.mtu })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
