//! Places that hosts share: of all, a host has a quarter at most.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ontempo_foundation::host_prefix;

use crate::hub::lock;

/// Part of all places that one host has.
const SHARE: usize = 4;

/// How many places there are, and which hosts have them.
#[derive(Debug)]
pub(crate) struct Places {
    all: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// A place of a host, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    host: IpAddr,
}

impl Places {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all, taken: Mutex::default() })
    }

    /// A place for who comes from this address; `None` if all are taken, or its host has its share.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let host = host_prefix(from);
        let mut taken = lock(&self.taken);
        let (of_all, of_host) = count(&taken, host);
        if of_all >= self.all || of_host >= self.all / SHARE {
            return None;
        }
        *taken.entry(host).or_default() += 1;
        Some(Place { places: Arc::clone(self), host })
    }

    /// Whether half of all, or of the host's share, is taken.
    pub(crate) fn is_scarce(&self, from: IpAddr) -> bool {
        let (of_all, of_host) = count(&lock(&self.taken), host_prefix(from));
        of_all >= self.all / 2 || of_host >= self.all / SHARE / 2
    }
}

fn count(taken: &BTreeMap<IpAddr, usize>, host: IpAddr) -> (usize, usize) {
    (taken.values().sum(), taken.get(&host).copied().unwrap_or(0))
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
        if let Some(of_host) = taken.get_mut(&self.host) {
            *of_host -= 1;
            if *of_host == 0 {
                taken.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_host_has_a_quarter_and_all_hosts_together_all() {
        let places = Places::new(16);
        let one: Vec<Place> = (0..16).map_while(|_| places.take(address("192.0.2.1"))).collect();
        assert_eq!(one.len(), 4);
        // Addresses of one network are one host, and so is an IPv4 address that is mapped.
        assert!(places.take(address("::ffff:192.0.2.1")).is_none());
        let host = |last: u32| IpAddr::from(std::net::Ipv4Addr::from(0xc633_6400 | last));
        let others: Vec<Place> = (0..50).map_while(|last| places.take(host(last))).collect();
        assert_eq!(others.len(), 12);
        drop(one);
        assert!(places.take(address("2001:db8::1")).is_some());
        drop(others);
        assert!(lock(&places.taken).is_empty());
    }

    #[test]
    fn places_are_scarce_from_half_on() {
        let places = Places::new(16);
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let first = places.take(one);
        assert!(!places.is_scarce(one));
        let second = places.take(one);
        assert!(places.is_scarce(one) && !places.is_scarce(other));
        drop((first, second));
        assert!(!places.is_scarce(one));
    }
}
