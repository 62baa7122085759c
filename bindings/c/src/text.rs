//! Texts, places of results and time limits between C and Rust.

use std::ffi::{CStr, c_char};
use std::time::{Duration as Wall, Instant};

use crate::status::Failure;

/// The text of a C string.
///
/// # Safety
/// `text` is NULL, or ends with a zero byte and stays as it is during the call.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{name} is NULL: a text is needed")));
    }
    // SAFETY: not NULL, and ends with a zero byte, as this function asks of its caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

/// The place of a result.
///
/// # Safety
/// `place` is NULL, or the caller may write there during the call and nobody else does.
pub(crate) unsafe fn place<'a, T>(name: &str, place: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: NULL becomes `None`; else it is as this function asks of its caller.
    unsafe { place.as_mut() }.ok_or_else(|| {
        Failure::argument(format!("{name} is NULL: it has to say where the result goes"))
    })
}

/// Copies a text and its zero byte into `room` bytes at `to`, cut at a character if it is longer.
///
/// # Safety
/// `to` is NULL, or `room` bytes may be written there.
pub(crate) unsafe fn copy(text: &str, to: *mut c_char, room: usize) -> Result<(), Failure> {
    if to.is_null() || room == 0 {
        return Err(Failure::argument("there is no room for the text"));
    }
    let most = text.len().min(room - 1);
    let cut = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    // SAFETY: `cut` is at most `room - 1`, and the source is not what the caller gave.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), cut);
        to.add(cut).write(0);
    }
    Ok(())
}

/// The bytes of a struct of the caller, whose first field says them.
///
/// # Safety
/// As [`fill`].
pub(crate) unsafe fn size_at<T>(name: &str, to: *mut T) -> Result<usize, Failure> {
    if to.is_null() || !to.is_aligned() {
        return Err(Failure::argument(format!("{name} is NULL or not aligned")));
    }
    // SAFETY: the first field is the size, as this function asks.
    let size = unsafe { to.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return Err(Failure::argument(format!("{name}.size is not set to the struct's size")));
    }
    Ok(size)
}

/// Fills a struct of the caller, whose first field is its size: as many bytes as both know.
///
/// # Safety
/// `to` is NULL, or points to a `T` of C whose first field is a `size_t` with the number of bytes there that
/// can be written to.
pub(crate) unsafe fn fill<T: Copy>(name: &str, to: *mut T, values: T) -> Result<(), Failure> {
    // SAFETY: as this function asks.
    let size = unsafe { size_at(name, to) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are in both; the size stays as it is.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const values).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<usize>().write(size);
    }
    Ok(())
}

/// The time that a call may take: `None` without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// From a time limit in milliseconds; below 0: none.
    pub(crate) fn after(milliseconds: i64) -> Self {
        Self(limit(milliseconds).and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// What is left, at most `step`; `None` if nothing is.
    pub(crate) fn step(self, step: Wall) -> Option<Wall> {
        let Some(until) = self.0 else { return Some(step) };
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(step))
    }
}

/// A time limit in milliseconds; below 0: none.
pub(crate) fn limit(milliseconds: i64) -> Option<Wall> {
    u64::try_from(milliseconds).ok().map(Wall::from_millis)
}
