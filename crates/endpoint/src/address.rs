//! Addresses as the stack is told them.
//!
//! When a peer's address changes, the stack asks it to prove the new one, three probe timeouts
//! long. If all of these are lost it sends nothing but probes to that address ever after, and
//! tries again only for yet another. Hence, where a peer goes on to send from an address that it
//! could not prove, the stack is told that the address has changed once more: by a tag in the
//! flow label of an IPv6 address, which is taken off again from what is to be sent.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV6};

/// These bits of a flow label's number are always zero on the wire.
const TAGGED: u32 = 0x8000_0000;
/// The address was one of IPv4.
const IPV4: u32 = 0x4000_0000;
const ATTEMPT: u32 = 0x0fff_ffff;

/// `address` at another attempt to prove it.
fn tagged(address: SocketAddr, attempt: u32) -> SocketAddr {
    let tag = TAGGED | (attempt & ATTEMPT);
    SocketAddr::V6(match address {
        SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), tag | IPV4, 0),
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), tag, v6.scope_id()),
    })
}

/// The address without a tag.
pub(crate) fn untagged(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(v6) = address else { return address };
    if v6.flowinfo() & TAGGED == 0 {
        return address;
    }
    match v6.ip().to_ipv4_mapped().filter(|_| v6.flowinfo() & IPV4 != 0) {
        Some(v4) => SocketAddr::from((v4, v6.port())),
        None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
    }
}

/// Addresses that had to be tried again, and how often.
#[derive(Debug, Default)]
pub(crate) struct Attempts(BTreeMap<SocketAddr, u32>);

impl Attempts {
    /// What the stack is told to be the address of a datagram from `address`.
    pub(crate) fn told(&self, address: SocketAddr) -> SocketAddr {
        self.0.get(&address).map_or(address, |attempt| tagged(address, *attempt))
    }

    /// `address` is to be tried once more. Of more than `most` addresses some are forgotten, which
    /// costs them another attempt.
    pub(crate) fn again(&mut self, address: SocketAddr, most: usize) {
        let attempt = self.0.entry(address).or_default();
        *attempt = attempt.wrapping_add(1);
        while self.0.len() > most.max(1) {
            let other = self.0.keys().find(|other| **other != address).copied();
            other.map(|other| self.0.remove(&other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_apart_at_each_attempt_and_found_again() {
        for address in ["10.0.0.1:4433", "[2001:db8::1]:4433", "[::ffff:10.0.0.1]:4433"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut attempts = Attempts::default();
            let mut told = vec![attempts.told(address)];
            assert_eq!(told[0], address);
            for _ in 0..3 {
                attempts.again(address, 10);
                told.push(attempts.told(address));
            }
            told.iter().for_each(|told| assert_eq!(untagged(*told), address));
            told.sort();
            told.dedup();
            assert_eq!(told.len(), 4);
        }
    }

    #[test]
    fn of_many_addresses_some_are_forgotten() {
        let mut attempts = Attempts::default();
        for port in 0..100 {
            attempts.again(SocketAddr::from(([10, 0, 0, 1], port)), 7);
        }
        assert_eq!(attempts.0.len(), 7);
    }
}
