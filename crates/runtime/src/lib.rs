//! What simulator and emulator share: the way from a scenario to a network's elements and to
//! what its flows send, and from what was counted to the result tables.
//!
//! Both take a link from [`link`], with the random streams of its name, so that the same
//! elements with the same parameters carry modelled packets in the one and real ones in the
//! other. A [`Source`] says how many packets a flow's application has offered by a time that the
//! caller names, virtual or real. [`Rows`] follow the schemas of `ontempo_scenario::tables`; a
//! [`RunFolder`] puts a run on disk whole or not at all, and [`read_tables`] reads it back.
//!
//! Nothing here reads a clock or sends a packet.

mod applications;
mod elements;
mod folder;
mod messages;
mod read;
mod reservations;
mod rows;
mod sources;
mod spacing;
mod tables;

pub use applications::{Message, Source};
pub use elements::{Element, ElementError, link};
pub use folder::{MANIFEST, RunFolder};
pub use messages::{MessageRecord, Messages, Prompts};
pub use read::{ReadError, ReadErrorReason, read_column, read_table, read_tables};
pub use rows::{
    Flow, FlowRow, FlowTotals, LinkTotals, drop_name, interval_rows, message_rows, playout_rows,
};
pub use sources::{messages, prompts, source};
pub use spacing::{Distance, Pace};
pub use tables::{Cell, ResultTable, Rows};
