//! The system call that no library of ours wraps, with the reason why it is sound.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option of a socket to these bytes.
pub(crate) fn set_option(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of `value` and keeps no pointer to it.
    let done = unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), length) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option whose value is a number.
pub(crate) fn set_number(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_option(socket, level, name, &value.to_ne_bytes())
}
