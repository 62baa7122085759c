//! Which namespaces give a congestion control to new sockets by default.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{KernelError, Name, machine};

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// For each namespace, this one and those of `ip netns`, in which `name` is the default of new sockets: the
/// command that ends that.
///
/// # Errors
///
/// If a namespace cannot be entered, or its settings cannot be read.
pub(crate) fn ends_of(name: &Name) -> Result<Vec<String>, KernelError> {
    // Other namespaces than the first take none that is not allowed.
    let allowed = machine::read(ALLOWED)?;
    let others = || allowed.split_whitespace().filter(|other| *other != name.as_str());
    let other = others().find(|other| *other == "cubic").or_else(|| others().next());
    let end = format!("sysctl net.ipv4.tcp_congestion_control={}", other.unwrap_or("reno"));
    let mut ends = Vec::new();
    if machine::read(DEFAULT)?.trim() == name.as_str() {
        ends.push(end.clone());
    }
    let namespaces = named(name).map_err(KernelError::file(Path::new(NAMESPACES)))?;
    ends.extend(namespaces.iter().map(|space| format!("ip netns exec {space} {end}")));
    Ok(ends)
}

/// The namespaces of `ip netns` of which `name` is the default, in order.
fn named(name: &Name) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(NAMESPACES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let look = || {
        let mut found = Vec::new();
        for entry in &entries {
            if default_in(&entry.path())?.is_some_and(|default| default.trim() == name.as_str()) {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        found.sort();
        Ok(found)
    };
    // On a thread of its own, which enters namespaces and ends in the last.
    match thread::scope(|scope| scope.spawn(look).join()) {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Enters a namespace, and reads its default; `None` if the file is that of none (any more).
fn default_in(namespace: &Path) -> io::Result<Option<String>> {
    let space = match File::open(namespace) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        space => space?,
    };
    match move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)) {
        Err(Errno::INVAL) => Ok(None),
        entered => {
            entered?;
            fs::read_to_string(DEFAULT).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ontempo_testing::skip;

    use super::*;

    fn ip(arguments: &[&str]) -> bool {
        Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
    }

    /// A namespace, until it is dropped.
    struct Namespace(String);

    impl Drop for Namespace {
        fn drop(&mut self) {
            ip(&["netns", "delete", &self.0]);
        }
    }

    #[test]
    fn a_namespace_is_found_by_its_default_with_the_command_that_ends_it() {
        let space = Namespace(format!("ontempo-default-{}", std::process::id()));
        if !ip(&["netns", "add", &space.0]) {
            skip!("no namespace can be made");
        }
        // What `ip netns` leaves of a namespace when the machine goes down.
        let stale = Path::new(NAMESPACES).join(format!("{}-stale", space.0));
        fs::write(&stale, "").expect("a file");
        let of = |name: &str| {
            let ends = ends_of(&name.parse().expect("a name")).expect("they are read");
            ends.into_iter().filter(|end| end.contains(&space.0)).collect::<Vec<_>>()
        };
        let set = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control";
        assert!(ip(&["netns", "exec", &space.0, "sh", "-c", set]), "every kernel has Reno");
        let found = of("reno");
        assert_eq!(found.len(), 1, "{found:?}");
        let begins = format!("ip netns exec {} sysctl net.ipv4.tcp_congestion_control=", space.0);
        assert!(found[0].starts_with(&begins), "{found:?}");
        assert_eq!(of("no_such_control"), Vec::<String>::new());
        fs::remove_file(stale).expect("it was there");
    }
}
