//! The distance between spaced packets: constant, or adapted to the receiver's reports.

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_mechanisms::spacing::{Feedback, Increase, Report, Spacing, SpacingParameters};
use ontempo_scenario::model::{SpacingFeedback, SpacingFrom, SpacingIncrease, SpacingKind};

/// Smallest spacing, however fast the sender's first link is.
const MIN_SPACING: Duration = Duration::from_micros(1);

/// Where the spacing comes from.
#[derive(Clone, Debug)]
pub enum Pace {
    /// A constant spacing.
    Constant(Duration),
    /// A spacing adapted by a controller.
    Adaptive {
        /// The controller's name.
        name: &'static str,
        /// The controller's parameters.
        parameters: SpacingParameters,
        /// Created when the base RTT is known.
        controller: Option<Box<Spacing>>,
    },
}

impl Pace {
    /// The spacing of `controller`, which decides on the reports of `feedback` and grows its rate
    /// by `increase`, or the constant `spacing` if there is none.
    pub fn new(
        spacing: Option<Duration>,
        controller: Option<SpacingKind>,
        feedback: Option<SpacingFeedback>,
        increase: Option<SpacingIncrease>,
    ) -> Self {
        let (name, parameters) = match controller {
            None => return Self::Constant(spacing.unwrap_or(Duration::ZERO)),
            Some(SpacingKind::Psp) => ("psp", SpacingParameters::psp()),
            Some(SpacingKind::PspDamped) => ("psp-damped", SpacingParameters::damped()),
            Some(SpacingKind::PspDampedLast) => {
                ("psp-damped-last", SpacingParameters::damped_by_last())
            }
        };
        let parameters = match feedback {
            None => parameters,
            Some(SpacingFeedback::EachReport) => parameters.on(Feedback::EachReport),
            Some(SpacingFeedback::Fresh) => parameters.on(Feedback::Fresh),
        };
        let parameters = match increase {
            None => parameters,
            Some(SpacingIncrease::FixedStep) => parameters.growing_by(Increase::FixedStep),
            Some(SpacingIncrease::PacketPerRoundTrip) => {
                parameters.growing_by(Increase::PacketPerRoundTrip)
            }
        };
        Self::Adaptive { name, parameters, controller: None }
    }

    /// The base RTT is known; true if the controller waited for it.
    pub fn begin(&mut self, base_rtt: Duration) -> bool {
        match self {
            Self::Adaptive { parameters, controller: controller @ None, .. } => {
                *controller = Some(Box::new(Spacing::new(*parameters, base_rtt)));
                true
            }
            _ => false,
        }
    }

    /// A receiver report arrived; `next_to_send` is the number of the next packet.
    pub fn on_report(&mut self, report: Report, next_to_send: u64) {
        if let Self::Adaptive { controller: Some(controller), .. } = self {
            controller.on_report(report, next_to_send);
        }
    }

    /// The spacing now; `None` until the base RTT is known.
    #[inline]
    pub fn spacing(&self) -> Option<Duration> {
        match self {
            Self::Constant(spacing) => Some(*spacing),
            Self::Adaptive { controller, .. } => {
                controller.as_ref().map(|controller| controller.spacing())
            }
        }
    }

    /// The controller's name.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::Constant(_) => None,
            Self::Adaptive { name, .. } => Some(name),
        }
    }

    /// Reports of a loss so far.
    pub fn losses(&self) -> u64 {
        match self {
            Self::Adaptive { controller: Some(controller), .. } => controller.losses(),
            _ => 0,
        }
    }
}

/// The point in a packet from which the spacing is measured, and the transmission time of the
/// sender's own interface, which bounds the rate.
#[derive(Clone, Copy, Debug)]
pub enum Distance {
    /// From the start of a packet.
    Start {
        /// Smallest time from there to the start of the next.
        least: Duration,
    },
    /// From the end of a packet.
    End {
        /// From its start to its end.
        transmission: Duration,
    },
}

impl Distance {
    /// For packets of this size over an interface of this rate.
    pub fn new(from: SpacingFrom, packet: Bytes, interface: Rate) -> Self {
        let transmission = interface.time_to_send(packet).max(MIN_SPACING);
        match from {
            SpacingFrom::Start => Self::Start { least: transmission },
            SpacingFrom::End => Self::End { transmission },
        }
    }

    /// From the start of a packet to that of the next.
    #[inline]
    pub fn interval(self, spacing: Duration) -> Duration {
        match self {
            Self::Start { least } => spacing.max(least),
            Self::End { transmission } => spacing.saturating_add(transmission),
        }
    }
}
