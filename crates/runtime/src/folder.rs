//! The folder of one run on disk. A run appears in it completely or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ontempo_foundation::printable;
use ontempo_place::{OutputFolder, is_of_user};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::tables::{ResultTable, write_parquet};

/// The file that describes the others. It is written last: a folder without it holds no
/// complete run.
pub const MANIFEST: &str = "run.json";

/// Maximum size of it: its scenario may hold a trace of losses.
pub const MAX_MANIFEST: u64 = 64 << 20;

/// The file of a changed scenario (`ontempo emulate --control`), which repeats the run.
pub const REPEAT: &str = "repeat.toml";

/// The endings of the other files of a run: tables, traces, what programs have said.
const ENDINGS: [&str; 3] = [".parquet", ".pcapng", ".log"];

/// Where files are written until all are complete.
const PARTIAL: &str = ".partial";

/// The mode of that folder.
const MADE_WITH: u32 = 0o700;

/// How often it is made anew where another run ends or begins at the same time.
const ATTEMPTS: u32 = 10;

/// The folder of a run that is being written.
///
/// Files are written to a folder within it and renamed when all are complete, so that a run
/// that fails, on a full disk for example, leaves the earlier contents unchanged. Both folders are
/// opened once: if the outer one belongs to another user, who may rename what is in it, files are
/// still written and moved nowhere else.
///
/// The inner one is locked until the run has ended, however it ends: a second run into the same folder is
/// refused, and what a killed one has left is known by its missing lock.
///
/// To write files takes a processor, [`keep`](Self::keep) waits for the disk: runs that end one after
/// another are kept fastest at the same time, by several threads.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    folder: OutputFolder,
    partial: OwnedFd,
    is_kept: bool,
    files: Vec<String>,
    /// Of an earlier run, to be removed.
    outdated: Vec<String>,
    /// Files of an earlier run that were moved to `partial`: their names there, and before.
    aside: Vec<(String, String)>,
}

