//! Transport mechanisms for time-constrained media, each written once.
//!
//! Everything here is sans-I/O: no socket, no clock, no thread, no global state, and no
//! allocation per packet once warm. Time comes in as the argument `now`; randomness comes in
//! as a [`RandomStream`](ontempo_foundation::RandomStream) that the mechanism owns. The
//! simulator's TCP, real QUIC and UDP endpoints, and (by shared vectors) Linux's TCP all run
//! the structs of this crate.
//!
//! The two types that matter most: [`congestion::CongestionControl`], the trait behind which
//! every controller stands, and [`recovery::Scoreboard`], which knows what is in flight.

pub mod ack;
pub mod adu;
pub mod congestion;
pub mod delivery;
pub mod pacing;
pub mod playout;
pub mod qos;
pub mod receive;
pub mod recovery;
pub mod repair;
pub mod rist;
pub mod rtt;
pub mod spacing;
pub mod srt;
