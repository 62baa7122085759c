//! State of the kernel's PERT for the flows' sockets, if `ontempo kernel load` has loaded it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ontempo_kernel::{Loaded, Name, SocketStatus};

/// A connection: the number of its sender's network namespace, the sender's address, and the
/// receiver's. Other runs on this machine use the same addresses.
pub(crate) type Connection = (u32, IpAddr, SocketAddr);

/// Congestion controls in the kernel with readable state.
#[derive(Debug, Default)]
pub(crate) struct Telling(Vec<Name>);

impl Telling {
    /// Those among `names`, as flows name them.
    pub(crate) fn among<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let names: BTreeSet<Name> = names.filter_map(|name| name.parse().ok()).collect();
        Self(names.into_iter().filter(|name| Loaded::read(name).is_ok()).collect())
    }

    /// The state of each connection; empty if a congestion control was unloaded meanwhile.
    pub(crate) fn read(&self) -> BTreeMap<Connection, SocketStatus> {
        let all = self.0.iter().filter_map(|name| Loaded::read(name).ok());
        let sockets = all.flat_map(|loaded| loaded.sockets);
        sockets.map(|one| ((one.namespace, one.local.ip(), one.remote), one)).collect()
    }
}
