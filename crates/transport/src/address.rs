//! Addresses as the stack is told them.
//!
//! When a peer's address changes, the stack asks it to prove the new one, three probe timeouts
//! long. If all of these are lost it sends nothing but probes to that address ever after, and
//! tries again only for yet another. Hence, where a peer goes on to send from an address that it
//! could not prove, the stack is told that the address has changed once more: to an alias out of
//! the prefix that is for nobody (RFC 6666), which is resolved again in what is to be sent.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The first 64 bits of an alias, 100::/64; the others count.
const DISCARD_ONLY: u128 = 0x0100 << 112;

/// The alias with a number.
fn alias(number: u64) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::from_bits(DISCARD_ONLY | u128::from(number)), 1))
}

/// The number of an alias; `None` where it is none.
fn number_of(address: SocketAddr) -> Option<u64> {
    let IpAddr::V6(ip) = address.ip() else { return None };
    let bits = ip.to_bits();
    (bits >> 64 == DISCARD_ONLY >> 64).then_some(bits as u64)
}

/// Addresses that had to be tried again, and what the stack is told instead of them.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    numbers: BTreeMap<SocketAddr, u64>,
    addresses: BTreeMap<u64, SocketAddr>,
    next: u64,
}

impl Aliases {
    /// What the stack is told to be the address of a datagram from `address`; `None` where it is
    /// one that nobody can have.
    pub(crate) fn told(&self, address: SocketAddr) -> Option<SocketAddr> {
        if number_of(address).is_some() {
            return None;
        }
        Some(self.numbers.get(&address).map_or(address, |number| alias(*number)))
    }

    /// The address of which the stack was told `told`; `None` where that is forgotten.
    pub(crate) fn real(&self, told: SocketAddr) -> Option<SocketAddr> {
        match number_of(told) {
            Some(number) => self.addresses.get(&number).copied(),
            None => Some(told),
        }
    }

    /// `address` is to be tried once more. Of more than `most` addresses those tried longest ago
    /// are forgotten, which costs them another attempt.
    pub(crate) fn again(&mut self, address: SocketAddr, most: usize) {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        if let Some(before) = self.numbers.insert(address, number) {
            self.addresses.remove(&before);
        }
        self.addresses.insert(number, address);
        while self.addresses.len() > most.max(1) {
            let Some((_, oldest)) = self.addresses.pop_first() else { return };
            self.numbers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_apart_at_each_attempt_and_found_again() {
        let mut aliases = Aliases::default();
        for address in ["10.0.0.1:4433", "[2001:db8::1]:4433", "[::ffff:10.0.0.1]:4433"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut before = aliases.told(address).unwrap();
            assert_eq!(before, address);
            for _ in 0..3 {
                aliases.again(address, 10);
                let told = aliases.told(address).unwrap();
                assert_ne!(told, before);
                assert_eq!(aliases.real(told), Some(address));
                before = told;
            }
        }
    }

    #[test]
    fn the_stack_keeps_the_difference() {
        let mut aliases = Aliases::default();
        let address = SocketAddr::from(([10, 0, 0, 1], 4433));
        aliases.again(address, 10);
        let told = aliases.told(address).unwrap();
        assert_eq!(noq_proto::FourTuple::from_remote(told).remote(), told);
    }

    #[test]
    fn of_many_addresses_the_oldest_are_forgotten() {
        let mut aliases = Aliases::default();
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        (0..100).for_each(|port| aliases.again(address(port), 7));
        assert_eq!((aliases.numbers.len(), aliases.addresses.len()), (7, 7));
        assert_eq!(aliases.told(address(0)), Some(address(0)));
        assert_eq!(aliases.real(alias(0)), None);
        assert_eq!(aliases.real(alias(99)), Some(address(99)));
    }

    #[test]
    fn nobody_sends_from_an_alias() {
        assert_eq!(Aliases::default().told(alias(0)), None);
    }
}
