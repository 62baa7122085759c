//! The lock of the daemon: one for each network namespace.
//!
//! It is a locked file in a folder into which nobody but root may write. The kernel releases the
//! lock however the daemon ends. An abstract socket name would not do: any user can bind it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ontempo_place::{check_system_folder, is_root_or_this_user, make_system_folder};
use rustix::fs::{FlockOperation, flock};

use super::neighbours_file::EXTENSION;
use crate::error::DaemonError;

/// The folder of the lock: the daemon's alone, since a service manager gives it to the daemon's user and removes it
/// at the end. `/run/ontempo` is root's: emulations and metrics go by it.
pub(super) const FOLDER: &str = "/run/ontempo-rsvpd";
/// The network namespace of this process; its inode is the number of the namespace.
const NAMESPACE: &str = "/proc/self/ns/net";
/// The name of a lock, before the number of its namespace.
pub(super) const PREFIX: &str = "rsvpd-";
/// Attempts, and the pause between two, where another daemon that starts sweeps the file, or the one before removes it
/// between opening and locking.
const MAX_ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Held while the daemon runs.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock of this network namespace.
    ///
    /// # Errors
    /// Where another daemon has it, or others may write into the folder.
    pub(super) fn take(folder: &Path) -> Result<Self, DaemonError> {
        let failed = |error: io::Error| DaemonError::system(&folder.display().to_string(), &error);
        make_system_folder(folder).map_err(failed)?;
        check_system_folder(folder, is_root_or_this_user).map_err(|error| {
            failed(io::Error::new(
                error.kind(),
                format!("{error}; a service has one of its own while it runs: systemctl stop ontempo-rsvpd"),
            ))
        })?;
        let namespace = fs::metadata(NAMESPACE).map_err(failed)?.ino();
        let path = folder.join(format!("{PREFIX}{namespace}"));
        for _ in 0..MAX_ATTEMPTS {
            if let Some(lock) = Self::try_at(&path).map_err(failed)? {
                return Ok(lock);
            }
            // One that sweeps has it for a moment.
            thread::sleep(PAUSE);
        }
        Err(DaemonError::System(
            "another ontempo rsvpd runs on this host; one has to do for all interfaces".to_owned(),
        ))
    }

    /// The lock at this path, unless another has it or removes it just now.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn try_at(path: &Path) -> io::Result<Option<Self>> {
        // Whoever can open it can lock it: nobody but root may.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // The daemon before may have removed the file after it was opened here.
        let locked = file.metadata()?.ino();
        let is_there = fs::symlink_metadata(path).is_ok_and(|there| there.ino() == locked);
        Ok(is_there.then(|| Self { path: path.to_owned(), _file: file }))
    }
}

impl Lock {
    /// The file with the neighbours of the daemon of this namespace, of use after a restart.
    pub(super) fn neighbours(&self) -> PathBuf {
        self.path.with_extension(EXTENSION)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked: no other daemon can have it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn an_abstract_name_bound_by_another_user_keeps_no_daemon_out_but_a_daemon_does() {
        let folder = std::env::temp_dir().join(format!("ontempo-rsvpd-{}", std::process::id()));
        // The test of a daemon on this host may have it.
        let name = SocketAddr::from_abstract_name(b"ontempo-rsvpd").unwrap();
        let _bound = UnixListener::bind_addr(&name);
        let first = Lock::take(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o755, "whatever the umask");
        let mode = fs::metadata(&first.path).unwrap().mode();
        assert_eq!(mode & 0o077, 0, "others can lock it");
        assert!(Lock::take(&folder).unwrap_err().to_string().contains("another ontempo rsvpd"));
        drop(first);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        drop(Lock::take(&folder).unwrap());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Lock::take(&folder).is_err(), "anybody may replace files there");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_service_gets_this_folder_and_not_the_one_that_root_alone_writes_into() {
        let packaging = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
        let read = |name: &str| fs::read_to_string(packaging.join(name)).unwrap();
        let unit = read("systemd/ontempo-rsvpd.service");
        let folder = unit.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).unwrap();
        assert_eq!(format!("/run/{folder}"), FOLDER);
        assert!(
            unit.contains(&format!("/bin/ln -sfn {folder}/rsvp.sock ")),
            "its link leads there"
        );
        assert!(read("systemd/rsvpd.toml").contains(&format!("socket = \"{FOLDER}/rsvp.sock\"")));
        assert!(read("debian/postrm").contains(&format!("rm -rf {FOLDER}\n")));
    }
}
