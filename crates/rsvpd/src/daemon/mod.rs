//! The daemon: one thread around the machine.

mod event_loop;
mod interfaces;
mod lock;
mod neighbours_file;
mod observed;
mod owners;
mod reload;
mod requests;
mod state;
mod sweep;

pub use event_loop::{Signals, run};
