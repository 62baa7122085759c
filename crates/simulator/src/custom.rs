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

#[cfg(test)]
mod tests {
    use ontempo_scenario::{CustomNames, Overrides, parse_custom};

    use crate::Simulation;

    const TEXT: &str = r#"
        duration = "1 s"
        [topology]
        kind = "dumbbell"
        bottleneck = { rate = "10 Mbit/s", delay = "10 ms" }
        access = { rate = "10 Mbit/s", delay = "1 ms" }
        [flows.film]
        application = { kind = "media", generate = { duration = "1 s" } }
        transport = { kind = "ontempo" }
        [flows.bulk]
        application = { kind = "ftp" }
        transport = { kind = "tcp" }
    "#;

    #[test]
    fn a_flow_whose_controller_is_not_given_is_refused() {
        let names = CustomNames::new(["mine".to_owned()]).expect("it is a name");
        for group in ["film", "bulk"] {
            let set = [format!("flows.{group}.transport.congestion=mine")];
            let overrides = Overrides::parse(&set).expect("it sets a value");
            let scenario =
                parse_custom(TEXT, "custom.toml", &overrides, &names).expect("it is valid");
            let error = Simulation::new(&scenario, 1).err().expect("there is none");
            let expected = format!(
                "flows.{group}.transport.congestion: this run was given no controller `mine`"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}
