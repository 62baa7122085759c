//! From a scenario's links to the elements of `ontempo-network`.
//!
//! Simulator, emulator and `impair` build a link with [`link`], with the random streams derived from its
//! name, so that the same elements with the same parameters carry modelled packets and real ones. A
//! crate of its own, because it is all that `impair` needs: it has no files and no rights, and compiles
//! for every system.

mod elements;
mod reservations;

pub use elements::{Element, ElementError, changeable_link, link};
