//! The scenario file of ontempo: one TOML file that says which network, which flows, and what
//! is measured, for the simulator and the emulator alike.
//!
//! [`load`] reads a file, with what it includes and what [`Overrides`] set, and answers a
//! [`Scenario`](model::Scenario) that is known to make sense, or a [`ScenarioError`] that names
//! file, line and field of everything that is wrong. A scenario can be laid out
//! ([`layout`](model::Scenario::layout): every node, link and flow, with the draws of one
//! seed), told in plain words ([`explain`](model::Scenario::explain)) and used as the key of a
//! cache ([`canonical`](model::Scenario::canonical)). [`json_schema`] and [`reference()`]
//! describe the format; both come from the types in [`model`], as does the check of a file.
//!
//! Nothing here runs a scenario or reads a clock. Of mechanisms it knows the registry of congestion
//! controllers: names, parameters and their ranges; of network elements, the schedules of links.
//! [`traces`] reads the files that schedules come from.

mod attach;
mod backbone;
mod canonical;
mod changed;
mod check;
#[cfg(test)]
mod check_tests;
mod congestion;
mod cost;
mod custom;
mod document;
mod error;
mod explain;
pub mod film;
mod locate;
pub mod model;
mod nearest;
mod network;
mod overrides;
mod parse;
mod path;
mod profile;
pub mod profiles;
mod random;
mod schema;
mod shape;
pub mod tables;
#[cfg(test)]
mod testing;
mod topology;
pub mod traces;
mod validate;
mod varying;
mod written;

pub use changed::{ChangeError, TextError};
pub use cost::{Cost, rounded_time};
pub use custom::{CustomNameError, CustomNames, CustomParameters};
pub use error::{Origin, Problem, ScenarioError};
pub use locate::located;
pub use nearest::listed as known_names;
pub use network::{LaidFlow, LaidLink, LaidReservation, Layout};
pub use overrides::Overrides;
pub use parse::{load, load_custom, load_with, parse, parse_custom, parse_with};
pub use path::FieldPath;
pub use schema::{json_schema, reference};
pub use written::LimitError;
