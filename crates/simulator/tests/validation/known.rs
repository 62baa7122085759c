//! Rows that differ: explained in `docs/validation.md` or without a cause, each bounded.

use std::sync::LazyLock;

use serde::Deserialize;

/// An explained difference between the simulators.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// A heading of `docs/validation.md`.
    pub(crate) name: String,
    /// The explanation, in a sentence.
    pub(crate) reason: String,
    /// Rows in which it appears.
    pub(crate) rows: Vec<Bounds>,
}

/// Bounds of ontempo's value in a row that differs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    /// A script of ns-2 and its arguments.
    pub(crate) scenario: String,
    /// One of the quantities that it prints.
    pub(crate) quantity: String,
    /// Lower bound of ontempo's value.
    pub(crate) min: f64,
    /// Upper bound of ontempo's value.
    pub(crate) max: f64,
}

/// A row that differs for an unknown reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unexplained {
    /// The suspected cause, in a few words.
    pub(crate) suspicion: String,
    /// Rows in which it appears.
    pub(crate) rows: Vec<Bounds>,
}

/// The entry for one row that differs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) cause: Cause,
    pub(crate) bounds: &'static Bounds,
}

/// Why a row differs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Explained(&'static Difference),
    Unexplained(&'static Unexplained),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
    #[serde(default)]
    unexplained: Vec<Unexplained>,
}

fn all() -> &'static Differences {
    static DIFFERENCES: LazyLock<Differences> = LazyLock::new(|| {
        let text = include_str!("known.toml");
        toml::from_str(text).unwrap_or_else(|error| panic!("known.toml: {error}"))
    });
    &DIFFERENCES
}

/// The explained differences.
pub(crate) fn differences() -> &'static [Difference] {
    &all().difference
}

/// The differences without a cause.
pub(crate) fn unexplained() -> &'static [Unexplained] {
    &all().unexplained
}

/// The entry for this quantity in this scenario.
pub(crate) fn known(scenario: &str, quantity: &str) -> Option<Known> {
    let of_row = |bounds: &&Bounds| bounds.scenario == scenario && bounds.quantity == quantity;
    let explained = differences().iter().map(|d| (Cause::Explained(d), &d.rows));
    let unexplained = unexplained().iter().map(|u| (Cause::Unexplained(u), &u.rows));
    let mut listed = explained.chain(unexplained);
    listed.find_map(|(cause, rows)| rows.iter().find(of_row).map(|bounds| Known { cause, bounds }))
}

impl Known {
    /// The name in messages.
    pub(crate) fn name(&self) -> &'static str {
        match self.cause {
            Cause::Explained(difference) => &difference.name,
            Cause::Unexplained(_) => "Differences without a cause",
        }
    }
}

impl Bounds {
    pub(crate) fn hold(&self, measured: f64) -> bool {
        (self.min..=self.max).contains(&measured)
    }
}
