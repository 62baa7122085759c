//! Shared by tests: records a test that this machine cannot run as skipped; draws what hostile
//! peers send ([`hostile`]); multiplexes AV1; counts what is allocated; makes a [`Link`]
//! between namespaces, and a path that can be cut.
//!
//! cargo's harness knows only passed and failed, and hides the output of passed tests. A test that
//! skips itself is therefore recorded in a file, which `make test` counts.

mod allocator;
mod av1;
pub mod hostile;
mod link;
mod path;
mod usage;

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

pub use allocator::CountingAllocator;
pub use av1::{Av1Framing, av1_transport_stream, section_checksum};
pub use link::Link;
pub use path::path_that_can_be_cut;
pub use usage::used;

/// The environment variable that names the file of skips. Each line holds kind, test and reason,
/// separated by tabs.
pub const SKIPS: &str = "ONTEMPO_SKIPS";

/// Records the running test as skipped, with the reason, and returns from it.
/// Arguments as for `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::record_skip(&format!($($reason)+));
        return;
    }};
}

/// Records the running test as skipped, with the reason: on standard error, and in the file that
/// [`SKIPS`] names.
///
/// # Panics
///
/// If the file cannot be written: an unseen skip would count as passed.
pub fn record_skip(reason: &str) {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The harness names each test's thread after the test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread without a name");
    let reason = one_line(reason);
    // Not `eprintln!`, which the harness captures.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: {reason}");
    let Some(file) = env::var_os(SKIPS) else { return };
    let line = format!("rust\t{program} {test}\t{reason}\n");
    // A single write of a short line in append mode is not interleaved with others'.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot record a skip in {}: {error}", PathBuf::from(file).display());
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a program is installed.
#[must_use]
pub fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// True if all these programs are installed; otherwise records the running test as skipped.
#[must_use]
pub fn require_programs(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !has_program(name));
    if let Some(name) = missing {
        record_skip(&format!("the program {name} is missing"));
    }
    missing.is_none()
}

/// True if this process has the rights of root; otherwise records the running test as
/// skipped.
#[must_use]
pub fn require_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_root = effective_user(&status) == Some(0);
    if !is_root {
        record_skip("the rights of root are missing");
    }
    is_root
}

/// The effective user ID in a process's `/proc/PID/status`.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// A test that skips itself; run by the test below in a separate process.
    #[test]
    fn a_child_that_skips() {
        if env::var_os("ONTEMPO_TESTING_CHILD").is_some() {
            skip!("this is\nthe {} reason", "only");
        }
    }

    #[test]
    fn a_skip_is_one_line_of_the_file_that_the_environment_names() {
        let name = format!("ontempo-skips-{}", std::process::id());
        let file = env::temp_dir().join(name);
        let program = env::current_exe().expect("this program");
        let mut child = Command::new(&program);
        child.args(["--exact", "tests::a_child_that_skips"]);
        child.env("ONTEMPO_TESTING_CHILD", "1").env(SKIPS, &file);
        for _ in 0..2 {
            let output = child.output().expect("it starts");
            assert!(output.status.success());
            let shown = String::from_utf8_lossy(&output.stderr);
            assert!(shown.contains("SKIPPED tests::a_child_that_skips: this is the only reason"));
        }
        let recorded = fs::read_to_string(&file).expect("it was written");
        let _ = fs::remove_file(&file);
        let lines: Vec<_> = recorded.lines().collect();
        assert_eq!(lines.len(), 2, "{recorded}");
        let program = program.file_name().expect("a name").to_string_lossy();
        let line = format!("rust\t{program} tests::a_child_that_skips\tthis is the only reason");
        assert_eq!(lines[0], line);
    }

    #[test]
    fn a_program_is_found_on_the_path_or_not() {
        assert!(has_program("sh"));
        assert!(!has_program("ontempo-no-such-program"));
    }

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }
}
