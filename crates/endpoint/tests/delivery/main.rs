//! Connections over a simulated network.

mod basics;
mod hostile;
mod seeds;
mod world;
