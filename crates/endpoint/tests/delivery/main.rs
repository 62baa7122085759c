//! Connections over a simulated network.

mod basics;
mod seeds;
mod world;
