//! The scenario file of ontempo.

pub mod model;
mod network;

pub use network::{LaidFlow, LaidLink, Layout};
