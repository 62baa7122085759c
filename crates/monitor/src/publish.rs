//! Publishes a process's report to the host's collectors.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::mount::{MountFlags, mount};

use super::document::Kind;
use super::folder::{Folder, final_name, this_user};
use super::{Orders, ProcessReport, SocketReport, at_exit, process};

/// The folder of a host, for processes that may write to it.
pub const HOST_FOLDER: &str = "/run/ontempo/qos";

/// Environment variable that overrides the folder for processes and collectors.
pub const FOLDER_VARIABLE: &str = "ONTEMPO_QOS_FOLDER";

/// Below each user's runtime folder.
const IN_RUNTIME: [&str; 2] = ["ontempo", "qos"];

/// The parent of the users' runtime folders, each named after the user's id.
const RUNTIME_FOLDERS: &str = "/run/user";

/// Maximum entries of a folder that are looked through for what this user's processes left.
const MAX_SWEPT: usize = 4_096;

fn configured_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from)
}

/// A folder of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportFolder {
    /// At this path.
    At(PathBuf),
    /// Below a user's runtime folder, in which everything belongs to that user.
    OfUser {
        /// The runtime folder.
        runtime: PathBuf,
        /// The user's id.
        user: u32,
    },
}

impl ReportFolder {
    /// The folder of this process's report: [`FOLDER_VARIABLE`] if set, else the host's folder if
    /// it exists and is writable (`ontempo export` creates it), else one of the user's own.
    pub fn to_publish() -> Option<Self> {
        if let Some(configured) = configured_folder() {
            return Some(Self::At(configured));
        }
        let host = Folder::open(Path::new(HOST_FOLDER)).and_then(Folder::trusted);
        if host.is_ok_and(|host| host.is_writable()) {
            return Some(Self::At(HOST_FOLDER.into()));
        }
        Self::of_this_user()
    }

    /// The folder below this user's runtime folder; `None` without one.
    fn of_this_user() -> Option<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?;
        Some(Self::OfUser { runtime, user: this_user() })
    }

    /// The folders of a collector: [`FOLDER_VARIABLE`] if set, else the host's folder and those of
    /// the users that it can read.
    pub fn to_collect() -> Vec<Self> {
        if let Some(configured) = configured_folder() {
            return vec![Self::At(configured)];
        }
        let mut folders = vec![Self::At(HOST_FOLDER.into())];
        let users = std::fs::read_dir(RUNTIME_FOLDERS).into_iter().flatten().flatten();
        let mut users: Vec<u32> =
            users.filter_map(|user| user.file_name().to_str()?.parse().ok()).collect();
        users.sort_unstable();
        folders.extend(users.into_iter().map(|user| {
            let runtime = Path::new(RUNTIME_FOLDERS).join(user.to_string());
            Self::OfUser { runtime, user }
        }));
        folders
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::At(path) => path.clone(),
            Self::OfUser { runtime, .. } => runtime.join(IN_RUNTIME.join("/")),
        }
    }

    /// Opens it to read reports; `None` if it does not exist, or this user has no access to that
    /// user's folder.
    pub(crate) fn open(&self) -> io::Result<Option<Folder>> {
        let opened = match self {
            Self::At(path) => Folder::open(path),
            Self::OfUser { runtime, user } => {
                let mut folder = Folder::open(runtime).and_then(|runtime| runtime.of(*user));
                for name in IN_RUNTIME {
                    folder = folder.and_then(|outer| outer.child(name)?.of(*user));
                }
                folder
            }
        };
        let is_absent = |error: &io::Error| match error.kind() {
            io::ErrorKind::NotFound => true,
            // The kernel's answer has no text of ours.
            io::ErrorKind::PermissionDenied => {
                matches!(self, Self::OfUser { user, .. } if *user != this_user() && this_user() != 0)
            }
            _ => false,
        };
        match opened {
            Err(error) if is_absent(&error) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens it to write this process's report.
    fn open_to_write(&self) -> io::Result<Folder> {
        match self {
            Self::At(path) => Folder::open(path)?.trusted(),
            Self::OfUser { runtime, user } => {
                let mut folder = Folder::open(runtime)?.of(*user)?;
                for name in IN_RUNTIME {
                    folder = folder.make_child(name, 0o700)?.of(*user)?;
                }
                Ok(folder)
            }
        }
    }
}

/// What all users may write into [`HOST_FOLDER`] at most: all reports that are read, and files that
/// are being written.
const HOST_FOLDER_LIMITS: &CStr = c"mode=1777,size=64m,nr_inodes=8192";

/// Who may write into [`HOST_FOLDER`].
#[derive(Debug)]
pub enum HostFolder {
    /// All users.
    Shared,
    /// Root alone: the system gave it no file system of its own, for this reason.
    OfRoot(io::Error),
}

/// Creates the host's folder, where all users may write, and remove their own files (sticky bit). It
/// is a file system of its own, of 64 MiB in memory, so that nobody can fill `/run` there; where that
/// cannot be mounted, only root may write.
///
/// # Errors
/// If this is not root, or the folder belongs to another user.
pub fn make_host_folder() -> io::Result<HostFolder> {
    let path = Path::new(HOST_FOLDER);
    let names = path.strip_prefix("/run").unwrap_or(path);
    let mut folder = Folder::open(Path::new("/run"))?.trusted()?;
    let mut is_mounted = false;
    for name in names.iter().filter_map(|name| name.to_str()) {
        let child = folder.make_child(name, 0o755)?.trusted()?;
        is_mounted = child.device()? != folder.device()?;
        folder = child;
    }
    if !is_mounted {
        // Where it is only a folder, nobody else may write.
        folder.set_mode(Mode::from_raw_mode(0o755))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        // No other user can have replaced a folder in one of root's.
        if let Err(error) = mount(c"ontempo", path, c"tmpfs", flags, HOST_FOLDER_LIMITS) {
            return Ok(HostFolder::OfRoot(error.into()));
        }
    }
    Folder::open(path)?.trusted()?.set_mode(Mode::from_raw_mode(0o1777))?;
    Ok(HostFolder::Shared)
}

/// Where this process has published, and whether it has ended.
struct Published {
    places: Vec<Place>,
    has_ended: bool,
}

/// A document of this process's in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) process: u32,
    pub(crate) folder: ReportFolder,
    pub(crate) kind: Kind,
}

