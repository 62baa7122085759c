//! A host: a network namespace with one interface, whose other end this process holds.

use std::fs::{self, File};
use std::io;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::address::End;
use crate::error::EmulationError;
use crate::{iproute, sys};

/// What a host's interface is called.
pub(crate) const INTERFACE: &str = "ontempo0";

/// Packets that may wait in an interface until this process reads them. The network's queues are
/// those of its links; here nothing should ever be dropped.
const INTERFACE_QUEUE: u32 = 20_000;

/// What the kernel may hold for a connection, at most: enough for 1 Gbit/s over 250 ms.
const MOST_BUFFERED: u32 = 32 << 20;

/// A route from one of a host's addresses to the other end of its flow.
pub(crate) struct PeerRoute {
    pub(crate) own: End,
    pub(crate) peer: End,
    /// What a connection on it begins with, as `ip route` writes it.
    pub(crate) options: String,
}

/// Does `work` in `namespace`, on a thread of its own: a thread that has entered a namespace is
/// never asked to come back.
///
/// # Errors
/// Where the namespace cannot be entered.
pub(crate) fn inside<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, EmulationError> {
    let enter = || -> io::Result<T> {
        let space = File::open(iproute::path(namespace))?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), kind)?;
        Ok(work())
    };
    let done = thread::scope(|scope| scope.spawn(enter).join());
    match done {
        Ok(done) => done.map_err(|error| {
            EmulationError::System(format!("cannot enter the namespace {namespace}: {error}"))
        }),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Gives `namespace` its interface, addresses and routes; answers the interface's other end.
///
/// # Errors
/// Where the system refuses one of them.
pub(crate) fn furnish(
    namespace: &str,
    mtu: usize,
    ends: &[End],
    routes: &[PeerRoute],
) -> Result<File, EmulationError> {
    let device = inside(namespace, || -> io::Result<File> {
        settings()?;
        sys::open_tun(INTERFACE)
    })?;
    let refused = |error: &dyn std::fmt::Display| EmulationError::system(&namespace, error);
    let device = device.map_err(|error| refused(&error))?;
    let mut lines = format!(
        "link set lo up\nlink set {INTERFACE} mtu {mtu} txqueuelen {INTERFACE_QUEUE}\n\
         link set {INTERFACE} addrgenmode none\nlink set {INTERFACE} up\n"
    );
    for end in ends {
        lines += &format!("address add {}/32 dev {INTERFACE}\n", end.v4());
        lines += &format!("address add {}/128 dev {INTERFACE} nodad\n", end.v6());
    }
    lines += &format!("route add 10.0.0.0/8 dev {INTERFACE}\n");
    lines += &format!("route add fd6f:6e74:656d:706f::/64 dev {INTERFACE}\n");
    for PeerRoute { own, peer, options } in routes {
        let v4 = (own.v4(), peer.v4());
        lines += &format!("route add {}/32 dev {INTERFACE} src {} {options}\n", v4.1, v4.0);
        let v6 = (own.v6(), peer.v6());
        lines += &format!("route add {}/128 dev {INTERFACE} src {} {options}\n", v6.1, v6.0);
    }
    iproute::batch(Some(namespace), &lines).map_err(|error| refused(&error))?;
    Ok(device)
}

/// The kernel's settings in the namespace of the calling thread: a connection should not remember
/// the one before, and its buffers should not be what limits it.
fn settings() -> io::Result<()> {
    let buffers = format!("4096 131072 {MOST_BUFFERED}");
    let settings = [
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_rmem", &buffers),
        ("ipv4/tcp_wmem", &buffers),
    ];
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    }
    Ok(())
}
