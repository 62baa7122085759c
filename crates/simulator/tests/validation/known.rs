//! Differences that are explained in `docs/validation.md`, each bounded.

use std::sync::LazyLock;

use serde::Deserialize;

/// A difference between the simulators that is understood.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// A heading of `docs/validation.md`.
    pub(crate) name: String,
    /// Why it is there, in a sentence.
    pub(crate) reason: String,
    /// Where it shows.
    pub(crate) rows: Vec<Bounds>,
}

/// What ontempo measures where it differs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    /// A script of ns-2 and its arguments.
    pub(crate) scenario: String,
    /// One of the quantities that it prints.
    pub(crate) quantity: String,
    /// The least that ontempo may measure.
    pub(crate) least: f64,
    /// The most that ontempo may measure.
    pub(crate) most: f64,
}

/// A difference in one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) difference: &'static Difference,
    pub(crate) bounds: &'static Bounds,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
}

/// All of them.
pub(crate) fn differences() -> &'static [Difference] {
    static DIFFERENCES: LazyLock<Differences> = LazyLock::new(|| {
        let text = include_str!("known.toml");
        toml::from_str(text).unwrap_or_else(|error| panic!("known.toml: {error}"))
    });
    &DIFFERENCES.difference
}

/// What is known of this quantity in this scenario.
pub(crate) fn known(scenario: &str, quantity: &str) -> Option<Known> {
    differences().iter().find_map(|difference| {
        let of_row = |bounds: &&Bounds| bounds.scenario == scenario && bounds.quantity == quantity;
        difference.rows.iter().find(of_row).map(|bounds| Known { difference, bounds })
    })
}

impl Bounds {
    pub(crate) fn hold(&self, measured: f64) -> bool {
        (self.least..=self.most).contains(&measured)
    }
}
