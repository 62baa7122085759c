//! The folder of one run on disk. A run appears in it completely or not at all.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ontempo_place::{OutputFolder, is_of_user};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::tables::{ResultTable, write_parquet};

/// The file that describes the others. It is written last: a folder without it holds no
/// complete run.
pub const MANIFEST: &str = "run.json";

/// Where files are written until all are complete.
const PARTIAL: &str = ".partial";

/// The mode of that folder.
const MADE_WITH: u32 = 0o700;

/// The folder of a run that is being written.
///
/// Files are written to a folder within it and renamed when all are complete, so that a run
/// that fails, on a full disk for example, leaves the earlier contents unchanged. Both folders are
/// opened once: if the outer one belongs to another user, who may rename what is in it, files are
/// still written and moved nowhere else.
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
}

impl RunFolder {
    /// Begins a run in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be created or written, another user could have put it there, or it has a
    /// `.partial` that this user's ontempo did not make.
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
                let (files, outdated) = (Vec::new(), Vec::new());
                Ok(Self { path, folder, partial, is_kept: false, files, outdated })
            }
            Err(error) => {
                folder.abandon();
                Err(naming(&path.join(PARTIAL), error))
            }
        }
    }

    /// The text of a file of an earlier run in the folder.
    ///
    /// # Errors
    /// If it is missing, no regular file, or no text; those of the system.
    pub fn read_earlier(&self, name: &str) -> io::Result<String> {
        // A named pipe would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file: File = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?.into();
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Files of an earlier run, which [`keep`](Self::keep) removes.
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
    /// If a file cannot be written or renamed.
    pub fn keep(mut self, manifest: Option<&str>) -> io::Result<()> {
        if let Some(text) = manifest {
            let written = self.create(MANIFEST)?.write_all(text.as_bytes());
            written.map_err(|error| self.at(MANIFEST, error))?;
        }
        for name in &self.files {
            self.sync(name).map_err(|error| self.at(name, error))?;
        }
        match rustix::fs::unlinkat(&self.folder, MANIFEST, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(self.at(MANIFEST, error.into())),
        }
        self.is_kept = true;
        for name in &self.files {
            rustix::fs::renameat(&self.partial, name, &self.folder, name)
                .map_err(|error| self.at(name, error.into()))?;
        }
        for name in &self.outdated {
            // No manifest lists it any more; a failure to remove it does no harm.
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
        Ok(())
    }

    /// Syncs a file that was written and closed: to hold all of them open would take many descriptors. An
    /// error of writing that nobody was told of is reported to the next who opens and syncs the file.
    fn sync(&self, name: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = rustix::fs::openat(&self.partial, name, flags, Mode::empty())?.into();
        file.sync_all()
    }

    fn at(&self, name: &str, error: io::Error) -> io::Error {
        naming(&self.path.join(name), error)
    }
}

impl Drop for RunFolder {
    /// Removes incomplete files. A failure to remove them does no harm: no reader looks into that
    /// folder.
    fn drop(&mut self) {
        let _ = empty(&self.partial);
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

/// The folder for incomplete files, made anew.
fn make_partial(folder: &OutputFolder) -> io::Result<OwnedFd> {
    // Left over from a run that was killed.
    match rustix::fs::statat(folder, PARTIAL, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(left) if FileType::from_raw_mode(left.st_mode) != FileType::Directory => {
            return Err(refused("it is no folder, so ontempo has not made it: remove it"));
        }
        Ok(_) => {
            let left = open_partial(folder)?;
            check_left(&rustix::fs::fstat(&left)?)?;
            empty(&left)?;
            rustix::fs::unlinkat(folder, PARTIAL, AtFlags::REMOVEDIR)?;
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::fs::mkdirat(folder, PARTIAL, Mode::from_raw_mode(MADE_WITH))?;
    let made = open_partial(folder)?;
    if rustix::fs::fstat(&made)?.st_uid == rustix::process::geteuid().as_raw() {
        Ok(made)
    } else {
        Err(refused("another user has put a folder there"))
    }
}

/// Checks that this user's ontempo made a folder, whose files may then be removed: it is this user's, for
/// root also of who became root by sudo(8), and others may not enter it. A folder of this user's that others
/// may write to, another user could have moved there.
fn check_left(left: &Stat) -> io::Result<()> {
    let mode = left.st_mode & 0o777;
    if !is_of_user(left.st_uid) {
        let whose = format!("it belongs to user {}, and its files stay", left.st_uid);
        return Err(refused(&format!("{whose}: remove it, or write to another folder")));
    }
    if mode & !MADE_WITH != 0 {
        let which = format!("it has mode {mode:o}, so ontempo has not made it, and its files stay");
        return Err(refused(&format!("{which}: remove it, or write to another folder")));
    }
    Ok(())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Removes the files of a folder.
fn empty(folder: &OwnedFd) -> io::Result<()> {
    let entries = Dir::read_from(folder)?.collect::<Result<Vec<_>, _>>()?;
    let names = entries.iter().map(|entry| entry.file_name());
    for name in names.filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}

/// `error` with the path of the file.
fn naming(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_together_and_an_abandoned_run_leaves_what_was_there() {
        let root = std::env::temp_dir().join(format!("ontempo-folder-{}", std::process::id()));
        let mut run = RunFolder::begin(&root).unwrap();
        run.create("a").unwrap().write_all(b"first").unwrap();
        assert_eq!(names(&root), [PARTIAL]);
        run.keep(Some("{}")).unwrap();
        assert_eq!(names(&root), ["a", MANIFEST]);

        let mut run = RunFolder::begin(&root).unwrap();
        run.create("a").unwrap().write_all(b"second").unwrap();
        drop(run);
        assert_eq!(names(&root), ["a", MANIFEST]);
        assert_eq!(fs::read(root.join("a")).unwrap(), b"first");

        // A run without a manifest must not keep that of an earlier run, nor use the files that a
        // killed run left behind.
        drop(make_partial(&OutputFolder::create(&root).unwrap()).unwrap());
        fs::write(root.join(PARTIAL).join("b"), "half").unwrap();
        RunFolder::begin(&root).unwrap().keep(None).unwrap();
        assert_eq!(names(&root), ["a"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn who_can_rename_the_folders_cannot_have_files_written_or_removed_elsewhere() {
        use std::os::unix::fs::symlink;
        let root = std::env::temp_dir().join(format!("ontempo-swapped-{}", std::process::id()));
        let (out, victim) = (root.join("out"), root.join("victim"));
        fs::create_dir_all(&victim).unwrap();
        for name in ["a", MANIFEST] {
            fs::write(victim.join(name), "of another").unwrap();
        }
        let kept = |what: &str| {
            assert_eq!(names(&victim), ["a", MANIFEST], "{what}");
            assert_eq!(fs::read(victim.join("a")).unwrap(), b"of another", "{what}");
        };
        fs::create_dir(&out).unwrap();
        symlink(&victim, out.join(PARTIAL)).unwrap();
        assert!(RunFolder::begin(&out).is_err(), "a link is there");
        kept("a link before the run");
        fs::remove_file(out.join(PARTIAL)).unwrap();

        let mut run = RunFolder::begin(&out).unwrap();
        fs::rename(out.join(PARTIAL), out.join("moved")).unwrap();
        symlink(&victim, out.join(PARTIAL)).unwrap();
        run.create("a").unwrap().write_all(b"ours").unwrap();
        kept("a link during the run");
        symlink(victim.join("a"), out.join("a")).unwrap();
        run.keep(Some("{}")).unwrap();
        kept("a link in a file's place");
        assert_eq!(fs::read(out.join("a")).unwrap(), b"ours");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn outdated_files_go_from_the_folder_that_was_opened_not_from_what_has_its_name() {
        use std::os::unix::fs::symlink;
        let root = std::env::temp_dir().join(format!("ontempo-outdated-{}", std::process::id()));
        let (out, victim) = (root.join("out"), root.join("victim"));
        for folder in [&out, &victim] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("old"), "old").unwrap();
        }
        let opened = OutputFolder::create(&out).unwrap();
        fs::rename(&out, root.join("moved")).unwrap();
        symlink(&victim, &out).unwrap();
        let mut run = RunFolder::begin_in(opened, &out).unwrap();
        run.create("a").unwrap().write_all(b"ours").unwrap();
        run.replaces(vec!["old".to_owned(), "never".to_owned()]);
        run.keep(Some("{}")).unwrap();
        assert_eq!(names(&victim), ["old"]);
        assert_eq!(names(&root.join("moved")), ["a", MANIFEST]);
        fs::remove_dir_all(&root).unwrap();
    }

    /// What a run says that finds `.partial` made by another: its error names the folder.
    fn refusal(out: &Path) -> String {
        let error = RunFolder::begin(out).expect_err("it is refused").to_string();
        assert!(error.starts_with(&out.join(PARTIAL).display().to_string()), "{error}");
        error
    }

    #[test]
    fn what_ontempo_did_not_make_is_not_emptied() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = std::env::temp_dir().join(format!("ontempo-others-{}", std::process::id()));
        let partial = root.join(PARTIAL);
        fs::create_dir_all(&partial).unwrap();
        fs::write(partial.join("a"), "of another").unwrap();
        // A folder that others may read was not made for incomplete files, whoever owns it.
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(refusal(&root).contains("mode 755"));
        assert_eq!(names(&partial), ["a"]);
        fs::rename(&partial, root.join("other")).unwrap();
        symlink(root.join("other"), &partial).unwrap();
        assert!(refusal(&root).contains("no folder"));
        assert_eq!(names(&root.join("other")), ["a"]);
        fs::remove_file(&partial).unwrap();
        fs::write(&partial, "a file").unwrap();
        assert!(refusal(&root).contains("no folder"));
        assert_eq!(fs::read(&partial).unwrap(), b"a file");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn root_does_not_empty_the_folder_of_another_user() {
        use std::os::unix::fs::{PermissionsExt, chown};
        if !ontempo_testing::require_root() {
            return;
        }
        let root = std::env::temp_dir().join(format!("ontempo-foreign-{}", std::process::id()));
        let partial = root.join(PARTIAL);
        fs::create_dir_all(&partial).unwrap();
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(partial.join("a"), "of another").unwrap();
        chown(&partial, Some(65_534), None).unwrap();
        assert!(refusal(&root).contains("user 65534"));
        assert_eq!(names(&partial), ["a"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_folder_made_for_an_abandoned_run_goes_with_it() {
        let root = std::env::temp_dir().join(format!("ontempo-made-{}", std::process::id()));
        drop(RunFolder::begin(&root).unwrap());
        assert!(!root.exists());
    }
}
