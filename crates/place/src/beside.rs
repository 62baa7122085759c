//! A new file beside the one that it becomes.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// Names tried for it.
const MAX_NAMES: usize = 100;

/// Bytes of a name, at most (NAME_MAX, limits.h); fewer of them where the rest is added.
const MAX_NAME: usize = 255;
const ADDED: usize = ". .0123456789abcdef".len() - 1;

/// A new file in a folder, named after `name`, and its name. It opens nothing that exists. The names are
/// random: processes of two containers that share the folder may have one number.
pub(crate) fn create_beside(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    mode: u32,
) -> io::Result<(File, OsString)> {
    let name = name.as_bytes();
    let begin = &name[..name.len().min(MAX_NAME - ADDED)];
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let random = RandomState::new();
    let mut number = 0;
    loop {
        let end = format!(".{:016x}", random.hash_one(number));
        let beside = OsString::from_vec([b".", begin, end.as_bytes()].concat());
        match openat(folder, &beside, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((file.into(), beside)),
            Err(Errno::EXIST) if number < MAX_NAMES => number += 1,
            Err(error) => return Err(error.into()),
        }
    }
}
