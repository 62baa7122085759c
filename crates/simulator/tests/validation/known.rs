//! Rows that differ: explained in `docs/validation.md` or without a cause, each bounded.

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
    /// What ontempo measures at least.
    pub(crate) min: f64,
    /// What ontempo measures at most.
    pub(crate) max: f64,
}

/// A row that differs for a reason that nobody has shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unexplained {
    /// What is suspected, in a few words.
    pub(crate) suspicion: String,
    /// Where it shows.
    pub(crate) rows: Vec<Bounds>,
}

/// What is known of one row that differs.
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

/// Those that are explained.
pub(crate) fn differences() -> &'static [Difference] {
    &all().difference
}

/// Those without a cause.
pub(crate) fn unexplained() -> &'static [Unexplained] {
    &all().unexplained
}

/// What is known of this quantity in this scenario.
pub(crate) fn known(scenario: &str, quantity: &str) -> Option<Known> {
    let of_row = |bounds: &&Bounds| bounds.scenario == scenario && bounds.quantity == quantity;
    let explained = differences().iter().map(|d| (Cause::Explained(d), &d.rows));
    let unexplained = unexplained().iter().map(|u| (Cause::Unexplained(u), &u.rows));
    let mut listed = explained.chain(unexplained);
    listed.find_map(|(cause, rows)| rows.iter().find(of_row).map(|bounds| Known { cause, bounds }))
}

impl Known {
    /// How messages call it.
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
