//! The system calls that no library of ours wraps, each with the reason why it is sound.
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

/// An option whose value is a number of 64 bits.
pub(crate) fn get_number(socket: impl AsFd, level: c_int, name: c_int) -> io::Result<u64> {
    let mut value = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes into `value`, all values of which are valid.
    let done =
        unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut length) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
