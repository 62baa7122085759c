//! Files of daemons that have ended, in the folder of the lock: a killed one leaves both of its own, and one that ended
//! for a restart that of its neighbours. Most namespaces never get another daemon.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::lock::{Lock, PREFIX};
use super::neighbours_file::{BESIDE, EXTENSION, TOUCH};

/// Files of neighbours are kept so long for a daemon that is started again; one that runs touches its own more often.
const MAX_AGE: Duration = Duration::from_secs(24 * 3_600);
/// Of the others the youngest are kept.
const MAX_KEPT: usize = 256;
const _: () = assert!(TOUCH.as_secs() * 2 < MAX_AGE.as_secs());

/// Removes what daemons of other namespaces that have ended have left, but for the files of neighbours that may be of
/// use still. What is not of this user, or of a daemon that runs, stays. What cannot be removed now is the next
/// daemon's.
pub(super) fn sweep(own: &Lock) {
    let now = SystemTime::now();
    let Some(folder) = own.path().parent() else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut kept = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(lock) = lock_of(&path).filter(|lock| lock != own.path()) else { continue };
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        if lock == path {
            end(&lock, None);
            continue;
        }
        let age = about.modified().ok().and_then(|at| now.duration_since(at).ok());
        let age = age.unwrap_or_default();
        if age > MAX_AGE {
            end(&lock, Some(&path));
        } else {
            kept.push((age, lock, path));
        }
    }
    kept.sort();
    for (_, lock, path) in kept.into_iter().skip(MAX_KEPT) {
        end(&lock, Some(&path));
    }
}

/// The lock of the daemon that has made a file of this name.
fn lock_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let lock = name.strip_suffix(EXTENSION).and_then(|name| name.strip_suffix('.')).unwrap_or(name);
    let number = lock.strip_prefix(PREFIX)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| path.with_file_name(lock))
}

/// Removes the lock of a daemon that has ended, and its file of neighbours.
fn end(lock: &Path, neighbours: Option<&Path>) {
    // Nobody gets it meanwhile: a daemon that starts there waits.
    let Ok(Some(_held)) = Lock::try_at(lock) else { return };
    // They may be gone already.
    let _ = fs::remove_file(lock.with_extension(BESIDE));
    if let Some(neighbours) = neighbours {
        let _ = fs::remove_file(neighbours);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_ended_daemons_have_left_goes_and_what_the_next_needs_stays_for_a_day() {
        let folder = std::env::temp_dir().join(format!("ontempo-sweep-{}", std::process::id()));
        let own = Lock::take(&folder).unwrap();
        let own_name = own.path().file_name().unwrap().to_str().unwrap().to_owned();
        let make = |name: &str, age: Duration| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let (young, old) = (Duration::from_secs(60), MAX_AGE + Duration::from_secs(60));
        // Killed just now and long ago, ended for a restart long ago, running since long.
        for (number, age) in [(1, young), (2, old), (4, old)] {
            make(&format!("rsvpd-{number}"), old);
            make(&format!("rsvpd-{number}.neighbours"), age);
            make(&format!("rsvpd-{number}.new"), age);
        }
        make("rsvpd-3.neighbours", old);
        let running = Lock::try_at(&folder.join("rsvpd-4")).unwrap().unwrap();
        make(&format!("{own_name}.neighbours"), old);
        // No files of a daemon's.
        for name in
            ["rsvp.sock", "rsvpd-", "rsvpd-5x", "other.neighbours", "rsvpd-6.neighbours.old"]
        {
            make(name, old);
        }
        fs::create_dir(folder.join("rsvpd-7")).unwrap();
        sweep(&own);
        let own_files = [own_name.clone(), format!("{own_name}.neighbours")];
        let mut stay: Vec<String> = [
            "other.neighbours",
            "rsvp.sock",
            "rsvpd-",
            "rsvpd-1.neighbours",
            "rsvpd-4",
            "rsvpd-4.neighbours",
            "rsvpd-4.new",
            "rsvpd-5x",
            "rsvpd-6.neighbours.old",
            "rsvpd-7",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain(own_files)
        .collect();
        stay.sort();
        assert_eq!(names(&folder), stay);
        // However many end at once.
        for number in 0..MAX_KEPT as u64 + 10 {
            make(&format!("rsvpd-100{number}.neighbours"), Duration::from_secs(10 * number + 120));
        }
        sweep(&own);
        let left = names(&folder);
        let left: Vec<_> = left.iter().filter(|name| name.starts_with("rsvpd-100")).collect();
        // That of the killed daemon is one of those kept.
        assert_eq!(left.len(), MAX_KEPT - 1);
        assert!(!left.iter().any(|name| name.contains(&format!("100{}.", MAX_KEPT + 9))));
        drop((own, running));
        fs::remove_dir_all(folder).unwrap();
    }
}
