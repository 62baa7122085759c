//! A file that is filled beside the name that it takes once it is whole.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::output::{Output, READ, keep_mode};
use crate::user::is_of_user;

impl Output {
    /// The name with `suffix`, in the same folder.
    ///
    /// # Errors
    /// Those of the system.
    pub fn beside(&self, suffix: &str) -> io::Result<Self> {
        let (folder, name) = self.parts();
        let mut beside = OsString::from(name);
        beside.push(suffix);
        Ok(Self::in_folder(folder.try_clone_to_owned()?, beside))
    }

    /// Opens a regular file of this user for reading and writing, or makes it with this mode before the
    /// umask if `create`. It is this program's alone until it is closed. No link is followed.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], with a sentence, if it is anything else, or has another name,
    /// too; [`ErrorKind::WouldBlock`] if another program has it; those of the system.
    pub fn open_own(&self, create: Option<u32>) -> io::Result<File> {
        let (folder, name) = self.parts();
        let open = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (flags, mode) = match create {
            Some(mode) => (open | OFlags::CREATE | OFlags::EXCL, mode),
            None => (open, 0),
        };
        let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode))?;
        self.check_own(&file)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file.into()),
            Err(Errno::WOULDBLOCK) => {
                Err(io::Error::new(ErrorKind::WouldBlock, "another program is writing it"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The content of a regular file of this user, of at most `max` bytes.
    ///
    /// # Errors
    /// As [`open_own`](Self::open_own).
    pub fn read_own(&self, max: u64) -> io::Result<Vec<u8>> {
        let (folder, name) = self.parts();
        let file = rustix::fs::openat(folder, name, READ | OFlags::NOFOLLOW, Mode::empty())?;
        self.check_own(&file)?;
        crate::read::read_whole(&mut file.into(), max)
    }

    fn check_own(&self, file: impl AsFd) -> io::Result<()> {
        let about = rustix::fs::fstat(file)?;
        let is_own = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile
            && is_of_user(about.st_uid)
            && about.st_nlink == 1;
        if is_own {
            return Ok(());
        }
        let name = self.parts().1.to_string_lossy().into_owned();
        let sentence = format!("{name} is no file of this user alone: remove it");
        Err(io::Error::new(ErrorKind::PermissionDenied, sentence))
    }

    /// Gives this file the name `to`, in the same folder, in place of what has it if `replace`; the
    /// folder is written to the disk.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; [`ErrorKind::NotFound`] if the name is no longer that of `file`;
    /// those of the system.
    pub fn rename(&self, file: &File, to: &Self, replace: bool) -> io::Result<()> {
        self.check_is(file)?;
        let ((folder, name), (to_folder, to_name)) = (self.parts(), to.parts());
        let renamed = if replace {
            keep_mode(to_folder, to_name, file)?;
            rustix::fs::renameat(folder, name, to_folder, to_name)
        } else {
            match rustix::fs::renameat_with(
                folder,
                name,
                to_folder,
                to_name,
                RenameFlags::NOREPLACE,
            ) {
                // A file system that cannot.
                Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => {
                    rustix::fs::renameat(folder, name, to_folder, to_name)
                }
                Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST),
                renamed => renamed,
            }
        };
        renamed?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Not every file system can.
        let _ = rustix::fs::openat(to_folder, ".", flags, Mode::empty())
            .map(|folder| rustix::fs::fsync(&folder));
        Ok(())
    }
}
