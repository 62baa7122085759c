//! The run lock: a file that lists a run's namespaces, locked while their owner is alive.
//!
//! A namespace outlives the process that created it. Its name is therefore written to a file before
//! it is created. The owner holds an exclusive lock on the file, which the kernel releases however
//! the owner ends. A process that obtains the lock may remove the namespaces listed there, and
//! nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use ontempo_place::{check_system_folder, is_root_or_this_user, make_system_folder};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::EmulationError;
use crate::iproute;
use crate::namespace::inside;

/// The folder of run locks.
const FOLDER: &str = "/run/ontempo";

/// What the name of a run's control socket ends in; no run's name has a dot.
const CONTROL: &str = ".control";

/// How often, and how long apart, a lock is tried that another process has.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// How often a lock is tried while a dead run's namespaces are removed.
const REMOVAL_ATTEMPTS: u32 = 100;

/// How often the kernel retransmits for a TCP socket without an owner.
const ORPHAN_RETRIES: &str = "/proc/sys/net/ipv4/tcp_orphan_retries";

/// Prefix of the names of all our namespaces.
const PREFIX: &str = "ontempo-";

/// The lock of an active run.
#[derive(Debug)]
pub(crate) struct RunLock {
    run: String,
    path: PathBuf,
    file: File,
    /// The namespaces named in the file.
    namespaces: Vec<String>,
}

impl RunLock {
    /// Takes the lock of a new run called `run`.
    ///
    /// # Errors
    /// If a run of this name is active, or the file cannot be written.
    pub(crate) fn set(run: &str) -> Result<Self, EmulationError> {
        let folder = Path::new(FOLDER);
        let path = folder.join(run);
        let failed = |error: io::Error| EmulationError::system(&path.display(), &error);
        make_system_folder(folder).and_then(|_| check(folder)).map_err(failed)?;
        let Some(mut file) = lock(&path, open_or_make).map_err(failed)? else {
            let why = match is_active(run).map_err(failed)? {
                true => "is active; wait for its end, or choose",
                false => {
                    "was killed, and what it left is being removed; start again after that, or choose"
                }
            };
            return Err(EmulationError::Input(format!(
                "a run called `{run}` {why} another name with --name"
            )));
        };
        // A dead run's, which no other start has removed yet.
        let left = listed(&mut file).map_err(failed)?;
        if !remove(run, &left) {
            let why =
                format!("a run called `{run}` was killed, and what it left cannot be removed");
            return Err(EmulationError::System(why));
        }
        file.set_len(0).map_err(failed)?;
        Ok(Self { run: run.to_owned(), path, file, namespaces: Vec::new() })
    }

    /// The name of the run.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// The name of the namespace of `host`.
    pub(crate) fn name(&self, host: &str) -> String {
        namespace(&self.run, host)
    }

    /// Lists namespaces that are about to be created.
    pub(crate) fn note(&mut self, namespaces: &[String]) -> Result<(), EmulationError> {
        let text: String = namespaces.iter().map(|name| format!("{name}\n")).collect();
        let written = self.file.seek(io::SeekFrom::End(0)).and_then(|_| {
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()
        });
        written.map_err(|error| EmulationError::system(&self.path.display(), &error))?;
        self.namespaces.extend_from_slice(namespaces);
        Ok(())
    }

