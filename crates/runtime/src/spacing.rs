//! The distance between spaced packets: constant, or adapted to the receiver's reports.

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_mechanisms::spacing::{Report, Spacing, SpacingParameters};
use ontempo_scenario::model::{SpacingFrom, SpacingKind};

/// Spaced packets come no faster, whatever the sender's first link takes.
const MIN_SPACING: Duration = Duration::from_micros(1);

/// Where the spacing comes from.
#[derive(Clone, Debug)]
pub enum Pace {
    /// It never changes.
    Constant(Duration),
    /// A controller adapts it.
    Adaptive {
        /// The controller's name.
        name: &'static str,
        /// How it moves.
        parameters: SpacingParameters,
        /// Made when the base round trip is known.
        controller: Option<Box<Spacing>>,
    },
}

impl Pace {
    /// That of a controller, or the constant `spacing` where there is none.
    pub fn new(spacing: Option<Duration>, controller: Option<SpacingKind>) -> Self {
        let (name, parameters) = match controller {
            None => return Self::Constant(spacing.unwrap_or(Duration::ZERO)),
            Some(SpacingKind::Psp) => ("psp", SpacingParameters::psp()),
            Some(SpacingKind::PspDamped) => ("psp-damped", SpacingParameters::damped()),
            Some(SpacingKind::PspDampedLast) => {
                ("psp-damped-last", SpacingParameters::damped_by_last())
            }
        };
        Self::Adaptive { name, parameters, controller: None }
    }

    /// The base round trip is known; true where it was awaited.
    pub fn begin(&mut self, base_rtt: Duration) -> bool {
        match self {
            Self::Adaptive { parameters, controller: controller @ None, .. } => {
                *controller = Some(Box::new(Spacing::new(*parameters, base_rtt)));
                true
            }
            _ => false,
        }
    }

    /// The receiver has told what came; `next_to_send` is the number of the next packet.
    pub fn on_report(&mut self, report: Report, next_to_send: u64) {
        if let Self::Adaptive { controller: Some(controller), .. } = self {
            controller.on_report(report, next_to_send);
        }
    }

    /// The spacing that is asked for; `None` until the base round trip is known.
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

    /// Reports so far that told of a loss.
    pub fn losses(&self) -> u64 {
        match self {
            Self::Adaptive { controller: Some(controller), .. } => controller.losses(),
            _ => 0,
        }
    }
}

/// From where the spacing is measured, and what the sender's own interface takes for a packet:
/// it sends no faster.
#[derive(Clone, Copy, Debug)]
pub enum Distance {
    /// From the start of a packet.
    Start {
        /// The least from there to the start of the next.
        least: Duration,
    },
    /// From the end of a packet.
    End {
        /// From its start to its end.
        transmission: Duration,
    },
}

impl Distance {
    /// That of packets of this size behind an interface of this rate.
    pub fn new(from: SpacingFrom, packet: Bytes, interface: Rate) -> Self {
        let transmission = interface.time_to_send(packet).max(MIN_SPACING);
        match from {
            SpacingFrom::Start => Self::Start { least: transmission },
            SpacingFrom::End => Self::End { transmission },
        }
    }

    /// From the start of a packet to that of the next.
    pub fn interval(self, spacing: Duration) -> Duration {
        match self {
            Self::Start { least } => spacing.max(least),
            Self::End { transmission } => spacing.saturating_add(transmission),
        }
    }
}
