//! A new file beside the one that it becomes.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// Names tried for it.
const MAX_NAMES: usize = 100;

/// A new file in a folder, named after `name`, and its name. It opens nothing that exists. The names are
/// random: processes of two containers that share the folder may have one number.
pub(crate) fn create_beside(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    mode: u32,
) -> io::Result<(File, String)> {
    let name = name.to_string_lossy();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let random = RandomState::new();
    let mut number = 0;
    loop {
        let beside = format!(".{name}.{:016x}", random.hash_one(number));
        match openat(folder, beside.as_str(), flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((file.into(), beside)),
            Err(Errno::EXIST) if number < MAX_NAMES => number += 1,
            Err(error) => return Err(error.into()),
        }
    }
}
