//! The machine's files about BPF and congestion control.

use std::fs;
use std::path::Path;

use crate::{KernelError, Name};

/// Mount point of the BPF file system.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";
/// The running kernel's type information (BTF).
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Only root can see pinned files.
pub(crate) fn check_rights() -> Result<(), KernelError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(KernelError::NotRoot) }
}

/// Whether the kernel lists a congestion control of this name.
pub(crate) fn lists(name: &Name) -> Result<bool, KernelError> {
    Ok(read(AVAILABLE)?.split_whitespace().any(|listed| listed == name.as_str()))
}

pub(crate) fn read(path: &str) -> Result<String, KernelError> {
    fs::read_to_string(path).map_err(KernelError::file(Path::new(path)))
}
