//! Transcendental functions that give the same bits on every platform.
//!
//! `std`'s versions call the system's libm, whose last bit differs between systems;
//! these are the pure Rust ones of the `libm` crate.

pub use libm::{cbrt, exp, log as ln, pow, sqrt};
