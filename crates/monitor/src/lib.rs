//! Metrics of a host's QoS sockets, of what it delivers, and of its reservations, for people and for
//! programs.
//!
//! It measures and changes nothing: it reads what processes have written and what the
//! RSVP daemon answers.
//!
//! Each process writes a [`ProcessReport`] into a folder shared by all processes of the host at the
//! end of each measurement interval, and a [`DeliveryReport`] each second if it sends, receives or
//! relays media; a [`Collector`] reads them, and only a process of the same user
//! removes what another has left. No daemon stands between the two: without a collector nothing
//! waits. The collector's numbers
//! go to [`mib`] (SNMP, by [`agentx`]), to [`prometheus`] (over [`http`]) and to `ontempo monitor`.

pub mod agentx;
mod at_exit;
mod collect;
mod delivery;
mod document;
mod folder;
pub mod http;
pub mod mib;
mod numbers;
mod orders;
mod process;
pub mod prometheus;
mod publish;
mod report;
#[cfg(test)]
mod tests;

pub use collect::{Collected, CollectedFlow, Collector, Skipped};
pub use delivery::{
    DELAY_BOUNDS_S, DELAY_BUCKETS, DELIVERY_VERSION, DelayReport, DeliveryPublisher,
    DeliveryReport, FlowReport, FlowRole, MAX_DELIVERY_LEN, MAX_FLOWS, MAX_PATHS, PathReport,
    ViewersReport, read_delivery,
};
pub use orders::{Orders, started};
pub use publish::{
    FOLDER_VARIABLE, HOST_FOLDER, HostFolder, Publisher, ReportFolder, make_host_folder,
};
pub use report::{
    Carrier, MAX_REPORT_LEN, MAX_SOCKETS, MAX_TEXT_LEN, MAX_VIOLATIONS, ParameterReport,
    ProcessReport, Reservation, Role, SocketReport, ViolationReport, from_mib_units, in_mib_units,
};
