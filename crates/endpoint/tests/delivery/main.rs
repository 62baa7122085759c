//! Connections over a simulated network.

mod basics;
mod hostile;
mod seeds;
mod transport;
mod world;
