//! Connections over a simulated network.

mod basics;
mod hostile;
mod published;
mod seeds;
mod transport;
mod world;