    /// Removes the namespaces and the file. If a namespace cannot be removed the file stays for the
    /// next start.
    pub(crate) fn clear(&mut self) {
        let all_removed = remove(&self.run, &self.namespaces);
        self.namespaces.clear();
        // Once it is removed, the name may be that of another run's.
        if all_removed && is_named(&self.file, &self.path).unwrap_or(false) {
            // If it stays, the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Opens a run's file, which is made if it is missing.
fn open_or_make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Whoever can open it can lock it: nobody but root may.
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Opens and locks the file at `path`, whose name then stays; `None` if another has the lock. A start
/// that removes leftovers has it meanwhile, and may remove the file between the two.
fn lock(path: &Path, open: impl Fn(&Path) -> io::Result<File>) -> io::Result<Option<File>> {
    let (mut attempt, mut attempts) = (0, LOCK_ATTEMPTS);
    while attempt < attempts {
        let file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_named(&file, path)? => return Ok(Some(file)),
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                if !has_owner(&file) {
                    attempts = REMOVAL_ATTEMPTS;
                }
                drop(file);
                sleep(LOCK_INTERVAL);
            }
            Err(error) => return Err(error.into()),
        }
        attempt += 1;
    }
    Ok(None)
}

/// Whether the run of this file is active. If not, the file has a shared lock from now on.
fn has_owner(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_err()
}

/// Whether `path` is the name of `file`, not that of another or of none.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether only this user and root can have put files into a folder: namespaces are removed because
/// of what is in it.
///
/// # Errors
/// If it is no folder, belongs to another user, or others may write into it.
fn check(folder: &Path) -> io::Result<()> {
    check_system_folder(folder, is_root_or_this_user).map_err(|error| {
        // What the system says of it has no need of a name.
        if error.raw_os_error().is_some() {
            return error;
        }
        io::Error::new(error.kind(), format!("{} {error}", folder.display()))
    })
}

/// The folder of sockets and locks, made if `make`, and checked.
///
/// # Errors
/// If there is none, or others than root may write into it.
fn folder(make: bool) -> io::Result<&'static Path> {
    let folder = Path::new(FOLDER);
    if make {
        make_system_folder(folder)?;
    }
    check(folder)?;
    Ok(folder)
}

/// The path of the control socket of the run called `run`; its folder is made if `make`.
///
/// # Errors
/// If the folder is not there, or others than root may write into it.
pub fn control_socket(run: &str, make: bool) -> io::Result<PathBuf> {
    Ok(folder(make)?.join(format!("{run}{CONTROL}")))
}

/// The names of the runs that have a control socket, in order; some may be dead.
///
/// # Errors
/// If the folder cannot be read, or others than root may write into it.
pub fn controlled_runs() -> io::Result<Vec<String>> {
    let entries = match folder(false).and_then(fs::read_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        runs.extend(name.to_str().and_then(|name| name.strip_suffix(CONTROL)).map(str::to_owned));
    }
    runs.sort();
    Ok(runs)
}

/// Whether the run called `run` is active.
///
/// # Errors
/// If the folder cannot be read, or others than root may write into it.
pub fn is_active(run: &str) -> io::Result<bool> {
    Ok(namespaces_of(run)?.is_some())
}

/// The namespaces of the run called `run`; `None` if no such run is active.
///
/// # Errors
/// As [`is_active`].
fn namespaces_of(run: &str) -> io::Result<Option<Vec<String>>> {
    let opened = folder(false).and_then(|folder| File::open(folder.join(run)));
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !has_owner(&file) {
        return Ok(None);
    }
    Ok(Some(listed(&mut file)?))
}

/// The namespaces that a run's file lists.
fn listed(file: &mut File) -> io::Result<Vec<String>> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A host of an active run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// Its name, with `_` for what a file name should not hold.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl Hosted {
    /// Whether it is the host called `name` in the run called `run`.
    pub fn is_called(&self, run: &str, name: &str) -> bool {
        self.name == name || self.namespace == namespace(run, name)
    }
}

/// The hosts of the run called `run`; `None` if no such run is active.
///
/// # Errors
/// As [`is_active`].
pub fn hosts_of(run: &str) -> io::Result<Option<Vec<Hosted>>> {
    let prefix = format!("{PREFIX}{run}-");
    let hosted = |namespace: String| {
        let name = namespace.strip_prefix(&prefix)?.to_owned();
        Some(Hosted { name, namespace })
    };
    let namespaces = namespaces_of(run)?;
    Ok(namespaces.map(|namespaces| namespaces.into_iter().filter_map(hosted).collect()))
}

