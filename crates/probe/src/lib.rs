//! Packets spaced over bare UDP, after Kapadia, Feng and Feng (psp, section 2): constant spacing,
//! PSP, and damped PSP.
//!
//! Nothing here opens a socket or reads a clock, no media is carried, and nothing is repaired.
//!
//! [`Sender`] and [`Receiver`] are the two ends, without I/O; [`Probe`] is a sender that measures a
//! path, one spacing after the other. The spacing itself is that of
//! [`ontempo_mechanisms::spacing`].
//!
//! As in the paper, the round trip is measured when the session is set up, each packet carries it,
//! and the receiver reports once in each. Unlike the paper, nothing fast is sent before the
//! receiver has agreed:
//!
//! ```text
//! sender                         receiver
//!   Hello (padded)      ->                  keeps nothing
//!                       <-       Challenge  with a cookie made from the sender's address
//!   Start (cookie, proof) ->                now there is a session
//!                       <-       Accept, or Refuse with a reason
//!   Data ...            ->
//!                       <-       Report, once in each base round trip
//! ```
//!
//! So a forged address cannot make a receiver send (until there is a session an answer is shorter than
//! what asked for it), and a host that does not receive cannot be flooded. Reports are at most three
//! times what came of their session, with headers, and arrivals of a recording never more. A sender whose receiver falls silent
//! stops. Sessions have numbers of 64 random bits: what does not carry one is ignored. Nothing is
//! encrypted; the optional token keeps strangers out, not those who can read the packets.

mod arrivals;
mod bound;
mod load;
mod path;
mod probe;
mod receiver;
mod sender;
mod token;
mod trace;
pub mod wire;

pub use arrivals::Totals;
pub use path::{Answer, Limit, Measure, PathOptions, PathProgress, State as PathState};
pub use probe::{Probe, ProbeOptions, Step, StepResult};
pub use receiver::{Event, Receiver, ReceiverOptions};
pub use sender::{Failure, Full, Pace, Sender, SenderOptions};
pub use token::Token;
pub use trace::{Progress, Recorder, RecorderOptions, Recording, Refused, Trace, TraceRow};

#[cfg(test)]
mod tests;
