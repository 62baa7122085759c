//! DSCP marking of the sockets of a program and its descendants: once, and again where the network asks
//! for another code point.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{ip_tos, ipv6_tclass, set_ip_tos, set_ipv6_tclass, socket_domain};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, WaitOptions, pidfd_getfd, pidfd_open, waitpid,
};

use crate::output::write_stderr;

/// Interval between scans for processes; their sockets are scanned at every call.
const PROCESS_SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// Marks each socket, and marks it anew as long as the program has not done so itself.
pub(super) struct Marker {
    /// DSCP of the specification.
    dscp: u8,
    /// What the network asks for instead, by the socket's inode.
    asked: BTreeMap<u64, u8>,
    /// What each socket was marked with, by its inode; `None` where it is left alone: it cannot be marked,
    /// or the program has set a DSCP of its own.
    marked: BTreeMap<u64, Option<u8>>,
    processes: Vec<u32>,
    /// Children of this process that others have left to it.
    adopted: Vec<u32>,
    scanned: Option<Instant>,
    warned: bool,
}

impl Marker {
    pub(super) fn new(dscp: u8) -> Self {
        Self {
            dscp,
            asked: BTreeMap::new(),
            marked: BTreeMap::new(),
            processes: Vec::new(),
            adopted: Vec::new(),
            scanned: None,
            warned: false,
        }
    }

    /// From the next scan on, these sockets bear what the network asks for, the others the DSCP of the
    /// specification.
    pub(super) fn ask(&mut self, asked: BTreeMap<u64, u8>) {
        self.asked = asked;
    }

    /// The DSCP of a socket, by its inode, as far as it is known.
    pub(super) fn dscp(&self, inode: u64) -> u8 {
        let marked = self.marked.get(&inode).copied().flatten();
        // One that is closed sends with what it had.
        marked.or_else(|| self.asked.get(&inode).copied()).unwrap_or(self.dscp)
    }

    /// Marks new sockets, and those that are to bear another DSCP; returns the inodes of all open ones.
    pub(super) fn mark_new(&mut self, root: u32) -> BTreeSet<u64> {
        if self.scanned.is_none_or(|at| at.elapsed() >= PROCESS_SCAN_INTERVAL) {
            self.scanned = Some(Instant::now());
            (self.processes, self.adopted) = process_tree(root);
        }
        let mut open = BTreeSet::new();
        for process in self.processes.clone() {
            for (descriptor, inode) in sockets_of(process) {
                open.insert(inode);
                let wanted = self.asked.get(&inode).copied().unwrap_or(self.dscp);
                let before = match self.marked.get(&inode) {
                    None => None,
                    Some(Some(before)) if *before != wanted => Some(*before),
                    Some(_) => continue,
                };
                let marking = |socket| mark(&socket, before, wanted);
                match fetch(process, descriptor).and_then(marking) {
                    Ok(marked) => drop(self.marked.insert(inode, marked)),
                    // The socket is closed, or the process has ended.
                    Err(Errno::BADF | Errno::SRCH | Errno::NOTSOCK) => {}
                    Err(error) => {
                        self.marked.insert(inode, None);
                        self.warn(process, error);
                    }
                }
            }
        }
        self.marked.retain(|inode, _| open.contains(inode));
        open
    }

    /// Takes note of adopted processes that have ended: nobody else does, and they would stay as zombies.
    pub(super) fn reap(&mut self) {
        self.adopted.retain(|process| {
            let process = i32::try_from(*process).ok().and_then(Pid::from_raw);
            // One that still runs has no status yet.
            process.is_some_and(|one| matches!(waitpid(Some(one), WaitOptions::NOHANG), Ok(None)))
        });
    }

    fn warn(&mut self, process: u32, error: Errno) {
        if !std::mem::replace(&mut self.warned, true) {
            write_stderr(&format!(
                "cannot mark the sockets of process {process}: {error}; it runs with other \
                 rights, or in a sandbox"
            ));
        }
    }
}

/// Marks a socket with a DSCP, unless it has another one than it was marked with before; returns what it
/// was marked with.
fn mark(socket: &OwnedFd, before: Option<u8>, dscp: u8) -> Result<Option<u8>, Errno> {
    let domain = socket_domain(socket)?;
    // The octet's two bits of ECN are the kernel's, which keeps those of TCP.
    let tos = dscp << 2;
    let is_same = |tos: u32| before.is_none_or(|before| tos >> 2 == u32::from(before));
    match domain {
        AddressFamily::INET => {
            if !is_same(u32::from(ip_tos(socket)?)) {
                return Ok(None);
            }
            set_ip_tos(socket, tos)?;
        }
        AddressFamily::INET6 => {
            if !is_same(ipv6_tclass(socket)?) {
                return Ok(None);
            }
            // A dual-stack socket may send IPv4 packets; an IPv6-only socket refuses this option.
            if ip_tos(socket).is_ok_and(|tos| is_same(u32::from(tos))) {
                let _ = set_ip_tos(socket, tos);
            }
            set_ipv6_tclass(socket, u32::from(tos))?;
        }
        _ => return Ok(None),
    }
    Ok(Some(dscp))
}

/// Duplicates a descriptor of another process; closing the duplicate leaves the original open.
fn fetch(process: u32, descriptor: i32) -> Result<OwnedFd, Errno> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let handle = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(handle, descriptor, PidfdGetfdFlags::empty())
}

/// A process and its descendants, and those of them that this process has adopted.
fn process_tree(root: u32) -> (Vec<u32>, Vec<u32>) {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_in(&stat) {
            children.entry(parent).or_default().push(process);
        }
    }
    // Orphaned descendants have become children of this process, which has no others at this time.
    let mut adopted = children.get(&std::process::id()).cloned().unwrap_or_default();
    adopted.retain(|process| *process != root);
    let mut found = [&[root], &adopted[..]].concat();
    let mut at = 0;
    while let Some(process) = found.get(at) {
        found.extend(children.remove(process).into_iter().flatten());
        at += 1;
    }
    (found, adopted)
}

/// The fourth field of `/proc/PID/stat`. The second, in parentheses, may contain any text.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Descriptor and inode of each socket of a process.
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
    fn the_parent_is_parsed_for_any_program_name() {
        assert_eq!(parent_in("42 (a) b) S 7 42 42 0"), Some(7));
        assert_eq!(parent_in("42 (cut"), None);
    }

    #[test]
    fn a_socket_is_marked_once_and_the_program_may_change_the_mark() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut marker = Marker::new(34);
        let open = marker.mark_new(std::process::id());
        assert!(!open.is_empty() && marker.marked.keys().all(|one| open.contains(one)));
        assert_eq!(ip_tos(&listener).unwrap(), 34 << 2);
        // A DSCP that the program sets later is not overwritten.
        set_ip_tos(&listener, 0).unwrap();
        marker.mark_new(std::process::id());
        assert_eq!(ip_tos(&listener).unwrap(), 0);
    }
}