impl RunFolder {
    /// Begins a run in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be created or written, another user could have put it there, another run is
    /// being written to it, or it has a `.partial` that this user's ontempo did not make.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        let opened = OutputFolder::create(folder).map_err(|error| naming(folder, error))?;
        Self::begin_in(opened, folder)
    }

    /// Begins a run in `folder`, which is open and was at `path`, for errors.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_in(folder: OutputFolder, path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        match make_partial(&folder) {
            Ok(partial) => {
                let (files, outdated, aside) = (Vec::new(), Vec::new(), Vec::new());
                Ok(Self { path, folder, partial, is_kept: false, files, outdated, aside })
            }
            Err(error) => {
                folder.abandon();
                Err(naming(&path.join(PARTIAL), error))
            }
        }
    }

    /// The text of a file of an earlier run in the folder, of at most [`MAX_MANIFEST`] bytes.
    ///
    /// # Errors
    /// If it is missing, no regular file, no text, or another user could have written it; those of the
    /// system.
    pub fn read_earlier(&self, name: &str) -> io::Result<String> {
        let text = self.folder.read_own(name, MAX_MANIFEST)?;
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// Files of an earlier run, which [`keep`](Self::keep) removes if they are this user's.
    pub fn replaces(&mut self, outdated: Vec<String>) {
        self.outdated = outdated;
    }

    /// Creates the file `name` for writing.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(&mut self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.partial, name, flags, Mode::from_raw_mode(0o666))
            .map_err(|error| self.at(name, error.into()))?;
        self.files.push(name.to_owned());
        Ok(file.into())
    }

    /// Writes `tables`, one Parquet file each, without waiting for the disk.
    ///
    /// # Errors
    /// If one cannot be written, such as on a full disk.
    pub fn write_tables(&mut self, tables: &[ResultTable]) -> io::Result<()> {
        for table in tables {
            let name = format!("{}.parquet", table.name);
            let file = self.create(&name)?;
            write_parquet(&table.batch, &file).map_err(|error| self.at(&name, error))?;
        }
        Ok(())
    }

    /// Waits until all files are on disk and moves them to their final names: those of an earlier run are
    /// replaced, its [`MANIFEST`] first, and `manifest`, if given, is written last. Files that
    /// [`create`](Self::create) returned must be complete.
    ///
    /// # Errors
    /// If a file cannot be written or renamed; the earlier run is then as it was. If that cannot be done
    /// either, the error says so.
    pub fn keep(mut self, manifest: Option<&str>) -> io::Result<()> {
        if let Some(text) = manifest {
            let written = self.create(MANIFEST)?.write_all(text.as_bytes());
            written.map_err(|error| self.at(MANIFEST, error))?;
        }
        for name in &self.files {
            self.sync(name).map_err(|error| self.at(name, error))?;
        }
        self.place()?;
        self.is_kept = true;
        for name in self.outdated.iter().filter(|name| self.folder.has_own(name)) {
            // No manifest lists it any more; a failure to remove it does no harm.
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
        Ok(())
    }

    /// Moves the files to their final names, or leaves all as it was.
    fn place(&mut self) -> io::Result<()> {
        // A folder can neither be replaced nor removed.
        for name in self.files.iter().map(String::as_str).chain([MANIFEST]) {
            let there = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
            if there.is_ok_and(|there| kind(&there) == FileType::Directory) {
                return Err(self.at(name, Errno::ISDIR.into()));
            }
        }
        let mut placed = 0;
        let Err((name, error)) = self.replace_all(&mut placed) else { return Ok(()) };
        let error = self.at(&name, error);
        if self.undo(placed).is_ok() {
            return Err(error);
        }
        // They stay where they are.
        self.aside.clear();
        let partial = self.path.join(PARTIAL);
        let lost = "the earlier run could not be put back; what is left of it is in";
        Err(io::Error::new(error.kind(), format!("{error}; {lost} {}", partial.display())))
    }

    fn replace_all(&mut self, placed: &mut usize) -> Result<(), (String, io::Error)> {
        let files = self.files.clone();
        let failed = |name: &str, error: Errno| (name.to_owned(), error.into());
        self.set_aside(MANIFEST).map_err(|error| failed(MANIFEST, error))?;
        for name in &files {
            self.set_aside(name)
                .and_then(|()| rustix::fs::renameat(&self.partial, name, &self.folder, name))
                .map_err(|error| failed(name, error))?;
            *placed += 1;
        }
        Ok(())
    }

    /// Moves a file of an earlier run, if there is one, to where it is removed with what is incomplete.
    fn set_aside(&mut self, name: &str) -> Result<(), Errno> {
        let aside = format!("earlier-{}{}", self.aside.len(), ENDINGS[0]);
        match rustix::fs::renameat(&self.folder, name, &self.partial, &aside) {
            Ok(()) => self.aside.push((aside, name.to_owned())),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Puts an earlier run back, of which this many files were replaced: its [`MANIFEST`] last.
    fn undo(&mut self, placed: usize) -> Result<(), Errno> {
        for name in &self.files[..placed] {
            rustix::fs::renameat(&self.folder, name, &self.partial, name)?;
        }
        while let Some((aside, name)) = self.aside.last() {
            rustix::fs::renameat(&self.partial, aside, &self.folder, name)?;
            self.aside.pop();
        }
        Ok(())
    }

    /// Syncs a file that was written and closed: to hold all of them open would take many descriptors. An
    /// error of writing that nobody was told of is reported to the next who opens and syncs the file. It gets
    /// the permissions of the file of this user that it replaces.
    fn sync(&self, name: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = rustix::fs::openat(&self.partial, name, flags, Mode::empty())?.into();
        self.folder.keep_mode(name, &file)?;
        file.sync_all()
    }

    fn at(&self, name: &str, error: io::Error) -> io::Error {
        naming(&self.path.join(name), error)
    }
}

impl Drop for RunFolder {
    /// Removes incomplete files, and those that were replaced. A failure to remove them does no harm: no
    /// reader looks into that folder.
    fn drop(&mut self) {
        let names = self.files.iter().chain(self.aside.iter().map(|(aside, _)| aside));
        for name in names {
            let _ = rustix::fs::unlinkat(&self.partial, name, AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&self.folder, PARTIAL, AtFlags::REMOVEDIR);
        if !self.is_kept {
            self.folder.abandon();
        }
    }
}

fn open_partial(folder: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, PARTIAL, flags, Mode::empty())?)
}

/// Locks a folder as long as it is open, so that no other run is written to it.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`], with a sentence, if another process has locked it.
pub fn lock_folder(folder: impl AsFd) -> io::Result<()> {
    match rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another run is being written to this folder: wait for its end, or write to another folder",
        )),
        // A file system without locks for folders, as some of networks: nothing is known of other runs.
        _ => Ok(()),
    }
}

