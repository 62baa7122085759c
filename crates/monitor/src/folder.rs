//! Folders that reports pass through, and the files in them.
//!
//! Other users write into some of these folders, and root reads all of them. So nothing is opened
//! by a path that another user could bend: a folder is opened once and its owner and rights are
//! checked on the descriptor; files are opened relative to it, no link is followed, and nothing
//! but a regular file is read.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

/// Permission to write for the group and for all others.
const OTHERS_MAY_WRITE: u32 = 0o022;
/// Only the owner of a file, or of the folder, may rename or remove it.
const STICKY: u32 = 0o1000;
/// The rights of a report: anybody may read it.
const REPORT_MODE: Mode = Mode::from_raw_mode(0o644);

/// A folder in which nobody but its owner and root can replace or remove another user's files.
#[derive(Debug)]
pub(crate) struct Folder {
    file: OwnedFd,
    path: PathBuf,
    /// User id of its owner.
    pub(crate) owner: u32,
    /// Every user may write into it, and it belongs to root or to this user.
    pub(crate) is_shared: bool,
}

/// User id of this process, which its new files get.
pub(crate) fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Folder {
    /// Opens the folder at `path`, which may be a link.
    ///
    /// # Errors
    /// If it cannot be opened, or other users may replace files in it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::opened(CWD, path.as_os_str(), path.to_owned(), OFlags::empty())
    }

    /// Opens a folder of this folder; a link is refused.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn child(&self, name: &str) -> io::Result<Self> {
        Self::opened(&self.file, name.as_ref(), self.path.join(name), OFlags::NOFOLLOW)
    }

    /// The same, created with these rights, whatever the umask, if it does not exist.
    ///
    /// # Errors
    /// As [`Self::open`]; or it cannot be created.
    pub(crate) fn make_child(&self, name: &str, mode: u32) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(mode);
        let made = match rustix::fs::mkdirat(&self.file, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(self.naming(name, error.into())),
        };
        let child = self.child(name)?;
        if made {
            child.set_mode(mode)?;
        }
        Ok(child)
    }

    /// Sets its rights.
    ///
    /// # Errors
    /// If it belongs to another user.
    pub(crate) fn set_mode(&self, mode: Mode) -> io::Result<()> {
        rustix::fs::fchmod(&self.file, mode).map_err(|error| naming(&self.path, error.into()))
    }

    fn opened(
        at: impl std::os::fd::AsFd,
        name: &OsStr,
        path: PathBuf,
        more: OFlags,
    ) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
        let file = rustix::fs::openat(at, name, flags, Mode::empty())
            .map_err(|error| naming(&path, error.into()))?;
        let about = rustix::fs::fstat(&file).map_err(|error| naming(&path, error.into()))?;
        let (owner, mode) = (about.st_uid, about.st_mode);
        let others_write = mode & OTHERS_MAY_WRITE != 0;
        if others_write && mode & STICKY == 0 {
            return Err(refused(format!(
                "{0}: other users may replace files in it; end that with: chmod go-w {0}",
                path.display()
            )));
        }
        let is_shared = others_write && (owner == 0 || owner == this_user());
        Ok(Self { file, path, owner, is_shared })
    }

    /// The device of its file system.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_dev)
    }

    /// This folder, if it belongs to `owner`.
    ///
    /// # Errors
    /// If it belongs to another user.
    pub(crate) fn of(self, owner: u32) -> io::Result<Self> {
        if self.owner == owner {
            return Ok(self);
        }
        let path = self.path.display();
        Err(refused(format!("{path}: belongs to user {}, not to user {owner}", self.owner)))
    }

    /// This folder, if it belongs to root or to this user, who may then write into it.
    ///
    /// # Errors
    /// If it belongs to another user.
    pub(crate) fn trusted(self) -> io::Result<Self> {
        if self.owner == 0 { Ok(self) } else { self.of(this_user()) }
    }

    /// Whether this user may write into it.
    pub(crate) fn is_writable(&self) -> bool {
        rustix::fs::accessat(&self.file, ".", rustix::fs::Access::WRITE_OK, AtFlags::empty())
            .is_ok()
    }

    /// The path of a file in it, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file beside `name`, and renames it: a reader finds all of it or what was there
    /// before. Whatever else has that name is replaced, not followed.
    ///
    /// # Errors
    /// If it cannot be written, or the name is taken by another user.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // Another user cannot take a name that he cannot guess.
        let beside = beside(name, RandomState::new().build_hasher().finish());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = |error: io::Error| self.naming(name, error);
        let file = rustix::fs::openat(&self.file, &beside, flags, REPORT_MODE)
            .map_err(|error| failed(error.into()))?;
        let written = File::from(file).write_all(bytes).and_then(|()| {
            rustix::fs::renameat(&self.file, &beside, &self.file, name).map_err(io::Error::from)
        });
        if written.is_err() {
            // The first error is reported.
            let _ = self.remove(&beside);
        }
        written.map_err(failed)
    }

    /// A regular file of at most `max` bytes, and the id of its owner; `None` if there is none.
    ///
    /// # Errors
    /// If it is no such file of one of the users that `may_own` says, or cannot be read.
    pub(crate) fn read(
        &self,
        name: &str,
        max: usize,
        may_own: impl Fn(u32) -> bool,
    ) -> Result<Option<Vec<u8>>, String> {
        // Not to wait for the writer of a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.file, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err("is a link, and not followed".to_owned()),
            file => File::from(file.map_err(|error| io::Error::from(error).to_string())?),
        };
        let about = file.metadata().map_err(|error| error.to_string())?;
        if !about.is_file() {
            return Err("is no regular file".to_owned());
        }
        if !may_own(about.uid()) {
            return Err(not_of(about.uid()));
        }
        let too_large = || format!("is larger than {max} bytes");
        let limit = max as u64;
        if about.len() > limit {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        // It may grow meanwhile.
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() > max { Err(too_large()) } else { Ok(Some(bytes)) }
    }

    /// Owner and length in bytes of what has this name; `None` if nothing has.
    pub(crate) fn about(&self, name: &str) -> Option<(u32, u64)> {
        let about = rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((about.st_uid, u64::try_from(about.st_size).ok()?))
    }

    /// The names of at most `max` entries.
    pub(crate) fn names(&self, max: usize) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.file) else { return Vec::new() };
        let names = entries.take(max).flatten();
        names.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned())).collect()
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    fn naming(&self, name: &str, error: io::Error) -> io::Error {
        naming(&self.path_of(name), error)
    }
}

