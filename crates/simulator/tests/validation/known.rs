//! Differences that are explained in `docs/validation.md`, each bounded.

use std::sync::LazyLock;

use serde::Deserialize;

/// A difference between the simulators that is understood.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// Its name: a heading of `docs/validation.md`.
    pub(crate) name: String,
    /// Where it shows: a script of ns-2 and its arguments.
    scenario: String,
    /// In which quantity.
    quantity: String,
    /// The least that ontempo may measure.
    pub(crate) least: f64,
    /// The most that ontempo may measure.
    pub(crate) most: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    #[serde(default)]
    difference: Vec<Known>,
}

/// All of them.
pub(crate) fn differences() -> &'static [Known] {
    static DIFFERENCES: LazyLock<Vec<Known>> = LazyLock::new(|| {
        let text = include_str!("known.toml");
        let parsed: Differences = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        parsed.difference
    });
    &DIFFERENCES
}

impl Known {
    pub(crate) fn speaks_of(&self, scenario: &str, quantity: &str) -> bool {
        self.scenario == scenario && self.quantity == quantity
    }

    pub(crate) fn holds(&self, measured: f64) -> bool {
        (self.least..=self.most).contains(&measured)
    }
}
