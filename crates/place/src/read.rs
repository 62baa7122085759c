//! Reading files that others may have made.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, Mode, openat};

use crate::output::READ;

/// Opens a regular file for reading. A named pipe in its place, which would have to be waited for, is an error.
///
/// # Errors
/// If it is no regular file; those of the system.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file: File = openat(CWD, path, READ, Mode::empty())?.into();
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// The content of a regular file of at most `max` bytes.
///
/// # Errors
/// If it is larger, or no regular file; those of the system.
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_whole(&mut open_regular(path)?, max)
}

/// The rest of a file, which has at most `max` bytes, whatever it says and while it grows.
pub(crate) fn read_whole(file: &mut File, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let size = file.metadata()?.len();
    if size <= max {
        file.take(max + 1).read_to_end(&mut content)?;
    }
    let size = size.max(content.len() as u64);
    if size > max {
        return Err(io::Error::other(format!("it has {size} bytes, of at most {max}")));
    }
    Ok(content)
}