/// The folder for incomplete files, made anew and locked.
fn make_partial(folder: &OutputFolder) -> io::Result<OwnedFd> {
    for _ in 0..ATTEMPTS {
        remove_left(folder)?;
        match rustix::fs::mkdirat(folder, PARTIAL, Mode::from_raw_mode(MADE_WITH)) {
            // Of a run that began meanwhile.
            Err(Errno::EXIST) => continue,
            made => made?,
        }
        let made = open_partial(folder)?;
        let is_own = rustix::fs::fstat(&made)?.st_uid == rustix::process::geteuid().as_raw();
        // One of this user's may have been moved there meanwhile.
        if !is_own || !entries(&made)?.is_empty() {
            return Err(refused("another user has put a folder there"));
        }
        lock_folder(&made)?;
        // Another run may have taken it for one that was left, before it was locked.
        if is_partial(folder, &made)? {
            return Ok(made);
        }
    }
    Err(refused("other runs begin and end in this folder all the time: write to another one"))
}

/// Removes what a run that was killed has left, unless the run goes on.
fn remove_left(folder: &OutputFolder) -> io::Result<()> {
    match rustix::fs::statat(folder, PARTIAL, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(left) if kind(&left) != FileType::Directory => {
            return Err(refused("it is no folder, so ontempo has not made it: remove it"));
        }
        Ok(_) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let left = match open_partial(folder) {
        // Its run has ended meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        left => left?,
    };
    check_left(folder, &left)?;
    lock_folder(&left)?;
    if is_partial(folder, &left)? {
        empty(&left)?;
        rustix::fs::unlinkat(folder, PARTIAL, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Whether an open folder is still the one for incomplete files.
fn is_partial(folder: &OutputFolder, open: &OwnedFd) -> io::Result<bool> {
    let open = rustix::fs::fstat(open)?;
    match rustix::fs::statat(folder, PARTIAL, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Checks that this user's ontempo made a folder, whose files may then be removed: it is this user's, for
/// root also of who became root by sudo(8), others may not enter it, it has nothing but files of a run, and
/// nobody else can have moved it there: who may write to the folder that it is in can rename any folder there.
fn check_left(folder: &OutputFolder, left: &OwnedFd) -> io::Result<()> {
    let about = rustix::fs::fstat(left)?;
    let mode = about.st_mode & 0o777;
    let why = if !is_of_user(about.st_uid) {
        format!("it belongs to user {}", about.st_uid)
    } else if mode & !MADE_WITH != 0 {
        format!("it has mode {mode:o}, so ontempo has not made it")
    } else if folder.is_shared()? {
        "others can write to the folder that it is in, and may have moved it there".to_owned()
    } else if let Some(other) = entries(left)?.iter().find(|name| !is_of_run(name)) {
        format!("`{}` in it is no file of a run, so ontempo has not made it", printable(other))
    } else {
        return Ok(());
    };
    Err(refused(&format!("{why}, and its files stay: remove it, or write to another folder")))
}

/// Whether a file of a run has this name.
fn is_of_run(name: &str) -> bool {
    name == MANIFEST || name == REPEAT || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The names in a folder.
fn entries(folder: &OwnedFd) -> io::Result<Vec<String>> {
    let entries = Dir::read_from(folder)?.collect::<Result<Vec<_>, _>>()?;
    let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| !matches!(name.as_str(), "." | "..")).collect())
}

/// Removes the files of a folder.
fn empty(folder: &OwnedFd) -> io::Result<()> {
    for name in entries(folder)? {
        rustix::fs::unlinkat(folder, &name, AtFlags::empty())?;
    }
    Ok(())
}

/// `error` with the path of the file.
fn naming(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
