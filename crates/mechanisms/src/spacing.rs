//! Packet spacing: the distance between packets, adapted to what the receiver reports.
//!
//! The packet-spacing protocol (PSP) of Kapadia, Feng and Feng, "The Effects of Inter-Packet
//! Spacing on the Delivery of Multimedia Content" (psp, section 2). Once per base round trip
//! the receiver reports how many packets arrived; the sender compares with how many it sent. A
//! loss doubles the spacing, none lets it shrink a little.
//!
//! [`ReportCounter`] is the receiver's side and [`Spacing`] the sender's. What was sent and
//! what came are compared over the same packets, by number: a packet under way is not lost.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Packets};

use crate::congestion::{Field, Parameter, Parameters};

/// Report of a receiver: cumulative, so that a lost report loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One more than the highest packet number received; 0 before the first packet.
    pub next: u64,
    /// Packets received.
    pub received: Packets,
}

/// Counts arrivals for the next [`Report`].
///
/// A late packet counts as lost in the report that skips it, and as a surplus in the
/// report after its arrival. The network is assumed not to duplicate.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportCounter {
    report: Report,
}

impl ReportCounter {
    /// Counts the packet with this number, from 0.
    #[inline]
    pub fn on_packet(&mut self, number: u64) {
        self.report.next = self.report.next.max(number.saturating_add(1));
        self.report.received += Packets::new(1);
    }

    /// The report to send now.
    pub const fn report(&self) -> Report {
        self.report
    }
}

/// How the spacing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpacingParameters {
    /// The spacing after a loss at no spacing (psp, fig. 4).
    pub first_step: Duration,
    /// How much the spacing shrinks at least after a report without loss (psp, fig. 4).
    pub step_down: Duration,
    /// By how much it shrinks.
    pub increase: Increase,
    /// How a loss that a smaller spacing caused restores the spacing before it (psp, section
    /// 2.2); `None`: it does not.
    pub damping: Option<Damping>,
    /// Which reports lead to a decision.
    pub feedback: Feedback,
}

/// How fast the rate grows while nothing is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Increase {
    /// The spacing shrinks by `step_down` (psp, fig. 4). A rate then grows with its square: of two
    /// senders the faster one gets ahead.
    FixedStep,
    /// The rate grows by one packet in a base round trip, as TCP's in congestion avoidance (RFC
    /// 5681, section 3.1), but the spacing shrinks by at least `step_down`. Ours.
    PacketPerRoundTrip,
}

/// Which reports lead to a decision.
///
/// A decision shows in the reports from the next round trip on. Until then they tell of packets
/// that were sent under decisions before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Each: one decision per base round trip (psp, section 2.1).
    EachReport,
    /// Only one that covers no packet sent before the present spacing was set.
    Fresh,
}

/// How a loss is found to be due to a deliberate decrease of the spacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damping {
    /// By the decision that the lost packets were sent under.
    AsSent,
    /// By the decision before the report, though the lost packets were sent before it.
    LastDecision,
}

impl SpacingParameters {
    /// PSP: 50 us up from nothing, 2 us down (psp, fig. 4); when it decides and how it grows is ours,
    /// by the comparison in docs/mechanisms/spacing.md.
    pub const fn psp() -> Self {
        Self {
            first_step: Duration::from_micros(50),
            step_down: Duration::from_micros(2),
            increase: Increase::PacketPerRoundTrip,
            damping: None,
            feedback: Feedback::Fresh,
        }
    }

    /// Damped PSP (psp, section 2.2).
    pub const fn damped() -> Self {
        Self { damping: Some(Damping::AsSent), ..Self::psp() }
    }

    /// Damped PSP that looks at its last decision only.
    pub const fn damped_by_last() -> Self {
        Self { damping: Some(Damping::LastDecision), ..Self::psp() }
    }

    /// The same as published: it decides on each report, and grows by a fixed step.
    pub const fn as_published(self) -> Self {
        self.on(Feedback::EachReport).growing_by(Increase::FixedStep)
    }

