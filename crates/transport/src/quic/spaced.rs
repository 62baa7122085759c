//! Packet spacing (PSP) as the controller of a QUIC stack.
//!
//! PSP has no cwnd, only a spacing. The cwnd given to the stack
//! is large; our pacer follows [`Account::spacing`](super::Account) when it polls the stack for
//! packets. PSP's report, which its receiver sends once per base round trip, is derived here from
//! the stack's acknowledgements.
//!
//! Two things differ from the paper, which relies on a network card that spaces packets:
//!
//! * PSP begins without spacing, at the rate of its first link. Here that would send everything
//!   at once. The first packets are a tenth of the base round trip apart (as many
//!   as the initial window of RFC 6928), and the spacing is halved with every report without
//!   a loss. The first loss doubles it, and there PSP begins. Below PSP's first step, 50 us,
//!   PSP begins without spacing.
//! * A report without arrivals counts as a loss only if the stack detected one: acknowledgements are
//!   delayed on purpose, and in a queue of several round trips packets are not lost.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use ontempo_foundation::{Bytes, Duration, Rate, Time};
use ontempo_mechanisms::spacing::{Report, ReportCounter, Spacing, SpacingParameters};

use super::account::SharedAccount;
use super::adapter::Pacing;
use super::clock::{Epoch, span};
use super::outstanding::Outstanding;

/// Creates a [`Spaced`] for each path of the stack.
pub(crate) struct SpacedFactory {
    /// Parameters of the spacing.
    pub(crate) parameters: SpacingParameters,
    /// The cwnd given to the stack, in bytes.
    pub(crate) window: u64,
    /// The zero of time.
    pub(crate) epoch: Epoch,
    /// The shared state.
    pub(crate) account: SharedAccount,
}

impl ControllerFactory for SpacedFactory {
    fn build(self: Arc<Self>, _now: Instant, mtu: u16) -> Box<dyn Controller> {
        let spaced = Spaced {
            parameters: self.parameters,
            window: self.window,
            epoch: self.epoch,
            account: self.account.clone(),
            mtu,
            spacing: None,
            starting: None,
            lost: false,
            last: Report::default(),
            base_rtt: None,
            counter: ReportCounter::default(),
            next: 0,
            outstanding: VecDeque::new(),
            in_flight: 0,
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
    /// Bytes of the largest packet.
    mtu: u16,
    /// `None` until the first loss.
    spacing: Option<Spacing>,
    /// The spacing before the first loss; `None` until the first round trip is measured.
    starting: Option<Duration>,
    /// The stack declared a packet lost since the last report.
    lost: bool,
    /// The last report.
    last: Report,
    base_rtt: Option<Duration>,
    counter: ReportCounter,
    /// Number of the next packet, counted from the first under spacing.
    next: u64,
    /// Packets in flight, in the order of sending.
    outstanding: VecDeque<Outstanding>,
    in_flight: u64,
    /// When the last report was made.
    reported: Time,
}

/// Packets in the first measured round trip.
const FIRST_PACKETS: u64 = 10;

/// Maximum packets tracked; no report covers older ones.
const MAX_OUTSTANDING: usize = 1 << 16;

impl Spaced {
    fn record(&self, srtt: Option<Duration>) {
        self.account.write(|account| {
            account.window = Bytes::new(self.window);
            let spacing = self.spacing.as_ref().map(Spacing::spacing).or(self.starting);
            account.spacing = spacing;
            // The gate goes by the spacing; what an encoder is told goes by this.
            account.rate = spacing
                .filter(|spacing| *spacing > Duration::ZERO)
                .map(|spacing| Rate::of(Bytes::new(self.mtu.into()), spacing));
            account.srtt = srtt.or(account.srtt);
        });
    }

    fn take(&mut self, is_it: impl Fn(&Outstanding) -> bool) -> Option<Outstanding> {
        let place = self.outstanding.iter().position(is_it)?;
        let packet = self.outstanding.remove(place)?;
        self.in_flight -= packet.bytes;
        Some(packet)
    }

    /// Counts the oldest packet in flight as received; false if there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.outstanding.pop_front() else { return false };
        self.in_flight -= oldest.bytes;
        self.counter.on_packet(oldest.number);
        true
    }

    /// Makes a report if one is due.
    fn report(&mut self, now: Time) {
        if self.outstanding.is_empty() {
            self.account.wait_since(None);
        }
        let Some(base) = self.base_rtt else { return };
        let report = self.counter.report();
        let has_news = report.next > self.last.next || self.lost;
        if now.since(self.reported) < base || !has_news {
            return;
        }
        self.reported = now;
        match &mut self.spacing {
            Some(spacing) => spacing.on_report(report, self.next),
            None => self.start(report, base),
        }
        self.last = report;
        self.lost = false;
        self.record(None);
    }

    /// A report before the first loss.
    fn start(&mut self, report: Report, base: Duration) {
        let Some(distance) = self.starting else { return };
        let came = (report.received - self.last.received).get();
        let lost = self.lost || report.next - self.last.next > came;
        let next = if lost { distance * 2 } else { distance / 2 };
        self.starting = Some(next.min(base));
        let least = self.parameters.first_step;
        if lost || next < least {
            let from = if lost { next } else { Duration::ZERO };
            let begun = Spacing::starting_at(self.parameters, base, from, report, self.next);
            self.spacing = Some(begun);
        }
    }
}

impl Controller for Spaced {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, stack_number: u64) {
        let now = self.epoch.time(now);
        if self.base_rtt.is_some() {
            if self.outstanding.is_empty() {
                self.account.wait_since(Some(now));
            }
            let (number, sent, bytes) = (self.next, now, bytes.into());
            self.outstanding.push_back(Outstanding { number, stack_number, sent, bytes });
            self.in_flight += bytes;
            self.next += 1;
            if self.outstanding.len() > MAX_OUTSTANDING {
                self.forget_oldest();
            }
        }
        self.report(now);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        stack_number: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let (now, sent) = (self.epoch.time(now), self.epoch.time(sent));
        if self.base_rtt.is_none() {
            let base = now.since(sent);
            self.base_rtt = Some(base);
            self.starting = Some(base / FIRST_PACKETS);
            self.reported = now;
        }
        let found = |p: &Outstanding| p.stack_number == stack_number && p.sent == sent;
        if let Some(packet) = self.take(found) {
            self.counter.on_packet(packet.number);
        }
        self.account.write(|account| account.delivered += Bytes::new(bytes));
        self.account.wait_since(Some(now));
        self.record(Some(span(rtt.get())));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        // The stack discards packets of the handshake, and MTU probes, without a
        // callback: they are not lost to congestion.
        while self.in_flight > in_flight && self.forget_oldest() {}
        self.report(self.epoch.time(now));
    }

    fn on_packet_lost(&mut self, _bytes: u16, stack_number: u64, now: Instant) {
        let now = self.epoch.time(now);
        self.account.note_loss(now);
        self.lost |= self.take(|packet| packet.stack_number == stack_number).is_some();
        self.report(now);
    }

    /// The spacing reacts to losses by its reports only.
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    fn window(&self) -> u64 {
        self.account.window_for_stack(self.window, self.in_flight, self.mtu.into())
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
