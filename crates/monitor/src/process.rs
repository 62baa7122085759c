//! Processes of this host, from `/proc`.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Start of a process in clock ticks since the host's: field 22 of `/proc/PID/stat` (proc(5)). With
/// the process id it names a process for ever. `None` if there is no such process.
pub(crate) fn started(process: u32) -> Option<u64> {
    started_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn started_in(stat: &str) -> Option<u64> {
    // The second field, the program's name, may contain blanks and brackets; the third is next.
    stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// User id of a process; `None` if there is no such process.
pub(crate) fn owner(process: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{process}")).ok().map(|about| about.uid())
}

/// The ids of all processes, in ascending order.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 2 3";
        assert_eq!(started_in(stat), Some(98_765));
        assert_eq!(started_in("7 (cut"), None);
        let own = std::process::id();
        assert!(started(own).is_some() && all().contains(&own));
        assert_eq!((started(u32::MAX), owner(u32::MAX)), (None, None));
    }
}
