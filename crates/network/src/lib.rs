//! Network elements without a clock: links, queue disciplines, loss and delay models.
//!
//! A FIFO link knows, the moment a packet is offered, when that packet will have left it.
//! So [`Link::offer`] answers at once with the packet's whole [`Fate`] (when it arrives, or
//! why it was dropped) and no departure is ever an event. A simulator calls it in virtual
//! time, an emulator in real time; time is the argument `now`, never read from a clock.
//!
//! A discipline that decides later, when the transmitter asks (CoDel, FQ-CoDel), stands in a
//! [`ScheduledLink`], whose owner enqueues and dequeues.
//!
//! A link is put together from parts that stand alone: a [`Queue`] decides who may wait, a
//! [`LossModel`] what the wire loses, a [`DelayLaw`] how long the wire is. Each takes its
//! randomness from a stream of its own, named for the link, so the same seed gives the same
//! fates on every machine, and a change to one part leaves the numbers of the others alone.
//!
//! Nothing here does I/O, and nothing allocates per packet once warm. Start with [`Link`]
//! and [`LinkParameters`].

mod delay;
mod link;
mod loss;
mod queue;
mod scheduled;
mod scheduler;
mod wire;

pub use delay::{DelayLaw, DelayLawError, DelaySum, Erlang, HyperExponential, Uniform};
pub use link::{DropReason, Drops, Fate, Link, LinkParameters, LinkStatistics, Occupancy};
pub use loss::{Bernoulli, Gilbert, LossModel, LossModelError, LossTrace};
pub use queue::{
    CoDel, CoDelParameters, DropTail, FqCoDel, FqCoDelParameters, Limit, Offered, Pie,
    PieParameters, Queue, Red, RedError, RedMeasure, RedParameters, Verdict,
};
pub use scheduled::{
    Chosen, Departure, Discipline, Dropped, Queued, ScheduledLink, ScheduledLinkParameters,
};
pub use scheduler::{
    Cbq, ClassParameters, ClassesError, Reserving, Scheduler, TokenBucket, TrafficSpec,
    TrafficSpecError, Wfq,
};
