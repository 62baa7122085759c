//! Writing a file whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Names tried for the file beside.
const MAX_NAMES: usize = 100;

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
