//! The form of a scenario that a cache may use as its key.

use crate::model::Scenario;

impl Scenario {
    /// The scenario as one line of JSON with all defaults filled in: equal scenarios give equal
    /// texts, however their files were written, so that a cache of results may use it as a key.
    pub fn canonical(&self) -> String {
        // Only a map whose keys are not texts could fail, and the model has none.
        serde_json::to_string(self).expect("a scenario has a JSON form")
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{VIDEO, scenario};

    #[test]
    fn scenarios_that_differ_only_in_how_they_are_written_have_one_canonical_text() {
        let rewritten = VIDEO.replace("25 Mbit/s", "25000 kbit/s").replace("30 ms", "0.03 s");
        let explicit = format!("seed = 1\n{rewritten}from = \"left\"\n");
        assert_eq!(scenario(VIDEO).canonical(), scenario(&rewritten).canonical());
        assert_ne!(scenario(VIDEO).canonical(), scenario(&explicit).canonical());
        assert!(scenario(VIDEO).canonical().contains("\"min-rto\":\"200 ms\""));
    }
}
