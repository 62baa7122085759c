//! Who this process works for.

/// Mode bits of a file or folder that its group or others may write.
pub(crate) const OTHERS_MAY_WRITE: u32 = 0o022;

/// The user who became root by sudo(8), if this is root.
fn by_sudo() -> Option<u32> {
    let is_root = rustix::process::geteuid().is_root();
    is_root.then(|| std::env::var("SUDO_UID").ok()?.parse().ok()).flatten()
}

/// The user who started this process, also where sudo(8) has made it root's.
pub fn starter() -> u32 {
    by_sudo().unwrap_or_else(|| rustix::process::getuid().as_raw())
}

/// True for this process's user; for root also for the one who became root by sudo(8).
pub fn is_of_user(owner: u32) -> bool {
    owner == rustix::process::geteuid().as_raw() || by_sudo() == Some(owner)
}

/// True for this user and root; for root also for the one who became root by sudo(8).
pub(crate) fn is_trusted(owner: u32) -> bool {
    owner == 0 || is_of_user(owner)
}
