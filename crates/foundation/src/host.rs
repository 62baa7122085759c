//! Who counts as one host where each host has a share of something.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that name a site, which may use all addresses below. Providers delegate
/// prefixes of 56 to 64 bits to a site (RFC 6177): a share for each /64 would be 256 shares for most
/// of them, and one for each /48 would make the customers of some providers share it.
const NETWORK_BITS: u32 = 56;

/// What all addresses of one host have in common: the IPv4 address, also if it is mapped into
/// IPv6; of any other IPv6 address the site's prefix, because a host may use any address in it.
pub fn host_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

/// Of entries by their peers' addresses: the place of the first one of the host that has the
/// largest number, so that a host that takes all places loses them to others first. `None` if there
/// are no entries.
pub fn first_of_largest_host(addresses: impl IntoIterator<Item = IpAddr>) -> Option<usize> {
    let mut hosts: BTreeMap<IpAddr, (usize, Reverse<usize>)> = BTreeMap::new();
    for (place, address) in addresses.into_iter().enumerate() {
        hosts.entry(host_prefix(address)).or_insert((0, Reverse(place))).0 += 1;
    }
    hosts.into_values().max().map(|(_, Reverse(place))| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_with_the_largest_number_gives_up_its_first_entry() {
        let of = |all: &[&str]| {
            first_of_largest_host(all.iter().map(|one| one.parse::<IpAddr>().unwrap()))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["10.0.0.1"]), Some(0));
        assert_eq!(of(&["10.0.0.1", "10.0.0.2", "10.0.0.2"]), Some(1));
        assert_eq!(of(&["10.0.0.2", "10.0.0.1"]), Some(0), "of equals, the first");
        assert_eq!(of(&["10.0.0.1", "2001:db8::1", "2001:db8:0:ff::2"]), Some(1));
    }

    #[test]
    fn a_host_is_an_ipv4_address_or_a_site_of_ipv6() {
        for (address, prefix) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:234:3:4:5:6", "2001:db8:1:200::"),
            ("fe80::1", "fe80::"),
        ] {
            let expected: IpAddr = prefix.parse().unwrap();
            assert_eq!(host_prefix(address.parse().unwrap()), expected);
        }
    }
}
