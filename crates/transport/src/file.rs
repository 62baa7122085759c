//! Writing a file whole, and reading one that others could have made.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Names tried for the file beside.
const MAX_NAMES: usize = 100;

/// Mode bits of a file that its group or others may write.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Why the file at `path` cannot hold a secret of this user: another user owns it or may write it,
/// and so chooses the secret. `None` if it can. What is below `/dev` is root's, or what the user
/// has opened for this process.
pub fn distrusted(path: &Path, about: &Metadata) -> Option<String> {
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

/// The content of a file that no other user can have made or changed.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with the sentence of [`distrusted`]; those of the system.
pub(crate) fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if let Some(sentence) = distrusted(path, &file.metadata()?) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, sentence));
    }
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
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let (mut file, beside) = create_beside(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    drop(file);
    // Unlike a rename, a link never replaces a file that another process has made meanwhile.
    let placed = written.and_then(|()| match fs::hard_link(&beside, path) {
        // A file system without links, such as FAT.
        Err(error) if !matches!(error.kind(), ErrorKind::AlreadyExists) => {
            if path.try_exists()? {
                return Err(ErrorKind::AlreadyExists.into());
            }
            fs::rename(&beside, path)
        }
        placed => placed,
    });
    // After a rename it is gone.
    let _ = fs::remove_file(&beside);
    placed?;
    // The entry of the directory, too; not every file system can.
    let _ = File::open(directory(path)).and_then(|directory| directory.sync_all());
    Ok(())
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file in the directory of `path`. It follows no link that another user may have put there.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?.to_string_lossy();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut number = 0;
    loop {
        let beside = format!(".{name}.{}-{number}", std::process::id());
        let beside = directory(path).join(beside);
        match options.open(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_NAMES => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}
