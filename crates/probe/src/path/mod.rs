//! What a path bears, in under 10 s: rate, least round trip, queue, random loss.
//!
//! [`Measure`] sends packets whose arrivals the receiver reports one by one, in phases:
//!
//! | phase | sends | until |
//! | --- | --- | --- |
//! | quiet | a scout, 90 bytes, each 10 ms | three have arrived: the round trip without a queue |
//! | ramp | two packets for each that arrived | what arrives grows no further: the rate |
//! | fill | three packets for two that arrived | more is lost than before: the queue is full |
//! | hold | at the rate that arrived | a second: the rate that lasts |
//! | low | scouts, at most 30 % of the rate | a second or so: loss without a queue |
//!
//! Whatever the reports say, at any time no more than ten packets, and two for each packet known to have
//! arrived, have been sent, and a stalled sender adds one packet in a round
//! trip, at least 100 ms. A receiver cannot pretend arrivals: now and then a number is left out, and who
//! reports it as arrived ends the session (RFC 9000, section 21.4).

mod control;
mod estimate;
mod measure;

pub use estimate::{Answer, Limit};
pub use measure::{Measure, PathOptions, PathProgress, State};

#[cfg(test)]
mod tests;
