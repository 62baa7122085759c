//! What the machine must have before anything is loaded.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use crate::{KernelError, Name};

/// Where the BPF file system belongs.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";
/// The running kernel's types.
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Linux 6.4: the first whose `struct_ops` can be held by a link, and so pinned.
const OLDEST: (u32, u32) = (6, 4);
/// The type that a kernel has if BPF programs can be its congestion control.
const STRUCT_OPS: &[u8] = b"bpf_struct_ops_tcp_congestion_ops";
/// `BPF_FS_MAGIC` (include/uapi/linux/magic.h).
const BPFFS_MAGIC: i64 = 0xcafe_4a11;

/// Checks rights and kernel.
pub(crate) fn check() -> Result<(), KernelError> {
    check_rights()?;
    let release = read(RELEASE)?;
    if version(&release).is_some_and(|version| version < OLDEST) {
        return Err(KernelError::OldKernel(release.trim().to_owned()));
    }
    let types = fs::read(BTF).map_err(|_| KernelError::NoBtf)?;
    if !types.windows(STRUCT_OPS.len()).any(|window| window == STRUCT_OPS) {
        return Err(KernelError::NoStructOps);
    }
    Ok(())
}

/// What is pinned is root's alone to see.
pub(crate) fn check_rights() -> Result<(), KernelError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(KernelError::NotRoot) }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the kernel lists a congestion control of this name.
pub(crate) fn lists(name: &Name) -> Result<bool, KernelError> {
    Ok(read(AVAILABLE)?.split_whitespace().any(|listed| listed == name.as_str()))
}

/// Mounts the BPF file system where it is missing; true where that was done.
pub(crate) fn mount_bpffs() -> Result<bool, KernelError> {
    let is_there = rustix::fs::statfs(BPFFS).is_ok_and(|at| at.f_type as i64 == BPFFS_MAGIC);
    if is_there {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", BPFFS, "bpf", flags, Some(c"mode=0700"))
        .map_err(|error| KernelError::NoBpffs(error.into()))?;
    Ok(true)
}

fn read(path: &str) -> Result<String, KernelError> {
    fs::read_to_string(path).map_err(KernelError::file(Path::new(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_first_two_numbers() {
        assert_eq!(version("6.18.44-cloud-amd64\n"), Some((6, 18)));
        assert_eq!(version("6.4-rc1"), Some((6, 4)));
        assert!(version("5.10.0") < Some(OLDEST));
        assert_eq!(version("unknown"), None);
    }
}
