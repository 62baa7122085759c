//! What is loaded: found by its pinned files, read from them, removed with them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{KernelError, Name, Settings, SocketStatus, machine, sockets};

/// The folder of what ontempo pins, in the BPF file system; each congestion control has one of its
/// name in it.
pub const PLACE: &str = "/sys/fs/bpf/ontempo";

/// The link by which the kernel holds the congestion control.
const LINK: &str = "link";
/// The file that tells of its sockets.
const SOCKETS: &str = "sockets";
/// How long the kernel may take to let go of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A congestion control that was loaded, and its sockets.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The name by which programs choose it.
    pub name: Name,
    /// How it was loaded.
    pub settings: Settings,
    /// The sockets that use it, ordered by namespace and address.
    pub sockets: Vec<SocketStatus>,
}

impl Loaded {
    /// What stands in the pinned file of `name`.
    ///
    /// # Errors
    ///
    /// Where it is not loaded, or its file cannot be read.
    pub fn read(name: &Name) -> Result<Self, KernelError> {
        machine::check_rights()?;
        let path = Pins::of(name).sockets();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(KernelError::NotLoaded(name.clone()));
            }
            text => text.map_err(KernelError::file(&path))?,
        };
        let (settings, sockets) = sockets::read(&text).ok_or(KernelError::Foreign(path))?;
        Ok(Self { name: name.clone(), settings, sockets })
    }
}

/// The pinned files of one congestion control.
pub(crate) struct Pins(PathBuf);

impl Pins {
    pub(crate) fn of(name: &Name) -> Self {
        Self(Path::new(PLACE).join(name.as_str()))
    }

    /// Makes the folder; false where it was there.
    #[cfg(bpf_object)]
    pub(crate) fn make(&self) -> Result<bool, KernelError> {
        fs::create_dir_all(PLACE).map_err(KernelError::file(Path::new(PLACE)))?;
        match fs::create_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true).map_err(KernelError::file(&self.0)),
        }
    }

    pub(crate) fn link(&self) -> PathBuf {
        self.0.join(LINK)
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.0.join(SOCKETS)
    }

    /// Removes the files, the folder, and ontempo's own folder where it is empty then.
    pub(crate) fn remove(&self) -> Result<(), KernelError> {
        for path in [self.link(), self.sockets()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed.map_err(KernelError::file(&path))?,
            }
        }
        fs::remove_dir(&self.0).map_err(KernelError::file(&self.0))?;
        // Others may be loaded.
        let _ = fs::remove_dir(PLACE);
        Ok(())
    }
}

/// All that is loaded, by name.
///
/// # Errors
///
/// Where the user may not look, or a file cannot be read.
pub fn list() -> Result<Vec<Loaded>, KernelError> {
    machine::check_rights()?;
    let place = Path::new(PLACE);
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(KernelError::file(place))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(KernelError::file(place))?;
        names.extend(entry.file_name().to_str().and_then(|name| name.parse::<Name>().ok()));
    }
    names.sort();
    let read = names.iter().map(Loaded::read);
    // One that another process removes, or has not finished loading, is not there.
    read.filter(|loaded| !matches!(loaded, Err(KernelError::NotLoaded(_)))).collect()
}

/// Removes a congestion control; returns how many sockets used it, which is above zero only with
/// `force`. They keep it until they close.
///
/// # Errors
///
/// Where it is not loaded; where sockets use it and there is no `force`; where the user may not.
pub fn unload(name: &Name, force: bool) -> Result<usize, KernelError> {
    machine::check_rights()?;
    let pins = Pins::of(name);
    let users = match Loaded::read(name) {
        Ok(loaded) => loaded.sockets.len(),
        // The rest of a loading that was killed.
        Err(KernelError::NotLoaded(_)) if pins.0.exists() => 0,
        Err(KernelError::Foreign(_)) if force => 0,
        Err(error) => return Err(error),
    };
    if users > 0 && !force {
        return Err(KernelError::InUse(name.clone(), users));
    }
    pins.remove()?;
    // The kernel lets go after a grace period.
    let begun = Instant::now();
    while machine::lists(name)? {
        if begun.elapsed() > PATIENCE {
            return Err(KernelError::Lingers(name.clone()));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(users)
}
