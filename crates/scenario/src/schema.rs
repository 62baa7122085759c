//! The JSON Schema of the scenario file, and its reference for readers.

use crate::model::Scenario;

/// The JSON Schema (2020-12) of a scenario file, from the model's types.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Scenario).to_value()
}
