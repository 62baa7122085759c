//! Records the network trace of a path: its rate, delay and loss over time.
//!
//! [`Recorder`] keeps the bottleneck of the path busy with packets whose arrivals the receiver
//! reports one by one, and notes them in a [`Recording`]; [`Recording::trace`] estimates from all
//! of them, afterwards, what the path was. Rate, delay and loss are told apart as follows:
//!
//! - While a queue waits, the bottleneck sends at its rate: bytes over time between arrivals.
//! - The recorder pauses a few times a second until the queue is empty; scouts, small packets a few
//!   milliseconds apart, then show the delay without a queue.
//! - Packets lost while the queue was short are the path's losses; those lost while it was long are
//!   the recorder's own, unless losses do not depend on the queue at all. Bursts that took the bottleneck's
//!   time, and outages, are the path's. Queues that drop early, and policers, are known by losses that
//!   took none.

mod base;
mod control;
mod estimate;
mod log;
mod loss;
mod policed;
mod rate;
mod recorder;
mod refused;

pub use estimate::{Trace, TraceRow};
pub use recorder::{Progress, Recorder, RecorderOptions, Recording};
pub use refused::Refused;

pub(crate) use log::ArrivalLog;

#[cfg(test)]
mod tests;
