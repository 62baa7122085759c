//! Outputs that a user names: files, named pipes and folders, also where other users can write.
//!
//! In a folder of another user, or one that others can write to, such as `/tmp`, anybody may have put a
//! link, a named pipe or a file at the name. What belongs to another user there is refused, also on the way;
//! links of this user and of root are followed. The system's own protection (`fs.protected_symlinks` and
//! others, proc(5)) covers folders with the sticky bit only, and no named pipe that is opened without
//! `O_CREAT`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::thread;
use std::time::Duration as Wall;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;

use crate::beside::create_beside;
use crate::read::read_whole;
use crate::user::{OTHERS_MAY_WRITE, is_of_user, is_trusted};

/// Links followed on the way, as many as the system follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Interval at which a named pipe without a reader is tried.
const READER_INTERVAL: Wall = Wall::from_millis(50);

/// How folders on the way are opened.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file is opened for writing: neither a terminal nor another user's end of a pipe is waited for.
const WRITE: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// The same for reading.
pub(crate) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// A name in a folder that was reached over nothing that another user could have put there.
#[derive(Debug)]
pub struct Output {
    folder: OwnedFd,
    name: OsString,
    /// A file of this process, such as `/dev/stdout`, which is opened through its link.
    is_of_process: bool,
}

/// Whether others than this user and root can put entries into a folder: it belongs to another, or
/// all may write to it, or its group. Who is in a group cannot be known for sure, and the bits of the
/// group are also the most that an access list grants to anybody (acl(5)).
fn is_shared(folder: &Stat) -> bool {
    !is_trusted(folder.st_uid) || folder.st_mode & OTHERS_MAY_WRITE != 0
}

fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

