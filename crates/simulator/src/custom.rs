//! Congestion controllers of the program that runs a simulation.

use ontempo_mechanisms::congestion::CustomLaw;
use ontempo_scenario::CustomParameters;

/// The congestion controllers that a program adds to those of every simulation.
pub trait CustomLaws {
    /// What makes the controllers of one flow, `flow` (`video.3`); `None` if there is no controller of
    /// this name.
    fn law(&self, flow: &str, name: &str, parameters: &CustomParameters) -> Option<CustomLaw>;
}

/// None.
pub(crate) struct NoCustomLaws;

impl CustomLaws for NoCustomLaws {
    fn law(&self, _: &str, _: &str, _: &CustomParameters) -> Option<CustomLaw> {
        None
    }
}
