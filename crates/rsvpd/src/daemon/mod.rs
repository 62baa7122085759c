//! The daemon: one thread around the machine.

mod event_loop;
mod interfaces;
mod lock;
mod owners;
mod requests;
mod state;

pub use event_loop::run;
