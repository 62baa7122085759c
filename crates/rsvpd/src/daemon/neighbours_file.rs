//! The file of neighbours, so that a daemon after a restart asks them for their state rather than
//! wait for their refreshes.
//!
//! It lies beside the lock, whose name has the inode of the network namespace. The kernel gives an
//! inode's number again once a namespace has gone, and a killed daemon leaves its file: so the
//! first line has the cookie of the namespace, which no other gets until the host starts anew.

use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::sys::get_number;

/// What its name has after that of the lock and a dot.
pub(super) const EXTENSION: &str = "neighbours";
/// The same while it is written.
pub(super) const BESIDE: &str = "new";
/// A daemon that runs writes it so often at least, so that its age shows when the daemon has ended.
pub(super) const TOUCH: Duration = Duration::from_secs(3_600);
/// Bytes of the file, at most.
const MAX_FILE: u64 = 64 << 10;

pub(super) struct NeighboursFile {
    path: PathBuf,
    cookie: u64,
}

impl NeighboursFile {
    /// That of this network namespace.
    ///
    /// # Errors
    /// Where the kernel gives no socket.
    pub(super) fn of_this_namespace(path: PathBuf) -> io::Result<Self> {
        let kind = (AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC);
        let any = socket(kind.0, kind.1, kind.2, None)?;
        // A kernel before Linux 5.14 has none: then the inode has to do.
        let cookie = get_number(any, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE).unwrap_or(0);
        Ok(Self { path, cookie })
    }

    /// Writes the neighbours, each by the name of its interface.
    ///
    /// # Errors
    /// Names the file.
    pub(super) fn write(
        &self,
        neighbours: impl Iterator<Item = (String, IpAddr)>,
    ) -> io::Result<()> {
        let mut text = format!("namespace {}\n", self.cookie);
        text.extend(neighbours.map(|(interface, address)| format!("{interface} {address}\n")));
        // Whole or not at all: what was there before is of more use than a part.
        let beside = self.path.with_extension(BESIDE);
        fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.path)).map_err(|error| {
            // It may not be there.
            let _ = fs::remove_file(&beside);
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })
    }

    /// The neighbours of the daemon before this one in this namespace; none where the file is of another.
    pub(super) fn read(&self) -> Vec<(String, IpAddr)> {
        let mut text = String::new();
        let read = fs::File::open(&self.path)
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
        let Some((namespace, neighbours)) = text.split_once('\n') else { return Vec::new() };
        if read.is_err() || namespace != format!("namespace {}", self.cookie) {
            return Vec::new();
        }
        let neighbour = |line: &str| {
            let (interface, address) = line.split_once(' ')?;
            Some((interface.to_owned(), address.parse().ok()?))
        };
        neighbours.lines().filter_map(neighbour).collect()
    }

    /// Removes it: a daemon that ended for good has nothing to be asked for.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_namespace_that_had_the_inode_before_are_not_read() {
        let path = std::env::temp_dir().join(format!("ontempo-neighbours-{}", std::process::id()));
        let file = NeighboursFile::of_this_namespace(path.clone()).unwrap();
        assert!(file.cookie > 0 && file.read().is_empty());
        let neighbours = [("eth0", "10.0.0.1"), ("l1", "fe80::2")]
            .map(|(interface, address)| (interface.to_owned(), address.parse().unwrap()));
        file.write(neighbours.clone().into_iter()).unwrap();
        let read = NeighboursFile::of_this_namespace(path.clone()).unwrap().read();
        assert_eq!(read, neighbours);
        // On a full disk the one before stays.
        let beside = path.with_extension(BESIDE);
        fs::create_dir(&beside).unwrap();
        let error = file.write([].into_iter()).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert_eq!(file.read(), neighbours);
        fs::remove_dir(&beside).unwrap();
        let other = NeighboursFile { path: path.clone(), cookie: file.cookie + 1 };
        assert!(other.read().is_empty());
        // As daemons before wrote it, what is no file, and what is no text.
        fs::write(&path, "eth0 10.0.0.1\n").unwrap();
        assert!(file.read().is_empty());
        fs::write(&path, [0xff; 8]).unwrap();
        assert!(file.read().is_empty());
        file.remove();
        assert!(!path.exists() && file.read().is_empty());
    }
}
