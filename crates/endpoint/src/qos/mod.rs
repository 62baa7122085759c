//! QoSockets: a specification asked for, agreed on, kept or not kept (qosockets, II).

mod file;

pub use file::{SpecificationError, read};
