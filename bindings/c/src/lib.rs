//! The C library `libontempo`: units with deadlines over QUIC.
//!
//! It is `ontempo_transport::live` in C. `include/ontempo.h` is written from these sources by
//! `tests/header.rs`, which fails where it is not up to date, or where a declaration that a program may
//! use has changed while [`ONTEMPO_ABI`] has not.
//!
//! A handle is a number that is never used twice, in the shape of a pointer: one that was freed, is
//! `NULL`, or is of another kind gives `ONTEMPO_ERROR_HANDLE`, and is never followed.

mod connection;
mod event;
mod flow;
mod handle;
mod options;
mod status;
mod text;
mod unit;

pub use connection::*;
pub use event::*;
pub use flow::*;
pub use handle::*;
pub use options::*;
pub use status::*;
pub use unit::*;

use std::ffi::c_char;

/// The version of the binary interface. Additions do not change it: structs begin with their size, and
/// options are named by text.
pub const ONTEMPO_ABI: u32 = 1;

/// `ONTEMPO_ABI` of the library that is loaded; compare it with that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_abi() -> u32 {
    ONTEMPO_ABI
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