    /// The same, deciding on these reports.
    pub const fn on(self, feedback: Feedback) -> Self {
        Self { feedback, ..self }
    }

    /// The same, with this growth of the rate.
    pub const fn growing_by(self, increase: Increase) -> Self {
        Self { increase, ..self }
    }

    /// How much a spacing shrinks where nothing was lost.
    fn step(&self, spacing: Duration, base_rtt: Duration) -> Duration {
        match self.increase {
            Increase::FixedStep => self.step_down,
            Increase::PacketPerRoundTrip => {
                // One packet more in a round trip: 1/s becomes 1/s + 1/RTT.
                let (spacing, rtt) =
                    (u128::from(spacing.as_nanos()), u128::from(base_rtt.as_nanos()));
                let step = spacing * spacing / (spacing + rtt).max(1);
                self.step_down.max(Duration::from_nanos(u64::try_from(step).unwrap_or(u64::MAX)))
            }
        }
    }
}

/// What may be set of PSP by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PspParameters(pub SpacingParameters);

impl Default for PspParameters {
    fn default() -> Self {
        Self(SpacingParameters::psp())
    }
}

impl Parameters for PspParameters {
    const ALL: &'static [Parameter<Self>] =
        &[first_step(|all| &mut all.0.first_step), step_down(|all| &mut all.0.step_down)];
}

/// What may be set of damped PSP by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DampedPspParameters(pub SpacingParameters);

impl Default for DampedPspParameters {
    fn default() -> Self {
        Self(SpacingParameters::damped())
    }
}

impl Parameters for DampedPspParameters {
    const ALL: &'static [Parameter<Self>] =
        &[first_step(|all| &mut all.0.first_step), step_down(|all| &mut all.0.step_down)];
}

/// The shortest and the longest step of the spacing.
const MIN_STEP: Duration = Duration::from_nanos(1);
const MAX_STEP: Duration = Duration::from_secs(1);

const fn first_step<P>(of: fn(&mut P) -> &mut Duration) -> Parameter<P> {
    Parameter {
        name: "first-step",
        doc: "The spacing after a loss at no spacing (psp, fig. 4).",
        field: Field::Duration { of, min: MIN_STEP, max: MAX_STEP },
    }
}

const fn step_down<P>(of: fn(&mut P) -> &mut Duration) -> Parameter<P> {
    Parameter {
        name: "step-down",
        doc: "How much the spacing shrinks at least after a report without loss (psp, fig. 4).",
        field: Field::Duration { of, min: MIN_STEP, max: MAX_STEP },
    }
}

/// Packets sent at one spacing: from a decision to the next.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// The number of the first.
    first: u64,
    /// The spacing before it, where it began with a deliberate decrease.
    lowered_from: Option<Duration>,
}

/// The sender's side: the spacing, from report to report.
///
/// A decision shows in the reports only a round trip later, so each is remembered with the
/// first packet that it applies to. Damping asks which decision the lost packets were sent
/// under. Where that was a deliberate decrease, the spacing before it is restored (unless the
/// spacing is larger by now); otherwise the spacing is doubled.
#[derive(Clone, Debug)]
pub struct Spacing {
    parameters: SpacingParameters,
    base_rtt: Duration,
    spacing: Duration,
    last: Report,
    /// The next packet to be sent when the last report arrived, and when the one before arrived.
    sent_before: [u64; 2],
    /// Decisions whose packets are not all reported on, the oldest first; never empty.
    epochs: VecDeque<Epoch>,
    /// The number of the first packet sent at the present spacing.
    present_from: u64,
    losses: u64,
}

/// Decisions remembered at most: reports come once per round trip, and cover what was sent
/// at most a few round trips ago.
const MAX_EPOCHS: usize = 64;

