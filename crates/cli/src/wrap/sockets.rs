//! The sockets of a program and of all that it starts, and their mark.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass, socket_domain};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::output::complain;

/// How often it is looked for processes; their sockets are looked for at each turn.
const FAMILY: Duration = Duration::from_millis(100);

/// Marks each socket once.
pub(super) struct Marker {
    /// The octet in the header: the code point and two bits for ECN.
    tos: u8,
    marked: BTreeSet<u64>,
    family: Vec<u32>,
    looked: Option<Instant>,
    told: bool,
}

impl Marker {
    pub(super) fn new(dscp: u8) -> Self {
        Self {
            tos: dscp << 2,
            marked: BTreeSet::new(),
            family: Vec::new(),
            looked: None,
            told: false,
        }
    }

    /// Marks the sockets that are new; answers the inodes of all that are open.
    pub(super) fn look(&mut self, root: u32) -> BTreeSet<u64> {
        if self.looked.is_none_or(|at| at.elapsed() >= FAMILY) {
            self.looked = Some(Instant::now());
            self.family = family(root);
        }
        let mut open = BTreeSet::new();
        for process in self.family.clone() {
            for (descriptor, inode) in sockets_of(process) {
                open.insert(inode);
                if self.marked.contains(&inode) {
                    continue;
                }
                match fetch(process, descriptor).and_then(|socket| self.mark(&socket)) {
                    Ok(()) => drop(self.marked.insert(inode)),
                    // It has closed it, or has ended.
                    Err(Errno::BADF | Errno::SRCH | Errno::NOTSOCK) => {}
                    Err(error) => {
                        self.marked.insert(inode);
                        self.tell(process, error);
                    }
                }
            }
        }
        self.marked.retain(|inode| open.contains(inode));
        open
    }

    fn mark(&self, socket: &OwnedFd) -> Result<(), Errno> {
        match socket_domain(socket)? {
            AddressFamily::INET => set_ip_tos(socket, self.tos),
            AddressFamily::INET6 => {
                // One that talks to an address of IPv4 by one of IPv6 sends packets of IPv4; one
                // that is for IPv6 alone refuses that.
                let _ = set_ip_tos(socket, self.tos);
                set_ipv6_tclass(socket, u32::from(self.tos))
            }
            _ => Ok(()),
        }
    }

    fn tell(&mut self, process: u32, error: Errno) {
        if !std::mem::replace(&mut self.told, true) {
            complain(&format!(
                "cannot mark the sockets of process {process}: {error}; a program with other \
                 rights than its starter's, or a sandbox, keeps them to itself"
            ));
        }
    }
}

/// Another hold on a socket of a process's; dropped, it leaves the process's own.
fn fetch(process: u32, descriptor: i32) -> Result<OwnedFd, Errno> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let handle = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(handle, descriptor, PidfdGetfdFlags::empty())
}

/// A process and all that descend from it.
fn family(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_in(&stat) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = vec![root];
    // What the program left behind has become ours.
    let adopted = children.get(&std::process::id()).into_iter().flatten();
    found.extend(adopted.filter(|process| **process != root));
    let mut at = 0;
    while let Some(process) = found.get(at) {
        found.extend(children.remove(process).into_iter().flatten());
        at += 1;
    }
    found
}

/// The fourth field of `/proc/PID/stat`; the second, in brackets, is text of any kind.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Descriptor and inode of each socket that a process has.
fn sockets_of(process: u32) -> Vec<(i32, u64)> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode.parse().ok()?))
    };
    entries.filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::sockopt::ip_tos;

    use super::*;

    #[test]
    fn a_parent_is_read_whatever_the_program_is_called() {
        assert_eq!(parent_in("42 (a) b) S 7 42 42 0"), Some(7));
        assert_eq!(parent_in("42 (cut"), None);
    }

    #[test]
    fn a_socket_is_marked_once_and_stays_the_programs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut marker = Marker::new(34);
        let open = marker.look(std::process::id());
        assert!(!open.is_empty() && open.is_superset(&marker.marked));
        assert_eq!(ip_tos(&listener).unwrap(), 34 << 2);
        // What the program chooses later stands.
        set_ip_tos(&listener, 0).unwrap();
        marker.look(std::process::id());
        assert_eq!(ip_tos(&listener).unwrap(), 0);
    }
}
