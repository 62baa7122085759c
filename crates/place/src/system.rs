//! Folders of the system in which root's programs keep what they go by.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::user::OTHERS_MAY_WRITE;

/// The rights of a folder that is made: others reach the sockets in it that are theirs.
const MODE: u32 = 0o755;

/// Makes a folder into which nobody else may write, whatever the umask: of a wide one, [`check_system_folder`]
/// would refuse it from then on, and a narrow one would keep out the user who called sudo(8). False if it existed.
///
/// # Errors
/// Those of the system.
pub fn make_system_folder(folder: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(MODE).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        made => {
            made?;
            fs::set_permissions(folder, Permissions::from_mode(MODE))?;
            Ok(true)
        }
    }
}

/// Whether only these owners can have put files into a folder, or named it; a link is none.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with what it must be, without its name, if it is no folder, belongs to another
/// user, or others may write into it; those of the system.
pub fn check_system_folder(folder: &Path, is_owner: impl Fn(u32) -> bool) -> io::Result<()> {
    let about = fs::symlink_metadata(folder)?;
    let is_own = about.is_dir() && is_owner(about.uid());
    if is_own && about.mode() & OTHERS_MAY_WRITE == 0 {
        return Ok(());
    }
    let end = match is_own {
        true => format!("; end that with: chmod go-w {}", folder.display()),
        false => String::new(),
    };
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!("must be a folder of root's into which nobody else may write{end}"),
    ))
}

/// True for root and for this process's user.
pub fn is_root_or_this_user(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}
