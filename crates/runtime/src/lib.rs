//! What simulator and emulator share: from a scenario to traffic sources, and from counters to result
//! tables.
//!
//! A [`Source`] returns how many packets a flow's application has offered by a
//! given time, virtual or real. [`Rows`] follow the schemas of `ontempo_scenario::tables`; a
//! [`RunFolder`] writes a run to disk completely or not at all, and [`read_tables`] reads it.
//!
//! Nothing here reads a clock or sends a packet.

mod address;
mod applications;
mod arrivals;
mod folder;
mod manifest;
mod messages;
pub mod pcapng;
mod read;
mod rows;
mod showing;
mod sources;
mod spacing;
mod standstill;
mod tables;

pub use address::{AddressChanges, End, V6_PREFIX, Version};
pub use applications::{FilmSource, Message, Source};
pub use arrivals::Arrivals;
pub use folder::{MANIFEST, MAX_MANIFEST, REPEAT, RunFolder, lock_folder};
pub use manifest::{Manifest, StandstillEntry, TraceEntry};
pub use messages::{MessageRecord, Messages, Prompts};
pub use read::{ReadError, ReadErrorReason, read_column, read_table, read_tables};
pub use rows::{
    Flow, FlowRow, FlowTotals, LinkTotals, MediaBytes, ReactionRow, capacity_rows, change_rows,
    drop_name, frame_rows, interval_rows, media_rows, message_rows, playout_rows,
};
pub use showing::{Showing, Shown, ShownFrame, ShownStream, latency_quantile};
pub use sources::{messages, prompts, source};
pub use spacing::{Distance, Pace};
pub use standstill::{Standstill, by_group, stands_still_since};
pub use tables::{Cell, ResultTable, Rows};
