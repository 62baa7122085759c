//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit, and returns it. The usual soft limit of 1,024
/// is for programs that call select(); this one does not.
pub(crate) fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Without the right to raise it, the old limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
