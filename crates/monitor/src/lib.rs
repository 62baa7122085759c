//! Metrics of a host's QoS sockets and reservations, for people and for programs.
//!
//! It measures and changes nothing: it reads what processes have written and what the
//! RSVP daemon answers.
//!
//! Each process writes a [`ProcessReport`] into a folder shared by all processes of the host at the
//! end of each measurement interval; a [`Collector`] reads them. No daemon stands
//! between the two: without a collector nothing waits. The collector's numbers
//! go to [`mib`] (SNMP, by [`agentx`]), to [`prometheus`] and to `ontempo monitor`.

pub mod agentx;
mod collect;
pub mod mib;
mod numbers;
pub mod prometheus;
mod publish;
mod report;
#[cfg(test)]
mod tests;

pub use collect::{Collected, Collector, Skipped};
pub use publish::{FOLDER_VARIABLE, HOST_FOLDER, Publisher, folder_to_publish, folders_to_collect};
pub use report::{
    Carrier, ParameterReport, ProcessReport, Reservation, Role, SocketReport, ViolationReport,
    from_mib_units, in_mib_units,
};
