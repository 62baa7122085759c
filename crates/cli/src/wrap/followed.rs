//! The connections of the program: those of its open sockets, and those that it has closed while
//! the kernel still sends what it wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::traffic::{Flow, State};

/// How long a closed connection is followed without an acknowledged byte.
const WITHOUT_PROGRESS: Duration = Duration::from_secs(60);
/// How long at all: a peer that takes a byte a minute must not hold a reservation forever.
const AFTER_CLOSE: Duration = Duration::from_secs(600);

/// Local and remote address: a connection that is closed has no inode any more.
type Addresses = (SocketAddr, SocketAddr);

#[derive(Clone, Copy, Debug)]
struct Known {
    inode: u64,
    closed: Option<Closed>,
}

/// Since the program has closed it.
#[derive(Clone, Copy, Debug)]
struct Closed {
    since: Instant,
    acknowledged_bytes: u64,
    progressed: Instant,
}

/// Selects the program's connections among the host's.
#[derive(Debug, Default)]
pub(super) struct Followed {
    known: BTreeMap<Addresses, Known>,
}

impl Followed {
    /// The connections of open sockets, by their inodes, and those closed that still send; these
    /// keep the inode that they had.
    pub(super) fn select(
        &mut self,
        now: Instant,
        flows: Vec<Flow>,
        open: &BTreeSet<u64>,
    ) -> Vec<Flow> {
        let mut before = std::mem::take(&mut self.known);
        let mut selected = Vec::new();
        for mut flow in flows {
            let addresses = (flow.local, flow.remote);
            if open.contains(&flow.inode) {
                self.known.insert(addresses, Known { inode: flow.inode, closed: None });
                selected.push(flow);
                continue;
            }
            // Another process's socket has an inode.
            let is_closed = flow.inode == 0 && flow.state == State::Closing;
            let Some(known) = before.remove(&addresses).filter(|_| is_closed) else { continue };
            let acknowledged_bytes = flow.counters.unwrap_or_default().acknowledged_bytes;
            let mut closed =
                known.closed.unwrap_or(Closed { since: now, acknowledged_bytes, progressed: now });
            if acknowledged_bytes > closed.acknowledged_bytes {
                (closed.acknowledged_bytes, closed.progressed) = (acknowledged_bytes, now);
            }
            let is_over = now.duration_since(closed.since) >= AFTER_CLOSE
                || now.duration_since(closed.progressed) >= WITHOUT_PROGRESS;
            if !is_over {
                (flow.inode, flow.is_closed) = (known.inode, true);
                self.known.insert(addresses, Known { closed: Some(closed), ..known });
                selected.push(flow);
            }
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use ontempo_monitor::Carrier;

    use super::super::traffic::TcpCounters;
    use super::*;

    fn flow(inode: u64, state: State, acknowledged_bytes: u64) -> Flow {
        Flow {
            inode,
            carrier: Carrier::Tcp,
            local: "10.0.0.1:8000".parse().unwrap(),
            remote: "10.0.0.2:4000".parse().unwrap(),
            state,
            is_closed: false,
            counters: Some(TcpCounters { acknowledged_bytes, ..TcpCounters::default() }),
        }
    }

    #[test]
    fn a_closed_connection_is_followed_until_the_kernel_has_sent_all() {
        let (mut followed, now) = (Followed::default(), Instant::now());
        let open = BTreeSet::from([7]);
        assert_eq!(followed.select(now, vec![flow(7, State::Open, 10)], &open).len(), 1);
        // Closed, and the process may be gone: the kernel shows no inode.
        let none = BTreeSet::new();
        let still = followed.select(now, vec![flow(0, State::Closing, 20)], &none);
        assert_eq!(
            still.iter().map(|one| (one.inode, one.is_closed)).collect::<Vec<_>>(),
            [(7, true)]
        );
        // FIN-WAIT-2: all is acknowledged.
        assert!(followed.select(now, vec![flow(0, State::Open, 30)], &none).is_empty());
        assert!(followed.select(now, vec![flow(0, State::Closing, 30)], &none).is_empty());
    }

    #[test]
    fn connections_of_others_are_not_followed() {
        let (mut followed, now) = (Followed::default(), Instant::now());
        let none = BTreeSet::new();
        assert!(followed.select(now, vec![flow(0, State::Closing, 0)], &none).is_empty());
        assert!(followed.select(now, vec![flow(9, State::Open, 0)], &none).is_empty());
    }

    #[test]
    fn a_peer_that_takes_nothing_or_little_holds_it_for_a_bounded_time() {
        let open = BTreeSet::from([7]);
        let none = BTreeSet::new();
        let (mut followed, now) = (Followed::default(), Instant::now());
        followed.select(now, vec![flow(7, State::Open, 0)], &open);
        let at = |followed: &mut Followed, seconds, bytes| {
            let now = now + Duration::from_secs(seconds);
            followed.select(now, vec![flow(0, State::Closing, bytes)], &none).len()
        };
        assert_eq!((at(&mut followed, 1, 0), at(&mut followed, 60, 0)), (1, 1));
        assert_eq!(at(&mut followed, 61, 0), 0);

        let mut followed = Followed::default();
        followed.select(now, vec![flow(7, State::Open, 0)], &open);
        let held = (1..2_000).take_while(|second| at(&mut followed, *second, *second) == 1);
        assert_eq!(held.count(), 600);
    }
}
