//! Bounds as the configuration has them.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A bound: 0 of a thing would be a daemon that refuses all, and more than fits in memory none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count(pub(crate) usize);

/// More of anything than a node can keep.
const MOST: u64 = 1 << 24;

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 1 to {MOST}")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
                let fits = u64::try_from(number).ok().filter(|one| (1..=MOST).contains(one));
                let fits = fits.and_then(|one| usize::try_from(one).ok());
                fits.map(Count).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }
        deserializer.deserialize_i64(Number)
    }
}