fn stat_at(folder: impl AsFd, name: &OsStr) -> io::Result<Stat> {
    Ok(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// An error if an entry of a folder belongs to another user, who may have put it there; `name` is of
/// one on the way.
fn check(folder: &Stat, entry: &Stat, name: Option<&OsStr>) -> io::Result<()> {
    if !is_shared(folder) || is_trusted(entry.st_uid) {
        return Ok(());
    }
    let what = match kind(entry) {
        FileType::Symlink => "link",
        FileType::Fifo => "named pipe",
        FileType::Directory => "folder",
        FileType::RegularFile => "file",
        _ => "entry",
    };
    let on_the_way = name.map(|name| format!(" {}", name.to_string_lossy())).unwrap_or_default();
    let sentence = format!(
        "the {what}{on_the_way} belongs to user {}, in a folder that others can write to: name a \
         folder of your own",
        entry.st_uid
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, sentence))
}

/// The parts of a path that are still to be walked, the next one first.
struct Way {
    parts: VecDeque<OsString>,
    links: usize,
}

impl Way {
    /// Adds `path` before the rest; returns whether it begins at the root.
    fn prepend(&mut self, path: &Path) -> bool {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.parts.push_front(name.to_owned()),
                Component::ParentDir => self.parts.push_front("..".into()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        path.is_absolute()
    }
}

/// An entry, opened so that it stays the one that is checked, whatever takes its name.
fn open_entry(at: impl AsFd, name: &OsStr) -> io::Result<(OwnedFd, Stat)> {
    let entry = rustix::fs::openat(at, name, ON_THE_WAY, Mode::empty())?;
    let about = rustix::fs::fstat(&entry)?;
    Ok((entry, about))
}

fn open_folder(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = ON_THE_WAY | OFlags::DIRECTORY;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// Makes a folder, unless it is there: another thread may have made it just now. Returns whether it did.
fn make_folder(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o777)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Where a walk begins: the root or the working directory.
fn start(is_absolute: bool) -> io::Result<OwnedFd> {
    open_folder(CWD, OsStr::new(if is_absolute { "/" } else { "." }))
}

fn is_of_proc(folder: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(folder).is_ok_and(|about| about.f_type == PROC_SUPER_MAGIC)
}

impl Output {
    /// Walks to `path`, which need not exist. A link at its end is followed if `follow`.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], with a sentence, if another user could have
    /// put there what is on the way or at its end; those of the system.
    pub fn at(path: &Path, follow: bool) -> io::Result<Self> {
        Self::walk(path, follow, false)
    }

    fn walk(path: &Path, follow: bool, create: bool) -> io::Result<Self> {
        let mut way = Way { parts: VecDeque::new(), links: 0 };
        let mut folder = start(way.prepend(path))?;
        loop {
            let name = way.parts.pop_front().unwrap_or_else(|| ".".into());
            let is_last = way.parts.is_empty();
            let about_folder = rustix::fs::fstat(&folder)?;
            let (entry, about) = match open_entry(&folder, &name) {
                Ok(opened) => opened,
                Err(error) if error.kind() == ErrorKind::NotFound && is_last => {
                    return Ok(Self { folder, name, is_of_process: false });
                }
                Err(error) if error.kind() == ErrorKind::NotFound && create => {
                    make_folder(folder.as_fd(), &name)?;
                    open_entry(&folder, &name)?
                }
                Err(error) => return Err(error),
            };
            let is_link = kind(&about) == FileType::Symlink;
            // A folder of another user on the way is the choice of whoever named it.
            if is_link || is_last {
                check(&about_folder, &about, Some(name.as_os_str()).filter(|_| !is_last))?;
            }
            let is_of_process = is_link && is_of_proc(folder.as_fd());
            if is_last && (!is_link || !follow || is_of_process) {
                return Ok(Self { folder, name, is_of_process });
            }
            if is_of_process {
                // Its text is no path.
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                folder = rustix::fs::openat(&folder, &name, flags, Mode::empty())?;
            } else if is_link {
                way.links += 1;
                if way.links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let to = rustix::fs::readlinkat(&entry, "", Vec::new())?;
                if way.prepend(Path::new(OsStr::from_bytes(to.as_bytes()))) {
                    folder = start(true)?;
                }
            } else if kind(&about) == FileType::Directory {
                folder = entry;
            } else {
                return Err(Errno::NOTDIR.into());
            }
        }
    }

    /// Makes a new file, with this mode before the umask; nothing that exists is opened.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; those of the system.
    pub fn create_new(&self, mode: u32) -> io::Result<File> {
        let flags = WRITE | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        Ok(rustix::fs::openat(&self.folder, &self.name, flags, mode)?.into())
    }

    /// Opens what exists for writing; a named pipe waits for its reader until `is_stopped`. It
    /// follows no link.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] as [`at`](Self::at), if it was replaced meanwhile;
    /// [`ErrorKind::Interrupted`] if stopped; those of the system.
    pub fn open(&self, is_stopped: impl Fn() -> bool) -> io::Result<File> {
        let nofollow = if self.is_of_process { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = WRITE | OFlags::NONBLOCK | nofollow;
        let file = loop {
            match rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty()) {
                Err(Errno::NXIO) if self.kind() == Some(FileType::Fifo) => {
                    // It may have come after the walk.
                    self.check_again(&self.about()?)?;
                    if is_stopped() {
                        let sentence = "interrupted; no program has opened it for reading";
                        return Err(io::Error::new(ErrorKind::Interrupted, sentence));
                    }
                    thread::sleep(READER_INTERVAL);
                }
                opened => break opened?,
            }
        };
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
        self.check_again(&rustix::fs::fstat(&file)?)?;
        Ok(file.into())
    }

    /// Opens what exists for reading, and waits for nothing; it follows no link.
    pub(crate) fn open_to_read(&self) -> io::Result<File> {
        let nofollow = if self.is_of_process { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = READ | nofollow;
        let file: File = rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty())?.into();
        self.check_again(&rustix::fs::fstat(&file)?)?;
        Ok(file)
    }

    /// Whether it is what the user has opened for this process.
    pub(crate) fn is_of_process(&self) -> bool {
        self.is_of_process
    }

    /// Checks what has the name now.
    fn check_again(&self, entry: &Stat) -> io::Result<()> {
        if self.is_of_process {
            return Ok(());
        }
        check(&rustix::fs::fstat(&self.folder)?, entry, None)
    }

    /// Removes the name, if it is still that of `file`: neither a link in the place of a folder on the
    /// way nor another file of this name is touched.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the name is of something else now; those of the system.
    pub fn remove(&self, file: &File) -> io::Result<()> {
        self.check_is(file)?;
        Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }

    /// An error if the name is no longer that of `file`.
    pub(crate) fn check_is(&self, file: &File) -> io::Result<()> {
        let (named, open) = (stat_at(&self.folder, &self.name)?, rustix::fs::fstat(file)?);
        if (named.st_dev, named.st_ino) != (open.st_dev, open.st_ino) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(())
    }

    /// A name in an open folder.
    pub(crate) fn in_folder(folder: OwnedFd, name: OsString) -> Self {
        Self { folder, name, is_of_process: false }
    }

    /// Whether there is anything.
    pub fn exists(&self) -> bool {
        self.kind().is_some()
    }

    /// Writes a file beside the name and moves it there: a reader never sees half of it, and a failure
    /// leaves what was there. A link at the name is replaced.
    ///
    /// # Errors
    /// Those of the system.
    pub fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        replace(self.folder.as_fd(), &self.name, bytes)
    }

    /// Whether there is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == Some(FileType::RegularFile)
    }

    fn kind(&self) -> Option<FileType> {
        self.about().ok().map(|about| kind(&about))
    }

    fn about(&self) -> io::Result<Stat> {
        let flags = if self.is_of_process { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(rustix::fs::statat(&self.folder, &self.name, flags)?)
    }

    /// The folder that the name is in, and the name.
    pub(crate) fn parts(&self) -> (BorrowedFd<'_>, &OsStr) {
        (self.folder.as_fd(), &self.name)
    }
}

/// A folder for output files, which stays the same whatever its name becomes.
#[derive(Debug)]
pub struct OutputFolder {
    folder: OwnedFd,
    place: Output,
    is_made: bool,
}

impl OutputFolder {
    /// Opens the folder at `path`; creates it, and those on the way, if missing.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], with a sentence, if another user could have
    /// put it there, or a link on the way; those of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = Output::walk(path, true, true)?;
        let (at, name) = place.parts();
        let is_made = make_folder(at, name)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let nofollow = if place.is_of_process { OFlags::empty() } else { OFlags::NOFOLLOW };
        let folder = rustix::fs::openat(at, name, flags | nofollow, Mode::empty())?;
        if !place.is_of_process {
            let about = rustix::fs::fstat(at)?;
            check(&about, &rustix::fs::fstat(&folder)?, None)?;
        }
        Ok(Self { folder, place, is_made })
    }

    /// Removes the folder, if [`create`](Self::create) made it and nothing is in it. A failure does no
    /// harm: an empty folder stays.
    pub fn abandon(&self) {
        if self.is_made {
            let (at, name) = self.place.parts();
            let _ = rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR);
        }
    }

    /// Makes a new file in it; nothing that exists is opened.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; those of the system.
    pub fn create_new(&self, name: &str) -> io::Result<File> {
        let flags = WRITE | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.folder, name, flags, Mode::from_raw_mode(0o666))?.into())
    }

    /// Writes a file beside `name` and moves it there, as [`Output::replace`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        replace(self.folder.as_fd(), OsStr::new(name), bytes)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    /// Whether others than this user and root can put files into it, or rename what is there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_shared(&self) -> io::Result<bool> {
        Ok(is_shared(&rustix::fs::fstat(&self.folder)?))
    }

    /// Whether `name` is a regular file of this user.
    pub fn has_own(&self, name: &str) -> bool {
        stat_at(&self.folder, OsStr::new(name)).is_ok_and(|about| is_own_file(&about))
    }

    /// Gives `file`, which is to replace `name`, the permissions of that, if it is a file of this user.
    ///
    /// # Errors
    /// Those of the system.
    pub fn keep_mode(&self, name: &str, file: &File) -> io::Result<()> {
        keep_mode(self.folder.as_fd(), OsStr::new(name), file)
    }

    /// The content of a regular file of at most `max` bytes that this user has made and nobody else can
    /// have written.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], with a sentence, if another could have; those of the system.
    pub fn read_own(&self, name: &str, max: u64) -> io::Result<Vec<u8>> {
        let flags = READ | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?;
        let about = rustix::fs::fstat(&file)?;
        // Who can write to the folder can give a file of this user's elsewhere this name, too.
        if !is_own_file(&about) || about.st_mode & OTHERS_MAY_WRITE != 0 || about.st_nlink > 1 {
            let sentence = "it is no file that this user alone has written";
            return Err(io::Error::new(ErrorKind::PermissionDenied, sentence));
        }
        read_whole(&mut file.into(), max)
    }
}

fn is_own_file(about: &Stat) -> bool {
    kind(about) == FileType::RegularFile && is_of_user(about.st_uid)
}

impl AsFd for OutputFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Gives `file` the permissions of the file of this user that it is to replace.
pub(crate) fn keep_mode(folder: BorrowedFd<'_>, name: &OsStr, file: &File) -> io::Result<()> {
    match stat_at(folder, name) {
        Ok(about) if is_own_file(&about) => {
            let modes = [about.st_mode, rustix::fs::fstat(file)?.st_mode].map(|mode| mode & 0o777);
            // Some file systems have one mode for all, and refuse to change it.
            if modes[0] == modes[1] {
                return Ok(());
            }
            Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(modes[0]))?)
        }
        _ => Ok(()),
    }
}

fn replace(folder: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let (mut file, beside) = create_beside(folder, name, 0o666)?;
    let written = keep_mode(folder, name, &file)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all());
    let moved = written.and_then(|()| Ok(rustix::fs::renameat(folder, &beside, folder, name)?));
    if moved.is_err() {
        // The error that is reported came first.
        let _ = rustix::fs::unlinkat(folder, &beside, AtFlags::empty());
    }
    moved
}
