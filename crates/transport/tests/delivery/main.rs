//! Connections over a simulated network.

mod basics;
mod closing;
mod handshake;
mod hostile;
mod outage;
mod published;
mod restart;
mod seeds;
mod transport;
mod world;
