//! A web page whose pictures arrive piece by piece, in order and in any order beside it.
//!
//! The [`Page`] is cut into application data units: its text, on which all depend; the tables of each JPEG; its restart
//! intervals, or its scans if it is progressive ([`jpeg`]). They travel over two lanes, in order and in partial order.
//! At the other end an [`Assembly`] makes of each unit what a browser can paint at once.

mod assembly;
pub mod jpeg;
mod message;
mod page;
mod visits;

pub use assembly::{Assembly, AssemblyError, Paint, Taken};
pub use message::{PageEvent, Request};
pub use page::{Described, DescribedPicture, Page, PageError, Picture, Unit};
pub use visits::Visits;
