//! Names of congestion controllers that the caller of [`load`](crate::load) has, beside those of the
//! registry: a scenario may use them, and only a simulation that is given their laws runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ontempo_mechanisms::congestion::CongestionName;

use crate::congestion::{self, KERNEL};
use crate::model::{Congestion, Scenario, Transport};

/// The longest name.
const MAX_NAME: usize = 64;

/// The parameters of a controller of the caller, by name, as they are written.
pub type CustomParameters = BTreeMap<String, serde_json::Value>;

/// Names of congestion controllers of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomNames(BTreeSet<String>);

/// Why a text is no name for a congestion controller of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomNameError {
    /// It has other characters than a name, too many, or none.
    Malformed(String),
    /// It is the name of a controller that every scenario has.
    Taken(String),
}

impl fmt::Display for CustomNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(name) => {
                let shown: String = name.chars().take(MAX_NAME).collect();
                write!(f, "{shown:?} is no name for a congestion controller: ")?;
                write!(f, "a letter, then letters, digits, `-` and `_`, at most {MAX_NAME} of them")
            }
            Self::Taken(name) => {
                write!(f, "`{name}` is the name of a congestion controller of every scenario; ")?;
                write!(f, "write another, such as \"my-{name}\"")
            }
        }
    }
}

impl std::error::Error for CustomNameError {}

impl CustomNames {
    /// These names.
    ///
    /// # Errors
    /// One of them is no name, or the name of another controller.
    pub fn new(names: impl IntoIterator<Item = String>) -> Result<Self, CustomNameError> {
        let checked = |name: String| {
            let is_first = |c: char| c.is_ascii_alphabetic();
            let is_next = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            let is_name =
                name.starts_with(is_first) && name.chars().all(is_next) && name.len() <= MAX_NAME;
            if !is_name {
                return Err(CustomNameError::Malformed(name));
            }
            if name == KERNEL || name.parse::<CongestionName>().is_ok() {
                return Err(CustomNameError::Taken(name));
            }
            Ok(name)
        };
        names.into_iter().map(checked).collect::<Result<_, _>>().map(Self)
    }

    /// Whether `name` is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// All names that a flow over TCP may give: of the registry, then these.
    pub(crate) fn with_registry<'a>(&'a self) -> impl Iterator<Item = &'a str> + Clone {
        congestion::names_in_files().map(|name| -> &'a str { name }).chain(self.iter())
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(String::as_str)
    }
}

impl Scenario {
    /// The flow groups whose congestion controller is of the program that read the scenario, each with the
    /// controller's name.
    pub fn custom_controllers(&self) -> Vec<(&str, &str)> {
        let groups = self.flows.iter().map(|(name, group)| (name.as_str(), &group.transport));
        let used = groups.filter_map(|(group, transport)| match transport {
            Transport::Tcp(tcp) => match &tcp.congestion {
                Congestion::Custom { name, .. } => Some((group, name.as_str())),
                Congestion::Known(_) | Congestion::Kernel { .. } => None,
            },
            Transport::Ontempo(spec) => {
                let name = spec.congestion.as_str();
                self.controllers.contains(name).then_some((group, name))
            }
            _ => None,
        });
        used.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::VIDEO;
    use crate::{Overrides, parse_custom};

    fn names(names: &[&str]) -> Result<CustomNames, CustomNameError> {
        CustomNames::new(names.iter().map(|name| (*name).to_owned()))
    }

    fn read(congestion: &str, known: &[&str]) -> Result<Scenario, String> {
        let set = [format!("flows.video.transport.congestion={congestion}")];
        let overrides = Overrides::parse(&set).unwrap();
        parse_custom(VIDEO, "s.toml", &overrides, &names(known).unwrap())
            .map_err(|error| error.to_string())
    }

    fn congestion(scenario: &Scenario) -> &Congestion {
        match &scenario.flows["video"].transport {
            Transport::Tcp(tcp) => &tcp.congestion,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_of_the_callers_is_a_controller_with_parameters_of_any_kind() {
        let scenario = read("mine", &["mine"]).unwrap();
        assert_eq!(scenario.custom_controllers(), [("video", "mine")]);
        assert!(scenario.canonical().contains("\"congestion\":\"mine\""));
        let table = r#"{ kind = "mine", gain = 0.5, steps = [1, 2], mode = "fast", on = true }"#;
        let scenario = read(table, &["mine"]).unwrap();
        let Congestion::Custom { name, parameters } = congestion(&scenario) else { panic!() };
        assert_eq!(name, "mine");
        assert_eq!(parameters["gain"], 0.5);
        assert_eq!(parameters["steps"], serde_json::json!([1, 2]));
        let explained = scenario.explain();
        assert!(explained.contains("TCP with mine"), "{explained}");
    }

    #[test]
    fn without_it_the_name_is_unknown_as_any_other() {
        let error = read("mine", &["yours"]).unwrap_err();
        assert!(error.contains("unknown name \"mine\""), "{error}");
        assert!(error.contains("reno") && error.contains("yours"), "{error}");
        let error = read("{ kind = \"mine\" }", &[]).unwrap_err();
        assert!(error.contains("transport.congestion.kind: unknown name \"mine\""), "{error}");
        let near = read("minne", &["mine"]).unwrap_err();
        assert!(near.contains("did you mean `mine`?"), "{near}");
    }

    #[test]
    fn a_parameter_is_a_text_a_finite_number_true_or_false_or_a_list_of_these() {
        for value in ["nan", "[inf]", "{ a = 1 }", "2020-01-01", "[[1]]"] {
            let error = read(&format!("{{ kind = \"mine\", gain = {value} }}"), &["mine"]);
            let error = error.unwrap_err();
            assert!(error.contains("transport.congestion.gain"), "{value}: {error}");
        }
    }

    #[test]
    fn a_name_has_letters_and_is_no_other_controllers() {
        for text in ["", "1st", "a b", "a.b", "ä", "a\n", &"a".repeat(65)] {
            assert!(matches!(names(&[text]), Err(CustomNameError::Malformed(_))), "{text:?}");
        }
        for text in ["reno", "psp", "kernel"] {
            assert!(matches!(names(&[text]), Err(CustomNameError::Taken(_))), "{text:?}");
        }
        assert!(names(&["Mine_2-x"]).is_ok());
    }
}
