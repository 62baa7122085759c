//! PERT as a TCP congestion control of Linux, without patching a kernel.
//!
//! The mechanism itself is a BPF program in C ([`bpf`](https://docs.kernel.org/bpf/), in the folder
//! of that name, GPL-2.0), which the kernel checks, compiles and calls through `struct_ops`. This
//! crate loads it with its [`Settings`], names the congestion control, reads the state of PERT of
//! each socket ([`Loaded`]), and removes it. It never opens a socket.
//!
//! A loaded congestion control outlives the program that loaded it: its links are pinned in the BPF
//! file system under [`PLACE`], where [`list`] and [`unload`] find them. Reading needs no
//! library: the kernel prints each socket's line into a pinned file.
//!
//! [`load`] needs libbpf, which the feature `bpf` links; without it, it returns an error.

mod defaults;
mod error;
mod loaded;
mod loading;
mod machine;
#[cfg(bpf_object)]
mod requirements;
mod settings;
mod sockets;

pub use error::KernelError;
pub use loaded::{Loaded, PLACE, list, unload};
pub use loading::load;
pub use settings::{SettingError, Settings};
pub use sockets::{Mode, SocketStatus};

/// The name of a congestion control, as programs select it: 1 to 15 of `a-z`, `0-9` and `_`, as
/// the kernel accepts from a BPF program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Maximum length: `TCP_CA_NAME_MAX` of Linux without the terminating zero.
    pub const LENGTH: usize = 15;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    fn default() -> Self {
        Self("pert".to_owned())
    }
}

impl std::str::FromStr for Name {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if text.is_empty() || text.len() > Self::LENGTH || !text.bytes().all(allowed) {
            return Err(KernelError::BadName(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_accepts_are_valid() {
        for name in ["pert", "pert_2", "a23456789012345"] {
            assert_eq!(name.parse::<Name>().expect("a name").as_str(), name);
        }
        for name in ["", "pert-slow", "PERT", "../pert", "a234567890123456"] {
            let error = name.parse::<Name>().expect_err(name).to_string();
            assert!(error.contains("1 to 15 of a-z, 0-9 and _"), "{error}");
        }
    }
}
