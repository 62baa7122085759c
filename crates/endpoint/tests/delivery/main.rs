//! Connections over a simulated network.

mod basics;
mod world;
