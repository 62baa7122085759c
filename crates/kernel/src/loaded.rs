//! Loaded congestion controls: found, read and removed through their pinned files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ontempo_place::check_system_folder;
#[cfg(bpf_object)]
use ontempo_place::make_system_folder;

use crate::{KernelError, Name, Settings, SocketStatus, defaults, machine, sockets};

/// The folder of ontempo's pinned files in the BPF file system, with a folder for each congestion
/// control.
pub const PLACE: &str = "/sys/fs/bpf/ontempo";

/// The link that registers the congestion control with the kernel.
const LINK: &str = "link";
/// The file that lists its sockets.
const SOCKETS: &str = "sockets";
/// How long the kernel may take to unregister it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A loaded congestion control, and its sockets.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The name by which programs select it.
    pub name: Name,
    /// The settings with which it was loaded.
    pub settings: Settings,
    /// The sockets that use it, ordered by namespace and address.
    pub sockets: Vec<SocketStatus>,
}

impl Loaded {
    /// Reads the pinned file of `name`.
    ///
    /// # Errors
    ///
    /// If it is not loaded, or its file cannot be read.
    pub fn read(name: &Name) -> Result<Self, KernelError> {
        machine::check_rights()?;
        check(Path::new(PLACE))?;
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

    /// Creates the folder; false if it existed.
    #[cfg(bpf_object)]
    pub(crate) fn make(&self) -> Result<bool, KernelError> {
        make_system_folder(Path::new(PLACE)).map_err(KernelError::file(Path::new(PLACE)))?;
        check(Path::new(PLACE))?;
        make_system_folder(&self.0).map_err(KernelError::file(&self.0))
    }

    pub(crate) fn link(&self) -> PathBuf {
        self.0.join(LINK)
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.0.join(SOCKETS)
    }

    /// Removes the files, the folder, and ontempo's own folder if it is then empty.
    pub(crate) fn remove(&self) -> Result<(), KernelError> {
        for path in [self.link(), self.sockets()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed.map_err(KernelError::file(&path))?,
            }
        }
        fs::remove_dir(&self.0).map_err(KernelError::file(&self.0))?;
        // Other congestion controls may be loaded.
        let _ = fs::remove_dir(PLACE);
        Ok(())
    }
}

/// Whether only root can have put files into a folder, if it exists: they are read and removed with
/// root's rights.
fn check(place: &Path) -> Result<(), KernelError> {
    match check_system_folder(place, |owner| owner == 0) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        checked => checked.map_err(KernelError::file(place)),
    }
}

/// All loaded congestion controls, by name.
///
/// # Errors
///
/// If the user lacks the rights, or a file cannot be read.
pub fn list() -> Result<Vec<Loaded>, KernelError> {
    machine::check_rights()?;
    let place = Path::new(PLACE);
    check(place)?;
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
    // Being removed or loaded by another process: skip it.
    read.filter(|loaded| !matches!(loaded, Err(KernelError::NotLoaded(_)))).collect()
}

/// Removes a congestion control; returns how many sockets used it, which is above zero only with
/// `force`. They keep it until they close.
///
/// # Errors
///
/// If it is not loaded; if sockets use it and `force` is false; if it is the default of new sockets, here or
/// in a namespace of `ip netns`, whatever `force` is; if the user lacks the rights.
pub fn unload(name: &Name, force: bool) -> Result<usize, KernelError> {
    machine::check_rights()?;
    let pins = Pins::of(name);
    let users = match Loaded::read(name) {
        Ok(loaded) => loaded.sockets.len(),
        // Left over from a load that was killed.
        Err(KernelError::NotLoaded(_)) if pins.0.exists() => 0,
        Err(KernelError::Foreign(_)) if force => 0,
        Err(error) => return Err(error),
    };
    if users > 0 && !force {
        return Err(KernelError::InUse(name.clone(), users));
    }
    // The kernel would go on giving it to new sockets.
    let ends = defaults::ends_of(name)?;
    if !ends.is_empty() {
        return Err(KernelError::IsDefault(name.clone(), ends));
    }
    pins.remove()?;
    // The kernel unregisters it after a grace period.
    let begun = Instant::now();
    while machine::lists(name)? {
        if begun.elapsed() > PATIENCE {
            return Err(KernelError::Lingers(name.clone()));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_that_is_not_roots_alone_is_not_believed() {
        let place = std::env::temp_dir().join(format!("ontempo-pins-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let is_root = fs::metadata(&place).unwrap().uid() == 0;
        for (mode, is_safe) in [(0o755, true), (0o1777, false), (0o775, false), (0o700, true)] {
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(&place).is_ok(), is_safe && is_root, "{mode:o}");
            if let Err(error) = check(&place) {
                let end = format!("chmod go-w {}", place.display());
                assert_eq!(error.to_string().ends_with(&end), is_root, "{error}");
            }
        }
        let link = place.join("link");
        symlink(&place, &link).unwrap();
        assert!(check(&link).is_err_and(|error| error.to_string().contains("must be a folder")));
        assert!(check(&place.join("absent")).is_ok());
        fs::remove_dir_all(place).unwrap();
    }
}
