//! The way from a scenario's root to one of its values.

use std::fmt;

/// Keys and indices, outermost first; shown as `topology.links[2].rate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Vec<Step>);

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into the value of a table's key.
    Key(String),
    /// Into a list.
    Index(usize),
}

impl FieldPath {
    /// The path of the root's field `name`.
    pub fn root(name: &str) -> Self {
        Self::default().key(name)
    }

    /// The path of the field `name` of this table.
    pub fn key(&self, name: &str) -> Self {
        self.step(Step::Key(name.to_owned()))
    }

    /// The path of the item at `place` of this list.
    pub fn index(&self, place: usize) -> Self {
        self.step(Step::Index(place))
    }

    fn step(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The path that serde took to its error; what serde cannot name is left out.
    pub(crate) fn of_serde(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().map_while(step).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    if place > 0 {
                        f.write_str(".")?;
                    }
                    if is_bare(key) { f.write_str(key)? } else { write!(f, "{key:?}")? }
                }
            }
        }
        Ok(())
    }
}

/// Whether TOML lets the key stand without quotes.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
