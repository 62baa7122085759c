//! Writing a file whole, and reading one that others could have made.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fsync, linkat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::acl::stranger;
use crate::beside::create_beside;
use crate::output::Output;
use crate::user::{OTHERS_MAY_WRITE, is_trusted};

/// Maximum size of a secret, and of a chain of certificates.
const MAX_OWN: usize = 1 << 20;

/// How long a writer is waited for, before the user is asked.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Why a file cannot hold a secret of this user: another user owns it or may write it, and so chooses the
/// secret, or has access to it (`refused`). `None` if it can.
fn distrusted(path: &Path, about: &Stat, refused: u32) -> Option<String> {
    let (owner, mode) = (about.st_uid, about.st_mode & 0o777);
    if !is_trusted(owner) {
        let user = rustix::process::geteuid().as_raw();
        return Some(format!("user {owner} owns it: it must belong to user {user} or to root"));
    }
    let kind = FileType::from_raw_mode(about.st_mode);
    if kind == FileType::CharacterDevice && owner == 0 {
        // Such as `/dev/tty`: what comes of it is the system's.
        return None;
    }
    let path = path.display();
    if mode & OTHERS_MAY_WRITE != 0 {
        return Some(format!("other users may write it (mode {mode:o}): chmod go-w {path}"));
    }
    (mode & refused != 0)
        .then(|| format!("other users have access to it (mode {mode:o}): chmod 600 {path}"))
}

/// The same of its ACL: what is refused to all others is refused to those whom that names.
fn named_by_acl(path: &Path, file: &File, group: u32, refused: u32) -> io::Result<Option<String>> {
    let rights = refused & 0o007;
    if rights == 0 {
        return Ok(None);
    }
    let stranger = stranger(file, group, rights)?;
    Ok(stranger.map(|who| {
        format!("its ACL gives {who} access to it: setfacl -x {who} {}", path.display())
    }))
}

/// The content of a file that no other user can have made or changed, nor put there, and that has none of the
/// mode bits `refused`, nor an ACL that gives other users or groups what these refuse to all. What the user has opened for this process (`/dev/stdin`, `/dev/fd/3`) may be
/// anybody's. The writer of a named pipe is waited for until `is_stopped`.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with a sentence, if it belongs to another user or others may write it;
/// [`ErrorKind::Interrupted`] if stopped; those of the system.
pub fn read_own(path: &Path, refused: u32, is_stopped: impl Fn() -> bool) -> io::Result<Vec<u8>> {
    let place = Output::at(path, true)?;
    let mut file = place.open_to_read()?;
    if !place.is_of_process() {
        let about = rustix::fs::fstat(&file)?;
        let sentence = match distrusted(path, &about, refused) {
            None => named_by_acl(path, &file, about.st_gid, refused)?,
            distrusted => distrusted,
        };
        if let Some(sentence) = sentence {
            return Err(io::Error::new(ErrorKind::PermissionDenied, sentence));
        }
    }
    read_unless(&mut file, is_stopped)
}

/// Mode bits of access to a file by its group and others.
const OTHERS: u32 = 0o077;

/// The token in a file that no other user can read or have made, without the ending of its line; `None` if the
/// file does not hold one line. The writer of a named pipe is waited for until `is_stopped`.
///
/// # Errors
/// As [`read_own`].
pub fn read_token(path: &Path, is_stopped: impl Fn() -> bool) -> io::Result<Option<String>> {
    let text = String::from_utf8(read_own(path, OTHERS, is_stopped)?).unwrap_or_default();
    let text = text.trim_end_matches(['\r', '\n']);
    Ok((!text.is_empty() && !text.contains('\n')).then(|| text.to_owned()))
}

/// Reads to the end, unless stopped.
fn read_unless(file: &mut File, is_stopped: impl Fn() -> bool) -> io::Result<Vec<u8>> {
    let (mut content, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let ready = match poll(&mut [PollFd::new(&*file, PollFlags::IN)], Some(&INTERVAL)) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        if !ready {
            if is_stopped() {
                let sentence = "interrupted; no program has written to it";
                return Err(io::Error::new(ErrorKind::Interrupted, sentence));
            }
            continue;
        }
        match file.read(&mut piece) {
            Ok(0) => return Ok(content),
            Ok(count) => content.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if content.len() > MAX_OWN {
            return Err(io::Error::other(format!("it has more than {MAX_OWN} bytes")));
        }
    }
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
    let beside = beside.as_os_str();
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
