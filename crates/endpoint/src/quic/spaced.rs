//! Packet spacing (PSP) as the controller of a QUIC stack.
//!
//! PSP has no window: the distance between packets is all there is. The window that the stack is
//! told is large; [`Account::spacing`](super::Account) is obeyed by who asks the stack for
//! packets. PSP's report, which its receiver sends once per base round trip, is made here out of
//! the stack's acknowledgements.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_mechanisms::spacing::{ReportCounter, Spacing, SpacingParameters};

use super::account::SharedAccount;
use super::adapter::Pacing;
use super::clock::Epoch;

/// Makes a [`Spaced`] for each path of the stack.
pub(crate) struct SpacedFactory {
    /// How the spacing moves.
    pub(crate) parameters: SpacingParameters,
    /// The window that the stack is told, in bytes.
    pub(crate) window: u64,
    /// Zero of time.
    pub(crate) epoch: Epoch,
    /// Where the spacing is read.
    pub(crate) account: SharedAccount,
}

impl ControllerFactory for SpacedFactory {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        let spaced = Spaced {
            parameters: self.parameters,
            window: self.window,
            epoch: self.epoch,
            account: self.account.clone(),
            spacing: None,
            base_rtt: None,
            counter: ReportCounter::default(),
            next: 0,
            outstanding: VecDeque::new(),
            reported: Time::ZERO,
        };
        spaced.record(None);
        Box::new(spaced)
    }
}

#[derive(Clone, Debug)]
struct Spaced {
    parameters: SpacingParameters,
    window: u64,
    epoch: Epoch,
    account: SharedAccount,
    /// `None` until the first round trip is measured.
    spacing: Option<Spacing>,
    base_rtt: Option<Duration>,
    counter: ReportCounter,
    /// The number of the next packet, counted from the first that the spacing governs.
    next: u64,
    /// The stack's numbers of packets in flight, and when they left; numbered from
    /// `next - outstanding.len()`.
    outstanding: VecDeque<(u64, Time, u64)>,
    /// When the last report was made.
    reported: Time,
}

/// Packets remembered at most; older ones no report will tell of.
const MOST_OUTSTANDING: usize = 1 << 16;

impl Spaced {
    fn record(&self, srtt: Option<Duration>) {
        self.account.write(|account| {
            account.window = Bytes::new(self.window);
            account.spacing = self.spacing.as_ref().map(Spacing::spacing);
            account.srtt = srtt.or(account.srtt);
        });
    }

    /// Makes a report, where one is due.
    fn report(&mut self, now: Time) {
        let (Some(spacing), Some(base)) = (&mut self.spacing, self.base_rtt) else { return };
        if now.since(self.reported) >= base {
            self.reported = now;
            spacing.on_report(self.counter.report(), self.next);
            self.record(None);
        }
    }
}

impl Controller for Spaced {
    fn on_packet_sent(&mut self, now: Instant, _bytes: u16, stack_number: u64) {
        let now = self.epoch.time(now);
        if self.spacing.is_some() {
            self.outstanding.push_back((stack_number, now, self.next));
            self.next += 1;
            if self.outstanding.len() > MOST_OUTSTANDING {
                self.outstanding.pop_front();
            }
        }
        self.report(now);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        _bytes: u64,
        stack_number: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let (now, sent) = (self.epoch.time(now), self.epoch.time(sent));
        let nanos = u64::try_from(rtt.get().as_nanos()).unwrap_or(u64::MAX);
        if self.spacing.is_none() {
            let base = now.since(sent);
            self.base_rtt = Some(base);
            self.spacing = Some(Spacing::new(self.parameters, base));
            self.reported = now;
        }
        let found = self
            .outstanding
            .iter()
            .position(|(number, at, _)| *number == stack_number && *at == sent)
            .and_then(|place| self.outstanding.remove(place));
        if let Some((_, _, number)) = found {
            self.counter.on_packet(number);
        }
        self.record(Some(Duration::from_nanos(nanos)));
    }

    fn on_end_acks(&mut self, now: Instant, _: u64, _: bool, _: Option<u64>) {
        self.report(self.epoch.time(now));
    }

    fn on_packet_lost(&mut self, _bytes: u16, stack_number: u64, now: Instant) {
        if let Some(place) =
            self.outstanding.iter().position(|(number, ..)| *number == stack_number)
        {
            self.outstanding.remove(place);
        }
        self.report(self.epoch.time(now));
    }

    /// The spacing learns of losses by its reports alone.
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}

    fn on_mtu_update(&mut self, _mtu: u16) {}

    fn window(&self) -> u64 {
        self.window
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window;
        metrics.pacing_rate = Some(Pacing::FASTEST.as_bits_per_sec() / 8);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