impl Spacing {
    /// No spacing, as a transfer begins; `base_rtt` is the round trip measured at set-up, which
    /// bounds the spacing and at which reports are expected.
    pub fn new(parameters: SpacingParameters, base_rtt: Duration) -> Self {
        Self {
            parameters,
            base_rtt,
            spacing: Duration::ZERO,
            last: Report::default(),
            sent_before: [0; 2],
            epochs: VecDeque::from([Epoch { first: 0, lowered_from: None }]),
            present_from: 0,
            losses: 0,
        }
    }

    /// The same, beginning at a spacing, which is cut to the round trip, and after a report: for
    /// a sender whose first link does not space packets by itself, and that has looked for a
    /// start in its own way. `next_to_send` is the first packet at that spacing.
    pub fn starting_at(
        parameters: SpacingParameters,
        base_rtt: Duration,
        spacing: Duration,
        last: Report,
        next_to_send: u64,
    ) -> Self {
        let spacing = spacing.min(base_rtt);
        Self { spacing, last, present_from: next_to_send, ..Self::new(parameters, base_rtt) }
    }

    /// The spacing between two packets.
    pub const fn spacing(&self) -> Duration {
        self.spacing
    }

    /// Reports with a loss so far.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Takes a report; `next_to_send` is the number of the next packet. A report
    /// overtaken by a later one is ignored.
    pub fn on_report(&mut self, report: Report, next_to_send: u64) {
        if report.next < self.last.next || report.received < self.last.received {
            return;
        }
        let (told_until, lost) = self.compare(report);
        self.last = report;
        self.sent_before = [self.sent_before[1], next_to_send];
        let Some(lost) = lost else { return };
        let before = self.spacing;
        let lowered_from = if lost {
            self.losses += 1;
            self.on_loss(told_until);
            None
        } else {
            let step = self.parameters.step(self.spacing, self.base_rtt);
            self.spacing = self.spacing.saturating_sub(step);
            (self.spacing < before).then_some(before)
        };
        if self.spacing != before {
            self.present_from = next_to_send;
        }
        self.begin_epoch(Epoch { first: next_to_send, lowered_from }, told_until);
    }

    /// The number up to which the report counts, and whether any packet below was lost; `None`
    /// if it covers nothing that leads to a decision.
    fn compare(&self, report: Report) -> (u64, Option<bool>) {
        let from = match self.parameters.feedback {
            Feedback::EachReport => 0,
            Feedback::Fresh => self.present_from,
        };
        let sent = report.next - self.last.next;
        if sent > 0 {
            let received = (report.received - self.last.received).get();
            return (report.next, (self.last.next >= from).then_some(sent > received));
        }
        // Nothing arrived. What was sent more than two reports ago should have.
        let overdue = self.sent_before[0];
        (overdue.max(report.next), (overdue > report.next.max(from)).then_some(true))
    }

    fn on_loss(&mut self, told_until: u64) {
        let blamed = match self.parameters.damping {
            None => None,
            Some(Damping::AsSent) => {
                self.epochs.iter().rev().find(|epoch| epoch.first < told_until)
            }
            Some(Damping::LastDecision) => self.epochs.back(),
        };
        if let Some(before) = blamed.and_then(|epoch| epoch.lowered_from) {
            self.spacing = self.spacing.max(before);
            return;
        }
        let doubled = self.spacing.saturating_add(self.spacing);
        self.spacing = if self.spacing == Duration::ZERO {
            self.parameters.first_step.min(self.base_rtt)
        } else {
            doubled.min(self.base_rtt)
        };
    }

    fn begin_epoch(&mut self, epoch: Epoch, told_until: u64) {
        // Packets of several decisions may be outstanding: those that are over can go.
        while self.epochs.get(1).is_some_and(|second| second.first <= told_until)
            || self.epochs.len() >= MAX_EPOCHS
        {
            self.epochs.pop_front();
        }
        self.epochs.push_back(epoch);
    }
}

#[cfg(test)]
mod tests;
