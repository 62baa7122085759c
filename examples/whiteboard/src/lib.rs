//! A whiteboard that several people share.
//!
//! Each [`Object`] is an application data unit that depends on those earlier ones alone that its bounds touch
//! ([`Board`]): others may be painted before or after it, and the picture is the same. The [`Room`] sends every
//! object to every participant over two lanes, in order and in partial order, and tells the participant's page what
//! each has delivered, and when.

mod board;
mod message;
mod object;
mod room;
mod station;

pub use board::{Board, BoardFull, Entry, MAX_BYTES, MAX_ENTRIES};
pub use message::{Drawn, PageEvent, Request};
pub use object::{Bounds, HEIGHT, Object, WIDTH};
pub use room::Room;