/// Why a report of another user's is not read.
pub(crate) fn not_of(owner: u32) -> String {
    format!("belongs to user {owner}, who may not put it there")
}

/// The name of a file that is being written.
fn beside(name: &str, random: u64) -> String {
    format!(".{name}.{random:016x}")
}

/// The name whose file is being written at a name that [`Folder::replace`] made.
pub(crate) fn final_name(beside: &str) -> Option<&str> {
    let (name, random) = beside.strip_prefix('.')?.rsplit_once('.')?;
    let is_random = random.len() == 16 && random.bytes().all(|one| one.is_ascii_hexdigit());
    is_random.then_some(name)
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn naming(path: &Path, error: io::Error) -> io::Error {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        // What O_NOFOLLOW with O_DIRECTORY answers to a link.
        Some(Errno::LOOP | Errno::NOTDIR) => "is a link or no folder".to_owned(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::tests::folder;
    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_where_others_can_replace_files_is_refused_with_the_mend() {
        let path = folder("rights");
        for mode in [0o777, 0o775, 0o757] {
            set_mode(&path, mode);
            let error = Folder::open(&path).unwrap_err().to_string();
            assert!(error.ends_with(&format!("chmod go-w {}", path.display())), "{error}");
        }
        set_mode(&path, 0o1777);
        assert!(Folder::open(&path).unwrap().is_shared);
        set_mode(&path, 0o755);
        assert!(!Folder::open(&path).unwrap().trusted().unwrap().is_shared);
        let error = Folder::open(&path).unwrap().of(this_user() + 1).unwrap_err().to_string();
        assert!(error.contains("belongs to user"), "{error}");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn no_link_is_followed_and_nothing_but_a_file_is_read() {
        let path = folder("links");
        let victim = path.join("victim");
        fs::write(&victim, "kept").unwrap();
        let inner = path.join("inner");
        fs::create_dir(&inner).unwrap();
        symlink(&victim, inner.join("link")).unwrap();
        symlink(&inner, path.join("other")).unwrap();
        rustix::fs::mknodat(
            CWD,
            inner.join("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let outer = Folder::open(&path).unwrap();
        assert!(outer.child("other").unwrap_err().to_string().contains("is a link"));
        let opened = outer.child("inner").unwrap();
        let read = |name: &str| opened.read(name, 9, |_| true);
        assert_eq!(read("link"), Err("is a link, and not followed".to_owned()));
        assert_eq!(read("fifo"), Err("is no regular file".to_owned()));
        assert_eq!(read("nothing"), Ok(None));
        for name in ["link", "fifo"] {
            opened.replace(name, b"new").unwrap();
            assert_eq!(read(name), Ok(Some(b"new".to_vec())));
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(opened.names(10).len(), 2 + 2, "nothing is left beside: {:?}", opened.names(10));
        opened.replace("long", &[b' '; 10]).unwrap();
        assert_eq!(read("long"), Err("is larger than 9 bytes".to_owned()));
        assert!(opened.read("fifo", 9, |owner| owner != this_user()).is_err());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_name_beside_is_told_from_others() {
        assert_eq!(final_name(&beside("7.json", 0xab)), Some("7.json"));
        for other in ["7.json", ".7.json", ".7.json.xyz", "7.json.00000000000000ab"] {
            assert_eq!(final_name(other), None, "{other}");
        }
    }
}
