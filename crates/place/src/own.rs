//! Writing a file whole, and reading one that others could have made.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, linkat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::beside::create_beside;
use crate::output::Output;

/// Mode bits of a file that its group or others may write.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Why the file at `path` cannot hold a secret of this user: another user owns it or may write it,
/// and so chooses the secret. `None` if it can. What is below `/dev` is root's, or what the user
/// has opened for this process.
fn distrusted(path: &Path, about: &Metadata) -> Option<String> {
    let (owner, user) = (about.uid(), rustix::process::geteuid().as_raw());
    if path.starts_with("/dev") {
        return None;
    }
    if owner != 0 && owner != user {
        return Some(format!("user {owner} owns it: it must belong to user {user} or to root"));
    }
    let mode = about.mode() & 0o777;
    (mode & OTHERS_MAY_WRITE != 0)
        .then(|| format!("other users may write it (mode {mode:o}): chmod go-w {}", path.display()))
}

/// Opens a file for reading that no other user can have made or changed. It is checked before it is
/// opened, too: nobody may write into the named pipe of another user, which would be waited for.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with a sentence, if it belongs to another user; those of the system.
pub fn open_own(path: &Path) -> io::Result<File> {
    let check = |about: io::Result<Metadata>| match distrusted(path, &about?) {
        Some(sentence) => Err(io::Error::new(ErrorKind::PermissionDenied, sentence)),
        None => Ok(()),
    };
    check(fs::metadata(path))?;
    let file = File::open(path)?;
    check(file.metadata())?;
    Ok(file)
}

/// The content of a file that no other user can have made or changed.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with a sentence, if it belongs to another user or others may write it; those of the system.
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open_own(path)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Writes a new file at `path`, readable by the owner only, whole or not at all: beside it first,
/// so that neither a full disk nor a power failure leaves a part of it.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if there is a file at `path`, which is left as it is; those of the
/// system.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let place = Output::at(path, true)?;
    let (folder, name) = place.parts();
    let (mut file, beside) = create_beside(folder, name, 0o600)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    drop(file);
    let beside = beside.as_str();
    // Unlike a rename, a link never replaces a file that another process has made meanwhile.
    let placed =
        written.and_then(|()| match linkat(folder, beside, folder, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(ErrorKind::AlreadyExists.into()),
            // A file system without links, such as FAT.
            Err(_) => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(ErrorKind::AlreadyExists.into()),
                Err(Errno::NOENT) => Ok(renameat(folder, beside, folder, name)?),
                Err(error) => Err(error.into()),
            },
        });
    // After a rename it is gone.
    let _ = unlinkat(folder, beside, AtFlags::empty());
    placed?;
    // The entry of the folder, too; not every file system can.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let _ = openat(folder, ".", flags, Mode::empty()).map(|folder| fsync(&folder));
    Ok(())
}
