//! Texts, places and durations between C and Rust.

use std::ffi::{CStr, c_char};
use std::time::Duration as Wall;

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
    let cut = text.floor_char_boundary_at(room - 1);
    // SAFETY: `cut` is at most `room - 1`, and the source is not what the caller gave.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), cut);
        to.add(cut).write(0);
    }
    Ok(())
}

trait Cut {
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl Cut for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// A time limit in milliseconds; below 0: none.
pub(crate) fn limit(milliseconds: i64) -> Option<Wall> {
    u64::try_from(milliseconds).ok().map(Wall::from_millis)
}
