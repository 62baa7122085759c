//! What the sockets of a host ask for and get, for people and for programs.
//!
//! Nothing here measures or changes a socket.
//!
//! Each process writes a [`ProcessReport`] into a folder that all processes of the host share, as
//! often as an interval of measurement ends; a [`Collector`] reads them. There is no daemon
//! between the two: where nobody collects, nothing waits. One set of numbers, the collector's,
//! goes to [`mib`] (SNMP, by way of [`agentx`]), to [`prometheus`] and to `ontempo monitor`.

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
