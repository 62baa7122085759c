//! The mark of a run: a file that names its namespaces, locked as long as their owner lives.
//!
//! A namespace outlives the process that made it. So its name is written down before it is made,
//! in a file that the owner keeps locked; the kernel takes the lock away however the owner ends.
//! Whoever can lock such a file may remove what it names, and nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::EmulationError;
use crate::iproute;
use crate::space::inside;

/// Where the marks are.
const FOLDER: &str = "/run/ontempo";

/// How often the kernel sends again for a socket that nobody holds any more.
const ORPHAN_RETRIES: &str = "/proc/sys/net/ipv4/tcp_orphan_retries";

/// What the name of every namespace of ours begins with.
const PREFIX: &str = "ontempo-";

/// The mark of a run that is under way.
#[derive(Debug)]
pub(crate) struct Mark {
    run: String,
    path: PathBuf,
    file: File,
    /// The namespaces named in the file.
    namespaces: Vec<String>,
}

impl Mark {
    /// That of a new run called `run`.
    ///
    /// # Errors
    /// Where a run of this name is under way, or its mark cannot be written.
    pub(crate) fn set(run: &str) -> Result<Self, EmulationError> {
        let folder = Path::new(FOLDER);
        let path = folder.join(run);
        let failed = |error: io::Error| EmulationError::system(&path.display(), &error);
        fs::create_dir_all(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(EmulationError::Input(format!(
                "a run called `{run}` is under way; wait for its end, or give this one another \
                 name with --name"
            )));
        }
        Ok(Self { run: run.to_owned(), path, file, namespaces: Vec::new() })
    }

    /// The name of the namespace of `host`.
    pub(crate) fn name(&self, host: &str) -> String {
        // What a file's name may hold, and a shell need not quote.
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let host: String =
            host.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
        format!("{PREFIX}{}-{host}", self.run)
    }

    /// Writes down namespaces that are about to be made.
    pub(crate) fn note(&mut self, namespaces: &[String]) -> Result<(), EmulationError> {
        let text: String = namespaces.iter().map(|name| format!("{name}\n")).collect();
        let written = self.file.seek(io::SeekFrom::End(0)).and_then(|_| {
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()
        });
        written.map_err(|error| EmulationError::system(&self.path.display(), &error))?;
        self.namespaces.extend_from_slice(namespaces);
        Ok(())
    }

    /// Removes the namespaces and the mark; a mark of what could not be removed stays for the next
    /// start.
    pub(crate) fn clear(&mut self) {
        let all_removed = remove(&self.run, &self.namespaces);
        self.namespaces.clear();
        if all_removed {
            // One that stays is empty of meaning; the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Removes what runs have left whose owner is dead; answers their names.
///
/// # Errors
/// Where the marks cannot be read.
pub fn remove_leftovers() -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut removed = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // A folder is another program's.
        if !path.is_file() {
            continue;
        }
        let Some(run) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // One that is gone was removed by its owner, or by another that starts.
        let Ok(mut file) = File::open(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let namespaces: Vec<String> = text.lines().map(str::to_owned).collect();
        if remove(run, &namespaces) {
            removed.extend(namespaces);
            let _ = fs::remove_file(&path);
        }
    }
    Ok(removed)
}

/// Removes those of `namespaces` that bear the mark of `run` and are there, with the processes in
/// them; whether none is left.
fn remove(run: &str, namespaces: &[String]) -> bool {
    let prefix = format!("{PREFIX}{run}-");
    let mut all_removed = true;
    for name in namespaces.iter().filter(|name| name.starts_with(&prefix)) {
        if !iproute::path(name).exists() {
            continue;
        }
        if let Err(error) = iproute::end_processes(name) {
            eprintln!("ontempo: cannot end the processes in the namespace {name}: {error}");
        }
        // Connections that programs left unfinished give up at once: each keeps the namespace.
        let _ = inside(name, || fs::write(ORPHAN_RETRIES, "1"));
        if let Err(error) = iproute::run(&["netns", "delete", name]) {
            all_removed = false;
            eprintln!(
                "ontempo: cannot remove the namespace {name}: {error}; the next start tries again"
            );
        }
    }
    all_removed
}
