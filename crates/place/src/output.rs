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
use crate::user::is_of_user;

/// Links followed on the way, as many as the system follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Interval at which a named pipe without a reader is tried.
const READER_INTERVAL: Wall = Wall::from_millis(50);

/// How folders on the way are opened.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file is opened for writing: neither a terminal nor another user's end of a pipe is waited for.
const WRITE: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// A name in a folder that was reached over nothing that another user could have put there.
#[derive(Debug)]
pub struct Output {
    folder: OwnedFd,
    name: OsString,
    /// A file of this process, such as `/dev/stdout`, which is opened through its link.
    is_of_process: bool,
}

/// True for this user and root; for root also the user who became root by sudo(8).
fn is_trusted(owner: u32) -> bool {
    owner == 0 || is_of_user(owner)
}

/// Whether others than this user and root can put entries into a folder: it belongs to another, or
/// all may write to it, or a group that is not this user's own.
fn is_shared(folder: &Stat) -> bool {
    let mode = Mode::from_raw_mode(folder.st_mode);
    let own_group = rustix::process::getegid().as_raw();
    !is_trusted(folder.st_uid)
        || mode.contains(Mode::WOTH)
        || (mode.contains(Mode::WGRP) && folder.st_gid != own_group && folder.st_gid != 0)
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
            let about = match stat_at(&folder, &name) {
                Ok(about) => about,
                Err(error) if error.kind() == ErrorKind::NotFound && is_last => {
                    return Ok(Self { folder, name, is_of_process: false });
                }
                Err(error) if error.kind() == ErrorKind::NotFound && create => {
                    make_folder(folder.as_fd(), &name)?;
                    stat_at(&folder, &name)?
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
                let to = rustix::fs::readlinkat(&folder, &name, Vec::new())?;
                if way.prepend(Path::new(OsStr::from_bytes(to.as_bytes()))) {
                    folder = start(true)?;
                }
            } else {
                folder = open_folder(&folder, &name)?;
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
        if !self.is_of_process {
            let folder = rustix::fs::fstat(&self.folder)?;
            check(&folder, &rustix::fs::fstat(&file)?, None)?;
        }
        Ok(file.into())
    }

    /// Removes the name, if it is still that of `file`: neither a link in the place of a folder on the
    /// way nor another file of this name is touched.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the name is of something else now; those of the system.
    pub fn remove(&self, file: &File) -> io::Result<()> {
        let (named, open) = (stat_at(&self.folder, &self.name)?, rustix::fs::fstat(file)?);
        if (named.st_dev, named.st_ino) != (open.st_dev, open.st_ino) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?)
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
        let flags = if self.is_of_process { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let about = rustix::fs::statat(&self.folder, &self.name, flags);
        about.ok().map(|about| kind(&about))
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
}

impl AsFd for OutputFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

fn replace(folder: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let (mut file, beside) = create_beside(folder, name, 0o666)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let moved = written.and_then(|()| Ok(rustix::fs::renameat(folder, &beside, folder, name)?));
    if moved.is_err() {
        // The error that is reported came first.
        let _ = rustix::fs::unlinkat(folder, &beside, AtFlags::empty());
    }
    moved
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    use std::path::PathBuf;

    use ontempo_testing::require_root;

    use super::*;

    const OTHER: u32 = 65_534;

    /// A folder of mode 1777 in one of this test's own.
    struct Shared(PathBuf);

    impl Shared {
        fn new(test: &str) -> Self {
            let name = format!("ontempo-output-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("shared")).expect("made");
            let open = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(path.join("shared"), open).expect("set");
            Self(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join("shared").join(name)
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mkfifo(path: &Path) {
        let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(CWD, path, kind, mode, 0).expect("a named pipe");
    }

    fn refused<T: std::fmt::Debug>(opened: io::Result<T>, what: &str) {
        let error = opened.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains("belongs to user 65534"), "{text}");
    }

    #[test]
    fn an_abandoned_folder_goes_if_it_was_made_and_is_empty() {
        let shared = Shared::new("abandoned");
        let path = shared.path("made");
        let made = OutputFolder::create(&path).expect("made");
        OutputFolder::create(&path).expect("there").abandon();
        assert!(path.exists(), "another made it");
        fs::write(path.join("file"), "").expect("written");
        made.abandon();
        assert!(path.exists(), "a file is in it");
        fs::remove_file(path.join("file")).expect("removed");
        made.abandon();
        assert!(!path.exists());
    }

    #[test]
    fn processes_with_one_number_replace_a_file_at_once() {
        let shared = Shared::new("numbers");
        let path = shared.path("file");
        // What a process of this number in another container has begun.
        let begun = shared.path(&format!(".file.{}", std::process::id()));
        fs::write(&begun, "half").expect("written");
        Output::at(&path, true).expect("its own").replace(b"whole").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"whole");
        assert_eq!(fs::read(&begun).expect("read"), b"half");
    }

    #[test]
    fn what_another_user_puts_into_a_shared_folder_is_refused() {
        if !require_root() {
            return;
        }
        let shared = Shared::new("refused");
        let victim = shared.0.join("victim");
        fs::create_dir(&victim).expect("made");
        fs::write(shared.path("file"), "").expect("written");
        mkfifo(&shared.path("fifo"));
        fs::create_dir(shared.path("folder")).expect("made");
        symlink(&victim, shared.path("link")).expect("linked");
        for (name, what) in
            [("file", "file"), ("fifo", "named pipe"), ("folder", "folder"), ("link", "link")]
        {
            let path = shared.path(name);
            assert!(Output::at(&path, true).is_ok(), "its own {what}");
            lchown(&path, Some(OTHER), Some(OTHER)).expect("root may");
            refused(Output::at(&path, true), what);
            refused(Output::at(&path, false), what);
        }
        refused(Output::at(&shared.path("link/new"), true), "link");
        refused(OutputFolder::create(&shared.path("link")), "link");
        refused(OutputFolder::create(&shared.path("link/new")), "link");
        refused(OutputFolder::create(&shared.path("folder")), "folder");
        assert_eq!(fs::read_dir(&victim).expect("read").count(), 0);
        // Through a link of our own elsewhere, too; and in a folder of the other user.
        symlink(shared.path("link"), shared.0.join("own")).expect("linked");
        refused(Output::at(&shared.0.join("own"), true), "link");
        chown(&victim, Some(OTHER), Some(OTHER)).expect("root may");
        fs::write(victim.join("file"), "").expect("written");
        chown(victim.join("file"), Some(OTHER), Some(OTHER)).expect("root may");
        refused(Output::at(&victim.join("file"), true), "file");
    }

    #[test]
    fn what_takes_the_place_of_a_file_after_the_check_is_not_opened() {
        if !require_root() {
            return;
        }
        let shared = Shared::new("swapped");
        let (path, victim) = (shared.path("out"), shared.0.join("victim"));
        fs::write(&victim, "precious").expect("written");
        let place = Output::at(&path, true).expect("free");
        symlink(&victim, &path).expect("linked");
        assert_eq!(place.create_new(0o666).expect_err("a link").kind(), ErrorKind::AlreadyExists);
        assert!(place.open(|| false).is_err());
        fs::remove_file(&path).expect("removed");
        mkfifo(&path);
        chown(&path, Some(OTHER), Some(OTHER)).expect("root may");
        // A reader, so that opening does not wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let _reader = rustix::fs::open(&path, flags, Mode::empty()).expect("a reader");
        refused(place.open(|| false), "named pipe");
        fs::remove_file(&path).expect("removed");
        // What was made is removed where it was made, and nothing else.
        fs::create_dir(shared.path("runs")).expect("made");
        let place = Output::at(&shared.path("runs/line"), true).expect("free");
        let file = place.create_new(0o666).expect("made");
        fs::rename(shared.path("runs"), shared.path("old")).expect("moved");
        symlink(&shared.0, shared.path("runs")).expect("linked");
        fs::write(shared.0.join("line"), "precious").expect("written");
        place.remove(&file).expect("removed");
        assert!(shared.0.join("line").is_file() && !shared.path("old/line").exists());
        fs::write(shared.path("old/line"), "another").expect("written");
        assert!(place.remove(&file).is_err() && shared.path("old/line").is_file());
        // A folder stays the one that was opened.
        let folder = OutputFolder::create(&shared.path("qlog")).expect("made");
        fs::rename(shared.path("qlog"), shared.path("moved")).expect("moved");
        symlink(&shared.0, shared.path("qlog")).expect("linked");
        folder.create_new("trace").expect("made").write_all(b"x").expect("written");
        assert!(shared.path("moved/trace").is_file() && !shared.0.join("trace").exists());
    }

    #[test]
    fn ordinary_places_are_opened() {
        let shared = Shared::new("ordinary");
        let own = shared.0.join("own/deep");
        let folder = OutputFolder::create(&own).expect("made with those on the way");
        folder.create_new("one").expect("made");
        folder.remove("one").expect("removed");
        // A link of our own, in a shared folder, to what does not exist yet.
        symlink(own.join("to"), shared.path("link")).expect("linked");
        let place = Output::at(&shared.path("link"), true).expect("our own link");
        place.create_new(0o600).expect("made").write_all(b"x").expect("written");
        assert_eq!(fs::read(own.join("to")).expect("there"), b"x");
        assert!(Output::at(&shared.path("link"), true).expect("a link").is_file());
        assert!(Output::at(&shared.path("link"), false).expect("a link").open(|| false).is_err());
        let null = Output::at(Path::new("/dev/null"), true).expect("a device");
        null.open(|| false).expect("opened").write_all(b"x").expect("written");
        let of_process = Output::at(Path::new("/dev/stderr"), true).expect("of this process");
        of_process.open(|| false).expect("opened");
        let missing = Output::at(&shared.path("none/new"), true).expect_err("no folder");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn several_threads_make_the_same_folders() {
        let shared = Shared::new("together");
        for round in 0..50 {
            let path = shared.path(&format!("{round}/a/b/c"));
            let begin = std::sync::Barrier::new(4);
            thread::scope(|scope| {
                let make = || {
                    begin.wait();
                    OutputFolder::create(&path).map(drop)
                };
                let makers: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
                for maker in makers {
                    maker.join().expect("no panic").expect("made");
                }
            });
        }
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_written_through_a_link() {
        let shared = Shared::new("replaced");
        let victim = shared.0.join("victim");
        fs::write(&victim, "precious").expect("written");
        symlink(&victim, shared.path("page")).expect("linked");
        Output::at(&shared.path("page"), false)
            .expect("its own")
            .replace(b"one")
            .expect("replaced");
        assert_eq!(fs::read(shared.path("page")).expect("read"), b"one");
        let folder = OutputFolder::create(&shared.0.join("shared")).expect("its own");
        folder.replace("page", b"two").expect("replaced");
        assert_eq!(fs::read(shared.path("page")).expect("read"), b"two");
        assert_eq!(fs::read(victim).expect("read"), b"precious");
        // A failure leaves what was there, and nothing else.
        fs::create_dir(shared.path("folder")).expect("made");
        folder.replace("folder", b"three").expect_err("it is a folder");
        assert_eq!(fs::read_dir(shared.0.join("shared")).expect("read").count(), 2);
    }
}
