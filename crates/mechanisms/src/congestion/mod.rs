//! Congestion control: events in, window, pacing rate and burst out.
//!
//! One trait serves three callers: the simulator's TCP, a QUIC stack, and (as vectors) a
//! Linux BPF program. Windows are fractional packets, as in the papers and in ns-2; a caller
//! that counts bytes converts with [`Window::bytes`].
//!
//! This file is the registry: every congestion controller that can be chosen by name, with its
//! parameters and where it runs. The scenario file, the transport, the loader of the kernel and
//! their references all read it, so that a new controller is its own file beside this one, a `mod`
//! line and an entry here, and its page in `docs/mechanisms`.

mod bbr;
mod control;
mod cubic;
mod custom;
mod intervals;
mod media;
mod newreno;
mod parameter;
mod pert;
#[macro_use]
mod registry;
mod reno;
#[cfg(test)]
mod tests;
mod usage;
mod vegas;

pub use bbr::{Bbr, BbrParameters};
pub use control::{
    Ack, CongestionControl, Loss, RecoveryPoint, Sent, Snapshot, Start, Timeout, Window,
};
pub use cubic::{Cubic, CubicParameters, Growth};
pub use custom::{CustomControl, CustomLaw};
pub use intervals::IntervalHistory;
pub use media::{Media, MediaParameters};
pub use newreno::NewReno;
pub use parameter::{
    Field, NoParameters, Parameter, ParameterError, ParameterInfo, ParameterKind, Parameters,
    Value, Variant, VariantInfo, parameters_from,
};
pub use pert::{Mode, Pert, PertParameters, PertSamples, Queueing};
pub use registry::{Registered, UnknownCongestion, World};
pub use reno::{AckCounting, Reno, RenoParameters};
pub use usage::WindowUsage;
pub use vegas::{Vegas, VegasParameters};

use std::str::FromStr;

use ontempo_foundation::{Duration, Packets, RandomStream, Rate, Time};

use crate::recovery::DeliveryRates;
use crate::spacing::{DampedPspParameters, PspParameters, SpacingParameters};

/// A selected congestion controller, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Congestion {
    /// Index of the variant from which the parameters start.
    variant: usize,
    set: Set,
}

/// What controls the sending rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Governor {
    /// A window, by a law of this crate.
    Window(Law),
    /// A spacing between packets.
    Spacing(SpacingParameters),
}

registry! {
    // Those of this crate run in the simulator and under the transport; `kernel` is what Linux calls
    // its own of the same law. The large ones are held in a box.
    controllers {
        /// Reno (RFC 5681).
        Reno "reno" { title: "Reno", held: Reno, kernel: Some("reno") }
        /// Reno that reacts once per window of data (RFC 6582).
        // The kernel's Reno reacts once for a window, too (RFC 6582, RFC 6675).
        NewReno "newreno" { title: "NewReno", held: NewReno, kernel: Some("reno") }
        /// CUBIC (RFC 9438).
        Cubic "cubic" { title: "CUBIC", held: Box<Cubic>, kernel: Some("cubic") }
        /// Vegas (Brakmo and Peterson, 1995).
        Vegas "vegas" { title: "Vegas", held: Box<Vegas>, kernel: Some("vegas") }
        /// PERT (pert, ch. II).
        Pert "pert" { title: "PERT", held: Box<Pert>, kernel: Some("pert") }
        /// BBR, version 3 or 1; the kernel's where TCP is emulated.
        Bbr "bbr" { title: "BBR", held: Box<Bbr>, kernel: Some("bbr") }
        /// For media: keeps its rate where losses have another cause than a queue.
        Media "media" { title: "media", held: Box<Media>, kernel: None }
    }
    // Those that are no struct of this module: where each runs is said with it.
    others {
        /// The packet-spacing protocol (psp, section 2.1): a spacing, no window.
        Psp "psp" {
            title: "PSP", parameters: PspParameters,
            governs: |parameters: PspParameters| Governor::Spacing(parameters.0), kernel: None
        }
        /// Damped PSP (psp, section 2.2).
        PspDamped "psp-damped" {
            title: "damped PSP", parameters: DampedPspParameters,
            governs: |parameters: DampedPspParameters| Governor::Spacing(parameters.0), kernel: None
        }
    }
}

impl CongestionName {
    /// That of media over UDP, by the measure of docs/comparison.md.
    pub const FOR_MEDIA: Self = Self::Bbr;

    /// This controller with its parameters for the transport over UDP: as [`with`](Self::with), but BBR is that
    /// for media where no variant is assigned.
    ///
    /// # Errors
    /// Names the parameter that is unknown, out of its range, or that only the simulator's TCP has.
    pub fn over_udp(self, assignments: &[(&str, &str)]) -> Result<Congestion, ParameterError> {
        let has_variant = assignments.iter().any(|(name, _)| *name == parameter::VARIANT);
        let variant = (self == Self::Bbr && !has_variant).then_some((parameter::VARIANT, "media"));
        self.with(variant.into_iter().chain(assignments.iter().copied()))?.for_transport()
    }
}

impl Default for CongestionName {
    /// PERT, because beside it the fewest units of video come late
    /// (docs/mechanisms/controllers.md).
    fn default() -> Self {
        Self::Pert
    }
}

impl FromStr for CongestionName {
    type Err = UnknownCongestion;

    fn from_str(text: &str) -> Result<Self, UnknownCongestion> {
        let found = Self::ALL.into_iter().find(|name| name.name() == text);
        found.ok_or_else(|| UnknownCongestion::no_name(text))
    }
}

impl Default for Congestion {
    fn default() -> Self {
        CongestionName::default().into()
    }
}

impl Congestion {
    /// The variant of its parameters; `None` where there is but one.
    pub fn variant(&self) -> Option<VariantInfo> {
        self.name().variants().get(self.variant).copied()
    }

    /// Which round trips its law is given.
    pub fn samples(&self) -> PertSamples {
        match self.governor() {
            Governor::Window(Law::Pert(parameters)) => parameters.samples,
            _ => PertSamples::All,
        }
    }

    /// Itself, for the transport over UDP.
    ///
    /// # Errors
    /// Names the parameter that only the simulator's TCP has, and what would be right.
    pub fn for_transport(self) -> Result<Self, ParameterError> {
        refuse_simulated_samples(self.samples(), "the transport over UDP")?;
        Ok(self)
    }
}

/// Samples that need a simulated TCP are no choice elsewhere.
///
/// # Errors
/// Where `samples` are such; `place` says where they cannot be had.
pub fn refuse_simulated_samples(samples: PertSamples, place: &str) -> Result<(), ParameterError> {
    if !samples.needs_simulated_tcp() {
        return Ok(());
    }
    let (all, confirmed) = (PertSamples::All.name(), PertSamples::Confirmed.name());
    Err(ParameterError::new(
        "samples",
        format!(
            "`{}` is for simulated TCP, not for {place}; write {all} or {confirmed}",
            samples.name()
        ),
    ))
}
