//! The folder of one run on disk. A run appears in it completely or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ontempo_foundation::printable;
use ontempo_place::{OutputFolder, is_of_user};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
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
    /// Files of an earlier run that were moved to `partial`: their names there, and before.
    aside: Vec<(String, String)>,
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

/// The folder for incomplete files, made anew.
fn make_partial(folder: &OutputFolder) -> io::Result<OwnedFd> {
    // Left over from a run that was killed.
    match rustix::fs::statat(folder, PARTIAL, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(left) if kind(&left) != FileType::Directory => {
            return Err(refused("it is no folder, so ontempo has not made it: remove it"));
        }
        Ok(_) => {
            let left = open_partial(folder)?;
            check_left(folder, &left)?;
            empty(&left)?;
            rustix::fs::unlinkat(folder, PARTIAL, AtFlags::REMOVEDIR)?;
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::fs::mkdirat(folder, PARTIAL, Mode::from_raw_mode(MADE_WITH))?;
    let made = open_partial(folder)?;
    let is_own = rustix::fs::fstat(&made)?.st_uid == rustix::process::geteuid().as_raw();
    // One of this user's may have been moved there meanwhile.
    if is_own && entries(&made)?.is_empty() {
        Ok(made)
    } else {
        Err(refused("another user has put a folder there"))
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
        fs::write(root.join(PARTIAL).join("b.parquet"), "half").unwrap();
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
    fn a_folder_that_was_moved_there_is_not_emptied() {
        use std::os::unix::fs::PermissionsExt;
        let root = std::env::temp_dir().join(format!("ontempo-moved-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let partial = root.join(PARTIAL);
        fs::create_dir_all(&partial).unwrap();
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(partial.join("key"), "precious").unwrap();
        fs::write(partial.join("flows.parquet"), "precious").unwrap();
        assert!(refusal(&root).contains("`key` in it is no file of a run"));
        // Where others may write, also a folder with files of a run is another that has this name.
        fs::remove_file(partial.join("key")).unwrap();
        for mode in [0o775, 0o777, 0o1777] {
            fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refusal(&root).contains("others can write to the folder that it is in"));
        }
        assert_eq!(names(&partial), ["flows.parquet"]);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        drop(RunFolder::begin(&root).unwrap());
        assert_eq!(names(&root), [""; 0]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_run_removes_what_it_made_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("ontempo-only-{}", std::process::id()));
        let mut run = RunFolder::begin(&root).unwrap();
        run.create("a").unwrap();
        fs::write(root.join(PARTIAL).join("key"), "precious").unwrap();
        drop(run);
        assert_eq!(names(&root.join(PARTIAL)), ["key"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_run_that_cannot_be_kept_leaves_the_earlier_one_as_it_was() {
        let root = std::env::temp_dir().join(format!("ontempo-undone-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let run = |text: &str, names: &[&str]| {
            let mut run = RunFolder::begin(&root).unwrap();
            for name in names {
                run.create(name).unwrap().write_all(text.as_bytes()).unwrap();
            }
            run
        };
        run("first", &["a", "b"]).keep(Some("first")).unwrap();
        let is_first = || {
            for name in ["a", "b", MANIFEST] {
                assert_eq!(fs::read(root.join(name)).unwrap(), b"first", "{name}");
            }
        };
        fs::create_dir(root.join("c")).unwrap();
        let error = run("second", &["a", "c"]).keep(Some("second")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        is_first();
        assert_eq!(names(&root), ["a", "b", "c", MANIFEST]);
        // One that fails when others have been replaced: the file is gone.
        let failing = run("second", &["a", "b"]);
        let mut failing = failing;
        failing.files.push("gone".to_owned());
        let error = failing.place().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        is_first();
        drop(failing);
        assert_eq!(names(&root), ["a", "b", "c", MANIFEST]);
        // What cannot be undone is said, and not removed.
        let mut failing = run("second", &["a", "b"]);
        failing.files.push("gone".to_owned());
        let mut placed = 0;
        failing.replace_all(&mut placed).unwrap_err();
        assert_eq!(placed, 2);
        fs::remove_file(root.join("a")).unwrap();
        assert!(failing.undo(placed).is_err());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let root = std::env::temp_dir().join(format!("ontempo-modes-{}", std::process::id()));
        for text in ["first", "second"] {
            let mut run = RunFolder::begin(&root).unwrap();
            run.create("a").unwrap().write_all(text.as_bytes()).unwrap();
            run.keep(None).unwrap();
            assert_eq!(fs::read(root.join("a")).unwrap(), text.as_bytes());
            fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
            if text == "second" {
                let mut run = RunFolder::begin(&root).unwrap();
                run.create("a").unwrap();
                run.keep(None).unwrap();
                assert_eq!(
                    fs::metadata(root.join("a")).unwrap().permissions().mode() & 0o777,
                    0o600
                );
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn only_a_file_that_this_user_alone_has_written_names_files_of_an_earlier_run() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let root = std::env::temp_dir().join(format!("ontempo-earlier-{}", std::process::id()));
        let run = RunFolder::begin(&root).unwrap();
        let path = root.join(MANIFEST);
        fs::write(&path, "{}").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(run.read_earlier(MANIFEST).unwrap(), "{}");
        fs::hard_link(&path, root.join("other")).unwrap();
        assert!(run.read_earlier(MANIFEST).is_err(), "it may be a file from elsewhere");
        fs::remove_file(root.join("other")).unwrap();
        for mode in [0o664, 0o646] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(run.read_earlier(MANIFEST).is_err(), "others may have written it");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(MAX_MANIFEST + 1).unwrap();
        let error = run.read_earlier(MANIFEST).unwrap_err().to_string();
        assert_eq!(error, "it has 67108865 bytes, of at most 67108864");
        drop(run);
        if ontempo_testing::require_root() {
            // Nor does it remove the file of another user.
            fs::write(&path, "{}").unwrap();
            fs::write(root.join("old"), "of another").unwrap();
            chown(root.join("old"), Some(65_534), None).unwrap();
            chown(&path, Some(65_534), None).unwrap();
            let mut run = RunFolder::begin(&root).unwrap();
            assert!(run.read_earlier(MANIFEST).is_err());
            run.replaces(vec!["old".to_owned()]);
            run.keep(None).unwrap();
            assert_eq!(names(&root), ["old"]);
        }
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
