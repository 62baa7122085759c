//! Why the kernel's PERT cannot be loaded, read or removed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Name;

/// Why something could not be done; each reads as one sentence.
#[derive(Debug)]
#[non_exhaustive]
pub enum KernelError {
    /// Not a name of a congestion control.
    BadName(String),
    /// The user has not the rights.
    NotRoot,
    /// The kernel, by its release, is too old.
    OldKernel(String),
    /// The kernel does not describe its types.
    NoBtf,
    /// The kernel was built without congestion control by BPF.
    NoStructOps,
    /// This program was built without libbpf.
    BuiltWithoutLibbpf,
    /// This program was built without the BPF program.
    BuiltWithoutClang,
    /// One of this name was loaded here before.
    AlreadyLoaded(Name),
    /// The name belongs to a congestion control that is none of ours.
    NameTaken(Name),
    /// None of this name is loaded.
    NotLoaded(Name),
    /// So many sockets use it.
    InUse(Name, usize),
    /// It was removed, and the kernel still lists it.
    Lingers(Name),
    /// The BPF file system is missing and cannot be mounted.
    NoBpffs(std::io::Error),
    /// A file could not be read, made or removed.
    File(PathBuf, std::io::Error),
    /// A pinned file says what this version does not understand.
    Foreign(PathBuf),
    /// libbpf or the kernel refused; with the step, and what they said.
    Refused(&'static str, String),
}

/// What has to be installed, and what is done then.
const REBUILD: &str = "install it with: sudo apt-get install clang libelf-dev zlib1g-dev \
                       pkg-config, then build ontempo again with: make build";

impl KernelError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::File(path.to_owned(), error)
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(text) => write!(
                f,
                "`{text}` cannot name a congestion control: 1 to {} of a-z, 0-9 and _",
                Name::LENGTH
            ),
            Self::NotRoot => f.write_str(
                "congestion controls of the kernel are root's: run the command with sudo",
            ),
            Self::OldKernel(release) => write!(
                f,
                "this kernel is Linux {release}; to keep a congestion control by BPF loaded takes \
                 6.4 or newer"
            ),
            Self::NoBtf => write!(
                f,
                "this kernel does not describe its types ({} is missing): it takes one built with \
                 CONFIG_DEBUG_INFO_BTF=y",
                crate::machine::BTF
            ),
            Self::NoStructOps => f.write_str(
                "this kernel has no congestion control by BPF (struct_ops): it takes one built \
                 with CONFIG_BPF_SYSCALL=y, CONFIG_BPF_JIT=y and CONFIG_TCP_CONG_ADVANCED=y",
            ),
            Self::BuiltWithoutLibbpf => write!(
                f,
                "this ontempo was built without libbpf, because libelf, zlib, pkg-config or make \
                 was missing; {REBUILD}"
            ),
            Self::BuiltWithoutClang => write!(
                f,
                "this ontempo was built without the BPF program, because clang was missing or \
                 could not compile it; {REBUILD}"
            ),
            Self::AlreadyLoaded(name) => write!(
                f,
                "`{name}` is loaded already: remove it with `ontempo kernel unload {name}`, or \
                 load another beside it with `--as NAME`"
            ),
            Self::NameTaken(name) => write!(
                f,
                "this kernel has a congestion control `{name}` that ontempo did not load: choose \
                 another name with `--as NAME`"
            ),
            Self::NotLoaded(name) => {
                write!(f, "`{name}` is not loaded: `ontempo kernel list` shows what is")
            }
            Self::InUse(name, sockets) => write!(
                f,
                "{sockets} {} `{name}`: wait until all have closed, or give `--force`, after which open \
                 sockets keep it and no new one can choose it",
                if *sockets == 1 { "socket uses" } else { "sockets use" }
            ),
            Self::Lingers(name) => {
                write!(f, "`{name}` was removed, and the kernel still lists it after 2 s")
            }
            Self::NoBpffs(error) => write!(
                f,
                "there is no BPF file system at {}, and it cannot be mounted: {error}",
                crate::machine::BPFFS
            ),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Foreign(path) => write!(
                f,
                "{} was pinned by another version of ontempo: unload it with that one, or remove \
                 its folder",
                path.display()
            ),
            Self::Refused(step, what) => write!(f, "cannot {step}: {what}"),
        }
    }
}

impl std::error::Error for KernelError {}
