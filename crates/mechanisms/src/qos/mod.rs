//! Quality of service as an application sees it: what it asks for, what it gets, and what to do
//! where the two differ.
//!
//! After qosockets (Wang et al., Infocom 2000): a [`Specification`] names the quality of a flow
//! of messages, [`agree`] coerces those of both ends into one, a [`Meter`] and a [`DelayMeter`]
//! measure what is delivered, a [`Watch`] holds that against the specification, and a [`Ladder`]
//! decides when to step down or up.

mod ladder;
mod meter;
mod specification;
#[cfg(test)]
mod tests;
mod watch;

pub use ladder::{Ladder, Step};
pub use meter::{Count, DelayMeter, Meter, Timing, loss_percent};
pub use specification::{
    Conflict, Contradiction, Parameter, Refusal, Specification, Term, Value, agree,
};
pub use watch::{Delivered, Hysteresis, Turn, Violation, Watch};
