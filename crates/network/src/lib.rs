//! Network elements without a clock: links, queue disciplines, loss and delay models.
//!
//! A FIFO link knows a packet's departure time when the packet is offered.
//! So [`Link::offer`] returns the packet's [`Fate`] at once (when it arrives, or
//! why it was dropped) and departures need no events. A simulator calls it in virtual
//! time, an emulator in real time; time is the argument `now`, never read from a clock.
//!
//! A discipline that decides later, when the transmitter is free (CoDel, FQ-CoDel), is used in a
//! [`ScheduledLink`], whose owner enqueues and dequeues.
//!
//! A link is built from independent parts: a [`Queue`] decides which packets may wait, a
//! [`LossModel`] which packets the wire loses, a [`DelayLaw`] the propagation delay. Each has
//! its own random stream, named after the link, so the same seed gives the same
//! results on every machine, and a change to one part does not change the numbers of the others.
//!
//! Rate, delay and loss of a link of either kind may follow a [`Schedule`], which is known before
//! the run, so that departures stay known in advance; with a [`CellReplay`] they depend on the
//! packets before, too. That, a policer, duplicates, bit
//! errors and aggregation are the [`Extras`] of a link, which cost nothing where they are not used.
//! Where somebody changes the schedule while the link is used, it is a
//! [changeable](ScheduledLink::changeable) scheduled link, a FIFO queue being [`Admitting`].
//!
//! Nothing here does I/O, and nothing allocates per packet after warm-up. Start with [`Link`]
//! and [`LinkParameters`].

mod aggregation;
mod cellreplay;
mod delay;
mod link;
mod loss;
mod queue;
mod schedule;
mod scheduled;
mod scheduler;
mod wire;

pub use aggregation::AggregationParameters;
pub use cellreplay::{CellReplay, LightLine, LightTrace};
pub use delay::{DelayLaw, DelayLawError, DelaySum, Erlang, HyperExponential, Uniform};
pub use link::{Ahead, DropReason, Drops, Fate, Link, LinkParameters, LinkStatistics, Occupancy};
pub use loss::{Bernoulli, Gilbert, LossModel, LossModelError, LossTrace};
pub use queue::{
    Admitting, CoDel, CoDelParameters, DropTail, DualPi2, DualPi2Parameters, FqCoDel,
    FqCoDelParameters, Limit, Offered, Pie, PieParameters, Queue, Red, RedError, RedMeasure,
    RedParameters, Verdict,
};
pub use schedule::{
    Capacity, OPPORTUNITY, Opportunities, RateLaw, RateSteps, Schedule, ScheduleError, Sent, Steps,
    Timeline,
};
pub use scheduled::{
    Chosen, Departure, Discipline, Dropped, Queued, ScheduledLink, ScheduledLinkParameters,
};
pub use scheduler::{
    Cbq, ClassParameters, ClassesError, Reserving, Scheduler, TokenBucket, TrafficSpec,
    TrafficSpecError, Wfq,
};
pub use wire::Extras;