static PUBLISHED: Mutex<Published> = Mutex::new(Published { places: Vec::new(), has_ended: false });

fn published() -> MutexGuard<'static, Published> {
    // No code panics while it holds the lock.
    PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what this process has published: no thread removes it when `main` returns.
pub(crate) fn on_exit() {
    for _ in 0..100 {
        let mut published = match PUBLISHED.try_lock() {
            Ok(published) => published,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is writing.
            Err(TryLockError::WouldBlock) => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        published.has_ended = true;
        for place in std::mem::take(&mut published.places) {
            remove_own(&place);
        }
        return;
    }
}

/// Removes the document that this process has written.
fn remove_own(place: &Place) {
    let process = place.process;
    // A child made by fork() has the list, but the document is its parent's.
    if process != std::process::id() {
        return;
    }
    let Ok(folder) = place.folder.open_to_write() else { return };
    remove_if(&folder, process, place.kind, |started| Some(started) == process::started(process));
}

/// Removes a document of this user's if `is_over` says so of its process's start.
fn remove_if(folder: &Folder, process: u32, kind: Kind, is_over: impl Fn(u64) -> bool) {
    let name = kind.name_of(process);
    if let Ok(Some(bytes)) = folder.read(&name, kind.max_len(), |owner| owner == this_user())
        && kind.started_in(&bytes, process).is_ok_and(is_over)
    {
        // If it stays, no collector takes it for that of another process.
        let _ = folder.remove(&name);
    }
}

/// Removes what ended processes of this user have left in a folder.
fn sweep(folder: &Folder) {
    for name in folder.names(MAX_SWEPT) {
        if let Some((process, kind)) = Kind::of_name(&name) {
            let is_over = |started| process::started(process) != Some(started);
            remove_if(folder, process, kind, is_over);
        } else if let Some((process, kind)) = final_name(&name).and_then(Kind::of_name)
            && process::started(process).is_none()
            && folder.read(&name, kind.max_len(), |owner| owner == this_user()).is_ok()
        {
            // As above.
            let _ = folder.remove(&name);
        }
    }
}

/// Writes the documents of one kind of this process. The last one is removed on drop, and when the
/// process ends normally.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) place: Place,
    /// As in its documents.
    pub(crate) started: u64,
    has_swept: bool,
}

impl Writer {
    pub(crate) fn new(folder: ReportFolder, kind: Kind) -> Self {
        let process = std::process::id();
        // Without `/proc` there is no collector, either.
        let started = process::started(process).unwrap_or(0);
        Self { place: Place { process, folder, kind }, started, has_swept: false }
    }

    /// Replaces the document atomically.
    ///
    /// # Errors
    /// If the folder cannot be written to, belongs neither to this user nor to root, or lets other
    /// users replace files.
    pub(crate) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut published = published();
        if published.has_ended {
            return Ok(());
        }
        at_exit::register();
        if let Err(error) = self.write(bytes) {
            // Another user has taken the name in the folder of all users.
            let own = ReportFolder::of_this_user();
            let own = own.filter(|_| self.place.folder == ReportFolder::At(HOST_FOLDER.into()));
            let Some(own) = own else { return Err(error) };
            self.place.folder = own;
            self.write(bytes)?;
        }
        if !published.places.contains(&self.place) {
            published.places.push(self.place.clone());
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let folder = self.place.folder.open_to_write()?;
        if !std::mem::replace(&mut self.has_swept, true) {
            sweep(&folder);
        }
        folder.replace(&self.place.kind.name_of(self.place.process), bytes)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut published = published();
        published.places.retain(|own| *own != self.place);
        remove_own(&self.place);
    }
}

