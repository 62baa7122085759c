//! Who counts as one host where each host has a share of something.

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

#[cfg(test)]
mod tests {
    use super::*;

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
