//! What an operator asks of a process's sockets: a file beside the process's report, which the process
//! reads twice a second and obeys.
//!
//! It obeys only what root or its own user has written. Who has written it removes it: a user's process
//! cannot remove root's file in the folder of all users.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::folder::{Folder, this_user};
use super::report::MAX_SOCKETS;
use super::{ReportFolder, process};

/// Maximum bytes of the file.
const MAX_LEN: usize = 64 << 10;

/// What is asked of the sockets of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// Process id.
    pub process: u32,
    /// Its start, as in its report.
    pub started: u64,
    /// By the socket's id in the report: the rung of its ladder that it is to hold, 0 the first; `None`:
    /// its ladder steps by itself again. At most [`MAX_SOCKETS`].
    pub held: BTreeMap<u32, Option<u32>>,
}

fn name_of(process: u32) -> String {
    format!("{process}.orders")
}

impl Orders {
    /// Writes them for the process, whose report is in `folder`, in place of those before.
    ///
    /// # Errors
    /// They are too many, the folder cannot be written to, or another user has taken the name.
    pub fn give(&self, folder: &ReportFolder) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        if self.held.len() > MAX_SOCKETS || bytes.len() > MAX_LEN {
            return Err(io::Error::other("too many sockets of one process are to hold a rung"));
        }
        open(folder)?.replace(&name_of(self.process), &bytes)
    }

    /// Removes what [`give`](Self::give) has written.
    ///
    /// # Errors
    /// The system's error.
    pub fn withdraw(&self, folder: &ReportFolder) -> io::Result<()> {
        open(folder)?.remove(&name_of(self.process))
    }

    /// Those for this process, started then.
    pub(crate) fn take(folder: &Folder, of: u32, started: u64) -> Option<Self> {
        let may_own = |owner| owner == 0 || owner == this_user();
        // What others have put there is nobody's order.
        let bytes = folder.read(&name_of(of), MAX_LEN, may_own).ok()??;
        let orders: Self = serde_json::from_slice(&bytes).ok()?;
        let is_for_it = (orders.process, orders.started) == (of, started);
        (is_for_it && orders.held.len() <= MAX_SOCKETS).then_some(orders)
    }
}

fn open(folder: &ReportFolder) -> io::Result<Folder> {
    folder.open()?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The start of a process, by which orders name it; `None` if there is none.
pub fn started(process: u32) -> Option<u64> {
    process::started(process)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::Publisher;
    use super::super::tests::{folder, socket};
    use super::*;

    #[test]
    fn a_process_obeys_what_is_for_it_and_of_its_user_or_root() {
        let path = folder("orders");
        let place = ReportFolder::At(path.clone());
        let mut publisher = Publisher::new(place.clone());
        publisher.publish(vec![socket(1)]).unwrap();
        assert_eq!(publisher.orders(), None);
        let process = std::process::id();
        let started = started(process).unwrap();
        let orders = Orders { process, started, held: [(1, Some(2)), (3, None)].into() };
        orders.give(&place).unwrap();
        assert_eq!(publisher.orders().as_ref(), Some(&orders));
        orders.withdraw(&place).unwrap();
        assert_eq!(publisher.orders(), None);
        // Of a process that had the number before, damaged, too long, a link.
        Orders { started: started + 1, ..orders.clone() }.give(&place).unwrap();
        assert_eq!(publisher.orders(), None);
        let file = path.join(name_of(process));
        for bytes in [&b"{"[..], &vec![b' '; MAX_LEN + 1]] {
            fs::write(&file, bytes).unwrap();
            assert_eq!(publisher.orders(), None);
        }
        orders.give(&place).unwrap();
        fs::rename(&file, path.join("elsewhere")).unwrap();
        symlink(path.join("elsewhere"), &file).unwrap();
        assert_eq!(publisher.orders(), None, "a link");
        fs::remove_file(&file).unwrap();
        if this_user() == 0 {
            orders.give(&place).unwrap();
            std::os::unix::fs::chown(&file, Some(64_004), None).unwrap();
            assert_eq!(publisher.orders(), None, "another user's");
        }
        let many = (0..=MAX_SOCKETS as u32).map(|id| (id, None)).collect();
        assert!(Orders { held: many, ..orders }.give(&place).is_err());
        drop(publisher);
        fs::remove_dir_all(path).unwrap();
    }
}