/// The name of the namespace of `host` in the run called `run`.
fn namespace(run: &str, host: &str) -> String {
    // Only characters that a file name may contain and a shell need not quote.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let host: String =
        host.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    format!("{PREFIX}{run}-{host}")
}

/// Removes the namespaces of runs whose owner is dead and returns their names.
///
/// # Errors
/// If the run locks cannot be read.
pub fn remove_leftovers() -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    check(Path::new(FOLDER))?;
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        // A folder belongs to another program.
        if !entry.file_type()?.is_file() {
            continue;
        }
        let Some(run) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // It may have been removed meanwhile by its owner, or by another start.
        let Ok(mut file) = File::open(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // Its owner has ended since, and the name may be that of an active run.
        if !is_named(&file, &path)? {
            continue;
        }
        // Between the two locks a start may take it.
        if has_owner(&file) {
            continue;
        }
        let namespaces = listed(&mut file)?;
        if remove(run, &namespaces) {
            removed.extend(namespaces);
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(path.with_file_name(format!("{run}{CONTROL}")));
        }
    }
    Ok(removed)
}

/// Removes those of `namespaces` that belong to `run` and exist, with the processes in them. True
/// if none is left.
fn remove(run: &str, namespaces: &[String]) -> bool {
    let prefix = format!("{PREFIX}{run}-");
    let mut all_removed = true;
    for name in namespaces.iter().filter(|name| name.starts_with(&prefix)) {
        if !iproute::path(name).exists() {
            continue;
        }
        if let Err(error) = iproute::end_processes(name) {
            eprintln!("ontempo: cannot end the processes in the namespace {name}: {error}");
        }
        // Connections that programs left unfinished give up at once: each keeps the namespace.
        let _ = inside(name, || fs::write(ORPHAN_RETRIES, "1"));
        if let Err(error) = iproute::run(&["netns", "delete", name]) {
            all_removed = false;
            eprintln!(
                "ontempo: cannot remove the namespace {name}: {error}; the next start tries again"
            );
        }
    }
    all_removed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_into_which_others_may_write_is_not_believed() {
        let folder = std::env::temp_dir().join(format!("ontempo-locks-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let with_mode = |mode: u32| {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            check(&folder).is_ok()
        };
        let believed = [0o755, 0o700, 0o777, 0o1777, 0o775].map(with_mode);
        assert_eq!(believed, [true, true, false, false, false]);
        let said = check(&folder).unwrap_err().to_string();
        assert!(said.ends_with(&format!("chmod go-w {}", folder.display())), "{said}");
        assert!(with_mode(0o755));
        let link = folder.join("link");
        symlink(&folder, &link).unwrap();
        assert!(check(&link).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lock_is_that_of_the_file_which_has_the_name() {
        let path = std::env::temp_dir().join(format!("ontempo-lock-{}", std::process::id()));
        let opened = std::cell::Cell::new(0);
        // Another start takes the file for a leftover, between its opening and its locking.
        let removed_twice = |path: &Path| {
            let file = open_or_make(path)?;
            opened.set(opened.get() + 1);
            if opened.get() <= 2 {
                fs::remove_file(path)?;
            }
            Ok(file)
        };
        let one = lock(&path, removed_twice).unwrap().expect("nobody has it");
        assert_eq!(opened.get(), 3);
        assert!(is_named(&one, &path).unwrap());
        assert!(lock(&path, open_or_make).unwrap().is_none(), "two have the lock");
        drop(one);
        // Who removes its file twice does not remove that of the next run of its name.
        let file = lock(&path, open_or_make).unwrap().expect("nobody has it");
        let namespaces = Vec::new();
        let mut ended = RunLock { run: "ended".to_owned(), path: path.clone(), file, namespaces };
        ended.clear();
        let next = lock(&path, open_or_make).unwrap().expect("nobody has it");
        drop(ended);
        assert!(is_named(&next, &path).unwrap(), "the next run's file is gone");
        fs::remove_file(path).unwrap();
    }
}