/// Publishes the reports of this process's sockets. The last one is removed on drop, and when the
/// process ends normally.
#[derive(Debug)]
pub struct Publisher(Writer);

impl Publisher {
    /// A publisher to `folder`.
    pub fn new(folder: ReportFolder) -> Self {
        Self(Writer::new(folder, Kind::Sockets))
    }

    /// Replaces the report atomically. Sockets beyond [`MAX_SOCKETS`](super::MAX_SOCKETS) are left
    /// out.
    ///
    /// # Errors
    /// If the folder cannot be written to, belongs neither to this user nor to root, or lets other
    /// users replace files.
    pub fn publish(&mut self, sockets: Vec<SocketReport>) -> io::Result<()> {
        let report = ProcessReport::bounded(self.0.place.process, self.0.started, sockets);
        self.0.replace(&serde_json::to_vec(&report)?)
    }

    /// What an operator asks of this process's sockets now.
    pub fn orders(&self) -> Option<Orders> {
        let folder = self.0.place.folder.open().ok()??;
        Orders::take(&folder, self.0.place.process, self.0.started)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::super::tests::{folder, socket};
    use super::*;

    /// One more than the largest process id of Linux.
    const NOBODY: u32 = 4_194_305;

    fn report(process: u32, started: u64) -> String {
        serde_json::to_string(&ProcessReport::bounded(process, started, vec![socket(1)])).unwrap()
    }

    #[test]
    fn only_what_an_ended_process_of_this_user_left_is_removed() {
        let path = folder("left");
        let own = std::process::id();
        let alive = process::started(1).unwrap();
        for (name, text, stays) in [
            (format!("{NOBODY}.json"), report(NOBODY, 5), false),
            (format!(".{NOBODY}.json.0123456789abcdef"), "{".to_owned(), false),
            // Another process has got the number since.
            ("1.json".to_owned(), report(1, alive + 1), false),
            (format!("{}.json", NOBODY + 1), report(NOBODY, 5), true),
            (format!("{}.json", NOBODY + 2), "{}".to_owned(), true),
            (format!("0{NOBODY}.json"), report(NOBODY, 5), true),
            (".1.json.0123456789abcdef".to_owned(), report(1, alive), true),
            ("notes.json".to_owned(), "[]".to_owned(), true),
        ] {
            fs::write(path.join(&name), text).unwrap();
            let mut publisher = Publisher::new(ReportFolder::At(path.clone()));
            publisher.publish(vec![]).unwrap();
            assert!(path.join(format!("{own}.json")).exists());
            assert_eq!(path.join(&name).exists(), stays, "{name}");
            drop(publisher);
            assert!(!path.join(format!("{own}.json")).exists());
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_users_own_folder_is_made_for_that_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let path = folder("runtime");
        let own = ReportFolder::OfUser { runtime: path.clone(), user: this_user() };
        let mut publisher = Publisher::new(own.clone());
        publisher.publish(vec![]).unwrap();
        for name in ["ontempo", "ontempo/qos"] {
            let mode = fs::metadata(path.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{name}");
        }
        let other = ReportFolder::OfUser { runtime: path.clone(), user: this_user() + 1 };
        let error = Publisher::new(other).publish(vec![]).unwrap_err().to_string();
        assert!(error.contains("belongs to user"), "{error}");
        drop(publisher);
        fs::remove_dir_all(path).unwrap();
    }

    /// Publishes and ends without dropping the publisher; run by the test below in a process of
    /// its own.
    #[test]
    fn a_child_that_publishes() {
        let Some(folder) = std::env::var_os("ONTEMPO_MONITOR_CHILD") else { return };
        let mut publisher = Publisher::new(ReportFolder::At(folder.clone().into()));
        publisher.publish(vec![socket(1)]).unwrap();
        let path = Path::new(&folder).join(Kind::Sockets.name_of(std::process::id()));
        fs::copy(path, Path::new(&folder).join("seen")).unwrap();
        std::mem::forget(publisher);
        std::process::exit(0);
    }

    #[test]
    fn a_report_is_removed_when_its_process_ends_normally() {
        let path = folder("exit");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "publish::tests::a_child_that_publishes"]);
        let output = child.env("ONTEMPO_MONITOR_CHILD", &path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["seen"]);
        fs::remove_dir_all(path).unwrap();
    }
}
