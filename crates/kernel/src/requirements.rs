//! What loading requires of the machine.

use std::fs;

use rustix::mount::{MountFlags, mount};

use crate::KernelError;
use crate::machine::{BPFFS, BTF, check_rights, read};

const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// Linux 6.4: the first release in which a link can hold a `struct_ops`, so that it can be pinned.
const OLDEST: (u32, u32) = (6, 4);
/// A type that exists in kernels that support congestion control by BPF.
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

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Mounts the BPF file system if it is not mounted; true if it did.
pub(crate) fn mount_bpffs() -> Result<bool, KernelError> {
    if rustix::fs::statfs(BPFFS).is_ok_and(|at| at.f_type == BPFFS_MAGIC) {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", BPFFS, "bpf", flags, Some(c"mode=0700"))
        .map_err(|error| KernelError::NoBpffs(error.into()))?;
    Ok(true)
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
