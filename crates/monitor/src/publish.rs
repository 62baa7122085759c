//! Publishes a process's report to the host's collectors.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ProcessReport;

/// The folder of a host, for processes that may write to it.
pub const HOST_FOLDER: &str = "/run/ontempo/qos";

/// Environment variable that overrides the folder for processes and collectors.
pub const FOLDER_VARIABLE: &str = "ONTEMPO_QOS_FOLDER";

fn configured_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from)
}

/// The folder of a process's report: [`FOLDER_VARIABLE`] if set, else the host's folder if it
/// exists
/// and is writable (`ontempo export` creates it), else one of the user's own.
pub fn folder_to_publish() -> Option<PathBuf> {
    if let Some(configured) = configured_folder() {
        return Some(configured);
    }
    let host = PathBuf::from(HOST_FOLDER);
    if rustix::fs::access(&host, rustix::fs::Access::WRITE_OK).is_ok() {
        return Some(host);
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?.join("ontempo/qos");
    fs::create_dir_all(&own).ok()?;
    Some(own)
}

/// The folders of a collector: [`FOLDER_VARIABLE`] if set, else the host's folder and those of the
/// users that it can read.
pub fn folders_to_collect() -> Vec<PathBuf> {
    if let Some(configured) = configured_folder() {
        return vec![configured];
    }
    let mut folders = vec![PathBuf::from(HOST_FOLDER)];
    let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
    let mut of_users: Vec<_> = users.map(|user| user.path().join("ontempo/qos")).collect();
    of_users.sort();
    folders.extend(of_users);
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Publishes the reports of this process; the last one is removed on drop.
#[derive(Debug)]
pub struct Publisher {
    path: PathBuf,
    being_written: PathBuf,
}

impl Publisher {
    /// A publisher to `folder`.
    pub fn new(folder: &Path) -> Self {
        let process = std::process::id();
        Self {
            path: folder.join(format!("{process}.json")),
            being_written: folder.join(format!(".{process}.json")),
        }
    }

    /// Replaces the report atomically.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn publish(&self, report: &ProcessReport) -> io::Result<()> {
        fs::write(&self.being_written, serde_json::to_vec(report)?)?;
        fs::rename(&self.being_written, &self.path)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // A collector removes what is left behind, because the process has ended.
        let _ = fs::remove_file(&self.path);
    }
}
