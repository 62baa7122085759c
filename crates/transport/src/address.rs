//! Peer addresses as presented to the QUIC stack.
//!
//! When a peer's address changes, the stack validates the new path for three probe timeouts. If all
//! PATH_CHALLENGEs are lost it sends only probes to that address from then on, and validates again
//! only for another address. Therefore, if a peer keeps sending from an address that failed
//! validation, the stack is given an alias instead, as if the address had changed again: one of the
//! discard prefix (RFC 6666), which is translated back in outgoing packets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The first 64 bits of an alias, 100::/64; the others are a counter.
const DISCARD_ONLY: u128 = 0x0100 << 112;

/// The alias with this number.
fn alias(number: u64) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::from_bits(DISCARD_ONLY | u128::from(number)), 1))
}

/// The number of an alias; `None` if it is not one.
fn number_of(address: SocketAddr) -> Option<u64> {
    let IpAddr::V6(ip) = address.ip() else { return None };
    let bits = ip.to_bits();
    (bits >> 64 == DISCARD_ONLY >> 64).then_some(bits as u64)
}

/// Addresses whose validation was repeated, with their aliases.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    numbers: BTreeMap<SocketAddr, u64>,
    addresses: BTreeMap<u64, SocketAddr>,
    next: u64,
}

impl Aliases {
    /// The address to give to the stack for a datagram from `address`; `None` if it is
    /// in the discard prefix, which no peer can have.
    pub(crate) fn stack_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        if number_of(address).is_some() {
            return None;
        }
        Some(self.numbers.get(&address).map_or(address, |number| alias(*number)))
    }

    /// The real address for a stack address; `None` if it was forgotten.
    pub(crate) fn real(&self, stack_address: SocketAddr) -> Option<SocketAddr> {
        match number_of(stack_address) {
            Some(number) => self.addresses.get(&number).copied(),
            None => Some(stack_address),
        }
    }

    /// Gives `address` a new alias. Of more than `most` addresses the least recently changed
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
    fn each_attempt_gets_another_alias_that_is_resolved_again() {
        let mut aliases = Aliases::default();
        for address in ["10.0.0.1:4433", "[2001:db8::1]:4433", "[::ffff:10.0.0.1]:4433"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut before = aliases.stack_address(address).unwrap();
            assert_eq!(before, address);
            for _ in 0..3 {
                aliases.again(address, 10);
                let alias_now = aliases.stack_address(address).unwrap();
                assert_ne!(alias_now, before);
                assert_eq!(aliases.real(alias_now), Some(address));
                before = alias_now;
            }
        }
    }

    #[test]
    fn the_stack_keeps_the_difference() {
        let mut aliases = Aliases::default();
        let address = SocketAddr::from(([10, 0, 0, 1], 4433));
        aliases.again(address, 10);
        let alias_now = aliases.stack_address(address).unwrap();
        assert_eq!(noq_proto::FourTuple::from_remote(alias_now).remote(), alias_now);
    }

    #[test]
    fn of_many_addresses_the_oldest_are_forgotten() {
        let mut aliases = Aliases::default();
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        (0..100).for_each(|port| aliases.again(address(port), 7));
        assert_eq!((aliases.numbers.len(), aliases.addresses.len()), (7, 7));
        assert_eq!(aliases.stack_address(address(0)), Some(address(0)));
        assert_eq!(aliases.real(alias(0)), None);
        assert_eq!(aliases.real(alias(99)), Some(address(99)));
    }

    #[test]
    fn nobody_sends_from_an_alias() {
        assert_eq!(Aliases::default().stack_address(alias(0)), None);
    }
}
