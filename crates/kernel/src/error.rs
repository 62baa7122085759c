//! Why the kernel's PERT cannot be loaded, read or removed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Name;

/// Why an operation failed; each variant is displayed as one sentence.
#[derive(Debug)]
#[non_exhaustive]
pub enum KernelError {
    /// Not a valid name of a congestion control.
    BadName(String),
    /// The user lacks the rights.
    NotRoot,
    /// The kernel release is too old.
    OldKernel(String),
    /// The kernel has no type information (BTF).
    NoBtf,
    /// The kernel was built without support for congestion control by BPF.
    NoStructOps,
    /// This program was built without libbpf.
    BuiltWithoutLibbpf,
    /// This program was built without the BPF program.
    BuiltWithoutClang,
    /// A congestion control of this name is already loaded by ontempo.
    AlreadyLoaded(Name),
    /// The name belongs to a congestion control that ontempo did not load.
    NameTaken(Name),
    /// No congestion control of this name is loaded.
    NotLoaded(Name),
    /// Number of sockets that use it.
    InUse(Name, usize),
    /// It is the default of new sockets, which would go on choosing it; with the commands that end that.
    IsDefault(Name, Vec<String>),
    /// It was removed, but the kernel still lists it.
    Lingers(Name),
    /// The BPF file system is missing and cannot be mounted.
    NoBpffs(std::io::Error),
    /// A file could not be read, created or removed.
    File(PathBuf, std::io::Error),
    /// This version does not understand the contents of a pinned file.
    Foreign(PathBuf),
    /// libbpf or the kernel refused a step; with their message.
    Refused(&'static str, String),
}

/// What to install, and how to rebuild.
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
            Self::IsDefault(name, ends) => write!(
                f,
                "new sockets choose `{name}` by default, and would also when it is unloaded: first run `{}`",
                ends.join("` and `")
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
