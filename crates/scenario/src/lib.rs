//! The scenario file of ontempo.

mod backbone;
mod canonical;
mod check;
#[cfg(test)]
mod check_tests;
mod document;
mod error;
mod explain;
pub mod model;
mod nearest;
mod network;
mod overrides;
mod parse;
mod path;
mod schema;
mod shape;
#[cfg(test)]
mod testing;
pub mod tables;
mod topology;
mod validate;
mod written;

pub use error::{Origin, Problem, ScenarioError};
pub use network::{LaidFlow, LaidLink, Layout};
pub use overrides::Overrides;
pub use parse::{load, load_with, parse, parse_with};
pub use schema::{json_schema, reference};
pub use written::LimitError;
